"""Search spaces as Vega's files write them: a list of hyperparameters, each with its key, type and range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from runnerkit.registry import placed_errors
from runnerkit.search.parameters import PARAMETERS, Bool, Categorical, Float, Int, Parameter, Suggest
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import near_miss, suggestion

#: Keys of a hyperparameter.
KEYS = ('key', 'type', 'range', 'slice', 'generator', 'sample_num')

#: Keys of a section that stand for the space; others belong to networks.
SECTION = ('hyperparameters', 'condition', 'forbidden')


@PARAMETERS.register_module()
@dataclass(frozen=True)
class BinaryCode(Parameter):
    """A list of zeros and ones, such as the channels that a pruned network keeps.

    For a sampler, every position is a separate parameter (``key[0]``, ``key[1]`` …): the whole numbers 0 and 1, or,
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

    def same(self, one: Any, other: Any) -> bool:
        """As for any parameter; a list and a tuple can be the same."""
        return list(one) == list(other)

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

    An edge leads from a node to a later one. For a sampler, every possible edge is a separate parameter, as in
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

    def draw(self, name: str, suggest: Suggest) -> list[list[Any]]:
        """As for any parameter."""
        code = BinaryCode(len(self.possible), self.edges).draw(name, suggest)
        return [edge for edge, bit in zip(self.possible, code, strict=True) if bit]

    def same(self, one: Any, other: Any) -> bool:
        """As for any parameter; the order of the edges does not matter."""
        first, second = ([list(edge) for edge in edges] for edges in (one, other))
        return len(first) == len(second) and all(edge in second for edge in first)

    def why_not(self, value: Any) -> str | None:
        """As for any parameter."""
        edges = [[*edge] if isinstance(edge, tuple) else edge for edge in value] if isinstance(value, list) else [None]
        known = all(edge in self.possible and edge not in edges[:index] for index, edge in enumerate(edges))
        if known and self.edges in (None, len(edges)):
            return None
        count = 'a list of different pairs' if self.edges is None else f'a list of {self.edges} different pairs'
        return f'must be {count} [from, to] of the nodes {", ".join(map(repr, self.nodes))}, from an earlier to a later'


def space_of(section: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Space` for a section in Vega's format.

    The types are CATEGORY, BOOL, INT, INT_EXP, FLOAT, FLOAT_EXP (EXP: on a logarithmic scale), BINARY_CODE (range
    ``[length]`` or ``[length, ones]``) and ADJACENCY_LIST (range: the nodes; without ``sample_num`` a single edge, as
    in Vega, else a list of so many). ``slice`` is the number of points in a grid.

    Args:
        section: with ``hyperparameters``, and maybe ``condition`` and ``forbidden``. Its other keys are not read.

    Raises:
        KeyError: a hyperparameter has a key that is not known, or lacks one.
        TypeError: a part has another shape.
        ValueError: a type is not known, or a range is wrong.
    """
    for key in section:
        meant = near_miss(str(key), SECTION)
        if meant:
            raise KeyError(f'a search space in this format has no {key!r}; did you mean {meant!r}?')
    parameters: dict[str, Parameter] = {}
    hyperparameters = section['hyperparameters']
    if not isinstance(hyperparameters, list | tuple):
        raise TypeError(f'hyperparameters must be a list of dicts, but got {hyperparameters!r}')
    for item in hyperparameters:
        if not isinstance(item, Mapping):
            raise TypeError(f'hyperparameters must be a list of dicts, but has {item!r}')
        with placed_errors(item):
            key = _checked(item)['key']
            if key in parameters:
                raise ValueError(f'key {key!r} is there twice')
            parameters[key] = _parameter(item)
    more = {'conditions': section.get('condition') or (), 'forbidden': section.get('forbidden') or ()}
    return {'parameters': parameters, **more}


def _checked(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A hyperparameter that has all keys, and none that is not known."""
    for key in item:
        if key not in KEYS:
            raise KeyError(f'a hyperparameter has no {key!r}{suggestion(str(key), KEYS)} (it has {", ".join(KEYS)})')
    for key in ('key', 'type', 'range'):
        if item.get(key) is None:
            given = ', '.join(each for each in item if item[each] is not None)
            raise KeyError(f'a hyperparameter needs {key!r}, but has only {given}')
    if not isinstance(item['key'], str):
        raise TypeError(f"key must be a dotted key of the config, 'optimizer.lr', but got {item['key']!r}")
    return item


def _parameter(item: Mapping[str, Any]) -> Parameter:
    generator, named = item.get('generator'), item['type']
    if generator is not None and generator not in GENERATORS:
        raise ValueError(
            f'generator must be one of {", ".join(GENERATORS)}, but got {generator!r}'
            f'{suggestion(str(generator), GENERATORS)}'
        )
    named = named if generator is None else GENERATORS[generator]
    kind = named.upper() if isinstance(named, str) else named
    if kind == 'HALF':
        raise ValueError(
            f'{item["key"]}: the type HALF, whose code is all ones most of the time, is not supported; '
            'write BINARY_CODE, or CATEGORY with the codes themselves'
        )
    if kind not in TYPES:
        raise ValueError(
            f'{item["key"]}: type must be one of {", ".join(TYPES)}, but got {named!r}{suggestion(str(named), TYPES)}'
        )
    if not isinstance(item['range'], list | tuple):
        raise TypeError(f'{item["key"]}: range must be a list, but got {item["range"]!r}')
    try:
        return TYPES[kind]([*item['range']], item)
    except (TypeError, ValueError) as error:
        raise_with_context(error, f'{item["key"]}: range of {kind}: ')


def _within(kind: type[Int] | type[Float], log: bool) -> Callable[[list[Any], Mapping[str, Any]], Parameter]:
    def parameter(bounds: list[Any], item: Mapping[str, Any]) -> Parameter:
        if len(bounds) != 2:
            raise ValueError(f'must be [low, high], but got {bounds!r}')
        low, high = bounds
        return kind(low, high, log, points=item.get('slice') or None)

    return parameter


def _code(bounds: list[Any], item: Mapping[str, Any]) -> Parameter:
    if len(bounds) not in (1, 2):
        raise ValueError(f'must be [length] or [length, ones], but got {bounds!r}')
    return BinaryCode(bounds[0], bounds[1] if len(bounds) == 2 else item.get('sample_num'))


def _edges(nodes: list[Any], item: Mapping[str, Any]) -> Parameter:
    count = item.get('sample_num')
    return Categorical(AdjacencyList(nodes).possible) if count is None else AdjacencyList(nodes, count)


TYPES: dict[str, Callable[[list[Any], Mapping[str, Any]], Parameter]] = {
    'CATEGORY': lambda choices, item: Categorical(choices),
    'BOOL': lambda choices, item: Bool(choices),
    'INT': _within(Int, log=False),
    'INT_EXP': _within(Int, log=True),
    'FLOAT': _within(Float, log=False),
    'FLOAT_EXP': _within(Float, log=True),
    'BINARY_CODE': _code,
    'ADJACENCY_LIST': _edges,
}

#: Vega's generators of ranges, and the types that mean the same.
GENERATORS = {'AdjacencyList': 'ADJACENCY_LIST', 'BinaryList': 'BINARY_CODE'}
