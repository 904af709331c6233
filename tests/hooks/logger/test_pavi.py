"""Pavi: what its client is called with. It is not public, so there is no real one here."""

import sys
from unittest.mock import call

import pytest
import torch
from support import loader, tiny_runner

from runnerkit.hooks.logger import PaviLoggerHook


def test_calls(fake, train, rates, tmp_path):
    pavi = fake('pavi')
    hook = PaviLoggerHook(interval=2)
    train(hook)
    pavi.SummaryWriter.assert_called_once_with(name='exp', model='Known')
    assert hook.writer.mock_calls == [
        call.add_scalars('train', {'loss': 1.5, **rates}, 2),
        call.add_scalars('val', {'acc': 0.25, **rates}, 1),
        call.add_scalars('train', {'loss': 1.5, **rates}, 5),
        call.add_scalars('val', {'acc': 0.25, **rates}, 2),
        call.close(),
    ]


def test_the_config_in_the_meta_is_the_sessions_text(fake, tmp_path):
    pavi = fake('pavi')
    runner = tiny_runner(max_epochs=1, work_dir=tmp_path / 'exp')
    runner.meta['config_dict'] = {'lr': 0.1, 'gpu_ids': range(2), 'loss': torch.nn.MSELoss}
    hook = PaviLoggerHook()
    runner.register_hook(hook)
    runner.run([loader(12)], [('train', 1)])
    text = pavi.SummaryWriter.call_args.kwargs['session_text']
    assert text == "gpu_ids:\n- 0\n- 1\nloss: <class 'torch.nn.modules.loss.MSELoss'>\nlr: 0.1\nmax_iter: 3\n"


def test_the_last_checkpoint(fake, train, tmp_path):
    fake('pavi')
    hook = PaviLoggerHook(add_last_ckpt=True)
    train(hook)
    path = str(tmp_path / 'exp' / 'epoch_2.pth')
    hook.writer.add_snapshot_file.assert_called_once_with(tag='exp', snapshot_file_path=path, iteration=2)


def test_checkpoints_when_they_are_written(fake, train, tmp_path):
    fake('pavi')
    hook = PaviLoggerHook(add_ckpt_kwargs={'active': True, 'start': 1, 'interval': 2})
    train(hook, epochs=3)
    assert hook.writer.add_snapshot_file.mock_calls == [
        call(tag='exp', snapshot_file_path=str(tmp_path / 'exp' / f'epoch_{n}.pth'), iteration=n) for n in (1, 3)
    ]


@pytest.mark.parametrize('options', [{'add_graph': True}, {'add_graph_kwargs': {'active': True}}])
def test_a_graph_that_is_not_uploaded(fake, options):
    fake('pavi')
    with pytest.warns(UserWarning, match='uploads no graph'):
        PaviLoggerHook(**options)


def test_a_missing_client_is_named_when_the_run_begins(train, monkeypatch):
    monkeypatch.setitem(sys.modules, 'pavi', None)
    hook = PaviLoggerHook()
    with pytest.raises(ImportError, match='PaviLoggerHook needs pavi'):
        train(hook)
