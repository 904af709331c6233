"""The values of a config by dotted key: of its text, which is parsed and never run, and where each is set."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from runnerkit.config.config_dict import walk
from runnerkit.config.origin import OPTIONS, written_at


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
