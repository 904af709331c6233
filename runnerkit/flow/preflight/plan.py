"""What the checks of a preflight look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from runnerkit.config.origin import Finding, dotted, written_at
from runnerkit.flow.context import Context, Options
from runnerkit.hooks import CheckpointHook, EvalHook, Hook, OptimizerHook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import unwrap
from runnerkit.runner.workflow import epochs_in, iters_in, length_of, trains
from runnerkit.utils.lazy import EXPERIMENT, loaded_class

Path = tuple[Any, ...]

#: The config's section of each kind of hook; others come from ``custom_hooks``.
_SECTIONS: tuple[tuple[type[Hook], str], ...] = (
    (OptimizerHook, 'optimizer_config'),
    (CheckpointHook, 'checkpoint_config'),
    (EvalHook, 'evaluation'),
    (LoggerHook, 'log_config'),
)


@dataclass(frozen=True)
class Plan:
    """A run that is about to start. Everything is optional: checks of what is missing find nothing.

    Attributes:
        cfg: the config.
        runner: the runner, with its hooks.
        loaders: one for each entry of ``workflow``.
        workflow: pairs of a mode and a number.
        options: the command line's flags.
    """

    cfg: Any = None
    runner: Any = None
    loaders: Sequence[Any] = ()
    workflow: Sequence[tuple[str, int]] = ()
    options: Options = field(default_factory=Options)

    @classmethod
    def of(cls, context: Context) -> Plan:
        """The plan of a flow, as far as its stages have come."""
        return cls(context.cfg, context.runner, context.loaders, context.workflow, context.options)

    # --- findings ----------------------------------------------------------------------------------------------------

    def error(self, path: Path, what: str, way_out: str) -> Finding:
        """An error about the config's key at ``path``."""
        return self._finding('error', path, what, way_out)

    def warning(self, path: Path, what: str, way_out: str) -> Finding:
        """A warning about the config's key at ``path``."""
        return self._finding('warning', path, what, way_out)

    def _finding(self, level: Literal['error', 'warning'], path: Path, what: str, way_out: str) -> Finding:
        if self.cfg is None:
            return Finding(level, '', '', what, way_out)
        return Finding(level, dotted(path), written_at(self.cfg, path) if path else '', what, way_out)

    def too_many(
        self, hook: Hook, name: str, number: Any, by_epoch: bool, meaning: str, consequence: str
    ) -> Iterator[Finding]:
        """A warning if the argument ``name`` of ``hook``, a ``number`` with this ``meaning``, is more epochs, or
        iterations, than the run has."""
        length = self.length(by_epoch)
        if length and isinstance(number, int) and number > length:
            what = f'{meaning}, but the run has {amount(length, by_epoch)}: {consequence}'
            yield self.warning(self.key_of(hook, name), what, f'Let {name} be at most {length}.')

    def counts_no_epochs(self, hook: Hook, consequence: str) -> Finding:
        """The warning about a ``hook`` that counts epochs in an iteration runner."""
        what = f'counts epochs, but an iteration runner has none: {consequence}'
        way_out = 'Set by_epoch=False, and interval to a number of iterations.'
        return self.warning(self.key_of(hook, 'by_epoch'), what, way_out)

    # --- the config --------------------------------------------------------------------------------------------------

    def get(self, *path: Any) -> Any:
        """The config's value at ``path``; None if there is none."""
        node: Any = self.cfg
        for step in path:
            node = node.get(step) if hasattr(node, 'get') and node is not None else None
        return node

    @cached_property
    def custom_hooks(self) -> list[tuple[Path, Any]]:
        """The config's ``custom_hooks``, each with its place; a single one need not be in a list."""
        custom = self.get('custom_hooks') or []
        if isinstance(custom, (list, tuple)):
            return [(('custom_hooks', index), item) for index, item in enumerate(custom)]
        return [(('custom_hooks',), custom)]

    def path_of(self, hook: Hook) -> Path:
        """The place of ``hook`` in the config; empty if it is not known."""
        if self.cfg is None:
            return ()
        section = next((name for kind, name in _SECTIONS if isinstance(hook, kind)), '')
        if isinstance(hook, ScheduleHook):
            section = 'momentum_config' if hook.key == 'momentum' else 'lr_config'
        kinds = [path for path, item in self.custom_hooks if _describes(item, hook)]
        alike = [other for other in self.hooks if type(other) is type(hook)]
        # Those of sections are registered before custom ones.
        nth = alike.index(hook) - (len(alike) - len(kinds))
        if 0 <= nth < len(kinds):
            return kinds[nth]
        if section == 'log_config':
            loggers = self.get('log_config', 'hooks') or []
            for index, item in enumerate(loggers):
                if _describes(item, hook):
                    return ('log_config', 'hooks', index)
        return (section,) if section and self.get(section) is not None else ()

    def key_of(self, hook: Hook, name: str) -> Path:
        """The place of the argument ``name`` of ``hook`` in the config; empty if it is not known."""
        path = self.path_of(hook)
        if path[:2] == ('log_config', 'hooks') and self.get('log_config', 'interval') is not None:
            item = self.get('log_config', 'hooks')[path[2]]
            if name == 'interval' and isinstance(item, Mapping) and name not in item:
                return ('log_config', 'interval')
        return (*path, name) if path else ()

    # --- the runner --------------------------------------------------------------------------------------------------

    @cached_property
    def hooks(self) -> list[Hook]:
        """The runner's hooks."""
        return list(getattr(self.runner, 'hooks', ()))

    def hooks_of(self, *kinds: type[Any]) -> list[Any]:
        """The hooks of these classes."""
        return [hook for hook in self.hooks if isinstance(hook, kinds)]

    @property
    def is_experiment(self) -> bool:
        """Whether the runner is an `Experiment`, whose user writes the batch."""
        return isinstance(self.runner, loaded_class(EXPERIMENT))

    @cached_property
    def model(self) -> nn.Module:
        """The model inside any wrappers."""
        return unwrap(self.runner.model)

    @cached_property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name; a single one is called ``''``."""
        return {} if self.runner.optimizer is None else named_optimizers(self.runner.optimizer)

    @property
    def by_epoch(self) -> bool:
        """Whether the runner's unit is the epoch."""
        return bool(getattr(self.runner, 'by_epoch', True))

    # --- the length --------------------------------------------------------------------------------------------------

    @cached_property
    def training_loaders(self) -> list[Any]:
        """The loaders of the workflow's entries that train."""
        return [
            loader for (mode, _), loader in zip(self.workflow, self.loaders, strict=False) if trains(mode, self.runner)
        ]

    @cached_property
    def epoch_length(self) -> int | None:
        """Iterations of a training epoch, of the longest loader if there are several; None if that is not known."""
        lengths = [length_of(loader) for loader in self.training_loaders]
        return max(lengths) if lengths and None not in lengths else None  # type: ignore[type-var]

    @cached_property
    def longest(self) -> Any:
        """The longest training loader."""
        return max(self.training_loaders, key=lambda loader: length_of(loader) or 0, default=None)

    @cached_property
    def iters(self) -> int | None:
        """Training iterations of the run, at most; None if that is not known."""
        if self.runner.max_iters is not None:
            return self.runner.max_iters
        return None if self.epoch_length is None else iters_in(self.runner.max_epochs, self.longest)

    @cached_property
    def epochs(self) -> int | None:
        """Training epochs of the run, the last one possibly cut; None if that is not known."""
        if self.runner.max_epochs is not None:
            return self.runner.max_epochs
        return None if self.epoch_length is None else epochs_in(self.runner.max_iters, self.longest)

    def length(self, by_epoch: bool) -> int | None:
        """Epochs or iterations of the run; None if that is not known."""
        return self.epochs if by_epoch else self.iters


def amount(number: int, by_epoch: bool) -> str:
    """``number`` with its unit: '1 epoch', '300 iterations'."""
    return f'{number} {"epoch" if by_epoch else "iteration"}{"" if number == 1 else "s"}'


def names(items: Sequence[str], most: int = 3) -> str:
    """The first few of ``items``."""
    shown = ', '.join(items[:most])
    return shown if len(items) <= most else f'{shown} and {len(items) - most} more'


def parts_of_optimizer(plan: Plan) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """The config of each optimizer: its place, its name in a dict of them (else ``''``), and its items."""
    config = plan.get('optimizer')
    if not isinstance(config, Mapping):
        return
    if 'type' not in config and config and all(isinstance(part, Mapping) for part in config.values()):
        for name, part in config.items():
            yield ('optimizer', name), name, part
    else:
        yield ('optimizer',), '', config


def _describes(item: Any, hook: Hook) -> bool:
    """Whether ``item`` is ``hook``, or the config of such a hook."""
    if item is hook:
        return True
    named = item.get('type') if isinstance(item, Mapping) else None
    if isinstance(named, str):
        return named.rpartition('.')[2].rpartition(':')[2] == type(hook).__name__
    return named is type(hook)
