"""What differs in the model and the data of two configs: that of a checkpoint's run, and that of the resumed one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runnerkit.checkpoint.conditions import Change, differs
from runnerkit.config.settings import NoLiteral, read_literals
from runnerkit.utils.logging import printable

#: The sections that are compared, by their keys.
_SECTIONS = (('data', 'train'), ('data', 'val'), ('model',))

#: Arguments with the first weights, which those of the checkpoint replace.
_REPLACED = ('init_cfg', 'pretrained')

_ABSENT = object()

_WIDEST = 60  # characters of a value in the table


def config_changes(was: Any, now: Any) -> list[Change]:
    """A line for each argument of ``data.train``, ``data.val`` and ``model`` that differs.

    A path that has moved together with the work dir is the same path, and so is a file of code in another folder.

    Args:
        was: the config's text in the checkpoint's meta; None if it has none.
        now: that of this run.
    """
    if was == now or not (isinstance(was, str) and isinstance(now, str)):
        return []
    try:
        before, after = read_literals(was), read_literals(now)
    except NoLiteral:  # a text of the user's own, not that of a config
        return []
    moved = _moved(str(before.get('work_dir', '')), str(after.get('work_dir', '')))
    return [
        Change(key, _shown(one), _shown(other), 'it takes effect now')
        for section in _SECTIONS
        for key, one, other in _differing('.'.join(section), _at(before, section), _at(after, section))
        if not _is_same_place(one, other, moved)
    ]


def _at(values: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        values = values.get(key, _ABSENT) if isinstance(values, dict) else _ABSENT
    return values


def _differing(key: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys of the differing values in ``was`` and ``now``, which stand at ``key``, with both values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            if name not in _REPLACED:
                yield from _differing(f'{key}.{name}', was.get(name, _ABSENT), now.get(name, _ABSENT))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple) and len(was) == len(now):
        for index, pair in enumerate(zip(was, now, strict=True)):
            yield from _differing(f'{key}[{index}]', *pair)
    elif differs(was, now):
        yield key, was, now


def _moved(was: str, now: str) -> tuple[str, str]:
    """What has become what, where the folder ``was`` has become ``now``: both without the end that they share."""
    before, after = was.split('/'), now.split('/')
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return '/'.join(before), '/'.join(after)


def _is_same_place(was: Any, now: Any, moved: tuple[str, str]) -> bool:
    if not (isinstance(was, str) and isinstance(now, str)):
        return False
    if '.py:' in was and '.py:' in now:
        return was.rpartition('/')[2] == now.rpartition('/')[2]
    if not (was.startswith(moved[0]) and now.startswith(moved[1])):
        return False
    rest = was.removeprefix(moved[0])
    return rest.startswith('/') and rest == now.removeprefix(moved[1])


def _shown(value: Any) -> str:
    return 'absent' if value is _ABSENT else printable(str(value), _WIDEST)
