"""What both runners share of the loop: the step, the points, counting."""

import sys
from contextlib import contextmanager

import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook, IterTimerHook, OptimizerHook, TextLoggerHook
from runnerkit.runner import EpochBasedRunner
from runnerkit.utils.report import report


@pytest.mark.parametrize(
    'outputs, error, text',
    [
        (3, TypeError, r"Odd's step must return a dict\(loss=…, log_vars=…, num_samples=…\), but it returned 3"),
        ({'log_vars': {}}, KeyError, "returned no 'num_samples'"),
        ({'log_vars': {}, 'num_samples': 1}, KeyError, "returned no 'loss'"),
    ],
)
def test_what_a_step_must_return(outputs, error, text):
    class Odd(Tiny):
        def train_step(self, data, optimizer):
            return outputs

    runner = tiny_runner(model=Odd(), max_epochs=1)
    runner.register_hook(OptimizerHook())
    with pytest.raises(error, match=text):
        runner.run([loader(4)], [('train', 1)])


def test_the_log_buffer_keeps_no_graph():
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(8)], [('train', 1)])
    assert all(not value.requires_grad for value in runner.log_buffer.val_history['loss'])


def test_report_lands_in_the_running_scope():
    class Reports(Tiny):
        def forward(self, x):
            report('size', len(x))
            return super().forward(x)

    found = {}

    class Look(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.average()
            found['train'] = runner.log_buffer.output['size']

        def after_val_epoch(self, runner):
            found['val'] = runner.log_buffer.output['size']

    runner = tiny_runner(model=Reports(), max_epochs=1)
    runner.register_hook(Look())
    runner.run([loader(8), loader(6, batch=6)], [('train', 1), ('val', 1)])
    assert found == {'train': 4, 'val': 6}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_few_frames_lie_between_run_and_the_step(kind, tmp_path):
    """With everything on: a ring, averages, an evaluation, logs, checkpoints in the background, a part of one's own."""
    frames = []

    class Ring(Hook):
        @contextmanager
        def around_iter(self, runner):
            yield

    class Counts:
        def before_train_iter(self, runner):
            pass

    class Deep(Tiny):
        def train_step(self, data, optimizer):
            frame, names = sys._getframe(1), []
            while frame.f_code.co_name != 'run':
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            frames.append(names)
            return super().train_step(data, optimizer)

    runner = tiny_runner(kind, model=Deep(), max_epochs=1, work_dir=tmp_path)
    runner.register_part('counts', Counts())
    every = {'interval': 1, 'by_epoch': False}
    hooks = Ring(), OptimizerHook(), EMAHook(), EvalHook(loader(4), **every), CheckpointHook(async_save=True, **every)
    for hook in (*hooks, IterTimerHook(), TextLoggerHook(by_epoch=False, interval=1)):
        runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    assert frames == [['run_iter', 'train']] * 2


def test_a_call_hook_of_ones_own_sees_every_point():
    seen = []

    class Tells(EpochBasedRunner):
        def call_hook(self, fn_name):
            seen.append(fn_name)
            super().call_hook(fn_name)

    Tells(Tiny(), max_epochs=1).run([loader(4), loader(4)], [('train', 1), ('val', 1)])
    assert [name for name in seen if 'forward' not in name] == [
        'before_run',
        'before_train_epoch',
        'before_train_iter',
        'after_train_iter',
        'after_train_epoch',
        'before_val_epoch',
        'before_val_iter',
        'after_val_iter',
        'after_val_epoch',
        'after_run',
    ]


def test_a_mode_of_the_runner_runs_also_after_the_last_training_and_trains_with_train_step():
    class Warms(EpochBasedRunner):
        calls = ''

        def test(self, data_loader, **kwargs):
            self.calls += 't'

        def warm(self, data_loader, **kwargs):
            self.mode = 'warm'
            self.run_iter(next(iter(data_loader)), train_mode=True)
            self.calls += 'w'

    runner = Warms(Tiny(), max_epochs=2)
    runner.run([loader(4)] * 3, [('train', 1), ('test', 1), ('warm', 1)])
    assert runner.calls == 'twtw'


@pytest.mark.parametrize(('limit', 'whole'), [(5, 1), (7, 1), (10, 2)])
def test_an_epoch_that_max_iters_ends_with_its_last_batch_is_done(limit, whole):
    runner = tiny_runner(max_iters=limit)
    runner.run([loader(20)], [('train', 1)])
    assert (runner.completed_epochs, runner.progress.epoch_is_open) == (whole, limit == 7)


def test_what_a_step_logs_is_weighed_by_its_samples():
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(6)], [('train', 1)])
    assert runner.log_buffer.n_history['loss'] == [4, 2]


def test_a_runner_that_calls_its_hooks_itself_counts_what_is_done():
    class Calls(EpochBasedRunner):
        def call_hook(self, fn_name):
            for hook in self.hooks:
                getattr(hook, fn_name)(self)

    class Look(Hook):
        def after_train_iter(self, runner):
            seen.append(runner.completed_iters)

        def after_train_epoch(self, runner):
            seen.append(('epoch', runner.completed_epochs))

    seen, runner = [], Calls(Tiny(), max_epochs=2)
    runner.register_hook(Look())
    runner.run([loader(8)], [('train', 1)])
    assert seen == [1, 2, ('epoch', 1), 3, 4, ('epoch', 2)]


