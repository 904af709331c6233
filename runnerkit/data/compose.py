"""Transforms in a row, built by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runnerkit.data.builder import TRANSFORMS
from runnerkit.registry import build_or_bind, find_function


@TRANSFORMS.register_module()
class Compose:
    """Applies transforms one after the other.

    Args:
        transforms: configs for TRANSFORMS, or functions that take a sample and return it, which may be named
            (``'my_data.py:flip'``). A transform that returns None gives the sample up: those after it are not called,
            and the result is None.

    Raises:
        TypeError: a transform is neither a config nor callable.
    """

    def __init__(self, transforms: Sequence[dict[str, Any] | Callable[[Any], Any] | str]) -> None:
        self.transforms: list[Callable[[Any], Any]] = []
        for transform in transforms:
            if isinstance(transform, dict):
                transform = build_or_bind(transform, TRANSFORMS)
            elif isinstance(transform, str) and '.py:' in transform:
                transform = find_function(transform, 'a transform')
            if not callable(transform):
                raise TypeError(
                    f'a transform must be a config (a dict with a type), callable or the name of a function, but got '
                    f'{type(transform).__name__}: {transform!r}'
                )
            self.transforms.append(transform)

    def __call__(self, sample: Any) -> Any:
        """Return what the last transform makes of ``sample``, or None if one of them gave it up."""
        for transform in self.transforms:
            sample = transform(sample)
            if sample is None:
                return None
        return sample

    def __repr__(self) -> str:
        lines = ''.join(f'\n    {transform}' for transform in self.transforms)
        return f'{type(self).__name__}({lines}\n)'
