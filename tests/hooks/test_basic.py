"""Times of an iteration."""

import time
from itertools import count
from types import SimpleNamespace

import pytest
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import IterTimerHook, basic
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
