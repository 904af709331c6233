"""Where each part of a config was written: its file and line, for error messages."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A file, or ``--cfg-options``, and a 1-based line where it is known.
Place = tuple[str, int | None]


@dataclass(frozen=True)
class Origin:
    """Where a dict of a config was written, and each of its keys.

    Attributes:
        places: where the dict stands, and after it where others were merged into it.
        keys: where each key got its value; a key that is not here stands at the first place.
    """

    places: tuple[Place, ...]
    keys: Mapping[Any, Place] = field(default_factory=dict)

    def __str__(self) -> str:
        first, *others = map(_label, self.places)
        return first + (f', changed by {", ".join(others)}' if others else '')

    def of(self, key: Any) -> str:
        """Where ``key`` got its value, as text."""
        return _label(self.keys.get(key, self.places[0]))

    def changed_by(self, other: Origin, keys: Iterable[Any]) -> Origin:
        """The origin of this dict after ``keys`` of one from elsewhere were merged into it."""
        places = tuple(dict.fromkeys(self.places + other.places))
        return Origin(places, {**self.keys, **{key: other.keys.get(key, other.places[0]) for key in keys}})


def _label(place: Place) -> str:
    file, line = place
    if os.path.isabs(file):
        relative = os.path.relpath(file)
        file = file if relative.startswith('..') else relative
    return file if line is None else f'{file}:{line}'


class SourceLines:
    """The expressions of a Python config file, to find the lines that its values come from.

    Args:
        body: the statements of the file.
    """

    def __init__(self, body: Iterable[ast.stmt]) -> None:
        self._assigned: dict[str, ast.expr] = {}
        for statement in body:
            if isinstance(statement, ast.Assign):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                self._assigned.update(dict.fromkeys(names, statement.value))
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                self._assigned[statement.target.id] = statement.value

    @property
    def top(self) -> Mapping[str, ast.expr]:
        """The expression last assigned to each name at the top level of the file."""
        return self._assigned

    def definition(self, node: ast.expr | None) -> ast.expr | None:
        """``node``, or what was assigned to the name that ``node`` is."""
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self._assigned and node.id not in seen:
            seen.add(node.id)
            node = self._assigned[node.id]
        return node


def parts_of(node: ast.expr | None) -> Mapping[Any, ast.expr]:
    """The expressions in a dict literal or ``dict(...)`` by key, in a list or tuple by index; else nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict':
        parts = dict(parts_of(node.args[0])) if len(node.args) == 1 else {}
        parts.update({keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
        return parts
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.List | ast.Tuple) and not any(isinstance(item, ast.Starred) for item in node.elts):
        return dict(enumerate(node.elts))
    return {}
