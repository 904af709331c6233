"""Modules that initialise themselves from a config: `BaseModule` and its containers."""

from __future__ import annotations

import copy
import logging
import warnings
from abc import ABCMeta
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from runnerkit.utils.logging import logger_initialized

InitCfg = dict[str, Any] | list[dict[str, Any]] | None


class BaseModule(nn.Module, metaclass=ABCMeta):
    """A module whose initial weights are set by a config; see `runnerkit.nn.weight_init` for ``init_cfg``.

    Its own ``init_cfg`` is applied before those of its children, so the innermost one wins.

    Args:
        init_cfg: kept as a copy.
    """

    def __init__(self, init_cfg: InitCfg = None) -> None:
        super().__init__()
        self._is_init = False
        self.init_cfg = copy.deepcopy(init_cfg)

    @property
    def is_init(self) -> bool:
        """Whether `init_weights` has been called."""
        return self._is_init

    def init_weights(self) -> None:
        """Initialise this module, then every child that has an ``init_weights``, once.

        The outermost call logs where each parameter's values come from. Children of a module with a single 'Pretrained'
        config are skipped, because their weights were loaded from the file.
        """
        if self._is_init:
            warnings.warn(f'init_weights of {type(self).__name__} has been called more than once.', stacklevel=2)
            return
        outermost = not hasattr(self, '_params_init_info')
        if outermost:
            self._start_notes()
        try:
            self._init_self_and_children()
            self._is_init = True
            if outermost:
                self._dump_init_info()
        finally:
            if outermost:
                for module in self.modules():
                    module.__dict__.pop('_params_init_info', None)

    def _start_notes(self) -> None:
        from runnerkit.nn.weight_init import mean_value

        unchanged = f'The value is the same before and after calling `init_weights` of {type(self).__name__}'
        # the default is for new parameters, with which a method may replace known ones
        notes: defaultdict[nn.Parameter, dict[str, Any]] = defaultdict(
            lambda: {'init_info': 'A new parameter', 'tmp_mean_value': None}
        )
        notes.update({p: {'init_info': unchanged, 'tmp_mean_value': mean_value(p)} for p in self.parameters()})
        # Every module gets the notes of the whole model, so that a module's own init_weights can add to them.
        for module in self.modules():
            module._params_init_info = notes  # type: ignore[assignment]

    def _init_self_and_children(self) -> None:
        from runnerkit.nn.weight_init import initialize, loads_a_part, update_init_info

        # Weights of a part are loaded at the end, or children would be initialised over them.
        given = self.init_cfg if isinstance(self.init_cfg, (list, tuple)) else [self.init_cfg]
        parts: Any = [cfg for cfg in given if loads_a_part(cfg)]
        others: Any = [cfg for cfg in given if not loads_a_part(cfg)] if parts else self.init_cfg
        if others:
            initialize(self, others)
            if isinstance(others, dict) and others['type'] == 'Pretrained':
                return
        for child in self.children():
            if hasattr(child, 'init_weights'):
                child.init_weights()  # type: ignore[operator]
                update_init_info(child, f'Initialized by user-defined `init_weights` in {type(child).__name__}')
        if parts:
            initialize(self, parts)

    def _dump_init_info(self) -> None:
        """Write the notes to the log files. They are long, so the terminal gets them only if there is no file."""
        lines = ['Name of parameter - Initialization information']
        for name, parameter in self.named_parameters():
            note = self._params_init_info[parameter]['init_info']  # type: ignore[index]
            shape = 'lazy' if nn.parameter.is_lazy(parameter) else tuple(parameter.shape)
            lines.append(f'{name} - {shape}:\n{note}')
        text = '\n'.join(lines)
        files = [pair for pair in _log_files() if pair[0].isEnabledFor(logging.INFO)]
        for logger, handler in files:
            handler.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))
        if not files:
            logging.getLogger('runnerkit').debug(text)

    def __repr__(self) -> str:
        text = super().__repr__()
        return f'{text}\ninit_cfg={self.init_cfg}' if self.init_cfg else text


def _log_files() -> list[tuple[logging.Logger, logging.FileHandler]]:
    """Return the log files of our loggers and of the user's (such as mmdet's), each with its logger."""
    loggers = map(logging.getLogger, dict.fromkeys(['runnerkit', *logger_initialized]))
    return [
        (logger, handler)
        for logger in loggers
        for handler in logger.handlers
        if isinstance(handler, logging.FileHandler)
    ]


class Sequential(BaseModule, nn.Sequential):
    """`nn.Sequential` with ``init_cfg``."""

    def __init__(self, *args: Any, init_cfg: InitCfg = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleList(BaseModule, nn.ModuleList):
    """`nn.ModuleList` with ``init_cfg``."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: InitCfg = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class ModuleDict(BaseModule, nn.ModuleDict):
    """`nn.ModuleDict` with ``init_cfg``."""

    def __init__(self, modules: Mapping[str, nn.Module] | None = None, init_cfg: InitCfg = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleDict.__init__(self, modules)
