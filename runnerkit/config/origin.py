"""The file and line where each part of a config was written, and the findings that name them before a run starts."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

#: The file of what the command line sets.
OPTIONS = '--cfg-options'


class SourceLines:
    """Finds the lines of values in a Python config file.

    The text is parsed at the first request, which most runs never make.

    Args:
        text: the text of the file.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._text,)

    @cached_property
    def top(self) -> Mapping[Any, ast.expr]:
        """The expression last assigned to each name at the top level of the file."""
        assigned: dict[Any, ast.expr] = {}
        for statement in self._tree.body:
            if isinstance(statement, ast.Assign):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                assigned.update(dict.fromkeys(names, statement.value))
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                assigned[statement.target.id] = statement.value
        return assigned

    @cached_property
    def names_read(self) -> frozenset[str]:
        """The variables that the file reads."""
        names = (node for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return frozenset(name.id for name in names if isinstance(name.ctx, ast.Load))

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self._text)

    def line(self, path: Iterable[Any], key: tuple[Any, ...] = ()) -> int | None:
        """The 1-based line of a dict or of one of its keys; if it cannot be found, that of what encloses it."""
        line, parts = None, self.top
        for step in path:
            if step not in parts:
                return line
            node = self._definition(parts[step])
            line, parts = node.lineno, expressions_in(node)
        return parts[key[0]].lineno if key and key[0] in parts else line

    def _definition(self, node: ast.expr) -> ast.expr:
        """``node``, or if it is a name, the expression assigned to it."""
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self.top and node.id not in seen:
            seen.add(node.id)
            node = self.top[node.id]
        return node


class DataLines(SourceLines):
    """Finds the lines of values in a YAML or JSON file (JSON is nearly a part of YAML)."""

    @cached_property
    def top(self) -> Any:
        """The root of the file's tree; None if YAML cannot read it."""
        import yaml  # slow to import, and most configs are Python

        from runnerkit.fileio.yaml_format import YamlLoader

        try:
            return yaml.compose(self._text, Loader=YamlLoader)
        except yaml.YAMLError:
            return None

    @property
    def names_read(self) -> frozenset[str]:
        """None: there are no variables."""
        return frozenset()

    def line(self, path: Iterable[Any], key: tuple[Any, ...] = ()) -> int | None:
        """As for `SourceLines`."""
        line, node = None, self.top
        for step in (*path, *key):
            items = getattr(node, 'value', None)
            if not isinstance(items, list):
                return line
            if items and isinstance(items[0], tuple):
                found = next(((name, part) for name, part in items if name.value == str(step)), None)
            else:
                found = (items[step],) * 2 if isinstance(step, int) and step < len(items) else None
            if found is None:
                return line
            name, node = found
            line = name.start_mark.line + 1
        return line


class Place(NamedTuple):
    """The place of a dict, or of one of its keys, in a config file.

    Attributes:
        file: the file, or `OPTIONS`.
        source: the lines of the file.
        path: the keys and indices that lead to the dict.
        key: a tuple with the key, if any.
    """

    file: str
    source: SourceLines | None = None
    path: tuple[Any, ...] = ()
    key: tuple[Any, ...] = ()

    def below(self, key: Any) -> Place:
        """The place of the container at ``key``."""
        return Place(self.file, self.source, (*self.path, key)) if self.source else self

    def of(self, key: Any) -> Place:
        """The place of ``key`` itself."""
        return Place(self.file, self.source, self.path, (key,)) if self.source else self

    def __str__(self) -> str:
        file = self.file
        if os.path.isabs(file):
            relative = os.path.relpath(file)
            file = file if relative.startswith('..') else relative
        line = self.source.line(self.path, self.key) if self.source else None
        return file if line is None else f'{file}:{line}'


