"""Restores what a run changes for the whole process, so that it does not affect the next run there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from runnerkit.utils.logging import ConsoleHandler, logger_initialized

#: Environment variables set by seeding and by joining a distributed run.
VARIABLES = ('PYTHONHASHSEED', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')

_cudnn, _matmul = torch.backends.cudnn, torch.backends.cuda.matmul

#: Settings of torch: a getter and a setter each.
_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = (
    (lambda: _cudnn.deterministic, lambda value: setattr(_cudnn, 'deterministic', value)),
    (lambda: _cudnn.benchmark, lambda value: setattr(_cudnn, 'benchmark', value)),
    (lambda: _cudnn.allow_tf32, lambda value: setattr(_cudnn, 'allow_tf32', value)),
    (lambda: _matmul.allow_tf32, lambda value: setattr(_matmul, 'allow_tf32', value)),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_num_threads, torch.set_num_threads),
)


@contextmanager
def preserved_process_state() -> Iterator[None]:
    """Restore torch's settings, environment variables and the logger on leaving the context; close handlers that were
    added to it. Random generators are not restored: code after a run may rely on its seed."""
    switches = [(read, _value_if_set(read), write) for read, write in _SWITCHES]
    variables = {name: os.environ.get(name) for name in VARIABLES}
    logger, was_set_up = logging.getLogger('runnerkit'), 'runnerkit' in logger_initialized
    level = logger.level
    handlers = {each: (each.level, getattr(each, 'verbose', None)) for each in logger.handlers}
    filters = [(each, list(each.filters)) for each in logging.getLogger().handlers]
    try:
        yield
    finally:
        for read, before, write in switches:
            if before is not None and _value_if_set(read) != before:
                write(before)
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        for handler in list(logger.handlers):
            if handler not in handlers:
                logger.removeHandler(handler)
                handler.close()
        for handler, (its_level, verbose) in handlers.items():
            handler.setLevel(its_level)
            if isinstance(handler, ConsoleHandler):
                handler.verbose = bool(verbose)
        logger.setLevel(level)
        for handler, its_filters in filters:
            handler.filters[:] = its_filters
        if not was_set_up:
            logger_initialized.pop('runnerkit', None)


def _value_if_set(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:  # set through torch's newer API, which a run does not use
        return None
