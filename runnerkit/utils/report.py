"""`report` and `report_image`: log a value or a picture from any code of a run, without returning it through every
caller."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class ReportSink(Protocol):
    """Receives reported values, such as a run's log buffer."""

    def update(self, vars: dict[str, Any], count: int = 1) -> None:
        """Add ``vars``, each averaged over ``count`` samples."""
        ...


_scope: ContextVar[ReportSink | None] = ContextVar('runnerkit_report', default=None)

#: Gets the name and the pixels of a picture; returns whether anything takes pictures.
TakesImages = Callable[[str, Any], bool]

_takes_images: ContextVar[TakesImages | None] = ContextVar('runnerkit_report_image', default=None)


@contextmanager
def scope(buffer: ReportSink) -> Iterator[None]:
    """Send what is reported inside this context to ``buffer``; the innermost scope is used."""
    token = _scope.set(buffer)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def image_scope(take: TakesImages) -> Iterator[None]:
    """Hand pictures that are reported inside this context to ``take``; the innermost scope is used."""
    token = _takes_images.set(take)
    try:
        yield
    finally:
        _takes_images.reset(token)


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


def report_image(name: str, image: Any) -> None:
    """Log a picture under ``name``, from a hook, or from any code that a run's step calls.

    The report of a run shows it, with the iteration; TensorBoard and other trackers get it. Outside a run, and in a
    worker of a data loader, it only warns.

    Args:
        name: its name, at most 100 characters; pictures of later iterations have the same one.
        image: a numpy array ``[height, width]``, ``[height, width, 3]`` or ``[height, width, 4]``; a torch tensor
            ``[height, width]`` or ``[channels, height, width]``; both with uint8 or floats in [0, 1]. Or a matplotlib
            figure, which stays open.

    Raises:
        TypeError: ``name`` is not a text, or ``image`` is something else.
        ValueError: ``name`` is empty or longer; ``image`` has another shape, or values outside [0, 1].
    """
    if not isinstance(name, str):
        raise TypeError(f'the name of a picture must be a text, but got {name!r}')
    if not 0 < len(name) <= 100:
        raise ValueError(f'the name of a picture must have 1 to 100 characters, but got {name!r}')
    from runnerkit.utils.pictures import as_pixels  # imports numpy

    pixels, take = as_pixels(image), _takes_images.get()
    if take is None:
        warnings.warn(
            f'report_image({name!r}, …) was called outside a run, or in a separate thread or worker: the picture is '
            'not kept',
            stacklevel=2,
        )
    elif not take(name, pixels):
        warnings.warn(
            f'report_image({name!r}, …): no hook of this run takes pictures. Runs by config keep them in the work dir; '
            'elsewhere register a TensorboardLoggerHook, or a hook with after_image(runner, name, pixels)',
            stacklevel=2,
        )
