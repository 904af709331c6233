"""What answers `Space.draw`: a trial of Optuna, random numbers, the next combination of a grid, or a similar object."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Suggest(Protocol):
    """What `Space.draw` asks for values: three methods of Optuna's trials, so that a trial can be passed as it is.

    A name means the same range in every call. ``low`` and ``high`` are both included; with ``log`` they are above 0,
    and the scale is logarithmic; ``step`` is the distance of neighbours.
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
        if step is not None:
            return min(low + step * self._index(math.floor((high - low) / step + 1e-8) + 1), high)
        value = math.exp(self._between(math.log(low), math.log(high))) if log else self._between(low, high)
        return min(max(value, low), high)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number from ``low`` to ``high``."""
        if log:
            # A whole number is drawn by all that are rounded to it; so the ends get their full share.
            value = round(math.exp(self._between(math.log(low - 0.5), math.log(high + 0.5))))
            return min(max(value, low), high)
        return low + step * self._index((high - low) // step + 1)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of ``choices``."""
        return choices[self._index(len(choices))]

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * float(self.generator.random())

    def _index(self, count: int) -> int:
        return min(int(float(self.generator.random()) * count), count - 1)


class GridSuggest:
    """Suggests one combination of a grid after another: `begin` before each draw, `advance` after it.

    Args:
        points: returns for the name of a parameter how many values of a number are tried, evenly on its scale; None
            for all of them.

    Attributes:
        answers: what the current draw was given, by name.
    """

    def __init__(self, points: Callable[[str], int | None]) -> None:
        self.points = points
        self.answers: dict[str, Any] = {}
        self._options: dict[str, Sequence[Any]] = {}
        self._places: list[int] = []  # of the answers among their options, in the order of the questions
        self._counts: list[int] = []

    def begin(self) -> None:
        """Start the draw of the current combination."""
        self.answers, self._counts = {}, []

    def advance(self) -> bool:
        """Go to the next combination; False if there is none."""
        while self._places and self._places[-1] + 1 == self._counts[len(self._places) - 1]:
            self._places.pop()
        if self._places:
            self._places[-1] += 1
        return bool(self._places)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number: all that are ``step`` apart, or as many as there are points."""
        return float(self._next(name, lambda: self._numbers(name, low, high, step, log)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number."""
        return int(self._next(name, lambda: self._every(range(low, high + 1, step), self.points(name), log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of ``choices``."""
        return self._next(name, lambda: choices)

    def _numbers(self, name: str, low: float, high: float, step: float | None, log: bool) -> Sequence[float]:
        points = self.points(name)
        if step is not None:
            places = self._every(range(round((high - low) / step) + 1), points, False)
            return [min(low + step * place, high) for place in places]
        if points is None:
            raise ValueError(
                f'{name}: a grid over the numbers from {low} to {high} needs points=…: say how many are tried'
            )
        return _spread(low, high, points, log)

    @staticmethod
    def _every(numbers: range, points: int | None, log: bool) -> Sequence[int]:
        """``numbers``, or those of them that are nearest to so many points."""
        if points is None or points >= len(numbers):
            return numbers
        first, step = numbers[0], numbers.step
        return sorted(
            {first + step * round((each - first) / step) for each in _spread(first, numbers[-1], points, log)}
        )

    def _next(self, name: str, options_of: Callable[[], Sequence[Any]]) -> Any:
        if name not in self._options:
            self._options[name] = options_of()
        options, index = self._options[name], len(self._counts)
        if index == len(self._places):
            self._places.append(0)
        self._counts.append(len(options))
        self.answers[name] = options[self._places[index]]
        return self.answers[name]


def _spread(low: float, high: float, points: int, log: bool) -> list[float]:
    """``points`` numbers from ``low`` to ``high``, both included, at equal distances on the scale."""
    if low == high:
        return [low]
    if points == 1:
        return [math.sqrt(low * high) if log else (low + high) / 2]
    start, end = (math.log(low), math.log(high)) if log else (low, high)
    inner = [start + (end - start) * index / (points - 1) for index in range(1, points - 1)]
    return [low, *(map(math.exp, inner) if log else inner), high]
