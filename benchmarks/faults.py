"""Kill trainings at random moments, resume them until they are done, and compare them with uninterrupted ones.

    python benchmarks/faults.py                     # 200 kills over all cells; some minutes
    python benchmarks/faults.py --kills 10 --cells 5
    python benchmarks/faults.py --list              # the cells
    python benchmarks/faults.py --loaders           # the table of loader_kinds.py: exact and quiet, or told
    python benchmarks/faults.py --loaders 'stream, 2 workers' 'prefetcher'
    python benchmarks/faults.py --ranks 20          # one of two ranks is killed, 20 times, under torchrun
    python benchmarks/faults.py --ranks 20 --wrapper FSDP2

A cell is a training: one value of each dimension below. Every pair of values that can occur together is in at least one
cell. A run is a process forked from this one (which has imported everything). It is killed by SIGKILL after a random
time, started again, and resumes by itself, until it is complete. It must end with the same bits as an uninterrupted
run: weights, averages, optimizer states, random states, hooks' states, the best score, and every line of the log, each
once. No checkpoint under its real name may be damaged at any time.

With ``--loaders`` the trainings are those of loader_kinds.py, each killed at chosen moments. They must end with the
bits of an uninterrupted run, or the resumed run must have said that they may not.

With ``--ranks`` a training on two ranks runs under torchrun's agent. One of the ranks is killed at a random moment; the
agent ends the other one and starts both again, and they resume by themselves. The training must end with the weights,
the optimizer's state and the log of an uninterrupted one, and leave no process behind. ``--wrapper`` is what wraps the
model; under FSDP2 all checkpoints are folders, to which both ranks write.
"""

import argparse
import hashlib
import importlib
import itertools
import json
import logging
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint, why_damaged
from runnerkit.checkpoint.loader import load_folder
from runnerkit.data import build_dataloader
from runnerkit.distributed.slowest import NAMES
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook, OptimizerHook
from runnerkit.hooks.hook import POINTS
from runnerkit.log_files import set_aside
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils.processes import is_alive

BATCHES, EPOCHS = 5, 3

#: Policies, with what they need beside ``warmup``; all but those by epoch go by iteration.
SCHEDULES = {
    'fixed': {},
    'step': {'step': [1, 2]},
    'exp': {'gamma': 0.9},
    'poly': {'power': 0.9, 'min_lr': 1e-4},
    'inv': {'gamma': 0.2},
    'CosineAnnealing': {'min_lr_ratio': 0.01},
    'FlatCosineAnnealing': {'min_lr': 0.001},
    'CosineRestart': {'periods': [6, 20], 'restart_weights': [1, 0.5], 'min_lr': 0.0, 'by_epoch': False},
    'LinearAnnealing': {'min_lr': 0.0, 'by_epoch': False},
    'cyclic': {'by_epoch': False, 'cyclic_times': 2},
    'OneCycle': {'max_lr': 0.1, 'by_epoch': False},
    'StepLR': {'step_size': 1, 'gamma': 0.5},
    'OneCycleLR': {'max_lr': 0.1, 'total_steps': BATCHES * EPOCHS + 1, 'by_epoch': False},
    'ReduceLROnPlateau': {'monitor': 'train/loss', 'patience': 0, 'by_epoch': False},
    'SequentialLR': {
        'schedulers': [{'policy': 'LinearLR', 'total_iters': 4}, {'policy': 'CosineAnnealingLR', 'T_max': 11}],
        'milestones': [4],
        'by_epoch': False,
    },
}
OF_TORCH = ('StepLR', 'OneCycleLR', 'ReduceLROnPlateau', 'SequentialLR')
MOMENTA = {
    'none': None,
    'step': {'policy': 'step', 'step': [1, 2]},
    'CosineAnnealing': {'policy': 'CosineAnnealing', 'min_momentum': 0.5, 'by_epoch': False},
    'LinearAnnealing': {
        'policy': 'LinearAnnealing',
        'min_momentum_ratio': 0.5,
        'warmup': 'linear',
        'warmup_iters': 4,
        'warmup_ratio': 0.95,
    },
    'cyclic': {'policy': 'cyclic', 'by_epoch': False},
    'OneCycle': {'policy': 'OneCycle', 'by_epoch': False},
}
OPTIMIZERS = {
    'SGD': lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    'Adam': lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    'AdamW': lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    'two': lambda model: {
        'body': torch.optim.Adam(model.body.parameters(), lr=0.01),
        'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9),
    },
}
WORKFLOWS = {
    'train': [('train', 1)],
    'train, val': [('train', 1), ('val', 1)],
    '2 train, val': [('train', 2), ('val', 1)],
}
WORKERS = {'0': (0, False), '1': (1, False), '3': (3, False), '1 kept': (1, True), '3 kept': (3, True)}

