"""Small trainings of every kind, and what can be seen of each: the golden traces are files of it (`make golden`).

All numbers are dyadic fractions of few bits, and every generator draws integers, so that no sum is rounded: the traces
hold on every processor. A trace has each point with the runner's epoch, iter and inner_iter, a hash of weights and
optimizer after each iteration, the lines of both logs without times, and the files of the work dir.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.data import Event, Source, Stream, StreamLoader, build_dataloader
from runnerkit.evaluation import single_gpu_test
from runnerkit.hooks import (
    CheckpointHook,
    EarlyStoppingHook,
    EMAHook,
    EvalHook,
    Hook,
    IterTimerHook,
    NestedRunHook,
    NonFiniteHook,
    OptimizerHook,
)
from runnerkit.hooks.hook import POINTS
from runnerkit.parallel import MMDataParallel, MMDistributedDataParallel
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils import get_logger

FOLDER = Path(__file__).parent / 'golden'

#: The trainings by name: functions of a folder that say what they have seen by a `Trace`.
RUNS = {}


def golden(function):
    RUNS[function.__name__] = function
    return function


# --- parts whose arithmetic is exact ---------------------------------------------------------------------------------


class Numbers(Dataset):
    """Small integers: the sample's own, and one from each of the three generators."""

    def __init__(self, length=16):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        drawn = (random.randrange(4), np.random.randint(4), torch.randint(4, ()).item())
        return torch.tensor([index % 5 - 2, *drawn], dtype=torch.float64), torch.tensor(float(index % 3))


class Exact(nn.Module):
    """A line with the absolute error: gradients are sums of inputs with the signs of errors, which weights decide."""

    def __init__(self, bits=torch.float64):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1, -1, 0, 2], dtype=bits))
        self.register_buffer('seen', torch.zeros((), dtype=torch.int64))

    def forward(self, x, y):
        said = nn.functional.linear(x.to(self.weight.dtype), self.weight[None])[:, 0]
        return (said - y + 0.5).abs().sum() / 8

    def train_step(self, data, optimizer, **kwargs):
        x, y = data
        self.seen += 1
        noise = torch.randint(2, ())  # of the run's own stream
        loss = self(x, y + noise)
        return {'loss': loss, 'log_vars': {'loss': loss.item(), 'noise': noise.item()}, 'num_samples': len(x)}

    def val_step(self, data, optimizer=None, **kwargs):
        x, y = data
        loss = self(x, y)
        return {'loss': loss, 'log_vars': {'loss': loss.item()}, 'num_samples': len(x)}


class Pair(nn.Module):
    """Two lines, each with a step of its own, and one step with both losses."""

    def __init__(self):
        super().__init__()
        self.one, self.two = Exact(), Exact()

    def one_step(self, data, optimizer):
        return self.one.train_step(data, optimizer)

    def two_step(self, data, optimizer):
        return self.two.train_step(data, optimizer)

    def train_step(self, data, optimizer):
        losses = {'one': self.one(*data), 'two': self.two(*data)}
        return {'loss': losses, 'log_vars': {f'{k}_loss': v.item() for k, v in losses.items()}, 'num_samples': 1}


def loader(length=16, batch=4, workers=0, **options):
    return build_dataloader(Numbers(length), batch, workers, seed=3, **options)


def sgd(module, lr=0.25):
    return torch.optim.SGD(module.parameters(), lr=lr, momentum=0.5)


# --- what is seen ----------------------------------------------------------------------------------------------------


class Trace(Hook):
    """Writes down each point; registered first, so that it is called before whatever the others do there."""

    def __init__(self):
        self.lines = []

    def state(self, runner):
        optimizers = runner.optimizer if isinstance(runner.optimizer, dict) else {'': runner.optimizer}
        held = [optimizer.state_dict()['state'] for optimizer in optimizers.values() if optimizer is not None]
        return digest([runner.model.state_dict(), held])


