"""The logs of a work dir: each moment of the run once, the curves of its values, its best evaluation, messages."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain, pairwise, starmap
from pathlib import Path
from typing import Any, TypeGuard

from runnerkit.checkpoint.store import best_name
from runnerkit.log_files import logs_in, parsed_line
from runnerkit.utils.small_files import open_regular

#: The most characters of a message, and of a line of a log: a longer one is read in pieces.
MOST_TEXT, MOST_LINE = 2000, 8 << 20

#: Lines are parsed together until they have so many characters, which takes half the time of one after another.
_AT_ONCE = 1 << 17

#: Pairs of (completed iterations, value).
Points = list[tuple[int, float]]

_RECORD = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \S+ - ([A-Z]+) - (.*)')

#: Entries of a log line that are no measured values.
_NO_VALUES = {
    'mode',
    'epoch',
    'iter',
    'step',
    'timestamp',
    'eta',
    'eval_iter_num',
    'time_max_rank',
    'data_time_max_rank',
}

#: A line of a training, whole and as `runnerkit.hooks.TextLoggerHook` writes it, and its ``step``.
_TRAINING = re.compile(
    r'\{"mode": "train", "epoch": \d{1,18}, "iter": \d{1,18}, "step": (\d{1,18}), [^{}]*(?:\{[^{}]*\}[^{}]*)*\}\n'
)

#: The name of a best checkpoint: its score, the unit, and how many of these were done.
_BEST = re.compile(r'best_(.+)_(epoch|iter)_(\d+)(\.pth)?')


@dataclass
class Log:
    """What the JSON logs of a run say.

    Attributes:
        meta: of the newest log, such as ``config`` and ``env_info``.
        lines: each moment of the run once, with the completed iterations as ``step``.
        resumed_at: the completed iterations at each start but the first.
    """

    meta: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)


def read_log(work_dir: str | os.PathLike[str], only_scores: bool = False) -> Log:
    """Read the JSON logs of ``work_dir``.

    If a run was started again, or resumed without removing the old lines, a line whose ``step`` goes back replaces all
    lines from that step on. Incomplete lines of a killed run, and lines of other programs, are left out.

    Args:
        work_dir: of the run.
        only_scores: also leave out training lines between two others, which is several times as fast.
    """
    log = Log()
    for path in logs_in(work_dir):
        is_first, began, before = True, 0, 0  # the step at which the epoch began, and the last line in it
        texts = text_lines(path)
        for line in _parsed(_without_training(texts) if only_scores else texts):
            step, mode = line.get('step'), line.get('mode')
            if type(step) is int and not is_first and log.lines[-1]['step'] < step < 2**63 and type(mode) is str:
                log.lines.append(line)  # nearly all lines
                continue
            if not isinstance(mode, str):
                log.meta = line if {'config', 'env_info', 'seed'} & line.keys() else log.meta
                continue
            reached = log.lines[-1]['step'] if log.lines else 0
            if not _counts(line.get('step')):  # of an older version, or of MMCV: iterations of the epoch, or of all
                if only_scores:
                    return read_log(work_dir)  # only all lines together tell where each one is
                inside = line['iter'] if _counts(line.get('iter')) and line['mode'] != 'val' else 0
                if inside and not before:  # a resumed run continues after the epochs before, if it counts in its epoch
                    ended = [each['step'] for each in log.lines if _epoch_of(each) < _epoch_of(line)]
                    began = ended[-1] if ended and inside <= ended[-1] else 0
                began, before = (reached, inside) if inside and inside <= before else (began, inside or before)
                line['step'] = began + inside if inside else reached
            if is_first and log.lines:
                log.resumed_at.append(min(line['step'], reached))
            is_first = False
            while log.lines and log.lines[-1]['step'] > line['step']:
                log.lines.pop()
            last = log.lines[-1] if log.lines else {}
            if last.get('step') == line['step'] and last['mode'] == line['mode']:
                last.update(line)
            else:
                log.lines.append(line)
    return log


def _epoch_of(line: dict[str, Any]) -> int:
    return line['epoch'] if _counts(line.get('epoch')) else 0


def _parsed(texts: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The parsed ``texts``, without those that are not valid."""
    several: list[str] = []
    size = 0
    for text in texts:
        several.append(text)
        size += len(text)
        if size > _AT_ONCE:
            yield from _parsed_together(several)
            several, size = [], 0
    yield from _parsed_together(several)


def _parsed_together(texts: list[str]) -> Iterable[dict[str, Any]]:
    with suppress(ValueError, RecursionError):
        found = json.loads(f'[{",".join(texts)}]')
        if len(found) == len(texts) and all(type(each) is dict for each in found):
            return found
    return filter(None, map(parsed_line, texts))


