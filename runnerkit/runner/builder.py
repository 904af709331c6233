"""Runners by name, and checks of their arguments."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from runnerkit.fileio.paths import is_url, local_path
from runnerkit.registry import Registry, build_from_cfg
from runnerkit.utils.numbers import check_whole_number

RUNNERS = Registry('runner')
RUNNERS.offer(
    {
        'EpochBasedRunner': 'runnerkit.runner.epoch_based_runner',
        'IterBasedRunner': 'runnerkit.runner.iter_based_runner',
        'Runner': 'runnerkit.runner.epoch_based_runner',
    }
)
RUNNER_BUILDERS = Registry('runner builder')


def build_runner_constructor(cfg: dict[str, Any]) -> Any:
    """Build what builds a runner."""
    return build_from_cfg(cfg, RUNNER_BUILDERS)


def build_runner(cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> Any:
    """Build the runner that ``cfg`` names.

    Args:
        cfg: ``dict(type='EpochBasedRunner', max_epochs=12)``; the key ``constructor`` names another way to build it.
        default_args: model, optimizer, work_dir, logger, meta …; ``cfg`` wins.
    """
    options = cfg.copy()  # a ConfigDict keeps where it was written
    constructor = options.pop('constructor', 'DefaultRunnerConstructor')
    build = build_runner_constructor({'type': constructor, 'runner_cfg': options, 'default_args': default_args})
    return build()


@RUNNER_BUILDERS.register_module()
class DefaultRunnerConstructor:
    """Builds a runner from its config; subclass and register it to set the runner up in another way.

    Args:
        runner_cfg: the runner's config.
        default_args: what the config need not say.
    """

    def __init__(self, runner_cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> None:
        if not isinstance(runner_cfg, dict):
            raise TypeError(f'runner_cfg should be a dict, but got {type(runner_cfg)}')
        self.runner_cfg = runner_cfg
        self.default_args = default_args

    def __call__(self) -> Any:
        """The runner."""
        return build_from_cfg(self.runner_cfg, RUNNERS, self.default_args)


def check_settings(logger: Any, meta: Any, work_dir: Any, max_epochs: Any, max_iters: Any) -> None:
    """Raise TypeError or ValueError unless these are arguments of `BaseRunner`."""
    if logger is not None and not isinstance(logger, logging.Logger):
        raise TypeError(f'logger must be a logging.Logger object, but got {type(logger)}')
    if meta is not None and not isinstance(meta, Mapping):
        raise TypeError(f'meta must be a dict or None, but got {type(meta)}')
    if work_dir is not None and not isinstance(work_dir, (str, os.PathLike)):
        raise TypeError(f'"work_dir" must be a str, a path or None, but got {type(work_dir)}')
    for name, limit in (('max_epochs', max_epochs), ('max_iters', max_iters)):
        check_whole_number(name, limit, at_least=0, or_none=True)
    if max_epochs is not None and max_iters is not None:
        raise ValueError(f'Only one of `max_epochs` or `max_iters` can be set, but got {max_epochs} and {max_iters}')


def absolute_work_dir(work_dir: str | os.PathLike[str]) -> str:
    """``work_dir`` as an absolute path."""
    path = local_path(work_dir)
    if is_url(path):
        raise ValueError(
            f"a runner's work_dir is a folder on this machine, but got {path!r}: give one for the logs, and the URL to "
            f'the hooks that write there, checkpoint_config=dict(out_dir={path!r}, ...); the train tool does that'
        )
    return os.path.abspath(path)