class Origin(NamedTuple):
    """Where a dict of a config and its keys were written.

    Attributes:
        places: the place of the dict, followed by those of dicts merged into it.
        keys: the places of keys whose values come from merged dicts.
        added: those that the command line has added.
    """

    places: tuple[Place, ...]
    keys: Mapping[Any, Place] = {}  # never changed
    added: frozenset[Any] = frozenset()

    def __str__(self) -> str:
        first, *others = dict.fromkeys(map(str, self.places))
        return first + (f', changed by {", ".join(others)}' if others else '')

    def of(self, key: Any) -> str:
        """Where the value of ``key`` was written, as text."""
        return str(self.place_of(key))

    def changed_by(self, other: Origin, keys: Iterable[Any], added: Iterable[Any] = ()) -> Origin:
        """The origin of this dict after ``keys`` of another dict were merged into it."""
        places = tuple(dict.fromkeys(self.places + other.places))
        keys_from = {**self.keys, **{key: other.place_of(key) for key in keys}}
        return Origin(places, keys_from, self.added.union(added))

    def place_of(self, key: Any) -> Place:
        """Where the value of ``key`` was written."""
        return self.keys[key] if key in self.keys else self.places[0].of(key)


def origin_of(section: Any) -> Origin | None:
    """Where a dict of a config was written; None if that is unknown."""
    # Look it up in the class: an addict.Dict has every attribute.
    return section._origin_ if hasattr(type(section), '_origin_') else None


def place_of(section: Any, key: Any) -> str:
    """Where the value of ``key`` in ``section`` was written, as ``file:line``; empty if unknown."""
    origin = origin_of(section)
    return origin.of(key) if origin else ''


def written_at(config: Any, path: Iterable[Any]) -> str:
    """Where the value at ``path`` was written, as ``file:line``; empty if unknown.

    If it was not written at all (a default), or its line cannot be found, this is the place of what encloses it.
    """
    found, node = '', getattr(config, '_cfg_dict', config)
    for step in path:
        found = place_of(node, step) or found
        try:
            node = node[step]
        except (LookupError, TypeError):
            break
    return found


def at(config: Any, *path: Any) -> str:
    """`written_at` as messages have it: `` (file:line)``, or empty."""
    place = written_at(config, path)
    return f' ({place})' if place else ''


def dotted(path: Iterable[Any]) -> str:
    """Keys and indices as one text: ``custom_hooks[0].interval``."""
    return ''.join(f'[{step}]' if isinstance(step, int) else f'.{step}' for step in path).removeprefix('.')


def expressions_in(node: ast.expr) -> Mapping[Any, ast.expr]:
    """The expressions in a dict literal or ``dict(...)`` by key, or in a list or tuple by index; else empty."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict':
        parts = dict(expressions_in(node.args[0])) if len(node.args) == 1 else {}
        parts.update({keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
        return parts
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.List | ast.Tuple) and not any(isinstance(item, ast.Starred) for item in node.elts):
        return dict(enumerate(node.elts))
    return {}


# --- findings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One problem that is reported before a run starts.

    Attributes:
        level: `'error'`: the run cannot be what was meant, and does not start; `'warning'`: it starts.
        key: The config's key, with dots: `data.train.type`; empty where it is about none.
        where: `file:line` of that key; empty where that is not known.
        what: What will happen.
        way_out: What to write instead, or what to do.
    """

    level: Literal['error', 'warning']
    key: str
    where: str
    what: str
    way_out: str

    def __str__(self) -> str:
        place = ' '.join(part for part in (self.key, f'({self.where})' if self.where else '') if part)
        first = f'{place}: {self.what}' if place else self.what
        return f'{first}\n  {self.way_out}' if self.way_out else first


class PreflightError(ValueError):
    """A run cannot do what its config says, and does not start.

    Attributes:
        findings: The errors, all of them.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = f'{len(self.findings)} errors' if len(self.findings) > 1 else 'an error'
        super().__init__(f'the run does not start, because of {count}:\n{listed(self.findings)}')


def listed(findings: Iterable[Finding]) -> str:
    """``findings`` as a text, each a bullet of one or two lines."""
    return '\n'.join('- ' + str(each).replace('\n', '\n  ') for each in findings)


def without_errors(findings: Iterable[Finding]) -> list[Finding]:
    """The warnings among ``findings``."""
    found = list(findings)
    errors = [each for each in found if each.level == 'error']
    if errors:
        raise PreflightError(errors)
    return found