def _without_training(texts: Iterator[str]) -> Iterator[str]:
    """The lines of a file without training lines between two others with a lower and a higher step."""
    before, reached = '', -1  # a line that may be left out, and the step of the last one
    for text in texts:
        found = _TRAINING.fullmatch(text)
        step = int(found[1]) if found else -1
        if before and step <= reached:
            yield before
        before = text if 0 <= reached < step else ''
        if not before:
            yield text
        reached = step
    if before:
        yield before


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file, one at a time, however large it is; none if it cannot be read."""
    try:
        with open(open_regular(path), encoding='utf-8', errors='replace') as file:
            yield from iter(partial(file.readline, MOST_LINE), '')
    except OSError:
        return


def curves_of(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Points]:
    """The curve of each value by mode and name, in the order of the log. Values in a dict are ``<name> <key>``; those
    of ``lr_groups`` are ``lr <key>``. Learning rates and momenta of evaluations are left out."""
    found: dict[tuple[str, str], Points] = {}
    by_mode: dict[str, dict[str, Points]] = {}
    for line in lines:
        mode, step = line['mode'], line['step']
        own = by_mode.setdefault(mode, {})
        for name, value in line.items():
            if name in own and (type(value) is float or (type(value) is int and -(2**63) < value < 2**63)):
                own[name].append((step, value))  # nearly all values
                continue
            if name in _NO_VALUES and type(value) is not dict:
                continue
            for label, number in _measured(name, value):
                if mode != 'val' or not label.startswith(('lr', 'momentum')):
                    points = own[label] = found.setdefault((mode, label), [])
                    points.append((step, number))
    return found


def _measured(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The measured values of an entry of a log line."""
    if is_number(value) and name not in _NO_VALUES:
        yield name, value
    elif isinstance(value, dict):
        label = 'lr' if name == 'lr_groups' else name
        yield from ((f'{label} {key}', each) for key, each in value.items() if is_number(each))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a float, or an integer of at most 64 bits."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def _counts(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


@dataclass
class Best:
    """The best evaluation: the name of its score, the score, the completed iterations, the checkpoint's file name.

    The score and the iterations are None if the log does not have them.
    """

    score: str
    value: float | None
    step: int | None
    checkpoint: str

    @property
    def when(self) -> str:
        """The epoch or iteration, such as ``epoch 7``."""
        return ' '.join(self.checkpoint.removesuffix('.pth').split('_')[-2:])


def best_of(lines: list[dict[str, Any]], checkpoint: str) -> Best | None:
    """The evaluation that a best checkpoint was saved after; None if the checkpoint has another name."""
    name = os.path.basename(checkpoint)
    found = _BEST.fullmatch(name)
    if found is None:
        return None
    score, unit, number = found[1], found[2], int(found[3])
    for line in reversed(lines):
        if line['mode'] == 'val' and (line.get('epoch') if unit == 'epoch' else line['step']) == number:
            for key, value in chain.from_iterable(starmap(_measured, line.items())):
                if best_name(key, unit, number).removesuffix('.pth') == name.removesuffix('.pth'):
                    return Best(key, value, line['step'], name)
    return Best(score, None, None, name)


def text_records(path: Path) -> Iterator[tuple[str, str, str]]:
    """Time, level and text of each record of a text log; further lines of a record belong to it, up to `MOST_TEXT`."""
    when, level, text = '', '', ''
    for line in text_lines(path):
        if match := _RECORD.match(line):
            if when:
                yield when, level, text[:MOST_TEXT]
            when, level, text = match.groups()
        elif len(text) < MOST_TEXT:
            text += '\n' + line.rstrip('\n')
    if when:
        yield when, level, text[:MOST_TEXT]


def seconds_of(when: str) -> float | None:
    """The time of a record in seconds since 1970; None if it is none."""
    try:
        return datetime.strptime(when, '%Y-%m-%d %H:%M:%S,%f').timestamp()
    except (ValueError, OverflowError):
        return None


def thinned(points: Sequence[tuple[int, float]], buckets: int) -> dict[str, Any]:
    """A curve as lists: ``x``, ``y``, ``last``, ``bad`` (where values begin not to be finite).

    A curve with many points gets the average of each bucket as ``y``, with its extremes as ``low`` and ``high``.
    """
    values = [value for _, value in points]
    are_finite = all(map(math.isfinite, values))
    pairs = () if are_finite else pairwise([(0, 0.0), *points])
    bad = [step for (_, before), (step, value) in pairs if math.isfinite(before) and not math.isfinite(value)]
    found: dict[str, Any] = {'last': _for_page(points[-1][1]) if points else None, 'bad': bad[:50]}
    if len(points) <= 2 * buckets:
        return {'x': [step for step, _ in points], 'y': [_for_page(value) for _, value in points], **found}
    found |= {'x': [], 'y': [], 'low': [], 'high': []}
    for i in range(buckets):
        begin, end = (each * len(points) // buckets for each in (i, i + 1))
        finite = values[begin:end] if are_finite else list(filter(math.isfinite, values[begin:end]))
        found['x'].append(points[begin + (end - begin) // 2][0])
        mean = math.fsum([value / len(finite) for value in finite]) if finite else math.nan
        found['y'].append(_for_page(mean))
        found['low'].append(_for_page(min(finite, default=mean)))
        found['high'].append(_for_page(max(finite, default=mean)))
    return found


def _for_page(value: float) -> float | None:
    """``value`` with six digits, below the largest so that the page can subtract; None if it is not finite."""
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return float(f'{max(-5e307, min(value, 5e307)):.6g}') if math.isfinite(value) else None
