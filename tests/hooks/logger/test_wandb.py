"""Weights & Biases: what its client is called with, and what the real one keeps without a server."""

from pathlib import Path
from unittest.mock import call

import pytest

from runnerkit.hooks import Hook
from runnerkit.hooks.logger import WandbLoggerHook


def test_calls(fake, train, rates, tmp_path):
    wandb = fake('wandb')
    (tmp_path / 'exp' / 'sub').mkdir(parents=True)
    for name in ('a.py', 'sub/a.py', 'other.txt'):
        (tmp_path / 'exp' / name).touch()
    hook = WandbLoggerHook(interval=2)
    train(hook, epochs=1)
    assert hook.wandb is wandb
    wandb.init.assert_called_once_with()
    assert wandb.log.mock_calls == [
        call({'train/loss': 1.5, **rates}, step=2, commit=True),
        call({'val/acc': 0.25, **rates}, step=4, commit=True),
    ]
    wandb.Artifact.assert_called_once_with(name='artifacts', type='model')
    added = wandb.Artifact.return_value.add_file.mock_calls
    folder = tmp_path / 'exp'
    assert added == [call(str(folder / 'a.py')), call(str(folder / 'sub' / 'a.py'), name='sub/a.py')]
    wandb.log_artifact.assert_called_once_with(wandb.Artifact.return_value)
    wandb.finish.assert_called_once_with()


def test_a_failed_run_is_one_there_too(fake, train, fail):
    wandb = fake('wandb')
    with pytest.raises(ArithmeticError):
        train(WandbLoggerHook(), [fail])
    wandb.finish.assert_called_once_with(exit_code=1)


def test_an_id_of_the_users_own_comes_first(fake, train):
    wandb = fake('wandb')
    wandb.init.return_value.id = 'made'
    train(WandbLoggerHook(log_artifact=False), epochs=1)
    train(WandbLoggerHook(log_artifact=False), resume='epoch_1.pth')
    assert wandb.init.mock_calls[-1] == call(resume='allow', id='made')
    hook = WandbLoggerHook({'id': 'own'}, log_artifact=False)
    train(hook, resume='epoch_1.pth')
    assert wandb.init.mock_calls[-1] == call(id='own')
    train(WandbLoggerHook({'resume': 'must'}, log_artifact=False), resume='epoch_1.pth')
    assert wandb.init.mock_calls[-1] == call(resume='must', id='made')


@pytest.mark.thorough  # test_tracker.py has the calls of each client
def test_the_real_client_also_after_a_resume(train, tmp_path, monkeypatch):
    wandb = pytest.importorskip('wandb')
    monkeypatch.setenv('WANDB_SILENT', 'true')
    monkeypatch.setenv('WANDB_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('WANDB_CACHE_DIR', str(tmp_path))
    monkeypatch.setenv('WANDB_DATA_DIR', str(tmp_path))
    options = {'mode': 'offline', 'project': 'p', 'dir': str(tmp_path)}

    class Log(Hook):
        def before_run(self, runner):
            Path(runner.work_dir, 'note.log').write_text('text')

    try:
        first = WandbLoggerHook(options, interval=2, define_metric_cfg={'val/acc': 'max'})
        train(first, [Log()], epochs=1)
        assert wandb.run is None
        second = WandbLoggerHook(options, interval=2)
        train(second, resume='epoch_1.pth')
    finally:
        wandb.teardown()
    assert isinstance(first.run_id, str)
    assert second.run_id == first.run_id
    assert len(list(tmp_path.glob(f'wandb/offline-run-*-{first.run_id}/run-*.wandb'))) == 2


def test_what_is_no_number_reaches_wandb_as_it_is(fake, train):
    wandb, image = fake('wandb'), object()

    class Shows(Hook):
        def after_train_iter(self, runner):
            runner.log_buffer.output['image'] = image

    train(WandbLoggerHook(interval=2), [Shows()], epochs=1)
    assert wandb.log.mock_calls[0].args[0]['train/image'] is image
