"""A function as a hook."""

import pytest
from support import loader, tiny_runner

from runnerkit.hooks import ClosureHook


def test_the_function_is_called_at_its_point():
    calls = []
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(ClosureHook('after_train_epoch', lambda runner: calls.append(runner.epoch)))
    runner.run([loader(4)], [('train', 1)])
    assert calls == [0]


def test_wrong_arguments():
    with pytest.raises(AssertionError, match="there is no point 'after_lunch'; the points are before_run"):
        ClosureHook('after_lunch', print)
    with pytest.raises(AssertionError, match='fn must be callable'):
        ClosureHook('after_run', 3)
