"""Printing a config as Python, JSON or YAML, and the marks in place of objects that have no text."""

from __future__ import annotations

import inspect
import keyword
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from runnerkit.config.origin import dotted
from runnerkit.utils.logging import printable, shortened
from runnerkit.utils.numbers import values_in
from runnerkit.utils.user_files import file_of_module

WIDTH = 79
INDENT = 4

#: A brace that must be escaped: the text after it looks like a template variable, and would be replaced on reading.
FILLED_IN = re.compile(r'\{(?=\{\s*(file|_base_))')

#: Begins the text in place of an object that has none.
OBJECT = '<object> '

#: What to do about a mark in a config that has been read.
WAY_OUT = (
    'Give the original config again (on the command line the file, in Python config=dict(model=net, …)). Or name '
    "classes and functions in it, dict(type='file.py:Net', …) or 'file.py:function'"
)

#: The address in an object's default ``repr``, which differs from run to run.
_ADDRESS = re.compile(r' at 0x[0-9a-fA-F]+')

#: Names that the printed file calls, so it must not assign to them.
_USED = {'dict', 'float', 'complex', 'set', 'frozenset', 'range', 'slice', 'globals'}


def format_values(config: dict[Any, Any]) -> str:
    """The Python text of a config, one ``key = value`` after the other, in the layout of MMCV's ``pretty_text``.

    Reading it gives the same values, except that a class or function becomes its path, which a registry can look up
    and any other object without a literal becomes `OBJECT` with its ``repr``. Special keys, such as ``_delete_``, take
    effect when the text is read.
    """
    plain, awkward = [], {}
    for key, value in config.items():
        if _is_variable(key) and key not in _USED:
            plain.append(f'{key} = {_layout(_printed(value), 0, len(key) + 3, 0)}\n')
        else:
            awkward[key] = value
    if awkward:
        lines = [head + _layout(_printed(item), INDENT, INDENT + len(head), 1) for head, item in _items_of(awkward)]
        plain.append('globals().update({\n    ' + ',\n    '.join(lines) + '\n})\n')
    return ''.join(plain)


def path_of(value: Any) -> str:
    """The path under which a registry finds a class or function: ``package.module.Name``, or ``file.py:Name``."""
    module, name = _place_of(value)
    file = file_of_module(module)
    return f'{file}:{name}' if file else f'{module}.{name}'


def _place_of(value: Any) -> tuple[str, str]:
    """The module of a class or function, and its name there."""
    module = getattr(value, '__module__', None) or 'builtins'
    is_short = getattr(sys.modules.get(module), value.__name__, None) is value  # torch.stack says another qualname
    return module, value.__name__ if is_short else value.__qualname__


def _is_variable(key: Any) -> bool:
    if not (isinstance(key, str) and key.isidentifier()) or keyword.iskeyword(key) or key == '__debug__':
        return False
    # Python normalises identifiers: other forms of a letter (µ, ﬁ) would become the usual one.
    return key.isascii() or unicodedata.normalize('NFKC', key) == key


