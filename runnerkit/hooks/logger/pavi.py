"""Curves and checkpoints in Pavi."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook
from runnerkit.parallel import unwrap


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class PaviLoggerHook(TrackerHook):
    """Logs to Pavi, whose client is not public. The model's graph is not uploaded.

    Args:
        init_kwargs: arguments of ``pavi.SummaryWriter``; by default ``name`` is the work dir's name, ``model`` the
            model's class, and ``session_text`` the config in the run's meta.
        add_graph, img_key, add_graph_kwargs: no effect; a graph that they ask for gets a warning.
        add_last_ckpt: whether to upload the last checkpoint at the end.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        by_epoch: as in `LoggerHook`; also whether the other steps are epochs.
        add_ckpt_kwargs: ``active`` (False): whether to upload checkpoints; ``start`` (0) and ``interval`` (1).
    """

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
        ckpt = {'active': False, 'start': 0, 'interval': 1, **(self.add_ckpt_kwargs or {})}
        self.add_ckpt, self.add_ckpt_start, self.add_ckpt_interval = (
            ckpt[key] for key in ('active', 'start', 'interval')
        )
        self.writer: Any = None
        self.run_name = ''

    def _open(self, runner: RunnerView) -> None:
        options = dict(self.init_kwargs or {})
        options.setdefault('name', os.path.basename(os.path.normpath(runner.work_dir or os.getcwd())))
        options.setdefault('model', type(unwrap(runner.model)).__name__)
        config = runner.meta.get('config_dict')
        if config is not None:
            options.setdefault('session_text', _as_yaml({'max_iter': runner.max_iters, **config}))
        self.init_kwargs, self.run_name = options, options['name']
        self.writer = self._client('pavi', 'pavi').SummaryWriter(**options)

    def get_step(self, runner: RunnerView) -> int:
        """Return the epoch for validations, the iteration for everything else."""
        in_epochs = self.by_epoch and self.get_mode(runner) == 'val'
        return self.get_epoch(runner) if in_epochs else self.get_iter(runner)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.writer.add_scalars(self.get_mode(runner), tags, self.get_step(runner))

    def _step_of(self, runner: RunnerView) -> Any:
        return self.get_mode(runner), self.get_step(runner)

    def _tags(self, runner: RunnerView) -> dict[str, Any]:
        return self.get_loggable_tags(runner, add_mode=False)

    def _close(self, runner: RunnerView) -> None:
        try:
            if self.add_last_ckpt:
                done = runner.completed_epochs if self.by_epoch else runner.completed_iters
                self._add_ckpt(runner, done)
        finally:
            self.writer.close()

    def after_save(self, runner: RunnerView) -> None:
        """Upload the checkpoint that has just been written."""
        step = (runner.epoch if self.by_epoch else runner.iter) + 1
        since = step - self.add_ckpt_start
        if self._is_open and self.add_ckpt and since >= 0 and since % self.add_ckpt_interval == 0:
            self._add_ckpt(runner, step)

    def _add_ckpt(self, runner: RunnerView, step: int) -> None:
        path = runner.meta.get('hook_msgs', {}).get('last_ckpt', '')
        if os.path.isfile(path):
            self.writer.add_snapshot_file(tag=self.run_name, snapshot_file_path=path, iteration=step)


def _as_yaml(config: dict[str, Any]) -> str:
    import yaml

    plain = json.loads(
        json.dumps(config, default=lambda value: list(value) if isinstance(value, range) else str(value))
    )
    return str(yaml.dump(plain))
