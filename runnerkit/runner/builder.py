"""Runners by name."""

from __future__ import annotations

from typing import Any

from runnerkit.registry import Registry, build_from_cfg

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
