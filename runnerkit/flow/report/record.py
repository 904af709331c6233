"""What a work dir says about its run, as plain data.

No code of the user is imported, nothing is unpickled, nothing is written. A run that is still running, an incomplete
last line and a work dir of an older version are all readable.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from runnerkit.config.settings import settings_in
from runnerkit.fileio.paths import is_url
from runnerkit.flow.look.log_lines import (
    Best,
    Points,
    best_of,
    curves_of,
    is_number,
    read_log,
    seconds_of,
    text_records,
)
from runnerkit.log_files import IMAGES, JOURNAL, PREDICTIONS, SAMPLES, starts_in
from runnerkit.utils.lock import is_locked
from runnerkit.utils.numbers import in_short
from runnerkit.utils.small_files import read_json

#: Seconds without a new log line after which a run without a lock no longer counts as running, at most and at least:
#: lines with times tell how long it is silent between two of them.
SILENCE, LEAST_SILENCE = 900.0, 60.0

#: How many different warnings are read from the logs.
MOST_WARNINGS = 100

_END = re.compile(r'Run (completed|stopped|diverged|interrupted|failed)(?:: (.*))?')


@dataclass
class Image:
    """A picture of `runnerkit.report_image`: its name, the completed iterations, the PNG file."""

    name: str
    iterations: int
    file: Path


@dataclass
class RunRecord:
    """The record of one work dir.

    Attributes:
        folder: the work dir.
        starts: an entry for each start of the run, oldest first; empty in work dirs of older versions.
        meta: the meta of the newest JSON log, such as ``config`` and ``env_info``.
        lines: the log lines, each moment of the run once.
        resumed_at: the completed iterations at each start but the first.
        outcome: ``'completed'``, ``'stopped'``, ``'diverged'``, ``'interrupted'``, ``'failed'``, ``'running'``,
            ``'killed'`` (ended without a trace) or ``'unknown'`` (the same, but no lock tells it).
        reason: what the log says about the outcome.
        warnings: each different warning and error of the logs, as (level, text, how often).
        began, ended: seconds since 1970; None if unknown. ``ended`` of a running run is its last sign of life.
        busy: seconds of all its starts together; None if unknown.
    """

    folder: Path
    starts: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)
    outcome: str = 'unknown'
    reason: str = ''
    warnings: list[tuple[str, str, int]] = field(default_factory=list)
    began: float | None = None
    ended: float | None = None
    busy: float | None = None

    @property
    def name(self) -> str:
        """The work dir's name."""
        return os.path.basename(os.path.abspath(self.folder))

    @property
    def last_start(self) -> dict[str, Any]:
        """The newest entry of ``starts``; empty if there is none."""
        return self.starts[-1] if self.starts else {}

    @property
    def config(self) -> str:
        """The text of the config; empty if no file has it."""
        return str(self.meta.get('config', ''))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The values of the config by dotted key."""
        return settings_in(self.config)

    @property
    def seed(self) -> int | None:
        """The seed of the run."""
        seed = self.meta.get('seed', self.settings.get('seed'))
        return seed if isinstance(seed, int) else None

    @cached_property
    def curves(self) -> dict[tuple[str, str], Points]:
        """Pairs of (completed iterations, value) by mode and name, in the order of the log."""
        return curves_of(self.lines)

    @property
    def scores(self) -> dict[str, float]:
        """The latest value of each score."""
        return {name: points[-1][1] for (mode, name), points in self.curves.items() if mode == 'val'}

    @property
    def step(self) -> int:
        """The completed iterations, as far as logged."""
        return self.lines[-1]['step'] if self.lines else 0

    @property
    def iterations(self) -> int:
        """The completed iterations: at the end as the journal has them, else as far as logged."""
        done = self.last_start.get('iterations_at_end')
        return done if isinstance(done, int) else self.step

    @property
    def epoch(self) -> int | None:
        """The running or last epoch, as logged."""
        epoch = self.lines[-1].get('epoch') if self.lines else None
        return epoch if isinstance(epoch, int) else None

    @cached_property
    def epoch_length(self) -> float | None:
        """Iterations of an epoch; None if the log does not tell."""
        for line in reversed(self.lines):
            epoch, inside = line.get('epoch'), line.get('iter')
            if line['mode'] != 'val' and isinstance(epoch, int) and isinstance(inside, int) and epoch > 1:
                length = (line['step'] - inside) / (epoch - 1)
                return length if length >= 1 else None
        return None

    @cached_property
    def clock(self) -> Points:
        """Pairs of (completed iterations, seconds since the start of the run).

        Seconds come from the time of each line (``timestamp``). Lines without it add up the time of their iterations,
        without evaluations and pauses.
        """
        found: Points = []
        seconds, timed, before = 0.0, 0, None  # timed: the iterations whose time is known
        for line in self.lines:
            at, took = line.get('timestamp'), line.get('time')
            if is_number(at) and is_number(before):
                seconds += at - before if at > before else 0.0
                timed = line['step']
            elif line['mode'] != 'val' and is_number(took) and math.isfinite(took):
                seconds += max(0, line['step'] - timed) * took
                timed = line['step']
            before = at
            found.append((line['step'], seconds))
        return found

    @cached_property
    def checkpoints(self) -> list[dict[str, Any]]:
        """Name, bytes and time of each checkpoint in the work dir, oldest first; links are left out."""
        found = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):  # a running run removes old ones
                if entry.name.endswith('.pth') and not entry.is_symlink():
                    status = entry.stat()
                    found.append({'name': entry.name, 'bytes': status.st_size, 'written': status.st_mtime})
        return sorted(found, key=lambda each: (each['written'], each['name']))

    @cached_property
    def best(self) -> Best | None:
        """The best evaluation, after the name of its checkpoint."""
        found = (best_of(self.lines, entry['name']) for entry in reversed(self.checkpoints))
        return next(filter(None, found), None)

    @property
    def batch(self) -> float | None:
        """The samples of an iteration, of all ranks together; None if unknown."""
        data = self.last_start.get('data', {}).get('train', {})
        samples, batches = data.get('samples'), data.get('batches')
        return samples / batches if samples and batches else None

    @property
    def model(self) -> list[dict[str, Any]]:
        """The model's modules: name, type, parameters, how many of these are trainable, and maybe an output shape."""
        return self.last_start.get('modules', [])

    @property
    def exactness(self) -> list[str]:
        """What of the run's resumes was not exact, or may not be, each sentence once."""
        return list(dict.fromkeys(text for start in self.starts for text in start.get('exactness', [])))

    @cached_property
    def predictions(self) -> dict[str, Any] | None:
        """The predictions of the best evaluation: ``score``, ``iterations``, ``classes`` (names, or None), ``samples``.

        Each sample has ``name``, ``target``, ``prediction``, ``confidence``, ``loss`` and ``picture``, a path in the
        work dir; the last three may be None. None if the run has kept none.
        """
        try:
            content = read_json(self.folder / PREDICTIONS)
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or not isinstance(content.get('samples'), list):
            return None
        samples = [each for each in content['samples'] if isinstance(each, dict)]
        for each in samples:
            is_ours = re.fullmatch(rf'{SAMPLES}/[\d-]+\.png', str(each.get('picture')))  # leads nowhere else
            each['picture'] = each['picture'] if is_ours else None
        return {**content, 'samples': samples}

    @cached_property
    def first_samples(self) -> list[dict[str, Any]]:
        """Samples of the first training batch: ``target``, maybe None, and ``row``, a dict, of those of a table."""
        return next((found for start in self.starts if (found := start.get('first_samples'))), [])

    @cached_property
    def images(self) -> list[Image]:
        """The pictures of `runnerkit.report_image`, by name and iteration."""
        found = []
        for file in (self.folder / IMAGES).glob('*_*.png'):
            name, _, number = file.stem.rpartition('_')
            if number.isdecimal():
                found.append(Image(unquote(name), int(number), file))
        return sorted(found, key=lambda each: (each.name, each.iterations))

    @cached_property
    def marks(self) -> list[tuple[int, str, str]]:
        """Moments: completed iterations, ``'best'``, ``'resume'``, ``'end'``, ``'rate'`` or ``'nan'``, a text."""
        ends = [f' after the start before was {start.get("outcome") or "killed"}' for start in self.starts]
        are_known = len(self.starts) == len(self.resumed_at) + 1
        found = [(at, 'resume', 'resumed' + (ends[i] if are_known else '')) for i, at in enumerate(self.resumed_at)]
        if self.lines and self.outcome not in ('completed', 'running', 'unknown'):
            found.append((self.step, 'end', self.outcome))
        best = self.best
        if best is not None and best.step is not None and best.value is not None and math.isfinite(best.value):
            found.append((best.step, 'best', f'best {best.score} {in_short(best.value)}'))
        for (mode, name), points in self.curves.items():
            if not all(map(math.isfinite, map(itemgetter(1), points))):
                bad = next(step for step, value in points if not math.isfinite(value))
                found.append((bad, 'nan', f'{mode} {name} is not finite'))
        rates = next((points for (_, name), points in self.curves.items() if name.split(' ')[0] == 'lr'), [])
        steady = [rate for _, rate in rates]
        changes = [i for i, (before, after) in enumerate(pairwise(steady), 1) if before != after]
        for i in changes:  # between two steady stretches: a schedule by steps
            if 1 < i < len(steady) - 1 and steady[i - 2] == steady[i - 1] and steady[i] == steady[i + 1]:
                text = f'learning rate {steady[i - 1]:.4g} → {steady[i]:.4g}'
                found += [(rates[i][0], 'rate', text)]
        return sorted(found)[:200]

    @property
    def bytes(self) -> int:
        """The size of the files in the work dir and below, without those of other runs."""
        total = 0
        for place, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if not is_run(Path(place, name))]
            for name in names:
                with contextlib.suppress(OSError):  # a running run removes old ones
                    total += os.lstat(os.path.join(place, name)).st_size
        return total

    @property
    def code(self) -> list[str]:
        """The names of the kept files of the user's code."""
        folder = self.folder / 'code'
        return sorted(path.name for path in folder.glob('*.py')) if folder.is_dir() else []

    @cached_property
    def time_spent(self) -> dict[str, float]:
        """Seconds by what they went to: ``data``, ``step``, ``evaluation``, ``saving`` and ``other``, where known."""
        steps, data, last = 0.0, 0.0, 0
        for line in self.lines:
            took, waited = line.get('time'), line.get('data_time')
            if line['mode'] != 'val' and is_number(took):
                done, last = max(0, line['step'] - last), line['step']
                steps += done * took
                data += done * waited if is_number(waited) else 0.0
        found = {'data': data, 'step': max(0.0, steps - data)}
        for name in ('evaluation', 'saving'):
            found[name] = sum(filter(is_number, (start.get('seconds', {}).get(name) for start in self.starts)))
        if self.busy is not None:
            found['other'] = max(0.0, self.busy - sum(found.values()))
        return {name: seconds for name, seconds in found.items() if math.isfinite(seconds) and seconds > 0}


