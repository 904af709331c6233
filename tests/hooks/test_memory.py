"""When the cache is emptied."""

import pytest
import torch
from support import loader, tiny_runner

from runnerkit.hooks import EmptyCacheHook


@pytest.mark.parametrize(
    'options, times',
    [
        ({}, 4),
        ({'after_epoch': False}, 0),
        ({'before_epoch': True}, 8),
        ({'after_epoch': False, 'after_iter': True}, 2 * (3 + 1)),
    ],
)
def test_points(monkeypatch, options, times):
    calls = []
    monkeypatch.setattr(torch.cuda, 'empty_cache', lambda: calls.append(1))
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EmptyCacheHook(**options))
    runner.run([loader(12), loader(4)], [('train', 1), ('val', 1)])
    assert len(calls) == times