DIMENSIONS = {
    'schedule': list(SCHEDULES),
    'momentum': list(MOMENTA),
    'workers': list(WORKERS),
    'randomness': ['dropout', 'python', 'numpy', 'torch', 'all'],
    'warmup': ['none', 'constant', 'linear', 'exp'],
    'optimizer': list(OPTIMIZERS),
    'workflow': list(WORKFLOWS),
    'save': ['epoch', '3 iterations', 'iteration'],
    'amp': ['none', 'bf16', 'fp16'],
    'ema': ['none', 'each', 'every second'],
    'accumulate': ['1', '3'],
    'clip': ['no', 'yes'],
    'log': ['1', '3', '4'],
    'runner': ['epoch', 'iter'],
    'limit': ['max_epochs', 'max_iters'],
    'evaluation': ['none', 'save_best'],
    'hooks': ['none', 'with states'],
    'tensorboard': ['no', 'yes'],
}


# --- cells -----------------------------------------------------------------------------------------------------------


def possible(cell):
    """Whether values go together: torch's schedulers warm up by schedulers of their own."""
    return not (cell.get('schedule') in OF_TORCH and cell.get('warmup', 'none') != 'none')


def groups(strength):
    """All combinations of ``strength`` dimensions' values that can occur together."""
    for names in itertools.combinations(DIMENSIONS, strength):
        for values in itertools.product(*(DIMENSIONS[name] for name in names)):
            group = tuple(zip(names, values, strict=True))
            if possible(dict(group)):
                yield group


def cells(strength=2):
    """A short list of cells in which every pair of values occurs (with strength 1, every value).

    Greedy: each cell begins with the first pair that is missing, and takes in each other dimension the value with the
    most missing pairs; among equals the one that has been used least.
    """
    missing = dict.fromkeys(groups(strength))
    used = {(name, value): 0 for name in DIMENSIONS for value in DIMENSIONS[name]}
    found = []
    while missing:
        cell = dict(next(iter(missing)))
        for name in sorted(DIMENSIONS, key=lambda name: -len(DIMENSIONS[name])):
            if name not in cell:
                choices = [value for value in DIMENSIONS[name] if possible({**cell, name: value})]
                cell[name] = min(choices, key=lambda value: (-gain(cell, (name, value), missing), used[name, value]))
        cell = {name: cell[name] for name in DIMENSIONS}
        for group in itertools.combinations(cell.items(), strength):
            missing.pop(group, None)
        for item in cell.items():
            used[item] += 1
        found.append(cell)
    return found


def gain(cell, item, missing):
    """How many missing groups a cell gets by one more item."""
    order = list(DIMENSIONS)
    if all(len(group) == 1 for group in itertools.islice(missing, 1)):
        return (item,) in missing
    pairs = (tuple(sorted((item, each), key=lambda pair: order.index(pair[0]))) for each in cell.items())
    return sum(pair in missing for pair in pairs)


def name_of(cell):
    return ' | '.join(f'{name}: {value}' for name, value in cell.items())


# --- the training of a cell ------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Points of a line, with noise from the generators that the cell says."""

    def __init__(self, length, randomness):
        self.length, self.randomness = length, randomness

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        x = torch.full((4,), i / self.length)
        if self.randomness in ('torch', 'all'):
            x += torch.randn(4) * 0.1
        if self.randomness in ('python', 'all'):
            x[0] += random.random()
        if self.randomness in ('numpy', 'all'):
            x[1] += np.random.rand()
        return x, torch.tensor([float(i % 2)])


class Net(nn.Module):
    """Two layers, with BatchNorm, and dropout where the cell says so."""

    def __init__(self, dropout):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 1)

    def train_step(self, data, optimizer=None, **kwargs):
        x, y = data
        loss = nn.functional.mse_loss(self.head(self.body(x)).float(), y)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}

    val_step = train_step


class Remembers(Hook):
    """A user's hook with a memory, which draws from the run's own generators."""

    def __init__(self):
        self.drawn = []

    def after_train_iter(self, runner):
        self.drawn.append(random.random() + float(np.random.rand()) + float(torch.rand(1)))

    def state_dict(self):
        return {'drawn': list(self.drawn)}

    def load_state_dict(self, state):
        self.drawn = list(state['drawn'])


