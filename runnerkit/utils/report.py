"""Numbers for the log from deep inside a step, without handing them up through every return."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Store(Protocol):
    """What takes reported numbers, such as a run's log buffer."""

    def update(self, vars: dict[str, Any], count: int = 1) -> None:
        """Take ``vars``, each of which stands for ``count`` samples."""
        ...


_scope: ContextVar[Store | None] = ContextVar('runnerkit_report', default=None)


@contextmanager
def scope(buffer: Store) -> Iterator[None]:
    """What is reported inside goes to ``buffer``; the innermost scope counts."""
    token = _scope.set(buffer)
    try:
        yield
    finally:
        _scope.reset(token)


def report(name: str, value: Any, num_samples: int = 1) -> None:
    """Log ``value`` under ``name``, from any code that a run's step calls: a model's forward, a loss.

    Args:
        name: its name in the log.
        value: a number or a tensor of one element; a tensor is not read before a logger is due.
        num_samples: how many samples it stands for, its weight in averages.

    Raises:
        RuntimeError: no run is going on here, or this is a data loader's worker, from which nothing gets into the log.
    """
    data = sys.modules.get('torch.utils.data')
    if data is not None and data.get_worker_info() is not None:
        raise RuntimeError(
            f'report({name!r}, …) was called in a worker of a DataLoader, another process, which cannot reach the log: '
            f'return the value with the sample and report it in the step'
        )
    buffer = _scope.get()
    if buffer is None:
        raise RuntimeError(
            f'report({name!r}, …) was called outside a run (or in a thread of its own): call it from what a '
            f'train_step or val_step calls, or open a scope around it: with runnerkit.utils.report.scope(buffer): …'
        )
    buffer.update({name: value}, num_samples)
