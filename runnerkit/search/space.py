"""The space of a search: which values of a config are varied, over which ranges, and under which conditions.

::

    space = Space(
        {
            'optimizer.type': ['SGD', 'Adam'],
            'optimizer.lr': Float(1e-4, 1e-1, log=True),
            'optimizer.momentum': Float(0.0, 0.99),
            'model.model.0.out_features': [64, 128, 256],
        },
        conditions=[Condition('optimizer.momentum', parent='optimizer.type', range='SGD')],
    )
    values = space.draw(trial)  # a trial of Optuna, or RandomSuggest(random.Random(0))
    cfg.merge_from_dict(values)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from numbers import Real
from typing import Any

from runnerkit.registry import placed_errors
from runnerkit.search.parameters import Float, GridSuggest, Int, Parameter, RandomSuggest, Suggest, as_parameter
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.suggest import near_miss, suggestion

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
        parent: Any = parameters[self.parent]
        if not self._is_interval(parent):
            for value in self.range:
                why = parent.why_not(value)
                if why:
                    raise ValueError(f'range has {value!r}, but {self.parent} {why}')
            return
        if not all(isinstance(each, Real) for each in self.range):
            raise TypeError(f'range of an IN on {self.parent} must be two numbers, but got {list(self.range)!r}')
        if len(self.range) != 2 or self.range[0] > self.range[1]:
            raise ValueError(
                f'range of an IN on {self.parent}, which is a number, must be [lowest, highest], but got '
                f'{list(self.range)!r}; for single values write EQUAL'
            )
        if self.range[1] < parent.low or self.range[0] > parent.high:
            raise ValueError(f'range {list(self.range)!r}: {self.parent} {parent.why_not(None)}')

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


#: What reads sections in the shape of another system, by the key that tells the shape: the arguments of `Space` for
#: values, or a space of networks.
_READERS = EntryPoints('runnerkit.search_spaces')

#: Keys of a section with a space that are no parameters.
SECTION = ('parameters', 'conditions', 'forbidden', 'hyperparameters')

#: How many configurations are drawn before a space counts as one that allows nothing.
ATTEMPTS = 1000


class Forbidden(Exception):
    """What was drawn is one of the combinations that the space forbids.

    Attributes:
        combination: the forbidden values, by key.
    """

    def __init__(self, combination: Mapping[str, Any]) -> None:
        self.combination = dict(combination)
        super().__init__(f'the space forbids {" with ".join(f"{key}={each!r}" for key, each in combination.items())}')


class NothingAllowed(ValueError):
    """Many configurations were drawn, and none of them is allowed."""


class Space:
    """Parameters by the dotted keys of the config values that they set, as in ``--cfg-options``.

    Args:
        parameters: each a `Parameter`, a list of choices, or a ``dict(type='Float', low=…, high=…)``.
        conditions: parameters that exist only if others have certain values: each a `Condition`, or a dict of its
            arguments.
        forbidden: combinations of values that must not occur together: dicts of values by key.

    Raises:
        KeyError: a condition or a combination names a parameter that does not exist, or a type is unknown.
        TypeError: a part has another shape.
        ValueError: a range is empty, the conditions lead in a circle, or everything is forbidden.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        conditions: Iterable[Condition | Mapping[str, Any]] = (),
        forbidden: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self.parameters = _checked_parameters(parameters)
        self._given = parameters  # knows where its keys were written
        self.conditions = [*map(self._condition, _listed('conditions', conditions))]
        self.forbidden = [*map(self._combination, _listed('forbidden', forbidden))]
        self._order = order_of_names(self.parameters, self.conditions)
        if self.forbidden:
            draw_allowed(self, RandomSuggest(random.Random(0)))

    @classmethod
    def of(cls, section: Any) -> Space:
        """Return the space that a section of a config describes.

        It is a dict with the arguments of this class; or of the parameters alone; or in Vega's format, with
        ``hyperparameters`` (see `runnerkit.compat.vega.space`). A space is returned as it is.

        Raises:
            KeyError: a name is unknown.
            TypeError: a part has another shape.
            ValueError: a value is wrong.
        """
        if isinstance(section, Space):
            return section
        if not isinstance(section, Mapping):
            raise TypeError(f'a search space must be a dict of parameters by key, but got {section!r}')
        with placed_errors(section):
            if 'hyperparameters' in section:
                return cls(**_READERS.load('hyperparameters')(section))
            if 'parameters' in section:
                for key in section:
                    if key not in SECTION and key != 'type':
                        raise KeyError(f'a search space has no {key!r}{suggestion(str(key), SECTION)}')
                return cls(section['parameters'], section.get('conditions') or (), section.get('forbidden') or ())
            for key in section:
                meant = near_miss(str(key), SECTION) or (key if key in SECTION else None)
                if meant:
                    hint = f'did you mean {meant!r}?' if meant != key else 'write the parameters in `parameters`'
                    raise KeyError(f'{key!r} is no parameter: {hint}')
            return cls(section)

    def __repr__(self) -> str:
        more = {'conditions': self.conditions, 'forbidden': self.forbidden}
        return f'Space({self.parameters!r}{"".join(f", {name}={part!r}" for name, part in more.items() if part)})'

    def draw(self, suggest: Suggest) -> dict[str, Any]:
        """Return values by key, each as ``suggest`` chooses; parameters whose conditions are not met are left out.

        Parents are asked for before their children.

        Args:
            suggest: a trial of Optuna, a `RandomSuggest`, or an object with the same three methods.

        Raises:
            Forbidden: the values are one of the forbidden combinations.
        """
        values: dict[str, Any] = {}
        for key in self._order:
            conditions = (each for each in self.conditions if each.child == key)
            if all(each.is_met(values, self.parameters[each.parent]) for each in conditions):
                values[key] = self.parameters[key].draw(key, suggest)
        for combination in self.forbidden:
            if all(key in values and self.parameters[key].same(values[key], each) for key, each in combination.items()):
                raise Forbidden(combination)
        return {key: values[key] for key in self.parameters if key in values}

    def check_config(self, cfg: Mapping[str, Any]) -> None:
        """Refuse keys that lead nowhere in a config. The last part of a key may be new, unless it looks misspelt.

        Args:
            cfg: the config whose values are to be varied.

        Raises:
            KeyError: a key leads nowhere; the nearest names are suggested.
            TypeError: a key leads into a value that is neither a dict nor a list.
        """
        for key in self.parameters:
            with placed_errors(self._given, key):
                check_path(key, getattr(cfg, '_cfg_dict', cfg))

    def _condition(self, given: Any) -> Condition:
        with placed_errors(given):
            if isinstance(given, Mapping):
                known = [*Condition.__dataclass_fields__]
                for key in given:
                    if key not in known:
                        raise KeyError(f'a condition has no {key!r}{suggestion(str(key), known)}')
                for key in ('child', 'parent', 'range'):
                    if key not in given:
                        raise KeyError(f'a condition needs {key!r}, but has only {", ".join(given)}')
                given = Condition(**given)
            if not isinstance(given, Condition):
                raise TypeError(f'a condition must be a Condition or a dict of its arguments, but got {given!r}')
            given.check(self.parameters)
        return given

    def _combination(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping) or not given:
            raise TypeError(f'a forbidden combination must be a dict of values by key, but got {given!r}')
        with placed_errors(given):
            for key, value in given.items():
                check_key('a key in `forbidden`', key, self.parameters)
                why = self.parameters[key].why_not(value)
                if why:
                    raise ValueError(f'`forbidden` has {key}={value!r}, which never occurs: it {why}')
        return dict(given)


