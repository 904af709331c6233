"""Curves and the trained model in MLflow."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import torch

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook, has_failed
from runnerkit.parallel import unwrap
from runnerkit.utils.pictures import Pixels


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class MlflowLoggerHook(TrackerHook):
    """Logs to the active MLflow run, or else to a new one, which a resumed run continues.

    Args:
        exp_name: the experiment to log to; it is created if it does not exist.
        tags: tags of the run.
        params: parameters of the run.
        log_model: whether to log the model at the end, unless the run has failed.
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    client = 'mlflow'
    _own = False

    exp_name: str | None = None
    tags: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    log_model: bool = True
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def import_mlflow(self) -> None:
        """Set ``self.mlflow`` and ``self.mlflow_pytorch``."""
        self.mlflow = self._client('mlflow', 'mlflow')
        self.mlflow_pytorch = self._client('mlflow.pytorch', 'mlflow')

    def _open(self, runner: RunnerView) -> None:
        if self.exp_name is not None:
            self.mlflow.set_experiment(self.exp_name)
        self._own = self.mlflow.active_run() is None
        if self._own:
            self._start_run(runner)
        self._keep_id(self.mlflow.active_run().info.run_id)
        if self.tags is not None:
            self.mlflow.set_tags(self.tags)
        if self.params is not None:
            self.mlflow.log_params(self.params)

    def _start_run(self, runner: RunnerView) -> None:
        if self.run_id is not None:
            try:
                self.mlflow.start_run(run_id=self.run_id)
                return
            except self.mlflow.exceptions.MlflowException as error:  # another server, or a folder left behind
                runner.logger.warning('MLflow cannot continue run %s, so a new one begins: %s', self.run_id, error)
        self.mlflow.start_run()

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.mlflow.log_metrics(tags, step=self.get_iter(runner))

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.mlflow.log_image(pixels, f'{quote(name, safe="")}_{self.get_iter(runner)}.png')

    def _close(self, runner: RunnerView) -> None:
        failed = has_failed(runner)
        try:
            if self.log_model and not failed:
                self._log_model(runner.model)
        finally:
            if self._own:
                self.mlflow.end_run('FAILED' if failed else 'FINISHED')

    def _log_model(self, model: Any) -> None:
        options: dict[str, Any] = {'pip_requirements': [f'torch=={torch.__version__}']}
        # By default, MLflow 3 would trace the model, which needs a batch.
        if 'serialization_format' in inspect.signature(self.mlflow_pytorch.log_model).parameters:
            options['serialization_format'] = 'pickle'
        self.mlflow_pytorch.log_model(unwrap(model), 'models', **options)