def build(cell, work_dir, seed=0):
    """The runner of a cell, with all its hooks."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = Net(0.3 if cell['randomness'] in ('dropout', 'all') else 0.0)
    limit = {'max_epochs': EPOCHS} if cell['limit'] == 'max_epochs' else {'max_iters': BATCHES * EPOCHS - 2}
    kind = EpochBasedRunner if cell['runner'] == 'epoch' else IterBasedRunner
    runner = kind(model, optimizer=OPTIMIZERS[cell['optimizer']](model), work_dir=str(work_dir), **limit)
    lr = {'policy': cell['schedule'], **SCHEDULES[cell['schedule']]}
    if cell['warmup'] != 'none':
        lr.update(warmup=cell['warmup'], warmup_iters=4, warmup_ratio=0.1)
    update = {'cumulative_iters': int(cell['accumulate'])}
    if cell['amp'] != 'none':
        update['amp'] = cell['amp']
    if cell['amp'] == 'fp16':
        update['loss_scale'] = {'init_scale': 1024.0, 'growth_interval': 3}
    if cell['clip'] == 'yes':
        update['grad_clip'] = {'max_norm': 0.1}
    loggers = ['TextLoggerHook'] + ['TensorboardLoggerHook'] * (cell['tensorboard'] == 'yes')
    runner.register_training_hooks(
        lr_config=lr,
        optimizer_config=update,
        checkpoint_config=saving(cell),
        log_config={'interval': int(cell['log']), 'hooks': [{'type': each} for each in loggers]},
        momentum_config=MOMENTA[cell['momentum']],
        custom_hooks_config=custom_hooks(cell),
    )
    return runner


def saving(cell):
    if cell['save'] == 'epoch':
        by_epoch = cell['runner'] == 'epoch'
        return CheckpointHook(interval=1 if by_epoch else BATCHES, by_epoch=by_epoch)
    if cell['save'] == '3 iterations':
        return CheckpointHook(interval=3, by_epoch=False)
    return CheckpointHook(interval=1, by_epoch=False, max_keep_ckpts=1)


def custom_hooks(cell):
    hooks = []
    if cell['ema'] != 'none':
        hooks.append(EMAHook(momentum=0.1, interval=1 if cell['ema'] == 'each' else 2, warm_up=3))
    if cell['evaluation'] == 'save_best':
        val = build_dataloader(Samples(6, 'all'), 4, 0, shuffle=False, seed=7)
        hooks.append(EvalHook(val, save_best='loss', by_epoch=False, interval=2))
    if cell['hooks'] == 'with states':
        hooks.append(Remembers())
    return hooks


def train(cell, runner):
    """Run ``runner`` to its end; what must be the same however it got there, by part."""
    workers, keeps = WORKERS[cell['workers']]
    workflow = WORKFLOWS[cell['workflow']]
    loaders = [
        build_dataloader(
            Samples(4 * BATCHES if mode == 'train' else 6, cell['randomness']),
            4,
            workers if mode == 'train' else 0,
            seed=5,
            persistent_workers=keeps and mode == 'train',
        )
        for mode, _ in workflow
    ]
    runner.run(loaders, workflow)
    named = runner.optimizer if isinstance(runner.optimizer, dict) else {'': runner.optimizer}
    return {
        'weights': digest(runner.model.state_dict()),
        'optimizers': digest({name: each.state_dict() for name, each in named.items()}),
        'random states': digest([random.getstate(), np.random.get_state(), torch.get_rng_state()]),
        'hooks': digest([hook.state_dict() for hook in runner.hooks if isinstance(hook, Remembers)]),
        'scaler': digest([update.state_dict() for update in runner._updates.values()]),
        'best score': str(runner.meta.get('hook_msgs', {}).get('best_score')),
        'counters': (runner.epoch, runner.iter),
        'log': log_of(runner.work_dir),
        'curves': curves_of(runner.work_dir) if cell['tensorboard'] == 'yes' else None,
    }


def resumed_by_itself(cell, work_dir):
    """A cell's runner in the place that ``--auto-resume`` finds; what is resumed owes nothing to its seed."""
    older_events(Path(work_dir) / 'tf_logs')
    checkpoint = find_latest_checkpoint(work_dir)
    runner = build(cell, work_dir, seed=0 if checkpoint is None else 99)
    if checkpoint is None:
        set_aside(work_dir)
    else:
        runner.resume(str(checkpoint))
    return runner


