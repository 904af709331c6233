"""Segmind: what its client is called with. Its tracker is gone from today's client, so there is no real one here."""

import sys
from types import ModuleType
from unittest.mock import call

import pytest

from runnerkit.hooks.logger import SegmindLoggerHook


def test_calls(fake, train, rates):
    segmind = fake('segmind', 'tracking', 'tracking.fluent', 'utils', 'utils.logging_utils')
    hook = SegmindLoggerHook(interval=2)
    train(hook, epochs=1)
    log = segmind.tracking.fluent.log_metrics
    assert hook.log_metrics is log
    assert hook.mlflow_log is segmind.utils.logging_utils.try_mlflow_log
    assert hook.mlflow_log.mock_calls == [
        call(log, {'train/loss': 1.5, **rates}, step=0, epoch=0),
        call(log, {'val/acc': 0.25, **rates}, step=1, epoch=1),
    ]


def test_a_client_without_a_tracker_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, 'segmind', ModuleType('segmind'))
    with pytest.raises(ImportError, match='tracks no experiments: pip install .segmind<0.2'):
        SegmindLoggerHook()