def _listener(point):
    def listen(self, runner, *args):
        counts = f'e{runner.epoch} i{runner.iter} n{runner.inner_iter}'
        rates = ''
        if point == 'after_train_iter' and runner.optimizer is not None:
            rates = f' lr={runner.current_lr()}'
        shown = self.state(runner) if point.startswith('after_') else ''
        self.lines.append(f'{point} {counts} {shown}{rates}'.rstrip())

    return listen


for _point in POINTS:
    if _point not in ('before_epoch', 'after_epoch', 'before_iter', 'after_iter'):
        setattr(Trace, _point, _listener(_point))


def digest(value):
    """Eight digits of a hash of nested tensors and numbers."""
    found = hashlib.sha256()

    def add(each):
        if isinstance(each, torch.Tensor):
            each = each.full_tensor() if hasattr(each, 'full_tensor') else each
            found.update(f'{each.dtype}{tuple(each.shape)}'.encode())
            found.update(each.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(each, dict):
            for key in sorted(each, key=str):
                found.update(str(key).encode())
                add(each[key])
        elif isinstance(each, (list, tuple)):
            for item in each:
                add(item)
        else:
            found.update(repr(each).encode())

    add(value)
    return found.hexdigest()[:8]


def ended(folder):
    """The lines of the logs in a work dir, and its files with hashes of their weights."""
    folder, lines = Path(folder), []
    for path in sorted(folder.glob('*.log.json')):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if 'mode' in record:
                kept = {key: value for key, value in record.items() if not TIME.search(key)}
                lines.append('json ' + json.dumps(kept))
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            lines.append(f'link {name} -> {path.readlink()}')
        elif path.suffix == '.pth' and path.is_file():
            content = torch.load(path)
            meta = content['meta']
            lines.append(f'file {name} {digest(content["state_dict"])} e{meta["epoch"]} i{meta["iter"]}')
        elif path.is_file() and not re.search(r'\.log(\.json)?$|^\.', path.name):
            lines.append(f'file {name}')
    return [masked(line) for line in lines]


def masked(line):
    for pattern, mask in MASKS:
        line = pattern.sub(mask, line)
    return line


TIME = re.compile('time|memory|eta')
MASKS = (
    (re.compile(r'(time|memory): [\d.]+(?: \(max [\d.]+, rank \d+\))?'), r'\1: …'),
    (re.compile(r'\d{8}_\d{6}'), 'DATE'),
    (re.compile(r'eta: (?:\d+ days?, )?[\d:]+'), 'eta: …'),
)


class Log(logging.Handler):
    """Keeps the lines of a runner's logger, without times and the name of its folder."""

    def __init__(self, lines, folder):
        super().__init__(logging.INFO)
        self.lines, self.folder = lines, folder

    def emit(self, record):
        for line in record.getMessage().splitlines()[:1]:  # of tables the title
            self.lines.append(f'log {masked(line.replace(self.folder, "…"))}'.rstrip())


@contextmanager
def seen(runner):
    """A trace that ``runner`` writes while the block runs, its log included."""
    trace = Trace()
    runner.register_hook(trace, 'HIGHEST')
    handler = Log(trace.lines, runner.work_dir)
    runner.logger.addHandler(handler)
    try:
        yield trace
    finally:
        runner.logger.removeHandler(handler)


# --- how they are run ------------------------------------------------------------------------------------------------


class Stop(Exception):
    """Stands for a kill: nothing is saved."""


class At(Hook):
    """Calls a function after so many iterations."""

    def __init__(self, at, call):
        self.at, self.call, self.is_done = at, call, False

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.at and not self.is_done:
            self.is_done = True
            self.call(runner)


class Draws(Hook):
    """A user's hook with a state, a point inside the update and two rings."""

    def __init__(self):
        self.drawn = 0

    def after_backward(self, runner):
        self.drawn += int(torch.randint(8, ()))

    @contextmanager
    def around_epoch(self, runner):
        self.drawn += 1
        yield
        self.drawn += 100

    @contextmanager
    def around_iter(self, runner):
        yield
        self.drawn += 1000

    def after_run(self, runner):
        runner.logger.info('drawn %d', self.drawn)

    def state_dict(self):
        return {'drawn': self.drawn}

    def load_state_dict(self, state):
        self.drawn = state['drawn']


def kill(runner):
    raise Stop


def seed():
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def make(kind, folder, *hooks, model=None, optimizer=sgd, lr='step', log=2, save={}, update=None, **limits):
    """A runner with the usual hooks and ``hooks``."""
    seed()
    model = Exact() if model is None else model
    optimizer = optimizer(model) if optimizer is not None else None
    options = dict(optimizer=optimizer, work_dir=str(folder), logger=get_logger(f'golden.{id(folder)}'), **limits)
    types = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}
    runner = types.get(kind, kind)(model, **options)
    runner.logger.propagate = False
    by_epoch = not isinstance(runner, IterBasedRunner)
    schedules = {
        'step': dict(policy='step', step=[1, 2] if by_epoch else [4, 8], gamma=0.5, by_epoch=by_epoch),
        'warmup': dict(
            policy='step', step=[6], gamma=0.5, by_epoch=False, warmup='linear', warmup_iters=4, warmup_ratio=0.5
        ),
        None: None,
    }
    runner.register_training_hooks(
        schedules[lr],
        update if update is not None else OptimizerHook(),
        CheckpointHook(**{'interval': 1, 'by_epoch': by_epoch, **save}) if save is not None else None,
        dict(interval=log, hooks=[dict(type='TextLoggerHook', by_epoch=by_epoch)]) if log else None,
    )
    for hook in hooks:
        runner.register_hook(*(hook if isinstance(hook, tuple) else (hook, 'NORMAL')))
    return runner