def go_on(cell, work_dir):
    """One process of a cell: from the newest checkpoint to the end."""
    return train(cell, resumed_by_itself(cell, work_dir))


def older_events(folder):
    """Make a dead run's event files sort first: TensorBoard reads them in the order of their names, which within one
    second, in which nobody but this script starts runs anew, is that of process ids as texts."""
    for path in folder.glob('events.out.tfevents.*'):
        path.rename(path.with_name(path.name.replace('tfevents.', 'tfevents.0', 1)))


def digest(value):
    """A hash of all bits of nested containers of tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(part):
        if isinstance(part, dict):
            add([list(pair) for pair in part.items()])
        elif isinstance(part, (list, tuple)):
            found.update(f'[{len(part)}'.encode())
            for each in part:
                add(each)
        elif torch.is_tensor(part):
            found.update(f'{part.dtype}{tuple(part.shape)}'.encode() + part.detach().contiguous().numpy().tobytes())
        elif isinstance(part, np.ndarray):
            found.update(part.tobytes())
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


def log_of(work_dir):
    """The log's lines about moments of the run, in order, without what a clock says."""
    lines = [json.loads(text) for path in sorted(Path(work_dir).glob('*.log.json')) for text in path.open()]
    clock = NAMES
    return [{key: line[key] for key in line if key not in clock} for line in lines if 'mode' in line]


def curves_of(work_dir):
    """What TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(Path(work_dir) / 'tf_logs')).Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()['scalars']}


# --- processes -------------------------------------------------------------------------------------------------------


class Attempt:
    """A training as a process: ``job(work_dir)``. What that returns, once it is through, is in a file."""

    def __init__(self, job, folder, name):
        self.result, self.errors = folder / f'{name}.result', folder / f'{name}.errors'
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(job, folder / name)

    def _run(self, job, work_dir):
        code = 1
        try:
            os.setsid()  # its loader workers die with it
            errors = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            found = job(work_dir)
            self.result.write_bytes(pickle.dumps(found))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill_after(self, seconds):
        """Whether the process was killed after so many seconds, rather than done by then."""
        deadline = self.started + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return self._killed_workers()
            time.sleep(min(0.002, max(0.0, deadline - time.monotonic())))
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._killed_workers()
        return os.WIFSIGNALED(status)

    def _killed_workers(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return False


def warm_up(chosen):
    """Import here, once, what each process would import; nothing that starts threads."""
    torch.set_num_threads(1)
    importlib.import_module('torch._dynamo')  # torch's optimizers want it
    try:
        importlib.import_module('torch.utils.tensorboard')
        importlib.import_module('tensorboard.backend.event_processing.event_accumulator')
    except ImportError:
        print('tensorboard is not installed: the cells do without')
        for cell in chosen:
            cell['tensorboard'] = 'no'


def undisturbed(cell, folder, seconds=60):
    """The result of a run that nobody kills, and how long it took."""
    attempt = Attempt(partial(go_on, cell), folder, 'whole')
    if attempt.kill_after(seconds) or not attempt.result.exists():
        raise RuntimeError(f'the undisturbed run of [{name_of(cell)}] failed:\n{attempt.errors.read_text()[-3000:]}')
    return pickle.loads(attempt.result.read_bytes()), time.monotonic() - attempt.started


class Tally:
    """What was found so far."""

    def __init__(self):
        self.runs = self.kills = self.fresh = self.files = 0
        self.damaged, self.differing = [], []


def disturbed(cell, folder, name, kills, duration, draw, tally):
    """The result of a run that is killed up to ``kills`` times."""
    while True:
        attempt = Attempt(partial(go_on, cell), folder, name)
        killed = attempt.kill_after(draw.uniform(0, duration) if kills > 0 else 60)
        tally.damaged += [f'{path}: {why}' for path in checkpoints(folder / name, tally) if (why := why_damaged(path))]
        if not killed:
            break
        kills -= 1
        tally.kills += 1
        tally.fresh += find_latest_checkpoint(folder / name) is None
    if not attempt.result.exists():
        return {'error': attempt.errors.read_text()[-2000:]}
    return pickle.loads(attempt.result.read_bytes())


def checkpoints(work_dir, tally):
    """The files that a resume could choose; a link that leads nowhere is among them, as damaged."""
    found = [path for path in work_dir.glob('*.pth') if path.is_symlink() or path.is_file()]
    tally.files += len(found)
    return found


def differences(left, right):
    return [key for key in left if left[key] != right.get(key)] + [key for key in right if key not in left]


def prove(chosen, kills, kills_per_run=4, seed=0):
    """Go round the cells until there were so many kills; the tally."""
    draw, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory(prefix='faults-') as temporary:
        folders = [Path(temporary) / str(i) for i in range(len(chosen))]
        wholes = []
        for cell, folder in zip(chosen, folders, strict=True):
            folder.mkdir()
            wholes.append(undisturbed(cell, folder))
        turn = 0
        while tally.kills < kills:
            turn += 1
            for cell, folder, (whole, duration) in zip(chosen, folders, wholes, strict=True):
                found = disturbed(cell, folder, f'killed{turn}', kills_per_run, duration, draw, tally)
                tally.runs += 1
                different = differences(whole, found)
                if different:
                    tally.differing.append(name_of(cell))
                    print(f'DIFFERENT {different}: {name_of(cell)}\n{found.get("error", "")}', flush=True)
                else:
                    shutil.rmtree(folder / f'killed{turn}')
    return tally


# --- loaders ---------------------------------------------------------------------------------------------------------


class Small(Net):
    """`Net` with a second training step, and dropout: the run's own random stream matters."""

    def __init__(self):
        super().__init__(0.3)

    gen_step = Net.train_step


