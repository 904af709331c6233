"""Printing a config as the Python file that it could have been read from."""

from __future__ import annotations

import inspect
import keyword
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from runnerkit.utils.user_files import file_of_module

WIDTH = 79
INDENT = 4

#: Names that the printed file uses itself, so it must not assign to them while it goes on.
_USED = {'dict', 'float', 'complex', 'set', 'frozenset', 'range', 'slice', 'globals'}


def format_values(config: dict[Any, Any]) -> str:
    """The Python text of a config, one ``key = value`` after the other, in the layout of MMCV's ``pretty_text``.

    Reading it gives the same values again, except that a class or function becomes the path by which a registry finds
    it, and an object that cannot be written down becomes its ``repr``.
    """
    plain, awkward = [], {}
    for key, value in config.items():
        if _is_name(key) and key not in _USED:
            plain.append(f'{key} = {_layout(value, 0, len(key) + 3, 0)}\n')
        else:
            awkward[key] = value
    if awkward:
        lines = [head + _layout(item, INDENT, INDENT + len(head), 1) for head, item in _items_of(awkward)]
        plain.append('globals().update({\n    ' + ',\n    '.join(lines) + '\n})\n')
    return ''.join(plain)


def path_of(value: Any) -> str:
    """The path under which a registry finds a class or function: ``package.module.Name``, or ``file.py:Name``."""
    file = file_of_module(value.__module__ or 'builtins')
    return f'{file}:{value.__qualname__}' if file else f'{value.__module__}.{value.__qualname__}'


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)


def _items_of(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    return [(f'{_flat(key)}: ', item) for key, item in value.items()]


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str] | None:
    """A container's opening, its items with what stands before each, and its closing; None for other values."""
    if isinstance(value, dict) and value:
        if all(map(_is_name, value)):
            return 'dict(', [(f'{key}=', item) for key, item in value.items()], ')'
        return 'dict({', _items_of(value), '})'
    if isinstance(value, list | tuple) and value:
        items = [('', item) for item in value]
        return ('[', items, ']') if isinstance(value, list) else ('(', items, ', )' if len(value) == 1 else ')')
    return None


def _flat(value: Any) -> str:
    """``value`` on one line."""
    parts = _parts(value)
    if parts is None:
        return _scalar(value)
    opening, items, closing = parts
    return opening + ', '.join([head + _flat(item) for head, item in items]) + closing


def _layout(value: Any, indent: int, column: int, after: int) -> str:
    """``value`` on as many lines as it needs.

    Args:
        value: what to print.
        indent: of the line on which it begins, in columns.
        column: where on that line it begins.
        after: how many columns must stay free after its last line.
    """
    flat = _flat(value)
    parts = _parts(value)
    if parts is None or column + len(flat) + after <= WIDTH:
        return flat
    opening, items, closing = parts
    inner = indent + INDENT
    margin = '\n' + ' ' * inner
    # A call ends on the line of its last argument; a list's bracket stands on a line of its own.
    hangs = opening == 'dict('
    tail = closing if hangs else '\n' + ' ' * indent + closing.lstrip(', ' if len(items) > 1 else '')
    last = len(closing) + after if hangs else 0
    flats = [head + _flat(item) for head, item in items]
    joined = ', '.join(flats)
    if inner + len(joined) + last <= WIDTH and opening != 'dict({':
        return opening + margin + joined + tail
    if isinstance(value, list | tuple) and not any(_parts(item) for item in value):
        return opening + margin + margin.join(_filled_lines(flats, WIDTH - inner)) + tail
    lines = []
    for index, (head, item) in enumerate(items, 1):
        free = 1 if index < len(items) else last
        lines.append(head + _layout(item, inner, inner + len(head), free))
    return opening + margin + (',' + margin).join(lines) + tail


def _filled_lines(words: list[str], width: int) -> list[str]:
    lines, line = [], words[0]
    for word in words[1:]:
        # The last column is for a comma.
        if len(line) + 2 + len(word) < width:
            line += f', {word}'
        else:
            lines.append(line + ',')
            line = word
    return lines + [line]


def _float(value: float) -> str:
    return float.__repr__(value) if math.isfinite(value) else f"float('{float.__repr__(value)}')"


def _set(value: Iterable[Any]) -> str:
    items = ', '.join(sorted(map(_flat, value)))
    return f'{{{items}}}' if items else 'set()'


def _string(value: str) -> str:
    # Braces that would be filled in when the text is read again must not stand there as such.
    return re.sub(r'\{(?=\{\s*(file|_base_))', r'\\x7b', str.__repr__(value))


_PRINTERS: list[tuple[type, Callable[[Any], str]]] = [
    (str, _string),
    (bool, repr),
    (int, int.__repr__),
    (float, _float),
    (complex, lambda value: f"complex('{value}')"),
    (frozenset, lambda value: f'frozenset({_set(value) if value else ""})'),
    (set, _set),
    (dict, lambda value: 'dict()'),
    (list, lambda value: '[]'),
    (tuple, lambda value: '()'),
    ((bytes, range, slice, type(None), type(...)), repr),  # type: ignore[list-item]
    (os.PathLike, lambda value: _string(os.fspath(value))),
]


def _scalar(value: Any) -> str:
    for kind, printer in _PRINTERS:
        if isinstance(value, kind):
            return printer(value)
    if inspect.isclass(value) or inspect.isroutine(value):
        return _string(path_of(value))
    if hasattr(value, 'item') and getattr(value, 'shape', None) == ():  # a number of numpy or torch
        return _flat(value.item())
    return _string(repr(value))
