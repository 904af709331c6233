"""Neptune: what its client is called with, and what the real one keeps without a server."""

from unittest.mock import call

import pytest

from runnerkit.hooks.logger import NeptuneLoggerHook


def test_calls(fake, train):
    neptune = fake('neptune')
    hook = NeptuneLoggerHook({'project': 'p'}, interval=2)
    assert hook.reset_flag
    assert hook.run is None
    train(hook, epochs=1)
    neptune.init_run.assert_called_once_with(project='p')
    assert [each.args for each in hook.run.__getitem__.call_args_list[:3]] == [
        ('train/loss',),
        ('learning_rate',),
        ('momentum',),
    ]
    assert hook.run['x'].append.mock_calls[0] == call(1.5, step=2)
    assert hook.run['x'].append.mock_calls[3] == call(0.25, step=4)
    hook.run.stop.assert_called_once_with()


def test_neptune_may_count_the_values_itself(fake, train):
    fake('neptune')
    hook = NeptuneLoggerHook(interval=2, with_step=False)
    train(hook, epochs=1)
    assert hook.run['x'].append.mock_calls[0] == call(1.5)


def test_a_failed_run_is_one_there_too(fake, train, fail):
    fake('neptune')
    hook = NeptuneLoggerHook()
    with pytest.raises(ArithmeticError):
        train(hook, [fail])
    hook.run.__setitem__.assert_called_once_with('sys/failed', True)
    hook.run.stop.assert_called_once_with()


def test_the_real_client(train, tmp_path, monkeypatch):
    pytest.importorskip('neptune')
    monkeypatch.chdir(tmp_path)
    hook = NeptuneLoggerHook({'mode': 'offline'}, interval=2)
    train(hook, epochs=1)
    (written,) = tmp_path.glob('.neptune/offline/*/data-1.log')
    text = written.read_text()
    assert '["train", "loss"]' in text
    assert '["learning_rate"]' in text
