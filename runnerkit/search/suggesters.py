"""Where the values of a drawn configuration come from: Optuna's trials, random numbers, or any object like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol


class Suggest(Protocol):
    """What `Space.draw` asks for values: three methods of Optuna's trials, so that a trial can be passed as it is.

    A name stands for the same range in every call. ``low`` and ``high`` are both included; with ``log`` they are above
    0, and the scale is logarithmic; ``step`` is the distance of neighbours.
    """

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices: numbers, texts, bools or None."""
        ...


class Random(Protocol):
    """A source of random numbers: `random.Random`, `numpy.random.Generator` …"""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class RandomSuggest:
    """Suggests values at random, each independently of the others, evenly on the parameter's scale.

    Args:
        generator: a seeded `random.Random` or `numpy.random.Generator`. Only its ``random()`` is called, once for each
            value.
    """

    def __init__(self, generator: Random) -> None:
        self.generator = generator

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from ``low`` to ``high``."""
        at = float(self.generator.random())
        if step is not None:
            return min(low + step * _index(at, math.floor((high - low) / step + 1e-8) + 1), high)
        value = math.exp(_between(math.log(low), math.log(high), at)) if log else _between(low, high, at)
        return min(max(value, low), high)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number from ``low`` to ``high``."""
        at = float(self.generator.random())
        if log:
            # A whole number stands for all that are rounded to it; so the ends get their full share.
            value = round(math.exp(_between(math.log(low - 0.5), math.log(high + 0.5), at)))
            return min(max(value, low), high)
        return low + step * _index(at, (high - low) // step + 1)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of ``choices``."""
        return choices[_index(float(self.generator.random()), len(choices))]


def _between(low: float, high: float, at: float) -> float:
    return low + (high - low) * at


def _index(at: float, count: int) -> int:
    return min(int(at * count), count - 1)
