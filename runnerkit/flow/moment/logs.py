"""Compares the log lines of a run and of its replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.flow.look.log_lines import read_log

#: What is no value of the training, but of the machine, or of the moment at which it was trained.
_OF_MACHINE = ('time', 'data_time', 'memory', 'timestamp', 'eta', 'host')


class Difference(NamedTuple):
    """A value that differs.

    Attributes:
        step: the completed iterations at the line.
        mode: of the line, ``'train'`` or ``'val'``.
        name: of the value; empty if one side lacks the line.
        then: the value of the run; None if it has none.
        now: the same of the replay.
    """

    step: int
    mode: str
    name: str
    then: Any
    now: Any

    def __str__(self) -> str:
        where = f'the log line at {self.step} iterations ({self.mode})'
        if not self.name:
            return f'{where} is missing in {"the replay" if self.now is None else "the log"}'
        return f'{where} differs: {self.name} was {self.then!r} and is {self.now!r}'


def compare_logs(
    lines: Sequence[Mapping[str, Any]], folders: Iterable[Path], since: int, done: int
) -> list[Difference]:
    """The differences between a run's ``lines`` and those of its replay, in the order of the log.

    Lines of the replay behind the last one of the run are not compared.
    """
    end = max((line['step'] for line in lines), default=0)
    then = {(line['step'], line['mode']): line for line in lines if since <= line['step'] <= done}
    now = {(line['step'], line['mode']): line for folder in folders for line in read_log(folder).lines}
    now = {key: line for key, line in now.items() if key[0] <= end}
    for key in [key for key in then if key[0] == since]:  # perhaps logged before the checkpoint, or in part
        again = now.get(key, {})
        then[key] = {name: value for name, value in then[key].items() if name in again}
        now[key] = {name: value for name, value in again.items() if name in then[key]}
    return [each for key in sorted(then.keys() | now.keys()) for each in _between(key, then.get(key), now.get(key))]


def _between(
    key: tuple[int, str], then: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Difference]:
    if then is None or now is None:
        yield Difference(*key, '', then, now)
        return
    for name in [name for name in dict.fromkeys([*then, *now]) if not is_of_machine(name)]:
        one, other = then.get(name), now.get(name)
        if one != other and not (one != one and other != other):  # both NaN
            yield Difference(*key, name, one, other)


def is_of_machine(name: str) -> bool:
    """Whether the log value ``name`` is a time, or belongs to the machine."""
    return name in _OF_MACHINE or name.startswith(('time_max', 'data_time_max'))
