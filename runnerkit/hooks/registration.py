"""How hooks get into a runner: one at a time, from configs, and the standard set of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runnerkit.hooks.hook import HOOKS, Hook, Priority, get_priority
from runnerkit.hooks.hook_table import HookTable
from runnerkit.registry import build_from_cfg, placed_errors
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import did_you_mean

_LOG_KEYS = ['interval', 'hooks', 'fingerprint']

HookConfig = dict[str, Any] | Hook | None

#: Which priority each of the standard hooks of a training has.
PRIORITIES = {
    'lr': 'VERY_HIGH',
    'momentum': 'HIGH',
    'optimizer': 'ABOVE_NORMAL',
    'checkpoint': 'NORMAL',
    'timer': 'LOW',
    'logger': 'VERY_LOW',
    'profiler': 'NORMAL',
}


class Registration:
    """MMCV's methods of a runner that register hooks. Configs are never changed."""

    hooks: HookTable
    by_epoch: bool

    def register_hook(self, hook: Hook, priority: int | str | Priority = 'NORMAL') -> None:
        """Add ``hook``; equal priorities keep the order of registration."""
        if not isinstance(hook, Hook):
            raise WrongType(f'hook must be an instance of runnerkit.hooks.Hook, but got {hook!r}')
        if hasattr(hook, 'priority'):
            raise ValueError(
                f'"priority" is a reserved attribute for hooks, but {type(hook).__name__} has one: give the '
                'priority to register_hook, and register a hook once only (each run needs its own)'
            )
        self.hooks.register(hook, get_priority(priority))

    def register_hook_from_cfg(self, hook_cfg: dict[str, Any]) -> None:
        """Build a hook from ``dict(type=…, priority='NORMAL', …)`` and register it."""
        if not isinstance(hook_cfg, dict):
            raise WrongType(f'a hook must be a Hook or a dict with the key "type", but got {hook_cfg!r}')
        options = hook_cfg.copy()
        options.pop('priority', None)
        with placed_errors(hook_cfg):
            self.register_hook(build_from_cfg(options, HOOKS), hook_cfg.get('priority', 'NORMAL'))

    def register_lr_hook(self, lr_config: HookConfig) -> None:
        """Register ``dict(policy='step', …)``, ``dict(type='StepLrUpdaterHook', …)`` or a hook."""
        self._register_schedule('lr', lr_config, build_lr_hook)

    def register_momentum_hook(self, momentum_config: HookConfig) -> None:
        """Register ``dict(policy='cyclic', …)``, ``dict(type=…)`` or a hook."""
        self._register_schedule('momentum', momentum_config, build_momentum_hook)

    def register_optimizer_hook(self, optimizer_config: HookConfig) -> None:
        """Register an OptimizerHook, or the hook that ``type`` names."""
        self._register('optimizer', optimizer_config, 'OptimizerHook')

    def register_checkpoint_hook(self, checkpoint_config: HookConfig) -> None:
        """Register a CheckpointHook, or the hook that ``type`` names."""
        self._register('checkpoint', self._by_unit(checkpoint_config), 'CheckpointHook')

    def register_timer_hook(self, timer_config: HookConfig) -> None:
        """Register the hook that ``type`` names."""
        self._register('timer', timer_config, 'IterTimerHook')

    def register_profiler_hook(self, profiler_config: HookConfig) -> None:
        """Register a ProfilerHook, or the hook that ``type`` names."""
        self._register('profiler', profiler_config, 'ProfilerHook')

    def register_logger_hooks(self, log_config: Mapping[str, Any] | None) -> None:
        """Register every hook of ``dict(interval=…, hooks=[dict(type=…), …])``; ``interval`` is their default.

        With ``fingerprint=True``, their lines have hashes of the run's state (`FingerprintHook`).
        """
        if log_config is None:
            return
        with placed_errors(log_config):
            for key in log_config:
                if key not in _LOG_KEYS:
                    hint = did_you_mean(key, _LOG_KEYS)
                    taken = ', '.join(map(repr, _LOG_KEYS))
                    raise ValueError(f'log_config takes {taken}, but got {key!r}; {hint}'.rstrip('; '))
            if log_config.get('fingerprint'):
                from runnerkit.hooks.fingerprint import FingerprintHook

                self.register_hook(FingerprintHook(), PRIORITIES['logger'])
            defaults = {'interval': log_config['interval']} if 'interval' in log_config else {}
            for config in log_config.get('hooks', ()):
                hook = config if isinstance(config, Hook) else build_from_cfg(self._by_unit(config), HOOKS, defaults)
                self.register_hook(hook, PRIORITIES['logger'])

    def register_custom_hooks(self, custom_config: list[Any] | HookConfig) -> None:
        """Register hooks and configs of hooks (``priority`` among their keys), NORMAL where they do not say
        otherwise."""
        if custom_config is None:
            return
        for item in custom_config if isinstance(custom_config, (list, tuple)) else [custom_config]:
            if isinstance(item, Hook):
                self.register_hook(item)
            else:
                self.register_hook_from_cfg(item)

    def register_training_hooks(
        self,
        lr_config: HookConfig,
        optimizer_config: HookConfig = None,
        checkpoint_config: HookConfig = None,
        log_config: Mapping[str, Any] | None = None,
        momentum_config: HookConfig = None,
        timer_config: HookConfig = {'type': 'IterTimerHook'},  # noqa: B006 (MMCV's signature; never changed)
        custom_hooks_config: list[Any] | HookConfig = None,
    ) -> None:
        """Register the standard hooks of a training; None leaves one out.

        ============  ==================  =================================
        hook          priority            from
        ============  ==================  =================================
        learning rate VERY_HIGH (10)      ``lr_config``
        momentum      HIGH (30)           ``momentum_config``
        optimizer     ABOVE_NORMAL (40)   ``optimizer_config``
        checkpoint    NORMAL (50)         ``checkpoint_config``
        timer         LOW (70)            ``timer_config``
        loggers       VERY_LOW (90)       ``log_config``
        custom        theirs, or NORMAL   ``custom_hooks_config``
        ============  ==================  =================================
        """
        self.register_lr_hook(lr_config)
        self.register_momentum_hook(momentum_config)
        self.register_optimizer_hook(optimizer_config)
        self.register_checkpoint_hook(checkpoint_config)
        self.register_timer_hook(timer_config)
        self.register_logger_hooks(log_config)
        self.register_custom_hooks(custom_hooks_config)

    def get_hook_info(self) -> str:
        """A table of the hooks at each point, in the order in which they are called."""
        return self.hooks.info()

    def _register(self, kind: str, config: HookConfig, default_type: str) -> None:
        if config is None:
            return
        if not isinstance(config, (Hook, dict)):
            raise WrongType(f'the {kind} hook must be a Hook or a dict of its arguments, but got {config!r}')
        with placed_errors(config):
            hook = config if isinstance(config, Hook) else build_from_cfg(config, HOOKS, {'type': default_type})
            self.register_hook(hook, PRIORITIES[kind])

    def _register_schedule(self, kind: str, config: HookConfig, build: Callable[[Any], Hook]) -> None:
        if config is not None:
            with placed_errors(config):
                self.register_hook(build(self._by_unit(config)), PRIORITIES[kind])

    def _by_unit(self, config: Any) -> Any:
        """``config`` with the runner's unit as its ``by_epoch`` where it says nothing."""
        if self.by_epoch or not isinstance(config, dict) or 'by_epoch' in config:
            return config
        copied = config.copy()  # keeps a ConfigDict one, and with it where it was written
        copied['by_epoch'] = False
        return copied


