"""Python objects in a config: they have no text, so a written config has only a mark in their places."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

from runnerkit.config.origin import dotted
from runnerkit.config.pretty import OBJECT, has_text
from runnerkit.utils.logging import shortened
from runnerkit.utils.numbers import values_in

#: What to do about a mark in a config that has been read.
WAY_OUT = (
    'Give the original config again (on the command line the file, in Python config=dict(model=net, …)). Or name '
    "classes and functions in it, dict(type='file.py:Net', …) or 'file.py:function'"
)


def objects_in(value: Any, *path: Any) -> Iterator[str]:
    """The dotted keys, below ``path``, of the objects in ``value`` for which there is no text."""
    yield from (dotted(where) for where, leaf in values_in(value, path) if not has_text(leaf))


def refuse_marks(value: Any, *path: Any) -> None:
    """Refuse a part of a config that has been read, if objects are missing in it.

    Args:
        value: the part.
        path: the keys that lead to it.

    Raises:
        ValueError: some are missing; the error names their keys.
    """
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
