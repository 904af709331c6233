"""When a parameter of a search exists: only if another one, its parent, has certain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from numbers import Real
from typing import Any

from runnerkit.search.parameters import Float, Int, Parameter
from runnerkit.utils.suggest import suggestion

TYPES = ('EQUAL', 'NOT_EQUAL', 'IN')


@dataclass(frozen=True)
class Condition:
    """The parameter ``child`` is drawn only if its ``parent`` has one of the values in ``range``.

    If a parameter is the child of several conditions, all have to be met. A parent that is not drawn meets none.

    Args:
        child: the key of the parameter.
        parent: the key of the other one.
        type: ``'EQUAL'`` or ``'IN'``: the parent's value is in ``range``; ``'NOT_EQUAL'``: it is not.
        range: values; a single one need not be in a list. For ``'IN'`` and a parent that is an `Int` or a `Float`, it
            is the lowest and the highest value, both included.
        key: a name of the condition, which is not used.
    """

    child: str
    parent: str
    type: str = 'IN'
    range: Any = ()
    key: str = ''

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or self.type.upper() not in TYPES:
            hint = suggestion(str(self.type), TYPES)
            raise ValueError(f'type must be one of {", ".join(TYPES)}, but got {self.type!r}{hint}')
        values = self.range if isinstance(self.range, list | tuple) else [self.range]
        if not values:
            raise ValueError('range must have at least one value of the parent, but is empty')
        object.__setattr__(self, 'type', self.type.upper())
        object.__setattr__(self, 'range', tuple(values))

    def is_met(self, parents: Mapping[str, Any], parameter: Parameter) -> bool:
        """Whether the child exists.

        Args:
            parents: values by key; without the parent's if it does not exist itself.
            parameter: the parent.
        """
        if self.parent not in parents:
            return False
        value = parents[self.parent]
        if self._is_interval(parameter):
            low, high = self.range
            return bool(low <= value <= high)
        return any(parameter.same(value, each) for each in self.range) != (self.type == 'NOT_EQUAL')

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        """Refuse a condition on parameters that do not exist, or on values that the parent never has.

        Raises:
            KeyError: there is no such parameter.
            TypeError: the bounds of an interval are no numbers.
            ValueError: the parent never has such a value.
        """
        for role in ('child', 'parent'):
            check_key(f'the {role} of a condition', getattr(self, role), parameters)
        parent = parameters[self.parent]
        if self._is_interval(parent):
            if not all(isinstance(each, Real) for each in self.range):
                raise TypeError(f'range of an IN on {self.parent} must be two numbers, but got {list(self.range)!r}')
            low, high = self.range if len(self.range) == 2 else (1, 0)
            if low > high:
                raise ValueError(
                    f'range of an IN on {self.parent}, which is a number, must be [lowest, highest], but got '
                    f'{list(self.range)!r}; for single values write EQUAL'
                )
            if high < parent.low or low > parent.high:  # type: ignore[attr-defined]
                raise ValueError(f'range {list(self.range)!r}: {self.parent} {parent.why_not(None)}')
            return
        for value in self.range:
            why = parent.why_not(value)
            if why:
                raise ValueError(f'range has {value!r}, but {self.parent} {why}')

    def _is_interval(self, parent: Parameter) -> bool:
        return self.type == 'IN' and isinstance(parent, Int | Float)


def check_key(what: str, key: Any, known: Iterable[str]) -> None:
    """Refuse a key that is none of the ``known`` ones."""
    known = list(known)
    if key not in known:
        listed = ', '.join(known[:10]) + (', …' if len(known) > 10 else '')
        hint = suggestion(str(key), known)
        raise KeyError(f'{what} is {key!r}, but there is no such parameter{hint} (the space has {listed})')


def order_of_names(keys: Iterable[str], conditions: Iterable[Condition]) -> list[str]:
    """The keys in the order in which they are drawn: parents before their children."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(keys, ()))
    for condition in conditions:
        sorter.add(condition.child, condition.parent)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        circle = ' → '.join(error.args[1])
        raise ValueError(f'the conditions lead in a circle, so its parameters are never drawn: {circle}') from None