def test_state_of_a_new_runner(tmp_path):
    meta = {'seed': 1}
    runner = EpochBasedRunner(Tiny(), work_dir=tmp_path / 'a' / 'b', meta=meta, max_epochs=3)
    runner.meta['more'] = 2
    assert meta == {'seed': 1}
    assert (tmp_path / 'a' / 'b').is_dir()
    assert (runner.model_name, runner.rank, runner.world_size, runner.max_epochs, runner.hooks) == ('Tiny', 0, 1, 3, [])
    assert (runner.epoch, runner.iter, runner.inner_iter, runner.mode, runner.outcome) == (0, 0, 0, None, None)
    with pytest.raises(RuntimeError, match='lr and momentum are not available'):
        runner.current_lr()


def test_the_loaders_of_the_workflow():
    runner, loaders = tiny_runner(max_epochs=1), [loader(8), loader(4)]
    runner.optimizer = None
    assert runner.loaders == []
    runner.run(loaders, [('val', 1), ('val', 1)])
    assert [each is given for each, given in zip(runner.loaders, loaders, strict=True)] == [True, True]


#: The attributes that are parts of the engine.
PARTS = sorted(tiny_runner(max_epochs=1)._parts)


@pytest.mark.parametrize('name', PARTS)
def test_attributes_and_methods_with_the_name_of_a_part_are_refused_when_a_run_starts(name):
    """Of a method, though the attribute of the instance is the part: it would never be called."""
    loaded, called = [], []
    runner = tiny_runner(max_epochs=1)
    setattr(runner, name, 'mine')
    kind = type('MyRunner', (EpochBasedRunner,), {name: lambda self, *args: called.append(args)})
    for each, words in ((runner, "but is 'mine'"), (kind(Tiny(), max_epochs=1), 'but is')):
        with pytest.raises(
            TypeError, match=rf'^{type(each).__name__}.{name} is a part of the engine, {words}.*another name$'
        ):
            each.run([Loads(loaded)], [('train', 1)])
    assert loaded == called == []


class Loads:
    """A loader that notes that it is read."""

    def __init__(self, loaded):
        self.loaded = loaded

    def __len__(self):
        return 1

    def __iter__(self):
        self.loaded.append(1)
        yield torch.rand(4, 4), torch.rand(4, 1)


class Calls:
    """A part that notes who is called when, and how often it was."""

    def __init__(self, name, calls):
        self.name, self.calls, self.times = name, calls, 0

    def after_train_iter(self, runner):
        self.calls.append(self.name)
        self.times += 1

    def state_dict(self):
        return {'times': self.times}

    def load_state_dict(self, state):
        self.times = state['times']


class Called(Hook):
    def __init__(self, calls):
        self.calls = calls

    def after_train_iter(self, runner):
        self.calls.append('hook')


class OwnCalls(EpochBasedRunner):
    def call_hook(self, fn_name):
        for hook in self._hooks:
            if hasattr(hook, fn_name):
                getattr(hook, fn_name)(self)


@pytest.mark.parametrize('kind', ['epoch', 'iter', OwnCalls])
def test_parts_are_called_around_all_hooks_and_resumed(kind, tmp_path):
    def made(max_iters):
        calls = []
        runner = tiny_runner(kind, work_dir=tmp_path, max_iters=max_iters)
        parts = [Calls('behind', calls), Calls('first', calls)]
        runner.register_part('behind', parts[0], is_last=True)
        runner.register_part('first', parts[1])
        runner.register_part('without state', object())
        for hook, priority in ((Called(calls), 'HIGHEST'), (OptimizerHook(), 'NORMAL'), (Called(calls), 'LOWEST')):
            runner.register_hook(hook, priority)
        return runner, parts, calls

    runner, parts, calls = made(2)
    runner.run([loader(8)], [('train', 1)])
    assert calls == ['first', 'hook', 'hook', 'behind'] * 2
    path = runner.save()
    assert torch.load(path)['runnerkit']['ranks'][0]['parts'] == {'behind': {'times': 2}, 'first': {'times': 2}}
    runner, parts, calls = made(3)
    runner.resume(path)
    runner.run([loader(8)], [('train', 1)])
    assert [part.times for part in parts] == [3, 3]


def test_a_part_that_a_hook_registers_is_resumed_too(tmp_path):
    class Registers(Hook):
        def __init__(self):
            self.part = Calls('part', [])

        def before_run(self, runner):
            runner.register_part('part', self.part)

    for max_epochs, times in ((1, 2), (2, 4)):
        runner, hook = tiny_runner(work_dir=tmp_path, max_epochs=max_epochs), Registers()
        for each in (hook, OptimizerHook(), CheckpointHook(interval=1)):
            runner.register_hook(each)
        if max_epochs == 2:
            runner.resume(str(tmp_path))
        runner.run([loader(8)], [('train', 1)])
        assert hook.part.times == times
