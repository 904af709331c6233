"""What a search varies: parameters as data, each a kind and its range; and what chooses their values."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, Protocol

from runnerkit.registry import Registry
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion


class Suggest(Protocol):
    """What `Space.draw` asks for values: three methods of Optuna's trials, so that a trial can be passed as it is.

    A name means the same range in every call. ``low`` and ``high`` are both included; with ``log`` they are above 0,
    and the scale is logarithmic; ``step`` is the distance of neighbours.
    """

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices: numbers, texts, bools or None."""


class RandomSuggest:
    """Suggests values at random, each independently of the others, evenly on the parameter's scale.

    Args:
        generator: a seeded `random.Random` or `numpy.random.Generator`. Only its ``random()`` is called, once for each
            value.
    """

    def __init__(self, generator: Any) -> None:
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
    """Suggests the combinations of a grid: in each draw the same one, until `advance`.

    Args:
        points: returns for the name of a parameter how many values of a number are tried, evenly on its scale; None
            for all of them.

    Attributes:
        answers: the current combination, by name, in the order of the questions.
    """

    def __init__(self, points: Callable[[str], int | None]) -> None:
        self.points = points
        self.answers: dict[str, Any] = {}
        self._untried: dict[str, Iterator[Any]] = {}  # by name, what follows each answer

    def advance(self) -> bool:
        """Go to the next combination, which differs in the last answer that can change; False if there is none."""
        for name in reversed([*self.answers]):
            for answer in self._untried[name]:
                self.answers[name] = answer
                return True
            del self.answers[name], self._untried[name]
        return False

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

    def _next(self, name: str, options: Callable[[], Iterable[Any]]) -> Any:
        if name not in self.answers:
            self._untried[name] = iter(options())
            self.answers[name] = next(self._untried[name])
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


_OTHERS = EntryPoints('runnerkit.search_parameters')

#: The kinds of parameters, for configs: ``dict(type='Float', low=1e-4, high=1e-1, log=True)``. A subclass of
#: `Parameter` that is registered here is one more.
PARAMETERS = Registry('search parameter', fallback=_OTHERS.load, fallback_names=_OTHERS.names)

#: What Optuna's storages can hold as a choice.
_PLAIN = (bool, int, float, str, type(None))


class Parameter(ABC):
    """One value that a search varies."""

    @abstractmethod
    def draw(self, name: str, suggest: Suggest) -> Any:
        """Return a value that ``suggest`` chooses.

        Args:
            name: the parameter's; a parameter that asks for several values appends ``[0]``, ``[1]`` … to it.
            suggest: a trial of Optuna, a `RandomSuggest` …
        """

    @abstractmethod
    def why_not(self, value: Any) -> str | None:
        """Return what ``value`` would have to be (``'must be …'``), or None if it is in the range."""

    def same(self, one: Any, other: Any) -> bool:
        """Whether two values are the same, however they are written."""
        return bool(one == other)


@PARAMETERS.register_module()
@dataclass(frozen=True)
class Categorical(Parameter):
    """One of several values of any type.

    A sampler sees a choice that is no number, text, bool or None as its text: ``'[16, 32]'``.

    Args:
        choices: the values, all different; at least one.
    """

    choices: Sequence[Any]

    def __post_init__(self) -> None:
        choices = self.choices
        if isinstance(choices, str | Mapping) or not isinstance(choices, Iterable):
            raise TypeError(f'choices must be a list, but got {choices!r}')
        object.__setattr__(self, 'choices', tuple(choices))
        if not self.choices:
            raise ValueError('choices must have at least one value, but is empty')
        labels = self.labels
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise ValueError(f'choices must be different, but {self.choices[labels.index(label)]!r} and '
                                 f'{self.choices[index]!r} are equal')  # fmt: skip

    @property
    def labels(self) -> list[Any]:
        """The choices as samplers see them."""
        return [choice if isinstance(choice, _PLAIN) else repr(choice) for choice in self.choices]

    def draw(self, name: str, suggest: Suggest) -> Any:
        """As for any parameter; a list or dict is a copy."""
        labels = self.labels
        return copy.deepcopy(self.choices[labels.index(suggest.suggest_categorical(name, labels))])

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        if value in self.choices:
            return None
        names = [each for each in self.choices if isinstance(each, str)]
        hint = suggestion(value, names) if isinstance(value, str) else ''
        return f'must be one of {", ".join(map(repr, self.choices))}{hint}'


