"""Times of an iteration, and MMCV's other hooks of a few lines each."""

import time
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from support import Noisy, Tiny, loader, tiny_runner
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from runnerkit.hooks import (
    ClosureHook,
    DistSamplerSeedHook,
    EmptyCacheHook,
    IterTimerHook,
    SyncBuffersHook,
    basic,
)
from runnerkit.runner import EpochBasedRunner


def test_the_time_of_an_iteration_includes_the_wait_for_its_data():
    class Slow(Tiny):
        def train_step(self, data, optimizer):
            time.sleep(0.02)
            return super().train_step(data, optimizer)

    runner = tiny_runner(model=Slow(), max_epochs=1)
    runner.register_hook(IterTimerHook())
    runner.run([loader(8)], [('train', 1)])
    times = runner.log_buffer.val_history
    assert len(times['time']) == len(times['data_time']) == 2
    assert all(0 <= data <= whole - 0.02 for data, whole in zip(times['data_time'], times['time']))


def test_each_iteration_begins_where_the_one_before_has_ended(monkeypatch):
    clock = count()
    monkeypatch.setattr(basic, 'time', SimpleNamespace(time=lambda: next(clock)))
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(IterTimerHook())
    runner.run([loader(12)], [('train', 1)])
    times = runner.log_buffer.val_history
    assert (times['data_time'], times['time']) == ([1, 1, 1], [2, 2, 2])


def test_a_train_that_begins_no_epoch_learns_which_point_is_missing():
    class Literal(EpochBasedRunner):
        def train(self, data_loader):
            self.call_hook('before_train_iter')

    runner = Literal(Tiny(), max_epochs=1)
    runner.register_hook(IterTimerHook())
    with pytest.raises(RuntimeError, match=r"custom train must call self\.call_hook\('before_train_epoch'\)"):
        runner.run([loader(8)], [('train', 1)])


def test_a_subclass_may_log_the_waiting_by_itself():
    class Own(IterTimerHook):
        def before_iter(self, runner):
            runner.log_buffer.update({'data_time': 5.0})

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Own())
    runner.run([loader(4)], [('train', 1)])
    assert runner.log_buffer.val_history['data_time'] == [5.0]
    assert len(runner.log_buffer.val_history['time']) == 1


def test_the_function_is_called_at_its_point():
    calls = []
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(ClosureHook('after_train_epoch', lambda runner: calls.append(runner.epoch)))
    runner.run([loader(4)], [('train', 1)])
    assert calls == [0]


def test_wrong_arguments_of_a_function():
    with pytest.raises(AssertionError, match="there is no point 'after_lunch'; the points are before_run"):
        ClosureHook('after_lunch', print)
    with pytest.raises(AssertionError, match='fn must be callable'):
        ClosureHook('after_run', 3)


@pytest.mark.parametrize(
    'options, times',
    [
        ({}, 4),
        ({'after_epoch': False}, 0),
        ({'before_epoch': True}, 8),
        ({'after_epoch': False, 'after_iter': True}, 2 * (3 + 1)),
    ],
)
def test_when_the_cache_is_emptied(monkeypatch, options, times):
    calls = []
    monkeypatch.setattr(torch.cuda, 'empty_cache', lambda: calls.append(1))
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EmptyCacheHook(**options))
    runner.run([loader(12), loader(4)], [('train', 1), ('val', 1)])
    assert len(calls) == times


def buffers_on_rank(rank):
    means = []
    for distributed in (False, True):
        model = Tiny()
        model.body[1].momentum = 0.0  # keeps its statistics
        model.body[1].running_mean.fill_(float(rank))
        runner = tiny_runner(model=model, max_epochs=1)
        runner.register_hook_from_cfg({'type': 'SyncBuffersHook', 'distributed': distributed})
        runner.run([loader(4, dist=False)], [('train', 1)])
        means.append(model.body[1].running_mean[0].item())
    return means


def test_ranks_have_the_mean_of_their_buffers_after_an_epoch_unless_it_is_switched_off(on_ranks):
    assert on_ranks(__file__, 'buffers_on_rank') == [[0.0, 0.5], [1.0, 0.5]]
    assert SyncBuffersHook().distributed


class Sampler(SequentialSampler):
    def __init__(self, data):
        super().__init__(data)
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


@pytest.mark.parametrize('make, epochs', [
    (lambda data, sampler: DataLoader(data, 4, sampler=sampler), [0, 1, 2]),
    (lambda data, sampler: DataLoader(data, batch_sampler=BatchSampler(sampler, 4, False)), [0, 1, 2]),
    (lambda data, sampler: [1], []),
], ids=['sampler', 'sampler of a batch sampler', 'another loader'])  # fmt: skip
def test_the_sampler_gets_the_epoch(make, epochs):
    data = Noisy(8)
    sampler, hook, runner = Sampler(data), DistSamplerSeedHook(), tiny_runner(max_epochs=2)
    runner.data_loader = make(data, sampler)
    for runner._epoch in range(3):
        hook.before_epoch(runner)
    assert sampler.epochs == epochs
