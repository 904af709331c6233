"""What sets two runs apart, from the outside in: settings, code, machine, data, seeds; then log lines and checkpoints.

Only records are read: nothing of the user's is imported, and nothing is executed.
"""

from __future__ import annotations

import math
import operator
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runnerkit.checkpoint.integrity import reading, training_state_problem
from runnerkit.checkpoint.loader import _load_checkpoint
from runnerkit.config.settings import differing, flattened, settings_in
from runnerkit.flow.look.log_lines import is_number
from runnerkit.flow.moment.history import History, Saved, Start, history_of
from runnerkit.flow.moment.logs import compare_logs
from runnerkit.flow.moment.values import MISSING, difference_of, furthest
from runnerkit.flow.moment.verify import state_of
from runnerkit.flow.report.record import RunRecord, is_run
from runnerkit.hooks.fingerprint import HASHES
from runnerkit.utils.logging import printable

#: What came of a run.
RESULTS = ('log', 'fingerprints', 'checkpoints')

#: What is compared, from the outside in.
SECTIONS = ('config', 'code', 'environment', 'data', 'seeds and ranks', *RESULTS)

#: Keys of a config, and flags, that say where a run is and how it was started, or that are compared elsewhere.
_PLACES = {'work_dir', 'resume_from', 'auto_resume', '--work_dir', '--resume_from', '--auto_resume', '--if_used'}
_PLACES |= {'--verbose', '--launcher', '--local_rank', '--stop_after', '--seed', '--device'}

#: Entries of a start by section; dicts are compared by key.
_ENTRIES = {
    'environment': ('versions', 'threads', 'device', 'git'),
    'data': ('data', 'first_batch'),
    'seeds and ranks': ('seed', 'ranks'),
}

#: What is compared of two checkpoints; settings and versions are compared elsewhere.
_KINDS = {
    'weights': r'state_dict',
    'optimizer options': r"optimizer.*\['param_groups'\]",
    'optimizer state': r'optimizer',
    'random states': r'rng',
    'position in the data': r"progress|(readers|evaluations)\[\d+\]\[\d+\]\['(batches|samples|epoch|loader)'\]",
    'hooks': r"hooks\[\d+\]\['(?!\w*(Logger|Journal|History|Timer|Checkpoint|LossJump)\w*#)",
    'other state': r'buffers|updates|parts|scores',
}

#: What a checkpoint may have been saved without.
_LEFT_OUT = ('optimizer options', 'optimizer state')

_LABELS = {
    'weights_hash': 'weights',
    'optimizer_hash': 'optimizer state',
    'random_hash': 'random states',
}


class Row(NamedTuple):
    """One difference.

    Attributes:
        section: one of `SECTIONS`.
        name: of the value.
        a, b: the value on both sides, with its place if it is known.
        since: the completed iterations from which on it holds.
        note: how large it is, or what it means.
    """

    section: str
    name: str
    a: str
    b: str
    since: int = 0
    note: str = ''


