"""Curves in Weights & Biases."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook, has_failed
from runnerkit.log_files import files_of_run
from runnerkit.utils.pictures import Pixels

_SUMMARIES = ('min', 'max', 'mean', 'best', 'last', 'none')


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
            if summary in _SUMMARIES:
                self.wandb.define_metric(metric, summary=summary)
            else:
                warnings.warn(
                    f'define_metric_cfg of {metric!r} is skipped: its summary should be in {_SUMMARIES}, but got '
                    f'{summary!r}',
                    UserWarning,
                    stacklevel=2,
                )

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
            self._upload(runner.work_dir)
        self.wandb.finish(**({'exit_code': 1} if has_failed(runner) else {}))

    def _upload(self, work_dir: str) -> None:
        artifact = self.wandb.Artifact(name='artifacts', type='model')
        endings = self.out_suffix if isinstance(self.out_suffix, str) else tuple(self.out_suffix)
        for name in files_of_run(work_dir, endings):
            # By default, wandb drops the folder, and then two files may have the same name.
            named = {'name': name} if os.path.dirname(name) else {}
            artifact.add_file(os.path.join(work_dir, name), **named)
        self.wandb.log_artifact(artifact)