def is_run(folder: Path) -> bool:
    """Whether ``folder`` is a work dir of a run."""
    return (folder / JOURNAL).is_file() or any(folder.glob('*.log.json'))


def read_run(folder: str | os.PathLike[str], only_scores: bool = False) -> RunRecord:
    """The record of the run in a work dir; with ``only_scores`` without training lines between two others."""
    run = RunRecord(Path(folder))
    if is_url(folder):
        raise FileNotFoundError(f'{os.fspath(folder)} is a URL, and runs are read from folders: copy the work dir here')
    if not run.folder.is_dir():
        is_file = f'{run.folder} is a file: give the work dir of its run'
        raise FileNotFoundError(is_file if run.folder.exists() else f'no such folder: {run.folder}')
    if not is_run(run.folder):
        raise FileNotFoundError(f'{run.folder} is no work dir of a run: it has neither {JOURNAL} nor a *.log.json')
    run.starts = starts_in(run.folder / JOURNAL)
    log = read_log(run.folder, only_scores)
    run.meta, run.lines, run.resumed_at = log.meta, log.lines, log.resumed_at
    _read_text_logs(run)
    _read_outcome(run)
    return run


def short_names(runs: Sequence[RunRecord]) -> list[str]:
    """The names of runs, with as many folders above them as it takes to tell them apart."""
    paths = [Path(os.path.abspath(run.folder)).parts for run in runs]
    for count in range(1, 1 + max(map(len, paths), default=1)):
        names = [os.path.join(*parts[-count:]) for parts in paths]
        if len(set(names)) == len(names):
            break
    return names if paths else []


