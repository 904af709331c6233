"""What a search varies: parameters as data, each a kind and its range."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations, product
from numbers import Real
from typing import Any

from runnerkit.registry import Registry
from runnerkit.search.suggesters import Suggest
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion

#: The kinds of parameters, for configs: ``dict(type='Float', low=1e-4, high=1e-1, log=True)``. A subclass of
#: `Parameter` that is registered here is one more.
PARAMETERS = Registry('search parameter')

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
    def params(self, name: str, value: Any) -> dict[str, Any]:
        """Return what a suggester would have to answer, by name, for `draw` to return ``value``.

        It is what ``study.enqueue_trial`` of Optuna takes.
        """

    @abstractmethod
    def grid(self, points: int | None = None) -> Iterable[Any]:
        """Return the values that a grid tries.

        Args:
            points: how many, where there are too many to try all.

        Raises:
            ValueError: there are infinitely many values, and ``points`` is not given.
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

    def params(self, name: str, value: Any) -> dict[str, Any]:
        """As for any parameter."""
        return {name: self.labels[self.choices.index(value)]}

    def grid(self, points: int | None = None) -> Iterable[Any]:
        """All choices."""
        return copy.deepcopy(self.choices)

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

    def __post_init__(self) -> None:
        for name in ('low', 'high', *(() if self.step is None else ('step',))):
            self._check(name, getattr(self, name))
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

    def _check(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            hint = ''
            if _is_number_text(value):
                hint = f'; without quotes, and in YAML with a point before the exponent, it is {float(value)!r}'
            raise TypeError(f'{name} must be a number, but got {value!r}{hint}')

    @property
    def last(self) -> Any:
        """The highest value that occurs: ``high``, or the last step below it."""
        return self.high

    def params(self, name: str, value: Any) -> dict[str, Any]:
        """As for any parameter."""
        return {name: value}

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        fits = isinstance(value, Real) and not isinstance(value, bool) and self.low <= value <= self.high
        if fits and self.step is not None:
            steps = (value - self.low) / self.step
            fits = abs(steps - round(steps)) < 1e-6
        in_steps = '' if self.step in (None, 1) else f' in steps of {self.step}'
        return None if fits else f'must be a number from {self.low} to {self.high}{in_steps}'

    def _spread(self, points: int) -> list[float]:
        """``points`` numbers from ``low`` to `last`, both included, at equal distances on the scale."""
        if points == 1:
            return [math.sqrt(self.low * self.high) if self.log else (self.low + self.last) / 2]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.last)
        inner = [low + (high - low) * index / (points - 1) for index in range(1, points - 1)]
        return [self.low, *(map(math.exp, inner) if self.log else inner), self.last]


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

    low: int
    high: int
    log: bool = False
    step: int = 1
    points: int | None = None

    def _check(self, name: str, value: Any) -> None:
        super()._check(name, value)
        if not isinstance(value, int):
            raise TypeError(f'{name} must be a whole number, but got {value!r}; for other numbers there is Float')

    @property
    def last(self) -> int:
        """As for any number."""
        return self.high - (self.high - self.low) % self.step

    def draw(self, name: str, suggest: Suggest) -> int:
        """As for any parameter."""
        return int(suggest.suggest_int(name, self.low, self.last, step=self.step, log=self.log))

    def grid(self, points: int | None = None) -> Iterable[int]:
        """All whole numbers of the range, or as many as ``points``."""
        points, every = self.points or points, range(self.low, self.high + 1, self.step)
        if points is None or points >= len(every):
            return every
        return sorted({self.low + self.step * round((each - self.low) / self.step) for each in self._spread(points)})

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        why = super().why_not(value if isinstance(value, int) else None)
        return why and why.replace('a number', 'a whole number')


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

    low: float
    high: float
    log: bool = False
    step: float | None = None
    points: int | None = None

    @property
    def last(self) -> float:
        """As for any number."""
        if self.step is None:
            return self.high
        # In decimals, as they are written: 0.3 is three steps of 0.1, which 3 * 0.1 exceeds.
        low, high, step = (Decimal(repr(float(each))) for each in (self.low, self.high, self.step))
        return float(low + (high - low) // step * step)

    def draw(self, name: str, suggest: Suggest) -> float:
        """As for any parameter."""
        return float(suggest.suggest_float(name, self.low, self.last, step=self.step, log=self.log))

    def grid(self, points: int | None = None) -> Iterable[float]:
        """All numbers ``step`` apart, or as many as ``points``."""
        points = self.points or points
        if self.step is not None:
            count = round((self.last - self.low) / self.step) + 1
            if points is None or points >= count:
                return [self._at(index) for index in range(count)]
        if points is None:
            raise ValueError(
                f'a grid over the numbers from {self.low} to {self.high} needs points=…: say how many are tried'
            )
        if self.low == self.high:
            return [self.low]
        spread = self._spread(points)
        if self.step is None:
            return spread
        return sorted({self._at(round((each - self.low) / self.step)) for each in spread})

    def _at(self, index: int) -> float:
        """The value ``index`` steps above ``low``."""
        return min(self.low + (self.step or 0) * index, self.last)


@PARAMETERS.register_module()
@dataclass(frozen=True)
class BinaryCode(Parameter):
    """A list of zeros and ones, such as the channels that a pruned network keeps.

    For a sampler, every position is a parameter of its own (``key[0]``, ``key[1]`` …): the whole numbers 0 and 1, or,
    where the number of ones is given, a weight in [0, 1], of which the highest ones win.

    Args:
        length: of the list.
        ones: how many of its values are 1; by default any number.
    """

    length: int
    ones: int | None = None

    def __post_init__(self) -> None:
        check_whole_number('length', self.length)
        check_whole_number('ones', self.ones, at_least=0, or_none=True)
        if self.ones is not None and self.ones > self.length:
            raise ValueError(f'ones={self.ones} is more than length={self.length}')

    def draw(self, name: str, suggest: Suggest) -> list[int]:
        """As for any parameter."""
        names = [f'{name}[{index}]' for index in range(self.length)]
        if self.ones is None:
            return [int(suggest.suggest_int(each, 0, 1)) for each in names]
        weights = [suggest.suggest_float(each, 0.0, 1.0) for each in names]
        best = sorted(range(self.length), key=lambda index: -weights[index])[: self.ones]
        return [int(index in best) for index in range(self.length)]

    def params(self, name: str, value: Any) -> dict[str, Any]:
        """As for any parameter."""
        kind = int if self.ones is None else float
        return {f'{name}[{index}]': kind(bit) for index, bit in enumerate(value)}

    def same(self, one: Any, other: Any) -> bool:
        """As for any parameter; a list and a tuple can be the same."""
        return list(one) == list(other)

    def grid(self, points: int | None = None) -> Iterator[list[int]]:
        """All codes, one after another: there are 2 to the power of ``length``."""
        if self.ones is None:
            return (list(code) for code in product((0, 1), repeat=self.length))
        chosen = combinations(range(self.length), self.ones)
        return ([int(index in places) for index in range(self.length)] for places in chosen)

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        is_code = isinstance(value, list | tuple) and len(value) == self.length and all(bit in (0, 1) for bit in value)
        if is_code and self.ones in (None, sum(value)):
            return None
        return f'must be a list of {self.length} zeros and ones' + (f', {self.ones} of them ones' if self.ones else '')


@PARAMETERS.register_module()
@dataclass(frozen=True)
class AdjacencyList(Parameter):
    """The edges of a directed graph without cycles, as a list of pairs ``[from, to]``.

    An edge leads from a node to a later one. For a sampler, every possible edge is a parameter of its own, as in
    `BinaryCode`.

    Args:
        nodes: names or numbers of the nodes, in order; at least two, all different.
        edges: how many edges there are; by default any number.
    """

    nodes: Sequence[Any]
    edges: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.nodes, str | Mapping) or not isinstance(self.nodes, Iterable):
            raise TypeError(f'nodes must be a list, but got {self.nodes!r}')
        object.__setattr__(self, 'nodes', tuple(self.nodes))
        if len(self.nodes) < 2 or any(node in self.nodes[:index] for index, node in enumerate(self.nodes)):
            raise ValueError(f'nodes must be at least two different ones, but got {list(self.nodes)!r}')
        check_whole_number('edges', self.edges, at_least=0, or_none=True)
        if self.edges is not None and self.edges > len(self.possible):
            raise ValueError(f'edges={self.edges} is more than {len(self.nodes)} nodes have: {len(self.possible)}')

    @property
    def possible(self) -> list[list[Any]]:
        """All edges, in the order of their nodes."""
        return [[*pair] for pair in combinations(self.nodes, 2)]

    @property
    def _code(self) -> BinaryCode:
        return BinaryCode(len(self.possible), self.edges)

    def _edges(self, code: Iterable[int]) -> list[list[Any]]:
        return [edge for edge, bit in zip(self.possible, code, strict=True) if bit]

    def draw(self, name: str, suggest: Suggest) -> list[list[Any]]:
        """As for any parameter."""
        return self._edges(self._code.draw(name, suggest))

    def params(self, name: str, value: Any) -> dict[str, Any]:
        """As for any parameter."""
        edges = [list(edge) for edge in value]
        return self._code.params(name, [int(edge in edges) for edge in self.possible])

    def same(self, one: Any, other: Any) -> bool:
        """As for any parameter; the order of the edges does not matter."""
        return self.params('', one) == self.params('', other)

    def grid(self, points: int | None = None) -> Iterator[list[list[Any]]]:
        """All sets of edges, one after another."""
        return map(self._edges, self._code.grid())

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        edges = [[*edge] if isinstance(edge, tuple) else edge for edge in value] if isinstance(value, list) else [None]
        known = all(edge in self.possible and edge not in edges[:index] for index, edge in enumerate(edges))
        if known and self.edges in (None, len(edges)):
            return None
        count = 'a list of different pairs' if self.edges is None else f'a list of {self.edges} different pairs'
        return f'must be {count} [from, to] of the nodes {", ".join(map(repr, self.nodes))}, from an earlier to a later'


def as_parameter(given: Any) -> Parameter:
    """The parameter that ``given`` stands for: itself, a list of choices, or a dict with a ``type`` in `PARAMETERS`.

    Raises:
        TypeError: it is none of these. In particular a pair: it would say neither whether it is of whole numbers, nor
            on which scale.
        KeyError: the ``type`` is unknown.
        ValueError: the range is empty.
    """
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


def _is_number_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False
