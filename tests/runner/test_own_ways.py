"""What code written for MMCV does to a runner in ways of its own: each keeps working with an engine of parts."""

import os
import signal
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from support import At, Noisy, Recorder, Tiny, loader, tiny_runner, weights
from torch.utils.data import DataLoader

from runnerkit.hooks import CheckpointHook, Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils.seed import set_random_seed


class ByMixin:
    """A call_hook that comes from a class that is no runner."""

    def call_hook(self, fn_name):
        return super().call_hook(fn_name)


class MixedEpochs(ByMixin, EpochBasedRunner):
    pass


class MixedIterations(ByMixin, IterBasedRunner):
    pass


class HooksOnly(EpochBasedRunner):
    """A call_hook like mmgen's, which does not know the parts."""

    def call_hook(self, fn_name):
        for hook in self._hooks:
            getattr(hook, fn_name)(self)


class Twice(MixedIterations):
    """Another one on top."""

    def call_hook(self, fn_name):
        return super().call_hook(fn_name)


def built(kind, *hooks, **options):
    set_random_seed(0)
    model = Tiny()
    runner = kind(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **{'max_iters': 8, **options})
    for hook in (OptimizerHook(), *hooks):
        runner.register_hook(hook)
    return runner


def shuffled():
    return DataLoader(Noisy(16), 4, shuffle=True, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize('kind', [MixedEpochs, MixedIterations, Twice])
def test_a_call_hook_from_a_mixin_counts_stops_and_resumes(kind, tmp_path):
    whole = built(kind)
    whole.run([shuffled()], [('train', 1)])

    def term():
        return At(2, lambda runner: os.kill(os.getpid(), signal.SIGTERM))

    first = built(kind, term(), CheckpointHook(interval=100, by_epoch=False), work_dir=tmp_path)
    first.run([shuffled()], [('train', 1)])
    assert (first.iter, first.outcome.reason) == (3, 'SIGTERM')
    second = built(kind, term(), CheckpointHook(interval=100, by_epoch=False), work_dir=tmp_path)
    second.resume(str(tmp_path / 'latest.pth'))
    second.run([shuffled()], [('train', 1)])
    assert torch.equal(weights(second.model), weights(whole.model))


def test_each_part_is_called_once_where_one_call_hook_calls_another():
    calls = []

    class Part:
        def after_train_iter(self, runner):
            calls.append(runner.iter)

    runner = built(Twice, max_iters=3)
    runner.register_part('part', Part())
    runner.run([loader(12)], [('train', 1)])
    assert calls == [0, 1, 2]


def test_a_call_hook_that_is_patched_for_a_while(tmp_path):
    seen, own = [], IterBasedRunner.call_hook

    def spying(self, fn_name):
        seen.append(fn_name)
        own(self, fn_name)

    with mock.patch.object(IterBasedRunner, 'call_hook', spying):
        runner = built(IterBasedRunner, At(2, lambda runner: runner.stop('enough')))
        runner.run([loader(32)], [('train', 1)])
    assert (runner.iter, seen.count('after_train_iter')) == (3, 3)


@pytest.mark.parametrize('own_calls', [False, True])
def test_every_one_leaves_where_a_call_hook_of_ones_own_calls_ours(own_calls):
    left = []

    class Fails(Hook):
        def after_run(self, runner):
            raise ValueError('its own')

    class Leaves(Hook):
        def after_run(self, runner):
            left.append(type(self).__name__)

    class Guest(Leaves):
        def after_val_iter(self, runner):
            pass

    data, guest = loader(4), Guest()
    evaluate = At(0, lambda runner: runner.evaluate(data, hooks=[guest]))
    runner = built(MixedIterations if own_calls else IterBasedRunner, Fails(), Leaves(), evaluate, max_iters=1)
    with pytest.raises(ValueError, match='its own'):
        runner.run([loader(8)], [('train', 1)])
    assert left == ['Leaves', 'Guest']


def test_a_unit_of_several_iterations_is_one():
    class Pairs(IterBasedRunner):
        def train(self, data_loader, **kwargs):
            super().train(data_loader, **kwargs)
            super().train(data_loader, **kwargs)

    recorder = Recorder()
    runner = built(Pairs, recorder, max_iters=16)
    runner.run([loader(32), loader(4)], [('train', 4), ('val', 1)])
    points = [name for name in recorder.names() if name in ('after_train_iter', 'after_val_iter')]
    assert ''.join(name[6] for name in points) == 'ttttttttvttttttttv'


@pytest.mark.parametrize('kind', [EpochBasedRunner, IterBasedRunner])
@pytest.mark.parametrize('place', ['hook', 'ring'])
def test_a_run_after_an_error_behind_an_iteration_continues_with_the_next_one(kind, place):
    raised = []

    class Fails(Hook):
        def fail(self, runner, where):
            if place == where and runner.iter == 1 and not raised:
                raised.append(True)
                raise KeyError('once')

        def after_train_iter(self, runner):
            self.fail(runner, 'hook')

        @contextmanager
        def around_iter(self, runner):
            yield
            self.fail(runner, 'ring')

        def before_train_iter(self, runner):
            seen.append(runner.iter)

    seen = []
    runner, data = built(kind, Fails()), [loader(16)]
    with pytest.raises(KeyError):
        runner.run(data, [('train', 1)])
    runner.run(data, [('train', 1)])
    assert runner.iter == 8
    assert seen == list(range(8))


def test_hooks_that_were_kept_aside_come_back():
    recorder = Recorder()
    runner = built(EpochBasedRunner, recorder, max_iters=2)
    kept = runner._hooks
    runner._hooks = []
    runner._hooks = kept
    runner.run([loader(8)], [('train', 1)])
    assert len(runner.hooks) == 2
    assert recorder.names().count('after_train_iter') == 2


def test_counters_that_are_written_back_stay_done(tmp_path):
    def write_back(runner):
        kept = runner._iter
        runner._iter = kept
        runner.save_checkpoint(str(tmp_path), 'saved.pth')

    built(EpochBasedRunner, At(2, write_back)).run([loader(32)], [('train', 1)])
    assert torch.load(tmp_path / 'saved.pth', weights_only=False)['meta']['iter'] == 3


def test_the_length_that_a_loop_of_ones_own_has_written_stays():
    seen = []

    class Own(EpochBasedRunner):
        def train(self, data_loader, **kwargs):
            self.model.train()
            self.mode, self.data_loader = 'train', data_loader
            self._max_iters = 2 * self._max_epochs * len(data_loader)
            self.call_hook('before_train_epoch')
            for self._inner_iter, self.data_batch in enumerate(data_loader):
                self.call_hook('before_train_iter')
                self.run_iter(self.data_batch, train_mode=True, **kwargs)
                self.call_hook('after_train_iter')
                self._iter += 1
            self.call_hook('after_train_epoch')
            self._epoch += 1

    built(Own, At(1, lambda runner: seen.append(runner.max_iters)), max_iters=None, max_epochs=2).run(
        [loader(8)], [('train', 1)]
    )
    assert seen == [8]


@pytest.mark.parametrize('by_class', [False, True])
def test_stop_can_be_wrapped(by_class):
    asked = []

    class Own(EpochBasedRunner):
        def stop(self, reason):
            asked.append(reason)
            super().stop(reason)

    runner = built(Own if by_class else EpochBasedRunner, At(2, lambda runner: runner.stop('enough')))
    if not by_class:
        stop = runner.stop
        runner.stop = lambda reason: (asked.append(reason), stop(reason))
    runner.run([loader(32)], [('train', 1)])
    assert (runner.iter, runner.outcome.reason, asked) == (3, 'enough', ['enough'])


def test_before_run_by_hand_begins_no_run_in_a_loop_of_ones_own():
    recorder = Recorder()
    runner, data = built(EpochBasedRunner, recorder, max_iters=None, max_epochs=2), loader(8)
    with runner.custom_loop([data], [('train', 1)]):
        runner.call_hook('before_run')
        for _ in range(2):
            runner.train(data)
        runner.call_hook('after_run')
    assert [recorder.names().count(name) for name in ('before_run', 'after_train_epoch', 'after_run')] == [1, 2, 1]


@pytest.mark.parametrize('mode', ['nested', 'register_hook', 'evaluate', 'call_hook'])
def test_methods_of_the_runner_that_run_no_epoch_are_no_modes(mode):
    with pytest.raises(ValueError, match=f'runner has no method named "{mode}"'):
        tiny_runner(max_epochs=1).run([loader(4)], [(mode, 1)])


def test_two_parts_of_one_name_are_refused():
    class Part:
        def state_dict(self):
            return {}

    runner = tiny_runner(max_epochs=1)
    runner.register_part('mine', Part())
    with pytest.raises(ValueError, match="there is a part 'mine' already"):
        runner.register_part('mine', Part())


def test_parts_with_misspelt_points_are_refused():
    class Misspelt:
        def after_train_itr(self, runner):
            pass

    with pytest.raises(ValueError, match="Did you mean 'after_train_iter'"):
        tiny_runner(max_epochs=1).register_part('misspelt', Misspelt())


@pytest.mark.parametrize('kind', [EpochBasedRunner, IterBasedRunner, HooksOnly])
def test_rings_of_parts_are_outside_those_of_hooks_or_inside_them(kind):
    seen = []

    class Ring(Hook):
        def __init__(self, name):
            self.name = name

        @contextmanager
        def around_iter(self, runner):
            seen.append(f'{self.name} in')
            yield
            seen.append(f'{self.name} out')

    runner = kind(Tiny(), max_iters=1)
    runner.register_part('inner', Ring('inner'), is_last=True)
    runner.register_part('outer', Ring('outer'))
    runner.register_hook(Ring('hook'))
    runner.run([loader(4)], [('train', 1)])
    assert seen == ['outer in', 'hook in', 'inner in', 'inner out', 'hook out', 'outer out']


def test_parts_that_are_gone_or_new_in_a_resumed_run_are_told(tmp_path, caplog):
    class Part:
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    def run(name, resumed=None):
        runner = built(EpochBasedRunner, work_dir=tmp_path)
        runner.register_part(name, Part())
        if resumed is not None:
            runner.resume(resumed)
        runner.run([loader(8)], [('train', 1)])
        return runner.save()

    saved = run('old')
    caplog.clear()
    run('new', saved)
    told = [record.getMessage() for record in caplog.records if 'the part' in record.getMessage()]
    assert told == [
        "the checkpoint has no state of the part 'new'",
        "the checkpoint has a state of the part 'old', which this run lacks",
    ]