def as_space(section: Any) -> Any:
    """The space that a section of a config describes: of values, or, with ``modules``, of networks. A space is returned
    unchanged.
    """
    if not isinstance(section, Mapping):
        return section
    if 'modules' not in section:
        return Space.of(section)
    values = next((key for key in ('hyperparameters', 'parameters') if key in section), None)
    if values is not None:
        raise KeyError(
            f'search_space describes a network, in modules, and names values, in {values}: leave one of them out. '
            "Values of the config's own network have keys such as model.model.depth"
        )
    return _READERS.load('modules')(section)


def combinations_of(space: Any, points: int | None = None) -> Iterator[tuple[dict[str, Any], Any]]:
    """All that a space can draw, one by one: the answers to its questions, by name, and what it makes of them."""
    parameters = getattr(space, 'parameters', {})

    def points_of(name: str) -> int | None:
        # A parameter of several values, such as bits, asks for each by another name; all of these are tried.
        return getattr(parameters[name], 'points', None) or points if name in parameters else None

    grid = GridSuggest(points_of)
    while True:
        with suppress(Forbidden):
            values = space.draw(grid)
            yield dict(grid.answers), values
        if not grid.advance():
            return


def draw_allowed(space: Space, suggest: Suggest) -> dict[str, Any]:
    """Draw configurations until one is not forbidden, and return it.

    A trial of Optuna gives the same values each time; ask for a new one for each draw.

    Args:
        space: what is drawn from.
        suggest: gives new values in each draw, such as a `RandomSuggest`.

    Raises:
        NothingAllowed: all of `ATTEMPTS` are forbidden.
    """
    for _ in range(ATTEMPTS):
        with suppress(Forbidden):
            return space.draw(suggest)
    raise NothingAllowed(
        f'the space forbids everything: none of {ATTEMPTS:,} configurations drawn at random is allowed. Remove some of '
        'the combinations in `forbidden`, or the values in them from the parameters'
    )