def _read_text_logs(run: RunRecord) -> None:
    """Read outcome, warnings and times of the text logs into ``run``."""
    counts: Counter[tuple[str, str]] = Counter()
    busy = 0.0
    for path in sorted(run.folder.glob('*.log')):
        began = ended = ''
        for ended, level, text in text_records(path):
            began = began or ended
            if end := _END.match(text):
                run.outcome, run.reason = end[1], (end[2] or '')[:300]
            elif level not in ('INFO', 'DEBUG') and (len(counts) < MOST_WARNINGS or (level, text) in counts):
                counts[level, text] += 1
            elif text.startswith(('Training ', 'Config ', 'Start running')):
                run.outcome, run.reason = 'unknown', ''
        first, last = seconds_of(began), seconds_of(ended)
        if first is not None and last is not None:
            busy += max(0.0, last - first)  # clocks are set back
            run.began = first if run.began is None else min(run.began, first)
            run.ended = last
    run.busy = busy or None
    run.warnings = [(level, text, count) for (level, text), count in counts.items()]


def _read_outcome(run: RunRecord) -> None:
    """Set outcome and times of ``run`` after its journal, where it has one, and after its lock."""
    start = run.last_start
    if isinstance(start.get('outcome'), str):
        run.outcome, run.reason = start['outcome'], str(start.get('reason') or '')
    elif start or run.outcome == 'unknown':
        run.outcome, run.reason = _without_end(run), ''
    found = [entry.get(key) for entry in run.starts for key in ('begin', 'end')]
    found += [line.get('timestamp') for line in run.lines[:1] + run.lines[-1:]]
    known = [when for when in found if is_number(when) and math.isfinite(when)]
    if known:  # a text log has the local time of wherever it was written
        run.began = min(known)
        run.ended = max(known if run.ended is None or 'end' in start else [*known, run.ended])