@PARAMETERS.register_module()
@dataclass(frozen=True)
class Bool(Categorical):
    """False or True."""

    choices: Sequence[Any] = (False, True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(choice, bool) for choice in self.choices):
            raise TypeError(f'choices must be True and False, but got {list(self.choices)!r}; others are Categorical')


@dataclass(frozen=True)
class _Number(Parameter):
    """A number from ``low`` to ``high``."""

    low: Any
    high: Any
    log: bool = False
    step: Any = None
    points: int | None = None

    _type: ClassVar[Any] = float
    _kind: ClassVar[str] = 'a number'

    def __post_init__(self) -> None:
        for name in ('low', 'high', *(() if self.step is None else ('step',))):
            self._check_number(name, getattr(self, name))
        if self.low > self.high:
            raise ValueError(f'low={self.low} must not be above high={self.high}')
        if not isinstance(self.log, bool):
            raise TypeError(f'log must be True or False, but got {self.log!r}')
        if self.log and self.low <= 0:
            raise ValueError(f'low must be above 0 on a logarithmic scale, but got low={self.low}')
        if self.step is not None and self.step <= 0:
            raise ValueError(f'step must be above 0, but got {self.step}')
        if self.log and self.step != type(self).step:  # the default: none
            raise ValueError(f'step={self.step} and log=True exclude each other: leave one of them out')
        check_whole_number('points', self.points, or_none=True)

    def _check_number(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            hint = ''
            with suppress(ValueError):
                if isinstance(value, str) and math.isfinite(float(value)):
                    hint = f'; without quotes, and in YAML with a point before the exponent, it is {float(value)!r}'
            raise TypeError(f'{name} must be a number, but got {value!r}{hint}')
        if self._type is int and not isinstance(value, int):
            raise TypeError(f'{name} must be a whole number, but got {value!r}; for other numbers there is Float')

    def draw(self, name: str, suggest: Suggest) -> Any:
        """As for any parameter."""
        last = self.high
        if self.step is not None:
            # In decimals, as they are written: 0.3 is three steps of 0.1, which 3 * 0.1 exceeds.
            low, high, step = (Decimal(repr(self._type(each))) for each in (self.low, self.high, self.step))
            last = self._type(low + (high - low) // step * step)
        ask = suggest.suggest_int if self._type is int else suggest.suggest_float
        return self._type(ask(name, self.low, last, step=self.step, log=self.log))

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        fits = isinstance(value, int if self._type is int else Real) and not isinstance(value, bool)
        fits = fits and self.low <= value <= self.high
        if fits and self.step is not None:
            steps = (value - self.low) / self.step
            fits = abs(steps - round(steps)) < 1e-6
        in_steps = '' if self.step in (None, 1) else f' in steps of {self.step}'
        return None if fits else f'must be {self._kind} from {self.low} to {self.high}{in_steps}'


@PARAMETERS.register_module()
@dataclass(frozen=True)
class Int(_Number):
    """A whole number.

    Args:
        low: the lowest.
        high: the highest, included.
        log: whether the scale is logarithmic, as for widths; ``low`` is then at least 1.
        step: the distance of neighbours.
        points: of a grid; by default what the grid says.
    """

    step: int = 1

    _type = int
    _kind = 'a whole number'


@PARAMETERS.register_module()
@dataclass(frozen=True)
class Float(_Number):
    """A number.

    Args:
        low: the lowest.
        high: the highest, included.
        log: whether the scale is logarithmic, as for learning rates; ``low`` is then above 0.
        step: the distance of neighbours; by default every number of the range is tried.
        points: of a grid; by default what the grid says.
    """


def as_parameter(given: Any) -> Parameter:
    """The parameter that ``given`` means: itself, a list of choices, or a dict with a ``type`` in `PARAMETERS`."""
    if isinstance(given, Parameter):
        return given
    if isinstance(given, list):
        return Categorical(given)
    if isinstance(given, dict):
        built = PARAMETERS.build(given)
        if isinstance(built, Parameter):
            return built
        raise TypeError(f'{given["type"]!r} is no kind of search parameter (there are {", ".join(PARAMETERS.names())})')
    hint = ''
    if isinstance(given, tuple) and len(given) == 2:
        hint = f'. For a range, write Float({given[0]!r}, {given[1]!r}) or Int(…), with log=True if its scale is such'
    raise TypeError(
        f"a search parameter must be a list of choices, a dict(type='Float', low=…, high=…) or an object such as "
        f'Float(…), but got {given!r}{hint}'
    )