def limit(kind):
    return {'max_epochs': 3} if kind != 'iter' else {'max_iters': 12}


def run(kind, folder, *hooks, loaders=None, workflow=(('train', 1),), before=None, **options):
    """Train to the end, or to what a hook does; what was seen of it."""
    runner = make(kind, folder, *hooks, **{**limit(kind), **options})
    with seen(runner) as trace:
        if before is not None:
            before(runner)
        try:
            runner.run(loaders or [loader() for _ in workflow], [tuple(entry) for entry in workflow])
        except Stop:
            trace.lines.append('killed')
    trace.lines.append(f'outcome {runner.outcome}')
    return trace.lines


def resumed(kind, folder, at, hooks=tuple, **options):
    """Killed after ``at`` iterations, resumed from the newest checkpoint."""
    first = run(kind, folder, *hooks(), (At(at, kill), 'VERY_LOW'), **options)

    def resume(runner):
        runner.resume(find_latest_checkpoint(folder), map_location='cpu')

    return [*first, '--- resumed', *run(kind, folder, *hooks(), before=resume, **options), *ended(folder)]


def whole(kind, folder, *hooks, **options):
    return [*run(kind, folder, *hooks, **options), *ended(folder)]


# --- the trainings ---------------------------------------------------------------------------------------------------

TRAIN_VAL = (('train', 1), ('val', 1))


def evaluates(kind='epoch', **options):
    by_epoch = kind != 'iter'
    return EvalHook(
        loader(8), **{'interval': 1 if by_epoch else 4, 'by_epoch': by_epoch, 'save_best': 'loss', **options}
    )


def both(function):
    """Keep a training of either runner."""
    for kind in ('epoch', 'iter'):
        RUNS[f'{kind}_{function.__name__}'] = partial(function, kind)
    return function


@both
def plain(kind, folder):
    return whole(kind, folder)


@both
def without_any_hook(kind, folder):
    return whole(kind, folder, lr=None, log=None, save=None)


@both
def train_val(kind, folder):
    return whole(kind, folder, workflow=TRAIN_VAL)


@both
def two_train_one_val(kind, folder):
    return whole(kind, folder, workflow=(('train', 2), ('val', 1)))