@dataclass
class Diff:
    """The comparison of two runs or checkpoints.

    Attributes:
        a, b: their paths.
        rows: all differences in the order of `SECTIONS`; of the results only the first ones.
        equal_at: the completed iterations of compared log lines and checkpoints that are equal.
        equal_states: those at which a whole state is equal: a checkpoint, or the fingerprints of a line.
        compared: how many log lines, fingerprints and checkpoints both have.
        notes: what else is worth knowing, such as resumes.
        parting: where exactly they part; see `runnerkit.flow.moment.exactly.Parting`. None: not asked for.
        sentence: what it comes to.
    """

    a: str
    b: str
    rows: list[Row] = field(default_factory=list)
    equal_at: list[int] = field(default_factory=list)
    equal_states: list[int] = field(default_factory=list)
    compared: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    parting: dict[str, Any] | None = None
    sentence: str = ''

    @property
    def is_equal(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return not self.rows and not (self.parting or {}).get('iteration') and any(self.compared.values())

    @property
    def first(self) -> int | None:
        """The completed iterations at which a result differs first; None if none does."""
        return min((row.since for row in self.rows if row.section in RESULTS), default=None)

    @property
    def equal_to(self) -> int:
        """The completed iterations up to which the results are known to be equal."""
        first = self.first
        return max((each for each in self.equal_at if first is None or each < first), default=0)

    @property
    def is_shorter(self) -> bool:
        """Whether the only difference of the results is that one run goes further."""
        return any(row.name == 'length' for row in self.rows)

    @property
    def causes(self) -> list[Row]:
        """The differences that may have led to that of the results."""
        inputs = [row for row in self.rows if row.section not in RESULTS]
        return [row for row in inputs if self.first is None or row.since < self.first]


class Side:
    """One of the two: a work dir, or a checkpoint, as the history of a run.

    Args:
        path: of it.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: the checkpoint is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir() and is_run(self.path):
            self.history = history_of(self.path)
            self.saved, self.is_run, self.compared = sorted(self.history.checkpoints()), True, 'everything'
            return
        is_file = self.path.is_file() and (self.path.suffix in ('.pth', '.pt') or zipfile.is_zipfile(self.path))
        if not (is_file or (self.path / '.metadata').exists()):
            raise FileNotFoundError(f'{path} is neither a work dir of a run nor a checkpoint')
        with reading(self.path, 'compared'):
            run = RunRecord(self.path.parent, meta=dict(self.content['meta']))
            self.history = History(run, [Start(1, 0, None, _entry_of(self.content), None)])
            iterations = operator.index(run.meta.get('iter', 0))
        self.saved, self.is_run = [Saved(iterations, str(self.path), 0.0)], False
        self.compared = 'everything' if 'runnerkit' in self.content else 'weights and optimizer'

    @cached_property
    def content(self) -> dict[str, Any]:
        """Of the checkpoint."""
        content = _load_checkpoint(self.path, 'cpu')
        if not isinstance(content, dict) or not isinstance(content.get('meta'), Mapping):
            raise ValueError(f'{self.path} is not a checkpoint of a run: it has no meta')
        if 'runnerkit' in content and (problem := training_state_problem(content)):
            raise ValueError(f'{self.path} cannot be compared: {problem}')
        return content

    def like(self, other: Side) -> Side:
        """A run's checkpoint of the iteration of ``other``, which is a checkpoint; a checkpoint itself."""
        wanted = other.saved[0].iterations
        if not self.is_run:
            return self
        found = next((saved for saved in self.saved if saved.iterations == wanted), None)
        if found is None:
            has = ', '.join(str(saved.iterations) for saved in self.saved) or 'none'
            raise FileNotFoundError(
                f'{other.path} is a checkpoint of iteration {wanted}, and {self.path} has no intact one of that '
                f'iteration to compare it with (of others: {has})'
            )
        return Side(found.path)

    @property
    def begins(self) -> list[int]:
        """The completed iterations at which the starts began that count."""
        return [start.begin for start in self.history.starts]

    def settings(self, start: Start) -> tuple[dict[str, Any], dict[str, str]]:
        """The values of the config of a start by dotted key, and where they are written."""
        text = start.config.read_text(encoding='utf-8', errors='replace') if start.config else ''
        settings = settings_in(text) or self.history.run.settings
        places = {key: place for key, _, place, *_ in start.entry.get('settings', []) if place}
        flags = {f'--{key}': value for key, value in (start.entry.get('options') or {}).items()}
        return {key: value for key, value in {**settings, **flags}.items() if key not in _PLACES}, places


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Diff:
    """Compare two runs, or two checkpoints, by their records; a run and a checkpoint by their checkpoints."""
    sides = Side(a), Side(b)
    found = Diff(str(sides[0].path), str(sides[1].path))
    if sides[0].is_run != sides[1].is_run:
        sides = sides[0].like(sides[1]), sides[1].like(sides[0])
        found.notes = [
            f'compared with {each.path.name} of {each.path.parent}'
            for each in sides
            if str(each.path) not in (found.a, found.b)
        ]
    rows: dict[tuple[str, str, str, str], Row] = {}
    for iteration in sorted({*sides[0].begins, *sides[1].begins}):
        one, other = (side.history.start_of(iteration) for side in sides)
        for row in _inputs(sides, one, other, iteration):
            rows.setdefault(row[:4], row)
    found.rows += rows.values()
    found.rows += [*_log_rows(found, *sides), *_checkpoint_rows(found, *sides)]
    on_one_line = [Row._make(printable(each) if isinstance(each, str) else each for each in row) for row in found.rows]
    found.rows = sorted(on_one_line, key=lambda row: SECTIONS.index(row.section))
    for side, name in zip(sides, 'AB', strict=True):
        found.notes += [f'{name} was started again after {begin} iterations' for begin in side.begins[1:]]
        found.notes += [f'{name}: {text}' for text in [*side.history.discarded, *side.history.run.exactness]]
    found.sentence = conclusion(found)
    return found


# --- what went into the runs -----------------------------------------------------------------------------------------


def _inputs(sides: tuple[Side, Side], one: Start, other: Start, since: int) -> Iterator[Row]:
    """What differs between the starts that train the iterations from ``since`` on."""
    (settings, places), (others, other_places) = sides[0].settings(one), sides[1].settings(other)
    for key in differing([settings, others]) if settings and others else ():
        pair = (_value_and_place(settings, places, key), _value_and_place(others, other_places, key))
        yield Row('config', key, *pair, since)
    yield from _code_rows(one.config, other.config, since)
    for section, keys in _ENTRIES.items():
        for key in keys:
            values = [dict(flattened(key, start.entry.get(key))) for start in (one, other)]
            values = [{name: each for name, each in value.items() if each not in (None, {})} for value in values]
            if key == 'first_batch' and one.begin != other.begin:
                continue
            if all(values):  # an older version may not have recorded it
                is_whole = sides[0].is_run  # a checkpoint of another program lacks some
                for name in [name for name in differing(values) if is_whole or all(name in each for each in values)]:
                    a, b = (printable(str(each.get(name, 'none')), 60) for each in values)
                    yield Row(section, name, a, b, since)


def _value_and_place(settings: Mapping[str, Any], places: Mapping[str, str], key: str) -> str:
    value = printable(repr(settings[key]), 60) if key in settings else 'absent'
    return f'{value} ({places[key]})' if key in places and key in settings else value


def _code_rows(one: Path | None, other: Path | None, since: int) -> Iterator[Row]:
    """The kept files of the user's code that differ, each with its first line that does."""
    if one is None or other is None:
        return
    texts = [
        {str(path.relative_to(config.parent)): path for path in config.parent.glob('code*/**/*.py') if path.is_file()}
        for config in (one, other)
    ]
    for name in sorted({*texts[0], *texts[1]}):
        if not all(name in each for each in texts):
            a, b = (str(each.get(name, 'absent')) for each in texts)
            yield Row('code', name, a, b, since)
            continue
        pairs = zip_longest(*(each[name].read_text(errors='replace').split('\n') for each in texts), fillvalue='')
        for number, pair in enumerate(pairs, 1):
            if pair[0] != pair[1]:
                a, b = (
                    f'{printable(text.strip(), 60)} ({each[name]}:{number})'
                    for text, each in zip(pair, texts, strict=True)
                )
                yield Row('code', name, a, b, since, f'first in line {number}')
                break


def _entry_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of the start that wrote it, as ``run.json`` says it."""
    state = content.get('runnerkit') or {}
    conditions = state.get('conditions', {})
    readers = (state.get('ranks') or [{}])[0].get('readers', [])
    about = {f'loader {number}': each.get('about') or {} for number, each in enumerate(readers)}
    return {
        'versions': {'torch': conditions.get('torch'), 'runnerkit': content['meta'].get('runnerkit_version')},
        'threads': conditions.get('threads'),
        'seed': conditions.get('seed', content['meta'].get('seed')),
        'ranks': state.get('world_size'),
        'data': about,
    }


# --- what came of them -----------------------------------------------------------------------------------------------


def _log_rows(found: Diff, one: Side, other: Side) -> Iterator[Row]:
    """The first line that differs, with all of its values; and how far each log goes if that is all."""
    runs = [side.history.run for side in (one, other)]
    keys = [{(line['step'], line['mode']) for line in run.lines} for run in runs]
    common = keys[0] & keys[1]
    end = 1 + max((step for step, _ in common), default=0)
    is_averaged = any(row.name.startswith('log_config.') and row.name.endswith('interval') for row in found.rows)
    unequal = [
        each
        for each in (compare_logs(runs[0].lines, [other.path], -1, end) if common else ())
        if each.name and not (each.name in HASHES and None in (each.then, each.now))
        if not is_averaged or each.mode == 'val' or each.name in (*HASHES, 'lr')  # else over other iterations
    ]
    hashed = set(common).intersection(
        *({(line['step'], line['mode']) for line in run.lines if HASHES[0] in line} for run in runs)
    )
    found.compared = {'log lines': len(common), 'fingerprints': len(hashed)}
    steps = {each.step for each in unequal}
    found.equal_at += [step for step, _ in (hashed or common) if step < min(steps, default=math.inf)]
    found.equal_states += [step for step, _ in hashed if step < min(steps, default=math.inf)]
    for section in ('log', 'fingerprints'):
        own = [each for each in unequal if (each.name in HASHES) == (section == 'fingerprints')]
        for each in [each for each in own if (each.step, each.mode) == (own[0].step, own[0].mode)]:
            a, b = (printable(repr(value), 60) for value in (each.then, each.now))
            note = f'{"an evaluation" if each.mode == "val" else "the line"} at {each.step} iterations'
            if is_number(each.then) and is_number(each.now):
                note += f', by {furthest(*torch.tensor([each.then, each.now], dtype=torch.float64).split(1))[2]}'
            yield Row(section, each.name, a, b, each.step, note)
    ends = [run.last_start.get('iterations_at_end') or run.step for run in runs]
    if ends[0] != ends[1] and all(ends) and not unequal:
        shorter = min(ends)
        a, b = (f'{end} iterations ({run.outcome})' for end, run in zip(ends, runs, strict=True))
        yield Row('log', 'length', a, b, shorter + 1)


def _checkpoint_rows(found: Diff, one: Side, other: Side) -> Iterator[Row]:
    """The first differences of the first two checkpoints of equal iterations that differ."""
    pairs = [{each.iterations: each.path for each in side.saved} for side in (one, other)]
    common = sorted(pairs[0].keys() & pairs[1].keys())
    found.compared['checkpoints'] = len(common)
    compared = max(one.compared, other.compared)  # what both have
    for iterations in common:
        states = [state_of(each[iterations], compared) for each in pairs]
        kinds = [{place: kind for place in state if (kind := _kind_of(place))} for state in states]
        shown = {kind for kind in _LEFT_OUT if (kind in kinds[0].values()) != (kind in kinds[1].values())}
        found.notes += [f'{"AB"[kind in kinds[0].values()]} has no {kind}' for kind in _LEFT_OUT if kind in shown]
        is_equal = True
        for place, kind in {**kinds[0], **kinds[1]}.items():
            pair = [each.get(place, MISSING) for each in states]
            told = '' if kind in shown else difference_of(place, pair[0], pair[1], 'AB')
            if told:
                shown.add(kind)
                is_equal = False
                values = [each.get(place) for each in states]
                a, b = ('' if isinstance(value, Tensor) else printable(str(value), 60) for value in values)
                yield Row('checkpoints', kind, a, b, iterations, f'at {iterations} iterations, first {told}')
        if not is_equal:
            return
        found.equal_at.append(iterations)
        found.equal_states.append(iterations)


def _kind_of(place: str) -> str | None:
    return next((kind for kind, pattern in _KINDS.items() if re.match(pattern, place)), None)


# --- what it comes to ------------------------------------------------------------------------------------------------


def conclusion(found: Diff) -> str:
    """The one sentence, for a person to act on."""
    counts = [(what, count) for what, count in found.compared.items() if count and what != 'fingerprints']
    said = [f'{count} {what if count > 1 else what.removesuffix("s")}' for what, count in counts]
    compared = ' and '.join(said)
    if found.is_equal:
        return f'A and B are equal in every value of {compared}.'
    cause = _cause(found)
    if not said:
        more = f', and what went into them differs: {cause}' if found.rows else ''
        return f'A and B have no log line and no checkpoint of the same iteration in common{more}.'
    if found.first is None:
        return f'The results are equal ({compared}), but not what went into them: {cause}.'
    first = [row for row in found.rows if row.since == found.first and row.section in RESULTS]
    if found.is_shorter:
        return f'Equal as far as both go, {found.first - 1} iterations: A has {first[0].a}, B {first[0].b}.'
    since = f'Equal up to iteration {found.equal_to}' if found.equal_to else 'Different from the first comparison on'
    names: dict[str, None] = {}
    for row in first:
        size = row.note.rpartition(', by ')[2]
        names[f'{row.name} ({size})' if size.endswith('ulp') else _LABELS.get(row.name, row.name)] = None
    more = f' and {len(names) - 3} more' if len(names) > 3 else ''
    return f'{since}; iteration {found.first} differs in {", ".join([*names][:3])}{more}: {cause}.'


def causes_of(found: Diff) -> str:
    """What may have led to the first difference; empty if the records show nothing."""
    causes = found.causes
    more = f' (and {len(causes) - 1} more)' if len(causes) > 1 else ''
    return _cause_in_words(causes[0]) + more if causes else ''


def _cause(found: Diff) -> str:
    if text := causes_of(found):
        return text
    by_hash = [row.name for row in found.rows if row.section == 'fingerprints' and row.since == found.first]
    if by_hash == ['random_hash']:
        return 'only the random states differ there, so one run has drawn a random number that the other has not'
    again = [note for note in found.notes if 'started again' in note]
    because = f'{again[0]}, and the records show no other cause' if again else 'the records show no cause'
    hint = f'; runnerkit diff {found.a} {found.b} --exactly finds the iteration and what parted first'
    return because + hint * all(is_run(Path(each)) for each in (found.a, found.b))


def _cause_in_words(row: Row) -> str:
    if row.section == 'code':
        return f'the code in {row.name} differs{row.note and f", {row.note}"}: A has {row.a}, B {row.b}'
    if row.name == 'threads':
        a, b = (f'{count} thread{"s" * (count != "1")}' for count in (row.a, row.b))
        return f'A ran with {a}, B with {b}'
    if row.name.startswith('first_batch'):
        start = f' after iteration {row.since}' if row.since else ''
        return f'the first batches{start} differ ({row.name.removeprefix("first_batch.")})'
    return f'{row.name} is {row.a} in A and {row.b} in B'


def as_plain(found: Diff) -> dict[str, Any]:
    """The comparison as plain values, for JSON."""
    about = {'equal': found.is_equal, 'first': found.first, 'equal_to': found.equal_to}
    return {**vars(found), **about, 'rows': [row._asdict() for row in found.rows]}
