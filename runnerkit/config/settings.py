"""The values in the text of a config, which is parsed and never run: by dotted key with their places, or as data."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from runnerkit.config.config_dict import TOO_DEEP, check_depth, walk
from runnerkit.config.origin import OPTIONS, written_at

#: What a call in such a text may be. `pretty_text` writes values that have no literal as these calls.
_CALLS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (dict, float, complex, set, frozenset, range, slice)
}


def settings_in(text: str) -> dict[str, Any]:
    """The values in the text of a config, such as ``{'optimizer.lr': 0.1}``; empty if it is not Python.

    Lists of plain values are one value. What is no literal is its source text.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found.update(flattened(statement.targets[0].id, _literal(statement.value)))
    return found


def settings_with_places(cfg: Any) -> list[list[Any]]:
    """Key, value, place, and whether it differs from the base files, of each value of a config.

    What is set in the config file itself, or by an option, differs. In a config without bases, options alone do.
    """
    rows = [(key, value, written_at(cfg, key.split('.'))) for key, value in walk(cfg._cfg_dict)]
    main = os.path.abspath(cfg.filename) if cfg.filename else ''
    files = {place: os.path.abspath(place.rpartition(':')[0] or place) for _, _, place in rows if place}
    has_base = any(file != main for place, file in files.items() if place != OPTIONS)
    own = {place for place, file in files.items() if place == OPTIONS or (has_base and file == main)}
    return [[key, repr(value)[:200], place, place in own] for key, value, place in rows]


def differing(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same everywhere, in the order in which they are first met."""
    runs = list(settings)
    keys = dict.fromkeys(key for each in runs for key in each)
    return [key for key in keys if any(repr(each.get(key)) != repr(runs[0].get(key)) for each in runs)]


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args:
        return {str(word.arg): _literal(word.value) for word in node.keywords}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_literal(key)) if key else '**': _literal(value) for key, value in pairs}
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(each) for each in node.elts]
    with suppress(ValueError, TypeError, RecursionError, MemoryError):
        value = ast.literal_eval(node)
        repr(value)  # Python writes no integer of more than 4,300 digits
        return value
    with suppress(ValueError, RecursionError):
        return ast.unparse(node)
    return '…'


def flattened(key: str, value: Any) -> Iterable[tuple[str, Any]]:
    """``value`` with all that is inside its dicts, and inside its lists of dicts, by dotted key."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from flattened(f'{key}.{name}', each)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for number, each in enumerate(value):
            yield from flattened(f'{key}.{number}', each)
    else:
        yield key, value


# --- as data ----------------------------------------------------------------------------------------------------------


class NoLiteral(ValueError):
    """A text is not data alone: it would have to be executed."""


def read_literals(text: str) -> dict[str, Any]:
    """The values of a Python config in which every line is ``key = value`` and every value is a literal.

    Nothing is executed or imported, no file is read, and no ``{{ variable }}`` is replaced. Besides literals, a value
    may be ``dict(key=value)``, ``set()``, ``frozenset({…})``, ``float('inf')``, ``complex('1j')``, ``range(…)`` and
    ``slice(…)``.
    """
    try:
        values: dict[str, Any] = {}
        for statement in ast.parse(text).body:
            values.update(_assigned(statement))
        check_depth(values)
    except SyntaxError as error:
        raise NoLiteral(f'line {error.lineno} is not Python: {error.msg}') from None
    except (RecursionError, MemoryError):  # MemoryError: the parser's stack is exhausted, not the memory
        raise NoLiteral(TOO_DEEP) from None
    except ValueError as error:
        raise error if isinstance(error, NoLiteral) else NoLiteral(str(error)) from None
    return values


def _assigned(statement: ast.stmt) -> dict[Any, Any]:
    """What ``key = value`` or ``globals().update({key: value})``, for keys that are no names, says."""
    if isinstance(statement, ast.Assign) and [type(each) for each in statement.targets] == [ast.Name]:
        return {statement.targets[0].id: _value(statement.value)}  # type: ignore[attr-defined]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if ast.unparse(call.func) == 'globals().update' and len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
            return dict(_value(call.args[0]))
    raise _no_literal(statement, 'is not of the form key = value')


def _value(node: ast.expr) -> Any:
    try:
        if isinstance(node, ast.Call):
            return _value_of_call(node)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [_value(item) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items) if isinstance(node, ast.Tuple) else set(items)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key}
        return ast.literal_eval(node)
    except NoLiteral:
        raise
    except (ValueError, TypeError) as error:
        raise _no_literal(node, 'is not a literal') from error


def _value_of_call(call: ast.Call) -> Any:
    function = _CALLS.get(call.func.id) if isinstance(call.func, ast.Name) else None
    named = [word.arg for word in call.keywords]
    if function is None or None in named or (named and function is not dict):
        raise _no_literal(call, 'is a call, and would have to be executed')
    arguments = [_value(each) for each in call.args]
    if any(isinstance(each, range) for each in arguments):
        raise _no_literal(call, 'would take the values of a range, which may be too many')
    return function(*arguments, **{str(word.arg): _value(word.value) for word in call.keywords})


def _no_literal(node: ast.AST, why: str) -> NoLiteral:
    text = ast.unparse(node)
    return NoLiteral(f'line {getattr(node, "lineno", "?")}: {text[:80]}{"…" * (len(text) > 80)} {why}')