@both
def two_training_loaders(kind, folder):
    return whole(kind, folder, workflow=(('train', 1), ('train', 2)), loaders=[loader(8), loader(12)])


@both
def evaluation(kind, folder):
    return whole(kind, folder, evaluates(kind))


@both
def ema_and_evaluation(kind, folder):
    return whole(kind, folder, EMAHook(momentum=0.5, interval=2, warm_up=1), evaluates(kind))


@both
def accumulation(kind, folder):
    return whole(kind, folder, update=OptimizerHook(cumulative_iters=3), loaders=[loader(20)])


@both
def clipping(kind, folder):
    return whole(kind, folder, update=OptimizerHook(grad_clip=dict(max_norm=1024.0)))


@both
def warmup_and_momentum(kind, folder):
    def momentum(runner):
        runner.register_momentum_hook(dict(policy='step', step=[2], gamma=0.5))

    return [*run(kind, folder, lr='warmup', before=momentum), *ended(folder)]


@both
def bf16(kind, folder):
    return whole(kind, folder, model=Exact(torch.float32), update=OptimizerHook(amp='bf16'))


@both
def hooks_with_rings(kind, folder):
    return whole(kind, folder, (Draws(), 'LOW'), IterTimerHook())


@both
def early_stop(kind, folder):
    hooks = evaluates(kind), EarlyStoppingHook('loss', patience=1, min_delta=1024.0)
    return whole(kind, folder, *hooks)


@both
def stop_after_an_iteration(kind, folder):
    return whole(kind, folder, At(6, lambda runner: runner.stop('enough')))


@both
def resumed_inside(kind, folder):
    def hooks():
        return (Draws(),)

    return resumed(kind, folder, 7, hooks, save=dict(interval=2, by_epoch=False))


@both
def resumed_with_ema_inside_a_cycle(kind, folder):
    def hooks():
        return (EMAHook(momentum=0.5), evaluates(kind))

    options = dict(update=dict(cumulative_iters=2), save=dict(interval=3, by_epoch=False))
    return resumed(kind, folder, 8, hooks, **options)


@both
def resumed_in_an_evaluation_workflow(kind, folder):
    return resumed(kind, folder, 5, workflow=TRAIN_VAL)


@both
def stopped_and_run_again(kind, folder):
    runner = make(kind, folder, At(6, lambda runner: runner.stop('enough')), **limit(kind))
    loaders = [loader()]
    with seen(runner) as trace:
        runner.run(loaders, [('train', 1)])
        trace.lines.append('--- again')
        runner.run(loaders, [('train', 1)])
    return [*trace.lines, *ended(folder)]


@both
def workers(kind, folder):
    return whole(kind, folder, loaders=[loader(workers=2, persistent_workers=True)])


@both
def roll_back(kind, folder):
    def go(runner):
        runner.roll_back(str(Path(folder) / 'iter_4.pth'))

    return whole(kind, folder, At(7, go), save=dict(interval=4, by_epoch=False))


@both
def not_finite(kind, folder):
    def poison(runner):
        runner.model.weight.data[0] = float('nan')

    save = dict(interval=2, by_epoch=False)
    hooks = At(5, poison), NonFiniteHook('rollback', interval=1)
    return whole(kind, folder, *hooks, save=save)


@both
def modes_and_two_optimizers(kind, folder):
    def optimizers(model):
        return {'one': sgd(model.one), 'two': sgd(model.two, 0.5)}

    count = 2 if kind == 'iter' else 1
    workflow = (('one', count), ('two', 1))
    return whole(kind, folder, model=Pair(), optimizer=optimizers, workflow=workflow)


@both
def one_step_two_optimizers(kind, folder):
    def optimizers(model):
        return {'one': sgd(model.one), 'two': sgd(model.two, 0.5)}

    return whole(kind, folder, model=Pair(), optimizer=optimizers)


@both
def nested_run(kind, folder):
    return whole(kind, folder, Inner('inner', interval=5), save=dict(interval=2, by_epoch=False))