class Dies(Hook):
    """Writes down all losses; at a moment, saves and dies.

    Args:
        moment: a point and how many times it passes in this process; None: never.
    """

    runs_last = True

    def __init__(self, moment):
        self.moment = moment
        self.passed = dict.fromkeys(POINTS, 0)
        self.losses = []

    def _pass(self, point, runner):
        self.passed[point] += 1
        if self.moment == (point, self.passed[point]):
            runner.save_checkpoint(runner.work_dir, filename_tmpl='saved.pth')
            os.kill(os.getpid(), signal.SIGKILL)

    def before_train_iter(self, runner):
        self._pass('before_train_iter', runner)

    def after_train_iter(self, runner):
        self.losses.append((runner.mode, runner.iter, float(runner.outputs['loss'])))
        self._pass('after_train_iter', runner)

    def after_train_epoch(self, runner):
        self._pass('after_train_epoch', runner)

    def after_val_iter(self, runner):
        self.losses.append(('val', runner.iter, float(runner.outputs['loss'])))
        self._pass('after_val_iter', runner)

    def after_val_epoch(self, runner):
        self._pass('after_val_epoch', runner)


class Told(logging.Handler):
    """Writes to a file what the run says about its exactness: records that are marked so, and warnings that name a
    loader."""

    def __init__(self, path, resumed):
        super().__init__()
        self.path, self.resumed = path, resumed

    def emit(self, record):
        if getattr(record, 'exactness', False):
            self.note(record.levelname, record.getMessage())

    def warn(self, message, *where, **more):
        if 'loader' in str(message).lower() and any(
            part in where[1] for part in ('runnerkit/data', 'runnerkit/runner')
        ):
            self.note('WARNING', str(message))

    def note(self, level, text):
        with self.path.open('a') as file:
            file.write(json.dumps([self.resumed, level, text]) + '\n')


def moments_of(plan, name):
    """When to kill, by what to call it: in each process at one moment, a point and how many times it passes."""
    found = {
        'in epoch 1': [('after_train_iter', 2)],
        'last batch of epoch 1': [('after_train_iter', 5)],
        'batch fetched': [('before_train_iter', 7)],
        'in epoch 2': [('after_train_iter', 8)],
    }
    if name == 'epoch':
        found['end of epoch 1'] = [('after_train_epoch', 1)]
    if plan.by_epoch[-1][0] == 'val':
        found['in validation'] = [('after_val_iter', 1)]
        found['after validation'] = [('after_val_epoch', 1) if name == 'epoch' else ('after_val_iter', 2)]
    found['3 times'] = [('after_train_iter', 3)] * 3
    return found