def _without_end(run: RunRecord) -> str:
    """Whether a run without an end is running, was killed, or cannot be known to be either."""
    host, lock = run.last_start.get('host'), run.folder / '.lock'
    if host == socket.gethostname() or (host is None and lock.exists()):
        return 'running' if is_locked(lock) else 'killed'
    if not run.starts and _is_trained(run):
        return 'completed'
    silence = SILENCE
    if run.lines and is_number(run.lines[-1].get('timestamp')):
        clock = RunRecord(run.folder, lines=read_log(run.folder).lines).clock  # ``run`` may lack lines
        longest = max((later - before for (_, before), (_, later) in pairwise(clock)), default=SILENCE)
        silence = min(SILENCE, LEAST_SILENCE + 5 * longest)
    newest = max((path.stat().st_mtime for path in run.folder.glob('*.log*')), default=0.0)
    return 'running' if time.time() - newest < silence else 'unknown'


def _is_trained(run: RunRecord) -> bool:
    """Whether the log of a run without a journal, such as MMCV's, reaches the end that its config sets."""
    for unit, done in (('epoch', run.epoch), ('iter', run.step)):
        limit = run.settings.get(f'runner.max_{unit}s', run.settings.get(f'total_{unit}s'))
        if done and done == limit:
            if any(line['mode'] == 'val' for line in run.lines):
                return run.lines[-1]['mode'] == 'val'
            return any(each['name'] == f'{unit}_{limit}.pth' for each in run.checkpoints)
    return False
