"""Curves, checkpoints and graphs in Pavi."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook
from runnerkit.parallel import to_device, unwrap


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class PaviLoggerHook(TrackerHook):
    """Logs to Pavi, whose client is not public.

    Args:
        init_kwargs: arguments of ``pavi.SummaryWriter``; by default ``name`` is the work dir's name, ``model`` the
            model's class, and ``session_text`` the config in the run's meta.
        add_graph: MMCV's old name for ``add_graph_kwargs['active']``.
        img_key: MMCV's old name for ``add_graph_kwargs['img_key']``.
        add_last_ckpt: whether to upload the last checkpoint at the end.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        by_epoch: as in `LoggerHook`; also whether the other steps are epochs.
        add_graph_kwargs: ``active`` (False): whether to upload the model's graph; ``start`` (0) and ``interval`` (1):
            at which steps; ``img_key`` (``'img'``): the key of the model's input in a batch; ``opset_version`` (11);
            ``dummy_forward_kwargs``: further arguments of the model.
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
        graph = dict(self.add_graph_kwargs or {})
        for old, new, value in (('add_graph', 'active', self.add_graph), ('img_key', 'img_key', self.img_key)):
            if value is not None:
                graph[new] = value
                warnings.warn(
                    f'{old} of PaviLoggerHook is deprecated: use add_graph_kwargs=dict({new}={value!r})',
                    DeprecationWarning,
                    stacklevel=4,
                )
        self.add_graph = graph.get('active', False)
        self.add_graph_start, self.add_graph_interval = graph.get('start', 0), graph.get('interval', 1)
        self.img_key = graph.get('img_key', 'img')
        self.opset_version = graph.get('opset_version', 11)
        self.dummy_forward_kwargs = graph.get('dummy_forward_kwargs', {})
        ckpt = dict(self.add_ckpt_kwargs or {})
        self.add_ckpt = ckpt.get('active', False)
        self.add_ckpt_start, self.add_ckpt_interval = ckpt.get('start', 0), ckpt.get('interval', 1)
        self.writer: Any = None
        self.run_name = ''

    # --- the run -----------------------------------------------------------------------------------------------------

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

    def _tags(self, runner: RunnerView) -> dict[str, Any]:
        return self.get_loggable_tags(runner, add_mode=False)

    def _close(self, runner: RunnerView) -> None:
        try:
            if self.add_last_ckpt:
                done = runner.completed_epochs if self.by_epoch else runner.completed_iters
                self._add_ckpt(runner, runner.meta.get('hook_msgs', {}).get('last_ckpt', ''), done)
        finally:
            self.writer.close()

    # --- checkpoints and graphs --------------------------------------------------------------------------------------

    def _unit(self, runner: RunnerView) -> int:
        """Return the running epoch or iteration, from 1."""
        return (runner.epoch if self.by_epoch else runner.iter) + 1

    def after_save(self, runner: RunnerView) -> None:
        """Upload the checkpoint that has just been written."""
        step = self._unit(runner)
        if self._is_open and self.add_ckpt and _is_due(step, self.add_ckpt_start, self.add_ckpt_interval):
            self._add_ckpt(runner, runner.meta.get('hook_msgs', {}).get('last_ckpt', ''), step)

    def _add_ckpt(self, runner: RunnerView, ckpt_path: str, step: int) -> None:
        if os.path.isfile(ckpt_path):
            self.writer.add_snapshot_file(tag=self.run_name, snapshot_file_path=ckpt_path, iteration=step)

    def before_train_iter(self, runner: RunnerView) -> None:
        # By epoch, use the first batch: reading an extra one from the loader would change what the training sees.
        if not self._is_open or not self.add_graph or (self.by_epoch and runner.inner_iter > 0):
            return
        step = self._unit(runner)
        if _is_due(step, self.add_graph_start, self.add_graph_interval):
            self._add_graph(runner, step)

    def _add_graph(self, runner: RunnerView, step: int) -> None:
        model = unwrap(runner.model)
        parameter = next(model.parameters())
        image = to_device(runner.data_batch[self.img_key], parameter.device)
        image = image.data  # of a DataContainer, what each GPU gets; of a tensor, itself
        if isinstance(image, list):
            image = image[0]
        forward = model.forward
        model.forward = partial(forward, **self.dummy_forward_kwargs)
        try:
            with torch.no_grad():
                self.writer.add_graph(model, image, tag=f'{self.run_name}_{step}', opset_version=self.opset_version)
        finally:
            del model.forward


def _is_due(step: int, start: int, interval: int) -> bool:
    return step >= start and (step - start) % interval == 0


def _as_yaml(config: dict[str, Any]) -> str:
    import yaml

    plain = json.loads(
        json.dumps(config, default=lambda value: list(value) if isinstance(value, range) else str(value))
    )
    return str(yaml.dump(plain))
