"""MLflow: what its client is called with, and what the real one keeps in a folder."""

from unittest.mock import call

import pytest
import torch

from runnerkit.hooks.logger import MlflowLoggerHook


def test_calls(fake, train, rates):
    mlflow = fake('mlflow', 'pytorch')
    hook = MlflowLoggerHook('e', {'a': 1}, {'p': 2}, interval=2)
    runner = train(hook, epochs=1)
    mlflow.set_experiment.assert_called_once_with('e')
    mlflow.set_tags.assert_called_once_with({'a': 1})
    mlflow.log_params.assert_called_once_with({'p': 2})
    assert mlflow.log_metrics.mock_calls == [
        call({'train/loss': 1.5, **rates}, step=2),
        call({'val/acc': 0.25, **rates}, step=4),
    ]
    hook.mlflow_pytorch.log_model.assert_called_once_with(
        runner.model, 'models', pip_requirements=[f'torch=={torch.__version__}']
    )


def test_a_run_of_the_users_own_is_left_open(fake, train):
    mlflow = fake('mlflow', 'pytorch')
    train(MlflowLoggerHook(log_model=False), epochs=1)
    mlflow.start_run.assert_not_called()
    mlflow.end_run.assert_not_called()
    mlflow.pytorch.log_model.assert_not_called()
    mlflow.set_experiment.assert_not_called()


def test_a_run_of_its_own_is_closed_also_when_the_training_fails(fake, train, fail):
    mlflow = fake('mlflow', 'pytorch')
    mlflow.active_run.side_effect = [None, mlflow.a_run]
    with pytest.raises(ArithmeticError):
        train(MlflowLoggerHook(), [fail])
    mlflow.end_run.assert_called_once_with('FAILED')
    mlflow.pytorch.log_model.assert_not_called()


@pytest.mark.thorough  # test_tracker.py has the calls of each client
def test_the_real_client_also_after_a_resume(train, tmp_path, monkeypatch):
    mlflow = pytest.importorskip('mlflow')
    pytest.importorskip('mlflow.pytorch')  # needs pandas
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
    mlflow.set_tracking_uri(str(tmp_path / 'runs'))
    first = MlflowLoggerHook('e', {'a': 1}, {'p': 2}, interval=2)
    train(first, epochs=1)
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient()
    kept = client.get_run(first.run_id)
    assert (kept.info.status, kept.data.tags['a'], kept.data.params) == ('FINISHED', '1', {'p': '2'})
    model = mlflow.pytorch.load_model(client.search_logged_models([kept.info.experiment_id])[0].model_uri)
    assert type(model).__name__ == 'Known'

    second = MlflowLoggerHook('e', interval=2, log_model=False)
    train(second, resume='epoch_1.pth')
    assert second.run_id == first.run_id
    losses = client.get_metric_history(first.run_id, 'train/loss')
    assert [(each.step, each.value) for each in losses] == [(2, 1.5), (5, 1.5)]

    mlflow.set_tracking_uri(str(tmp_path / 'elsewhere'))
    third = MlflowLoggerHook('e', log_model=False)
    train(third, resume='epoch_1.pth')
    assert third.run_id not in (None, first.run_id)