def train_kind(kind, name, moment, work_dir, every=False):
    """One process of a kind of loaders in one of its runners: from the checkpoint to ``moment``, or to the end.

    Args:
        every: whether a checkpoint is saved after each iteration.
    """
    np.random.seed(0)
    random.seed(0)
    torch.manual_seed(0)
    resumed = (work_dir / 'saved.pth').exists()
    model, dies, told = Small(), Dies(moment), Told(work_dir / 'told', resumed)
    limit = kind.limit or ({'max_epochs': EPOCHS} if name == 'epoch' else {'max_iters': BATCHES * EPOCHS})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runner = kind.runners[name](model, optimizer=optimizer, work_dir=str(work_dir), **limit)
    logging.getLogger('runnerkit').addHandler(told)
    warnings.simplefilter('always')
    warnings.showwarning = told.warn
    plan = kind.build()
    for hook in plan.hooks:
        runner.register_hook(hook)
    if not any(isinstance(hook, OptimizerHook) for hook in plan.hooks):
        runner.register_hook(OptimizerHook())
    runner.register_hook(CheckpointHook(1 if every else 1000, by_epoch=False, save_last=False, max_keep_ckpts=1))
    runner.register_hook(dies)
    np.random.seed(99)  # what is resumed owes nothing to where the generators happen to be
    random.seed(99)
    torch.manual_seed(99)
    if resumed:
        runner.resume(str(work_dir / 'saved.pth'))
    runner.run(plan.loaders, plan.workflow(name))
    best = runner.meta.get('hook_msgs', {}).get('best_score')
    state = digest([model.state_dict(), optimizer.state_dict(), str(best), runner.epoch, runner.iter])
    return {'losses': dies.losses, 'state': state}


class Finding(NamedTuple):
    """What became of a kind in a runner, and the first that it said when it was resumed."""

    verdict: str
    told: str = ''


def killed_at(kind, name, moments, folder, label, whole):
    """The finding for runs that are killed at ``moments``, each process at the next one."""
    for moment in (*moments, None):
        attempt = Attempt(partial(train_kind, kind, name, moment, every=len(moments) > 1), folder, label)
        attempt.kill_after(60)
        if moment is not None and attempt.result.exists():
            return Finding('NOT KILLED')
    first = first_told(folder / label, resumed=True)
    if not attempt.result.exists():
        return Finding('FAILS', last_line(attempt.errors))
    return judged(pickle.loads(attempt.result.read_bytes()), whole, first)


def judged(found, whole, told):
    """The finding for a resumed run that ended with ``found`` where the undisturbed one did with ``whole``."""
    last = whole['losses'][max(0, len(whole['losses']) - len(found['losses'])) :]
    if found == {**whole, 'losses': last}:
        return Finding('exact, but told' if told else 'exact, quiet', told)
    return Finding('differs, told' if told else 'DIFFERS IN SILENCE', told)


def first_told(work_dir, resumed):
    """The first that runs in this work dir said when they were resumed, or else when they were started."""
    lines = [json.loads(line) for line in read(work_dir / 'told').splitlines()]
    return next((text for was, level, text in lines if was == resumed and (not resumed or level != 'INFO')), '')


def read(path):
    return path.read_text() if path.exists() else ''


def last_line(path):
    return read(path).strip().rpartition('\n')[2]


def prove_kind(kind, name, folder, labels=()):
    """What became of a kind in the runner ``name``, by moment; only at the moments ``labels``, if there are any."""
    attempt = Attempt(partial(train_kind, kind, name, None), folder, 'whole')
    attempt.kill_after(60)
    if not attempt.result.exists():
        return {'undisturbed': Finding('FAILS', last_line(attempt.errors))}
    whole = pickle.loads(attempt.result.read_bytes())
    chosen = moments_of(kind.build(), name)
    found = {
        label: killed_at(kind, name, moments, folder, label, whole)
        for label, moments in chosen.items()
        if label in labels or not labels
    }
    at_start = first_told(folder / 'whole', resumed=False)
    if at_start:
        found['at the start'] = Finding('told', at_start)
    if any(each.verdict == 'DIFFERS IN SILENCE' for each in found.values()):
        again = Attempt(partial(train_kind, kind, name, None), folder, 'again')
        again.kill_after(60)
        if pickle.loads(again.result.read_bytes()) != whole:
            found['undisturbed'] = Finding('NOT REPEATABLE')
    return found


#: Verdicts that are right for every kind, and for those of which not all state is in sight.
GOOD, GOOD_TOO = ('exact, quiet',), ('exact, but told', 'differs, told', 'told')


def is_good(finding, quiet):
    """Whether it is as promised: nothing in silence, and nothing said of a kind that is known to be exact."""
    return finding.verdict in GOOD or (finding.verdict in GOOD_TOO and not quiet)