@both
def in_a_parallel_wrapper(kind, folder):
    return whole(kind, folder, evaluates(kind), model=MMDataParallel(Exact()))


class Inner(NestedRunHook):
    """Trains for three iterations: a model of its own."""

    def make(self, runner):
        model = Exact()
        child = IterBasedRunner(
            model, optimizer=sgd(model), work_dir=self.work_dir_of(runner), max_iters=3, logger=runner.logger
        )
        child.register_hook(OptimizerHook())
        return child, [loader(8)], [('train', 1)]


@golden
def epoch_max_iters_inside_an_epoch(folder):
    return whole('epoch', folder, max_epochs=None, max_iters=6)


@golden
def epoch_kept_checkpoints(folder):
    return whole('epoch', folder, save=dict(interval=2, by_epoch=False, max_keep_ckpts=2, save_last=True))


@golden
def iter_max_epochs(folder):
    return whole('iter', folder, max_iters=None, max_epochs=2, loaders=[loader(12)])


@golden
def epoch_batch_processor(folder):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Exact()

    def step(model, data, train_mode, **kwargs):
        return model.inner.train_step(data, None) if train_mode else model.inner.val_step(data)

    return whole('epoch', folder, model=Plain(), batch_processor=step, workflow=TRAIN_VAL)


class Tested(EvalHook):
    """Evaluates as code written for MMCV does: the scores are the data set's."""

    def evaluate(self, runner, results):
        runner.log_buffer.output['score'] = len(results)
        runner.log_buffer.ready = True
        return 1.0


@golden
def epoch_evaluation_by_test(folder):
    class Answers(Exact):
        def forward(self, x=None, y=None, return_loss=True, **kwargs):
            return super().forward(x, y) if return_loss else [0.5]

    class Dicts(Numbers):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return {'x': x, 'y': y}

    tested = build_dataloader(Dicts(4), 1, 0, shuffle=False)
    hook = Tested(tested, interval=1, save_best='score', rule='greater', test_fn=single_gpu_test)
    return whole('epoch', folder, hook, model=Answers())


# --- runners of MMCV's shape -----------------------------------------------------------------------------------------


class OwnLoop(EpochBasedRunner):
    """Writes MMCV's counters in a loop of its own."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._max_iters = self._max_epochs * len(self.data_loader)
        self.call_hook('before_train_epoch')
        for i, data_batch in enumerate(self.data_loader):
            self.data_batch, self._inner_iter = data_batch, i
            self.call_hook('before_train_iter')
            self.run_iter(data_batch, train_mode=True, **kwargs)
            self.call_hook('after_train_iter')
            self._iter += 1
        self.call_hook('after_train_epoch')
        self._epoch += 1


class OwnIteration(EpochBasedRunner):
    """Says itself what happens to a batch."""

    def run_iter(self, data_batch, train_mode, **kwargs):
        step = self.model.train_step if train_mode else self.model.val_step
        outputs = step(data_batch, self.optimizer)
        self.log_buffer.update({'own': 2.0, **outputs['log_vars']}, outputs['num_samples'])
        self.outputs = outputs


class OwnCalls(EpochBasedRunner):
    """Calls the hooks in a way of its own."""

    def call_hook(self, fn_name):
        for hook in self._hooks:
            if hasattr(hook, fn_name):
                getattr(hook, fn_name)(self)


class OwnSave(EpochBasedRunner):
    """Gives checkpoints other names."""

    def save_checkpoint(self, out_dir, filename_tmpl='epoch_{}.pth', **kwargs):
        return super().save_checkpoint(out_dir, f'own_{filename_tmpl}', **kwargs)


class OwnIterLoop(IterBasedRunner):
    """An iteration of its own."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._epoch = data_loader.epoch
        data_batch = next(data_loader)
        self.data_batch = data_batch
        self.call_hook('before_train_iter')
        outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        self.log_buffer.update(outputs['log_vars'], outputs['num_samples'])
        self.outputs = outputs
        self.call_hook('after_train_iter')
        self._inner_iter += 1
        self._iter += 1


