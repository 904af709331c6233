"""Which start of a run has trained which iteration, with which config, and from which checkpoints it can be had again.

Only records are read here: nothing of the user's is imported, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.checkpoint import Store, why_damaged
from runnerkit.checkpoint.integrity import training_state_problem
from runnerkit.checkpoint.loader import load_small, load_tensors
from runnerkit.checkpoint.store import LATEST, is_best
from runnerkit.fileio.paths import is_url
from runnerkit.flow.report.record import RunRecord, read_run
from runnerkit.flow.work_dir.record import STARTS, config_of

#: A place as the log writes it: ``[3][50]``, ``[3][50/100]``, ``[50]``.
_PLACE = re.compile(r'(?:\[(\d+)\])?\[(\d+)(?:/\d+)?\]')


class Saved(NamedTuple):
    """A checkpoint: the completed iterations, its path, when it was written (seconds since 1970)."""

    iterations: int
    path: str
    written: float


@dataclass
class Start:
    """A start of the run whose iterations count.

    Attributes:
        number: from 1.
        begin: the completed iterations when it began.
        end: the first iteration that a later start has trained; None for the last one.
        entry: what ``run.json`` says of it; empty in work dirs of older versions.
        config: the file with its config; None if it is not there.
    """

    number: int
    begin: int
    end: int | None
    entry: Mapping[str, Any]
    config: Path | None

    @property
    def rolled_back(self) -> list[int]:
        """The completed iterations to which it has gone back, each time."""
        return self.entry.get('rolled_back', [])

    def roll_backs(self, begin: int, number: int) -> int:
        """How often a training from ``begin`` goes back before it trains ``number`` as it counts."""
        met = [each for each in self.rolled_back if each >= begin]
        return max((nth for nth, each in enumerate(met, 1) if each < number), default=0)


@dataclass
class History:
    """How a run came about.

    Attributes:
        run: its record.
        starts: those whose iterations count, oldest first.
        discarded: sentences about iterations that were trained and lost.
        length: how many iterations it has trained at most; None if nothing tells.
    """

    run: RunRecord
    starts: list[Start] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    length: int | None = None

    def start_of(self, iteration: int) -> Start:
        """The start that has trained ``iteration`` in the end."""
        return next(start for start in reversed(self.starts) if start.begin <= iteration or start is self.starts[0])

    def iteration_at(self, place: int | str) -> int:
        """``place`` as a number of iterations that are done before it."""
        text = str(place).strip()
        found = _PLACE.fullmatch(text)
        if isinstance(place, bool) or (found is None and not text.isdecimal()):
            raise ValueError(
                f'to must be a number of iterations, at least 0, or a place of the log such as [3][50], not {place!r}'
            )
        number = int(text) if found is None else self._step_at(found[1], int(found[2])) - 1
        if number < 0 or (self.length is not None and number >= self.length):
            where = f'the run in {self.run.folder} has trained {self.length} iterations, so it may be 0 to '
            allowed = 'it must be at least 0' if self.length is None else f'{where}{self.length - 1}'
            raise ValueError(f'there is no iteration {place}: {allowed}')
        return number

    def _step_at(self, epoch: str | None, inside: int) -> int:
        """The completed iterations after iteration ``inside`` (from 1) of ``epoch`` (from 1)."""
        if epoch is None:
            return inside
        length = self.run.epoch_length
        if length is not None and inside > length:
            raise ValueError(f'there is no iteration [{epoch}][{inside}]: an epoch of this run has {length:.0f}')
        for line in self.run.lines:
            if line['mode'] != 'val' and line.get('epoch') == int(epoch) and isinstance(line.get('iter'), int):
                return int(line['step'] - line['iter'] + inside)
        if length is None:
            raise ValueError(f'the log does not tell where epoch {epoch} began: give the number of iterations')
        return int((int(epoch) - 1) * length) + inside

    @property
    def folders(self) -> list[Path]:
        """Where the run has saved, on disks: its work dir, and its folder in the ``out_dir`` of its checkpoints."""
        folder, out_dir = self.run.folder, self.run.settings.get('checkpoint_config.out_dir')
        has_other = isinstance(out_dir, str) and not is_url(out_dir)
        return [folder, Path(str(out_dir), folder.absolute().name)] if has_other else [folder]

    def checkpoints(self) -> Iterator[Saved]:
        """The intact checkpoints after iterations that count, newest first; and those that a start resumed from."""
        others = [start.entry['resumed_from'] for start in self.starts if start.entry.get('resumed_from')]
        found = [saved for folder in self.folders for saved in (saved_in(folder, others) if folder.is_dir() else ())]
        for saved in sorted({saved for saved in found if saved.iterations <= (self.length or saved.iterations)})[::-1]:
            began = self.start_of(saved.iterations - 1).entry.get('begin', 0.0)
            is_known = saved.written >= began or saved.iterations == self.start_of(saved.iterations).begin
            if is_known and why_damaged(saved.path) is None:
                yield saved


def history_of(work_dir: Path) -> History:
    """The history of the run in ``work_dir``."""
    run = read_run(work_dir)
    history = History(run)
    entries = run.starts or [{}]
    begins = [entry.get('iterations', 0) for entry in entries]
    for index, (begin, entry) in enumerate(zip(begins, entries, strict=True)):
        later = begins[index + 1 :]
        number = entry.get('number', index + 1)
        start = Start(number, begin, min(later, default=None), entry, config_of_start(work_dir, number - 1))
        history.discarded += [
            f'start {number} went back to iteration {each}; it has trained the iterations from there on again, and '
            'these count'
            for each in start.rolled_back
        ]
        if index + 1 < len(begins):
            reached = entry.get('iterations_at_end')
            if reached is None or reached > begins[index + 1]:
                upto = 'up to an unknown one' if reached is None else f'to {reached - 1}'
                history.discarded.append(
                    f'start {number} may have trained iterations from {begins[index + 1]} {upto}; '
                    f'start {entries[index + 1].get("number", index + 2)} has trained them again, and these count'
                )
        if not any(other <= begin for other in later):
            history.starts.append(start)
    last = run.last_start
    # Of a run that was killed, or is still running, the log may lag behind.
    history.length = last.get('iterations_at_end', last.get('max_iterations') or run.step or None)
    return history


def config_of_start(work_dir: Path, index: int) -> Path | None:
    """The config of the start ``index``: a later start has kept it if its own is another one."""
    kept = [int(path.name) for path in (work_dir / STARTS).glob('*') if path.name.isdecimal()]
    later = [number for number in kept if number > index]
    return config_of(work_dir / STARTS / str(min(later)) if later else work_dir)


def saved_in(folder: Path, others: Sequence[str] = ()) -> list[Saved]:
    """The checkpoints with a training state in ``folder``, and at the paths ``others``, newest first; some may be
    damaged. Best ones are left out: they are saved in the middle of a point, before other hooks have been called."""
    names = [name for name in Store(folder).saved() if name.endswith('.pth') and name != LATEST and not is_best(name)]
    paths = [*(folder / name for name in names if not name.startswith('.')), *map(Path, others)]
    return sorted(filter(None, map(_saved_at, {path.resolve() for path in paths if path.exists()})), reverse=True)


def _saved_at(path: Path) -> Saved | None:
    try:
        content = load_small(path, partial(load_tensors, map_location='meta'))  # reads no tensor
    except Exception:  # of a damaged file, whatever torch makes of it
        return None
    if training_state_problem(content) is not None or 'runnerkit' not in content:
        return None
    return Saved(int(content['meta']['iter']), str(path), path.stat().st_mtime)