def prove_loaders(titles=(), labels=()):
    """Print what became of the kinds of loaders of these names, or of all; how many are not as promised."""
    kinds = importlib.import_module('loader_kinds').KINDS
    bad = cells = 0
    for title in titles or kinds:
        for name in kinds[title].runners:
            with tempfile.TemporaryDirectory(prefix='loaders-') as folder:
                findings = prove_kind(kinds[title], name, Path(folder), labels)
            # Of a batch that waits, what its fetching has drawn is gone: that may always be told.
            good = all(
                is_good(each, kinds[title].quiet and label != 'batch fetched') for label, each in findings.items()
            )
            bad, cells = bad + (not good), cells + 1
            print(f'{" " if good else "!"} {title} | {name} | {summary(findings)}', flush=True)
    print(f'{cells} kinds of loaders in a runner each, {bad} not as promised')
    return bad


# --- ranks -----------------------------------------------------------------------------------------------------------

RANKS_CONFIG = """
model = dict(type='Supervised', model=[
    dict(type='Linear', in_features=8, out_features=64), dict(type='ReLU'), dict(type='Dropout', p=0.2),
    dict(type='Linear', in_features=64, out_features=1)], loss=dict(type='MSELoss'))
data = dict(samples_per_gpu=4, workers_per_gpu=1, train=dict(type='faults.Noise'))
optimizer = dict(type='SGD', lr=0.02, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy='CosineAnnealing', min_lr=0.0, by_epoch=False)
runner = dict(type='EpochBasedRunner', max_epochs=4)
checkpoint_config = dict(interval=3, by_epoch=False, max_keep_ckpts=2)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
flow = dict(terminal=None)
seed = 7
model_wrapper = dict(type='{wrapper}')
"""
#: What FSDP2 divides the model into.
UNITS = "model_wrapper['module_classes'] = ['Linear']\n"


class Noise(Dataset):
    """Random points, drawn anew each time; a batch takes long enough for a kill to come in the middle of it."""

    def __len__(self):
        return 80

    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.randn(8) + i / 80, torch.tensor([i % 2.0])


