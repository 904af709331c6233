"""Experiment trackers: for each, how to import its client, open a run, send values and pictures, and close the run."""

from __future__ import annotations

import importlib
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from runnerkit.distributed import get_dist_info
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.log_files import files_of_run
from runnerkit.parallel import unwrap
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.pictures import Pixels


class TrackerHook(LoggerHook, ABC):
    """Opens a run of the tracker on rank 0, sends the values of every log line, and closes it when the run ends.

    If the tracker cannot be opened, the run does not start. If it fails later, there is one warning and training
    continues.

    Subclasses implement `_open`, `_send` and `_close`. They import their client in the constructor, so that a missing
    one is found before training starts: a dataclass with the attribute ``client`` does so by ``import_<client>``.

    Attributes:
        run_id: the tracker's id of this run. Checkpoints store it, and a resumed run continues under it. None if the
            tracker has no ids.
    """

    sends_outside = True

    client = ''
    run_id: str | None = None
    _numbers_only = True  # whether the tracker accepts numbers only
    _adds_mode = True  # whether names begin with the mode, as in train/loss
    _is_open = False
    _is_ours = True  # False: the user opened the tracker's run, and closes it
    _trouble: WarnsOnce | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client:
            getattr(self, f'import_{self.client}')()

    def before_run(self, runner: RunnerView) -> None:
        super().before_run(runner)
        if runner.rank == 0:
            self._open(runner)
            self._is_open = True

    def log(self, runner: RunnerView) -> None:
        """Send the values to log."""
        tags = {
            name: plain_number(value) if self.is_scalar(value) else value
            for name, value in self.get_loggable_tags(runner, add_mode=self._adds_mode).items()
            if not self._numbers_only or self.is_scalar(value)
        }
        step = self._step_of(runner)
        if step == runner.completed_iters + 1 and (1 if self.by_epoch else step) % self.interval == 0:
            # A validation, at the step of the next iteration, which will have its own line with its own rates.
            for name in (*self.get_lr_tags(runner), *self.get_momentum_tags(runner)):
                tags.pop(name, None)
        if step is not None:
            tags = self._new_at(step, tags, runner)
        if tags:
            self._try(self._send, tags, runner)

    def after_image(self, runner: RunnerView, name: str, pixels: Pixels) -> None:
        """Send a picture of `runnerkit.report_image`, in colours."""
        if self._is_open:
            self._try(self._send_image, name, pixels if pixels.shape[2] > 1 else pixels.repeat(3, axis=2), runner)

    def after_run(self, runner: RunnerView) -> None:
        super().after_run(runner)
        if getattr(runner, 'outcome', None) is None:  # of a subclass's own run, or of MMCV's runner
            self.after_outcome(runner)

    def after_outcome(self, runner: RunnerView) -> None:
        """Close the tracker's run, with the outcome that all ranks have agreed on."""
        if self._is_open:
            self._is_open = False
            self._try(self._close, runner)

    def _try(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call the tracker; no error of its client ends the training."""
        try:
            call(*args, **kwargs)
        except Exception as error:
            if self._trouble is None:
                self._trouble = WarnsOnce(f'the log of {type(self).__name__}')
            self._trouble(error)

    def _open(self, runner: RunnerView) -> None:
        """Open a run at the tracker, or continue the one of ``self.run_id``."""

    @abstractmethod
    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        """Send values by name to the tracker."""

    def _close(self, runner: RunnerView) -> None:
        """Close the run at the tracker."""

    def _step_of(self, runner: RunnerView) -> Any:
        """The step of the values, at which each name has one; None if it may have several."""
        return self.get_iter(runner)

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        """Send a picture ``[height, width, 3 or 4]`` to the tracker, if it takes pictures."""

    def _client(self, module: str, package: str) -> Any:
        """Import and return the client's module, or name the package to install."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise ImportError(f'{type(self).__name__} needs {module}: pip install {package!r} ({error})') from error

    def _keep_id(self, run_id: Any) -> None:
        # A mock of the client has no real id, and a checkpoint could not hold it.
        self.run_id = run_id if isinstance(run_id, str) else None

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run at the tracker."""
        return {} if self.run_id is None else {'run_id': self.run_id}

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        # Not in load_state_dict: that is called after before_run, when the tracker's run is open already.
        self.run_id = self._saved_state(runner, checkpoint).get('run_id', self.run_id)


def _has_failed(runner: RunnerView) -> bool:
    outcome = getattr(runner, 'outcome', None)  # MMCV's runners have none
    return outcome is not None and not outcome.ended_well


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class WandbLoggerHook(TrackerHook):
    """Logs to Weights & Biases; a resumed run continues under the same id.

    Args:
        init_kwargs: arguments of ``wandb.init``.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        commit: whether each log line is its own step; if not, wandb collects them until the next commit.
        by_epoch: as in `LoggerHook`.
        with_step: whether to give wandb the iteration as its step; if not, it is logged as ``global_step``.
        log_artifact: whether to upload the work dir's files at the end.
        out_suffix: the endings of those files.
        define_metric_cfg: the summary that wandb shows for each metric: ``min``, ``max``, ``mean``, ``best``,
            ``last`` or ``none``.
    """

    client = 'wandb'
    _numbers_only = False  # images, tables and histograms, too

    init_kwargs: dict[str, Any] | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    commit: bool = True
    by_epoch: bool = True
    with_step: bool = True
    log_artifact: bool = True
    out_suffix: str | Sequence[str] = ('.log.json', '.log', '.py')
    define_metric_cfg: dict[str, str] | None = None

    def import_wandb(self) -> None:
        """Set ``self.wandb``."""
        self.wandb = self._client('wandb', 'wandb')

    def _open(self, runner: RunnerView) -> None:
        options = dict(self.init_kwargs or {})
        if self.run_id is not None and 'id' not in options:
            options = {'resume': 'allow', **options, 'id': self.run_id}
        self._keep_id(getattr(self.wandb.init(**options), 'id', None))
        for metric, summary in (self.define_metric_cfg or {}).items():
            self._try(self.wandb.define_metric, metric, summary=summary)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        step = self.get_iter(runner)
        if self.with_step:
            self.wandb.log(tags, step=step, commit=self.commit)
        else:
            self.wandb.log({**tags, 'global_step': step}, commit=self.commit)

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        step = {'step': self.get_iter(runner)} if self.with_step else {}
        self.wandb.log({name: self.wandb.Image(pixels)}, commit=False, **step)

    def _close(self, runner: RunnerView) -> None:
        if self.log_artifact and runner.work_dir is not None:
            artifact = self.wandb.Artifact(name='artifacts', type='model')
            endings = self.out_suffix if isinstance(self.out_suffix, str) else tuple(self.out_suffix)
            for name in files_of_run(runner.work_dir, endings):
                # By default, wandb drops the folder, and then two files may have the same name.
                artifact.add_file(os.path.join(runner.work_dir, name), name=name)
            self.wandb.log_artifact(artifact)
        self.wandb.finish(**({'exit_code': 1} if _has_failed(runner) else {}))


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
        self._is_ours = self.mlflow.active_run() is None
        if self._is_ours:
            try:
                self.mlflow.start_run(**({} if self.run_id is None else {'run_id': self.run_id}))
            except self.mlflow.exceptions.MlflowException as error:  # another server, or a folder left behind
                if self.run_id is None:
                    raise
                runner.logger.warning('MLflow cannot continue run %s, so a new one begins: %s', self.run_id, error)
                self.mlflow.start_run()
        self._keep_id(self.mlflow.active_run().info.run_id)
        if self.tags is not None:
            self.mlflow.set_tags(self.tags)
        if self.params is not None:
            self.mlflow.log_params(self.params)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.mlflow.log_metrics(tags, step=self.get_iter(runner))

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.mlflow.log_image(pixels, f'{quote(name, safe="")}_{self.get_iter(runner)}.png')

    def _close(self, runner: RunnerView) -> None:
        failed = _has_failed(runner)
        try:
            if self.log_model and not failed:
                options: dict[str, Any] = {'pip_requirements': [f'torch=={torch.__version__}']}
                # By default, MLflow 3 would trace the model, which needs a batch.
                if 'serialization_format' in inspect.signature(self.mlflow_pytorch.log_model).parameters:
                    options['serialization_format'] = 'pickle'
                self.mlflow_pytorch.log_model(unwrap(runner.model), 'models', **options)
        finally:
            if self._is_ours:
                self.mlflow.end_run('FAILED' if failed else 'FINISHED')


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class ClearMLLoggerHook(TrackerHook):
    """Logs to the ClearML task of this process, or else to a new task, which a resumed run continues.

    Args:
        init_kwargs: arguments of ``clearml.Task.init``.
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    client = 'clearml'

    init_kwargs: dict[str, Any] | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def import_clearml(self) -> None:
        """Set ``self.clearml``."""
        self.clearml = self._client('clearml', 'clearml')

    def _open(self, runner: RunnerView) -> None:
        options = dict(self.init_kwargs or {})
        self._is_ours = self.clearml.Task.current_task() is None
        continues = self._is_ours and self.run_id is not None and 'continue_last_task' not in options
        if continues:
            options['continue_last_task'] = self.run_id
        self.task = self.clearml.Task.init(**options)
        if continues:  # ClearML would add its last iteration to ours, which already count from the run's beginning
            self.task.set_initial_iteration(0)
        self.task_logger = self.task.get_logger()
        self._keep_id(self.task.id)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        for tag, value in tags.items():
            self.task_logger.report_scalar(tag, tag, value, self.get_iter(runner))

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.task_logger.report_image(name, name, iteration=self.get_iter(runner), image=pixels)

    def _close(self, runner: RunnerView) -> None:
        if self._is_ours:
            if _has_failed(runner):
                self.task.mark_failed(status_reason=str(runner.outcome))
            self.task.close()


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """Logs to DVCLive: at the end of every epoch the results of hooks and validations, or else at every interval.

    Args:
        model_file: the file to save the model to after every epoch; None saves nothing. Give it on every rank.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        by_epoch: whether DVCLive's steps are epochs or iterations.
        dvclive: a ``dvclive.Live`` to log to, which is not closed at the end; by default the hook makes its own.
        **kwargs: arguments of ``dvclive.Live``, of version 2 or later; ``resume=True`` continues existing files.
    """

    def __init__(
        self,
        model_file: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        dvclive: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.model_file = model_file
        self.dvclive = dvclive
        self._is_ours = dvclive is None
        if self._is_ours:
            live = self._client('dvclive', 'dvclive').Live
            self.dvclive = live(**kwargs) if get_dist_info()[0] == 0 else None  # ranks must not write the same files

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self.by_epoch:
            super().after_train_iter(runner)
        elif self.reset_flag and runner.log_buffer.ready:
            runner.log_buffer.clear_output()  # otherwise the loggers before this one would log in every iteration

    def after_train_epoch(self, runner: RunnerView) -> None:
        super().after_train_epoch(runner)
        if self.model_file is not None:
            file = Path(self.model_file)
            runner.save(str(file.parent), file.name, create_symlink=False, caller=self)

    def _step_of(self, runner: RunnerView) -> Any:
        return self.get_epoch(runner) if self.by_epoch else self.get_iter(runner)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.dvclive.step = self._step_of(runner)
        for tag, value in tags.items():
            self.dvclive.log_metric(tag, value)
        self.dvclive.sync()

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.dvclive.log_image(f'{quote(name, safe="")}/{self.get_iter(runner)}.png', pixels)

    def _close(self, runner: RunnerView) -> None:
        if self._is_ours:
            self.dvclive.end()


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class NeptuneLoggerHook(TrackerHook):
    """Logs to Neptune, with its client of version 1 or later.

    Args:
        init_kwargs: arguments of the client's ``init_run``.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        with_step: whether to log values with their iteration; if not, Neptune counts them.
        by_epoch: as in `LoggerHook`.
    """

    client = 'neptune'

    init_kwargs: dict[str, Any] | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = True
    with_step: bool = True
    by_epoch: bool = True

    def import_neptune(self) -> None:
        """Set ``self.neptune``."""
        self.neptune = self._client('neptune', 'neptune')
        self.run: Any = None

    def _open(self, runner: RunnerView) -> None:
        self.run = self.neptune.init_run(**(self.init_kwargs or {}))

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        step = {'step': self.get_iter(runner)} if self.with_step else {}
        for tag, value in tags.items():
            self.run[tag].append(value, **step)

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self._send({name: self.neptune.types.File.as_image(pixels / 255)}, runner)

    def _close(self, runner: RunnerView) -> None:
        if _has_failed(runner):
            self.run['sys/failed'] = True
        self.run.stop()


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class SegmindLoggerHook(TrackerHook):
    """Logs to Segmind by epoch. Only clients before version 0.2 have a tracker.

    Args:
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    client = 'segmind'

    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def import_segmind(self) -> None:
        """Set ``self.log_metrics`` and ``self.mlflow_log``, which calls it."""
        self.log_metrics = self._client('segmind.tracking.fluent', 'segmind<0.2').log_metrics
        self.mlflow_log = self._client('segmind.utils.logging_utils', 'segmind<0.2').try_mlflow_log

    def _step_of(self, runner: RunnerView) -> Any:
        return None  # an epoch, which has several lines

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.mlflow_log(self.log_metrics, tags, step=runner.epoch, epoch=runner.epoch)


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class PaviLoggerHook(TrackerHook):
    """Logs to Pavi, whose client is not public. The model's graph is not uploaded.

    Args:
        init_kwargs: arguments of ``pavi.SummaryWriter``; by default ``name`` is the work dir's name, ``model`` the
            model's class, and ``session_text`` the text of the config.
        add_graph, img_key, add_graph_kwargs: no effect; a graph that they ask for gets a warning.
        add_last_ckpt: whether to upload the last checkpoint at the end.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        by_epoch: as in `LoggerHook`; also whether the other steps are epochs.
        add_ckpt_kwargs: ``active`` (False): whether to upload checkpoints; ``start`` (0) and ``interval`` (1).
    """

    _adds_mode = False

    init_kwargs: dict[str, Any] | None = None
    add_graph: bool | None = None
    img_key: str | None = None
    add_last_ckpt: bool = False
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True
    add_graph_kwargs: dict[str, Any] | None = None
    add_ckpt_kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.add_graph or (self.add_graph_kwargs or {}).get('active'):
            warnings.warn('PaviLoggerHook uploads no graph of the model: leave add_graph out', stacklevel=4)
        self.writer: Any = None
        self.run_name = ''

    def _open(self, runner: RunnerView) -> None:
        folder = os.path.basename(os.path.normpath(runner.work_dir or os.getcwd()))
        options = {'name': folder, 'model': type(unwrap(runner.model)).__name__, **(self.init_kwargs or {})}
        if 'config' in runner.meta:
            options.setdefault('session_text', runner.meta['config'])
        self.run_name = options['name']
        self.writer = self._client('pavi', 'pavi').SummaryWriter(**options)

    def get_step(self, runner: RunnerView) -> int:
        """Return the epoch for validations, the iteration for everything else."""
        in_epochs = self.by_epoch and self.get_mode(runner) == 'val'
        return self.get_epoch(runner) if in_epochs else self.get_iter(runner)

    def _step_of(self, runner: RunnerView) -> Any:
        return self.get_mode(runner), self.get_step(runner)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.writer.add_scalars(self.get_mode(runner), tags, self.get_step(runner))

    def after_save(self, runner: RunnerView) -> None:
        """Upload the checkpoint that has just been written."""
        upload = {'active': False, 'start': 0, 'interval': 1, **(self.add_ckpt_kwargs or {})}
        step = (runner.epoch if self.by_epoch else runner.iter) + 1
        since = step - upload['start']
        if self._is_open and upload['active'] and since >= 0 and since % upload['interval'] == 0:
            self._upload(runner, step)

    def _upload(self, runner: RunnerView, step: int) -> None:
        path = runner.meta.get('hook_msgs', {}).get('last_ckpt', '')
        if os.path.isfile(path):
            self.writer.add_snapshot_file(tag=self.run_name, snapshot_file_path=path, iteration=step)

    def _close(self, runner: RunnerView) -> None:
        try:
            if self.add_last_ckpt:
                self._upload(runner, runner.completed_epochs if self.by_epoch else runner.completed_iters)
        finally:
            self.writer.close()