def _items_of(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    return [(f'{_flat_text(key)}: ', item) for key, item in value.items()]


def _container_parts(value: Any) -> tuple[str, list[tuple[str, Any]], str] | None:
    """A container's opening, its items, each with its prefix, and its closing; None for other values."""
    if isinstance(value, dict) and value:
        if all(map(_is_variable, value)):
            return 'dict(', [(f'{key}=', item) for key, item in value.items()], ')'
        return 'dict({', _items_of(value), '})'
    if isinstance(value, list | tuple) and value:
        items = [('', item) for item in value]
        return ('[', items, ']') if isinstance(value, list) else ('(', items, ', )' if len(value) == 1 else ')')
    return None


class _Printed(NamedTuple):
    """A value as text.

    Attributes:
        flat: the whole value on one line.
        opening: the text before a container's items; empty for other values.
        items: a container's items, each with its prefix.
        closing: the text after the items.
    """

    flat: str
    opening: str = ''
    items: list[tuple[str, _Printed]] = []
    closing: str = ''


def _printed(value: Any) -> _Printed:
    parts = _container_parts(value)
    if parts is None:
        return _Printed(_scalar_text(value))
    opening, items, closing = parts
    printed = [(head, _printed(item)) for head, item in items]
    return _Printed(
        opening + ', '.join([head + item.flat for head, item in printed]) + closing, opening, printed, closing
    )


def _flat_text(value: Any) -> str:
    """``value`` on one line."""
    return _printed(value).flat


def _layout(value: _Printed, indent: int, column: int, after: int) -> str:
    """``value`` on as many lines as it needs."""
    flat, opening, items, closing = value
    if not items or column + len(flat) + after <= WIDTH:
        return flat
    inner = indent + INDENT
    margin = '\n' + ' ' * inner
    # A call ends on the line of its last argument; a list's closing bracket is on its own line.
    hangs = opening == 'dict('
    tail = closing if hangs else '\n' + ' ' * indent + closing.lstrip(', ' if len(items) > 1 else '')
    last = len(closing) + after if hangs else 0
    flats = [head + item.flat for head, item in items]
    joined = ', '.join(flats)
    if inner + len(joined) + last <= WIDTH and opening != 'dict({':
        return opening + margin + joined + tail
    if opening in '[(' and not any(item.items for _, item in items):
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


def _set(value: Iterable[Any]) -> str:
    items = ', '.join(sorted(map(_flat_text, value)))
    return f'{{{items}}}' if items else 'set()'


def _quoted(value: str | bytes) -> str:
    plain = str.__repr__ if isinstance(value, str) else bytes.__repr__
    return FILLED_IN.sub(r'\\x7b', plain(value))


_PRINTERS: list[tuple[type | tuple[type, ...], Callable[[Any], str]]] = [
    (str, _quoted),
    (bool, repr),
    (int, int.__repr__),
    (float, lambda value: repr(float(value)) if math.isfinite(value) else f"float('{float(value)}')"),
    (complex, lambda value: f"complex('{value}')"),
    (frozenset, lambda value: f'frozenset({_set(value) if value else ""})'),
    (set, _set),
    (dict, lambda value: 'dict()'),
    (list, lambda value: '[]'),
    (tuple, lambda value: '()'),
    (bytes, _quoted),
    ((range, slice, type(None), type(...)), repr),
    (os.PathLike, lambda value: _quoted(os.fspath(value))),
]


def _scalar_text(value: Any) -> str:
    for kind, printer in _PRINTERS:
        if isinstance(value, kind):
            return printer(value)
    if not has_text(value):
        return _quoted(mark_of(value))
    return _quoted(path_of(value)) if _is_named(value) else _flat_text(value.item())


def mark_of(value: Any) -> str:
    """The text in place of an object that has none."""
    return OBJECT + printable(_ADDRESS.sub('', repr(value)), 200)


def has_text(value: Any) -> bool:
    """Whether there is a text that can be read back for ``value``, which is no container."""
    is_number = hasattr(value, 'item') and getattr(value, 'shape', None) == ()  # of numpy or torch
    return is_number or _is_named(value) or any(isinstance(value, kind) for kind, _ in _PRINTERS)


def _is_named(value: Any) -> bool:
    """Whether ``value`` is a class or function that a path finds: neither a lambda, nor made inside a function, nor a
    method of an object."""
    if inspect.isclass(value) or not inspect.isroutine(value):
        return inspect.isclass(value) and '<' not in value.__qualname__
    place, name = _place_of(value)
    found: Any = sys.modules.get(place)
    if found is None:  # a config file, which is executed without being a module
        return '<' not in name
    for part in name.split('.'):
        found = getattr(found, part, None)
    return bool(found == value)


# --- JSON and YAML ----------------------------------------------------------------------------------------------------


def format_data(config: dict[Any, Any], file_format: str) -> str:
    """The JSON or YAML text of a config.

    Reading it gives the same values, except that classes and functions become their paths (which a registry can look
    up) or, if no path finds them, `OBJECT` with their ``repr``; sets become lists, and in JSON tuples become lists.
    """
    from runnerkit.fileio import dump

    options: dict[str, Any] = {} if file_format == 'json' else {'Dumper': _dumper()}
    text: str = dump(as_data(config), file_format=file_format, **options)
    # Neither format has two adjacent braces outside strings.
    return FILLED_IN.sub(r'\\u007b', text)


def as_data(value: Any) -> Any:
    """``value`` with plain containers and values only."""
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | set | frozenset):
        return [as_data(item) for item in value]
    if isinstance(value, tuple):
        return tuple(as_data(item) for item in value)
    if not callable(value):
        return value
    return path_of(value) if has_text(value) else mark_of(value)


def _dumper() -> Any:
    """A YAML dumper that double-quotes strings with template variables, so that their braces can be escaped."""
    from runnerkit.fileio.yaml_format import YamlDumper

    class Dumper(YamlDumper):
        pass

    def represent_string(dumper: Any, value: str) -> Any:
        style = '"' if FILLED_IN.search(value) else None
        return dumper.represent_scalar('tag:yaml.org,2002:str', value, style=style)

    Dumper.add_representer(str, represent_string)
    return Dumper


# --- objects ----------------------------------------------------------------------------------------------------------


def objects_in(value: Any, *path: Any) -> Iterator[str]:
    """The dotted keys, below ``path``, of the objects in ``value`` for which there is no text."""
    yield from (dotted(where) for where, leaf in values_in(value, path) if not has_text(leaf))


def refuse_marks(value: Any, *path: Any) -> None:
    """Refuse a part of a config that has been read, if objects are missing in it."""
    lost = [f'{dotted(where)} ({leaf[len(OBJECT) :]})' for where, leaf in values_in(value, path) if is_mark(leaf)]
    if lost:
        raise ValueError(
            'the run that wrote this config was given Python objects, which a written config cannot hold: '
            f'{shortened(lost)}. {WAY_OUT}'
        )


def is_mark(value: Any) -> bool:
    """Whether ``value`` is the mark of an object that could not be written."""
    return isinstance(value, str) and value.startswith(OBJECT)


def why_nameless(value: Any) -> tuple[str, str] | None:
    """If ``value`` is a function that a written config cannot name: what follows, and the way out."""
    what = 'so the work dir does not keep it: predict, test, export and a resume elsewhere need this config again'
    if isinstance(value, partial):
        bound = "dict(type='my_file.py:function', key=value)"
        return f'is a partial function, {what}', f'Write {bound}, which binds arguments.'
    if inspect.isroutine(value) and not has_text(value):
        kind = 'is a lambda' if value.__name__ == '<lambda>' else 'is a function that no import finds'
        return (
            f'{kind}, {what}',
            "Write it with def at the top level of a file, and give its name, 'my_file.py:function'.",
        )
    return None