def of_mmcv(type_, folder, is_resumed):
    """A training by a runner of MMCV's shape: to its end, or killed and resumed."""
    limits = {'max_epochs': None, 'max_iters': 12} if issubclass(type_, IterBasedRunner) else {'max_epochs': 3}
    if not is_resumed:
        return whole(type_, folder, Draws(), workflow=TRAIN_VAL, **limits)
    save = {} if type_ is OwnSave else dict(interval=3, by_epoch=False)
    return resumed(type_, folder, 7, lambda: (Draws(),), save=save, **limits)


for _type in (OwnLoop, OwnIteration, OwnCalls, OwnSave, OwnIterLoop):
    RUNS[f'mmcv_{_type.__name__}'] = partial(of_mmcv, _type, is_resumed=False)
    RUNS[f'mmcv_{_type.__name__}_resumed'] = partial(of_mmcv, _type, is_resumed=True)


# --- streams, and ranks ----------------------------------------------------------------------------------------------


class Counted(Source):
    """Numbers from 0 on, as events."""

    def read(self, after):
        for offset in range(0 if after is None else after + 1, 40):
            yield Event(offset, str(offset))

    def acknowledge(self, offset):
        pass


def decoded(text):
    number = int(text)
    return torch.tensor([number % 5 - 2, 1, 0, 1], dtype=torch.float64), torch.tensor(float(number % 3))


@golden
def iter_stream_resumed(folder):
    def events():
        return [StreamLoader(Stream(Counted(), decoded), 4)]

    save = dict(interval=2, by_epoch=False)
    first = run('iter', folder, (At(5, kill), 'VERY_LOW'), loaders=events(), save=save, max_iters=None)

    def resume(runner):
        runner.resume(find_latest_checkpoint(folder), map_location='cpu')

    second = run('iter', folder, loaders=events(), save=save, max_iters=None, before=resume)
    return [*first, '--- resumed', *second, *ended(folder)]


def on_two_ranks(rank, folder, name):
    """A training on this rank of two, wrapped by DDP or FSDP2, killed and resumed."""
    from runnerkit.parallel import FSDP2

    def wrapped():
        seed()
        return MMDistributedDataParallel(Exact()) if name == 'ddp' else FSDP2(Exact())

    def shares():
        return [loader(16, 2, dist=True)]

    save = dict(interval=2, by_epoch=False)
    options = dict(save=save, log=2)
    first = run('epoch', folder, (At(5, kill), 'VERY_LOW'), model=wrapped(), loaders=shares(), **options)

    def resume(runner):
        runner.resume(find_latest_checkpoint(folder), map_location='cpu')

    second = run('epoch', folder, model=wrapped(), loaders=shares(), before=resume, **options)
    return [*first, '--- resumed', *second]


#: The trainings on two ranks, and what wraps their model.
ON_RANKS = {'two_ranks_with_ddp': 'ddp', 'two_ranks_with_fsdp2': 'fsdp2'}


def on_both(name, folder, on_ranks):
    """What rank 0 has seen, and rank 1, and the files that they have written together."""
    seen_by = on_ranks(__file__, 'on_two_ranks', str(folder), ON_RANKS[name])
    return [f'{rank} {line}' for rank, lines in enumerate(seen_by) for line in lines] + ended(folder)


def main():
    """Write the golden traces anew."""
    on_ranks = import_module('ranks').on_ranks  # of which tests have a fixture
    runs = RUNS | {name: partial(on_both, name, on_ranks=on_ranks) for name in ON_RANKS}
    for name in sys.argv[1:] or runs:
        with tempfile.TemporaryDirectory() as folder:
            lines = runs[name](folder)
        (FOLDER / f'{name}.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')
        print(f'{name}: {len(lines)} lines')


if __name__ == '__main__':
    main()