def build_lr_hook(lr_config: Any) -> Hook:
    """Build the learning-rate hook of a config; see `build_policy_hook`.

    Example:
        >>> build_lr_hook(dict(policy='step', step=[8, 11])).gamma
        0.1
    """
    return build_policy_hook(lr_config, 'LrUpdaterHook')


def build_momentum_hook(momentum_config: Any) -> Hook:
    """Build the momentum hook of a config; see `build_policy_hook`.

    Example:
        >>> build_momentum_hook(dict(policy='step', step=[8, 11])).gamma
        0.5
    """
    return build_policy_hook(momentum_config, 'MomentumUpdaterHook')


def build_policy_hook(config: Any, suffix: str) -> Hook:
    """Build the hook that a config names by its policy; ``config`` itself is not changed."""
    if isinstance(config, Hook):
        return config
    if not isinstance(config, dict):
        raise WrongType(f"a schedule is a dict such as dict(policy='step', step=[8, 11]) or a hook, got {config!r}")
    if 'type' in config:
        return HOOKS.build(config)
    if 'policy' not in config:
        raise WrongValue(f"a schedule's config names its policy, as in dict(policy='step', ...), got {config}")
    arguments = config.copy()
    policy = arguments.pop('policy')
    if not isinstance(policy, str):
        raise TypeError(f'policy must be a name such as "step", got {policy!r}')
    name = (policy.title() if policy == policy.lower() else policy) + suffix
    if HOOKS.get(name) is not None:
        return HOOKS.build(dict(arguments, type=name))
    known = [each.removesuffix(suffix) for each in HOOKS.names() if each.endswith(suffix)]
    if suffix == 'LrUpdaterHook':
        from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook, find_scheduler, scheduler_names

        if find_scheduler(policy) is not None:
            return HOOKS.build(dict(arguments, type=TorchLrUpdaterHook, scheduler=policy))
        known += scheduler_names()
    hint, listed = did_you_mean(policy, known), ', '.join([*known, f'and your own {suffix} classes'])
    raise KeyError(f'there is no policy {policy!r}{"; " + hint if hint else "."} Policies: {listed}.')
