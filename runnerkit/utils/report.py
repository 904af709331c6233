"""`report`: log a value from anywhere inside a step, without returning it through every caller."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class ReportSink(Protocol):
    """Receives reported values, such as a run's log buffer."""

    def update(self, vars: dict[str, Any], count: int = 1) -> None:
        """Add ``vars``, each averaged over ``count`` samples."""
        ...


_scope: ContextVar[ReportSink | None] = ContextVar('runnerkit_report', default=None)


@contextmanager
def scope(buffer: ReportSink) -> Iterator[None]:
    """Send what is reported inside this context to ``buffer``; the innermost scope is used."""
    token = _scope.set(buffer)
    try:
        yield
    finally:
        _scope.reset(token)


def report(name: str, value: Any, num_samples: int = 1) -> None:
    """Log ``value`` under ``name``, from any code that a run's step calls: a model's forward, a loss.

    Args:
        name: its name in the log.
        value: a number or a tensor of one element; a tensor stays on its device until a logger needs it.
        num_samples: the number of samples it is a mean of: its weight in averages.

    Raises:
        RuntimeError: there is no run in this thread, or this is a worker of a data loader, which cannot reach the log.
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
            f'report({name!r}, …) was called outside a run (or in another thread): call it inside '
            f'train_step or val_step, or open a scope around it: with runnerkit.utils.report.scope(buffer): …'
        )
    buffer.update({name: value}, num_samples)