def _checked_parameters(given: Any) -> dict[str, Parameter]:
    if not isinstance(given, Mapping):
        raise TypeError(f'parameters must be a dict of parameters by key, but got {given!r}')
    if not given:
        raise ValueError('a search space needs at least one parameter')
    found: dict[str, Parameter] = {}
    for key, value in given.items():
        with placed_errors(given, key):
            if not isinstance(key, str) or not all(key.split('.')):
                raise TypeError(
                    f"a parameter's key must be a dotted one of the config, 'optimizer.lr', but got {key!r}"
                )
            inside = next((other for other in given if key.startswith(f'{other}.')), None)
            if inside is not None:
                raise ValueError(f'{key} is a part of {inside}, which is varied as a whole: leave one of them out')
            try:
                found[key] = as_parameter(value)
            except (KeyError, TypeError, ValueError) as error:
                raise_with_context(error, f'{key}: ')
    return found


def _listed(name: str, given: Any) -> Iterable[Any]:
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise TypeError(f'{name} must be a list of dicts, but got {given!r}')
    return given


def check_path(key: str, root: Any) -> None:
    """Refuse a dotted key that leads nowhere in a config. Its last part may be new, unless it looks misspelt."""
    node, parts = root, key.split('.')
    for index, part in enumerate(parts):
        name = '.'.join(parts[:index]) or 'the config'
        if isinstance(node, list):
            if not part.isdecimal() or int(part) >= len(node):
                raise KeyError(f'{key}: {name} is a list of {len(node)}, in which {part!r} is no index')
            node = node[int(part)]
        elif isinstance(node, Mapping):
            if part not in node:
                siblings = [str(each) for each in node]
                meant = near_miss(part, siblings)
                if 0 < index == len(parts) - 1 and not meant:
                    return
                hint = f'; did you mean {meant!r}?' if meant else suggestion(part, siblings)
                raise KeyError(f'{key}: {name} has no {part!r}{hint}')
            node = node[part]
        else:
            raise TypeError(f'{key}: {name} is {node!r}, neither a dict nor a list, so it has no {part!r}')