def rank_job(config, work_dir):
    """One rank, in a process of torchrun's agent."""
    from runnerkit.cli.train import main

    (work_dir / f'pid {os.environ["TORCHELASTIC_RESTART_COUNT"]} {os.environ["RANK"]}').write_text(str(os.getpid()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the agent's handlers, which a fork inherits and a new process does not
    code = main([str(config), '--launcher', 'pytorch', '--device', 'cpu', '--work-dir', str(work_dir / 'run')])
    if code:
        sys.exit(code)


def agent_job(config, work_dir):
    """A training on two ranks; what must be the same however it got there."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    work_dir.mkdir()
    how = {'rdzv_backend': 'c10d', 'rdzv_endpoint': 'localhost:0', 'run_id': 'faults', 'start_method': 'fork'}
    elastic_launch(LaunchConfig(1, 1, 2, **how, max_restarts=3, monitor_interval=0.05), rank_job)(config, work_dir)
    latest = find_latest_checkpoint(work_dir / 'run')  # a kill may have come before latest.pth was moved
    last = load_folder(latest, latest) if latest.is_dir() else torch.load(latest, weights_only=True)
    counts = {name: last['meta'][name] for name in ('epoch', 'iter')}
    return {
        'weights': digest(last['state_dict']),
        'optimizer': digest(last['optimizer']),
        'counts': counts,
        'log': log_of(work_dir / 'run'),
    }


def pids_of(work_dir):
    """The ranks' process ids, by how often they have been started again and by rank."""
    found = [(path.name.split()[1:], path.read_text()) for path in work_dir.glob('pid *')]
    return {(int(restart), int(rank)): int(pid) for (restart, rank), pid in found if pid}


class RankKill(NamedTuple):
    """A rank that was killed: when, after how many iterations as its log has them, and what followed."""

    rank: int
    seconds: float
    resumed: str
    took: float
    different: list


def kill_a_rank(config, folder, name, rank, seconds, whole):
    """Run the training with ``rank`` killed ``seconds`` after it began; None if it was through by then."""
    work_dir = folder / name
    attempt = Attempt(partial(agent_job, config), folder, name)
    deadline = time.monotonic() + 60
    while (0, rank) not in pids_of(work_dir) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    was_killed = not attempt.result.exists()
    try:
        os.kill(pids_of(work_dir)[0, rank], signal.SIGKILL)
    except ProcessLookupError:
        was_killed = False
    killed_at = time.monotonic()
    attempt.kill_after(time.monotonic() - attempt.started + 100)
    if not was_killed:
        return None
    took = time.monotonic() - killed_at
    said = attempt.errors.read_text()
    resumed = [line.rpartition('resumed from ')[2] for line in said.splitlines() if 'resumed from ' in line]
    if attempt.result.exists():
        different = differences(whole, pickle.loads(attempt.result.read_bytes()))
    else:
        different = [said[-2000:]]
    left = [pid for pid in pids_of(work_dir).values() if is_alive(pid)]
    different += [f'process {pid} is left' for pid in left]
    return RankKill(rank, seconds, resumed[-1] if resumed else 'from the beginning', took, different)


def prove_ranks(kills, seed=0, wrapper='DDP'):
    """Print what became of the kills of single ranks; how many trainings ended differently."""
    draw, bad, done = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(prefix='ranks-') as temporary:
        folder = Path(temporary)
        config = folder / 'config.py'
        config.write_text(RANKS_CONFIG.replace('{wrapper}', wrapper) + (UNITS if wrapper == 'FSDP2' else ''))
        attempt = Attempt(partial(agent_job, config), folder, 'whole')
        attempt.kill_after(100)
        if not attempt.result.exists():
            raise RuntimeError(f'the undisturbed run failed:\n{attempt.errors.read_text()[-3000:]}')
        whole, duration = pickle.loads(attempt.result.read_bytes()), time.monotonic() - attempt.started
        print(f'undisturbed: {whole["counts"]["iter"]} iterations, {duration:.1f} s', flush=True)
        while done < kills:
            found = kill_a_rank(config, folder, f'killed{done}', done % 2, draw.uniform(0, duration), whole)
            shutil.rmtree(folder / f'killed{done}')
            (folder / f'killed{done}.result').unlink(missing_ok=True)
            if found is None:
                continue
            done, bad = done + 1, bad + bool(found.different)
            print(
                f'rank {found.rank} killed after {found.seconds:.2f} s: {found.resumed}; through {found.took:.1f} s '
                f'later, {"the same" if not found.different else f"DIFFERENT {found.different}"}',
                flush=True,
            )
    print(f'{done} kills of a rank under {wrapper}, {bad} runs that ended differently')
    return bad


def summary(findings):
    """Each verdict, with its moments where not all are alike, and what was told first."""
    verdicts = {}
    for label, each in findings.items():
        verdicts.setdefault(each.verdict, []).append(label)
    told = next((f' | {each.told}' for each in findings.values() if each.told), '')
    return '; '.join(key if len(verdicts) == 1 else f'{key} ({", ".join(verdicts[key])})' for key in verdicts) + told


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--kills', type=int, default=200, help='how many at least')
    parser.add_argument('--kills-per-run', type=int, default=4)
    parser.add_argument('--cells', type=int, help='only the first so many')
    parser.add_argument('--seed', type=int, default=0, help='of the moments of the kills')
    parser.add_argument('--list', action='store_true', help='print the cells and stop')
    parser.add_argument('--loaders', nargs='*', metavar='KIND', help='try these kinds of loaders, or all, instead')
    parser.add_argument('--moments', nargs='*', default=(), help='kill them at these moments only')
    parser.add_argument('--ranks', type=int, metavar='N', help='kill one of two ranks under torchrun, N times, instead')
    parser.add_argument('--wrapper', choices=['DDP', 'FSDP2'], default='DDP', help='of the model, with --ranks')
    args = parser.parse_args()
    if args.ranks is not None:
        warm_up([])
        return int(prove_ranks(args.ranks, args.seed, args.wrapper) > 0)
    if args.loaders is not None:
        warm_up([])
        return int(prove_loaders(args.loaders, args.moments) > 0)
    chosen = cells()[: args.cells]
    for i, cell in enumerate(chosen):
        print(f'{i:3}: {name_of(cell)}')
    if args.list:
        return 0
    warm_up(chosen)
    started = time.monotonic()
    tally = prove(chosen, args.kills, args.kills_per_run, args.seed)
    print(
        f'{len(chosen)} cells, {tally.runs} runs, {tally.kills} kills ({tally.fresh} before there was a checkpoint), '
        f'{len(tally.differing)} runs that ended differently, {len(tally.damaged)} damaged files of {tally.files} '
        f'looked at, {time.monotonic() - started:.0f} s'
    )
    print('\n'.join(tally.damaged))
    return int(bool(tally.differing or tally.damaged or tally.kills < args.kills))


if __name__ == '__main__':
    sys.exit(main())
