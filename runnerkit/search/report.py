"""The records of a study or a pipeline: in memory, in files, and in words."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.fileio.paths import shown
from runnerkit.search.record import COMPLETED, FAILED, PRUNED, RUNNING, Record, front
from runnerkit.utils.logging import shortened

#: All records, those of completed trials as a table, and what a study searches.
REPORTS, TABLE, STUDY = 'reports.json', 'output.csv', 'study.json'

#: How many records of a front, or failed trials of a step, are listed.
MOST = 5


class Report:
    """Records by step and number.

    Args:
        records: those that are there already.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = {(record.step, record.number): record for record in records}
        self._kept: dict[Path, tuple[float, float]] = {}  # by folder: when `keep` wrote its files, and how long it took

    @property
    def all_records(self) -> list[Record]:
        """All records, in the order in which they came."""
        return list(self._records.values())

    def update(self, record: Record) -> None:
        """Take in a record, or what has become of it."""
        self._records[record.step, record.number] = record

    def get(self, step: str, number: int) -> Record:
        """One record."""
        if (step, number) not in self._records:
            raise KeyError(f'there is no trial {number} of the step {step!r}')
        return self._records[step, number]

    def forget(self, step: str, number: int) -> None:
        """Leave a record out; nothing happens if there is none."""
        self._records.pop((step, number), None)

    def of(self, step: str | None = None) -> list[Record]:
        """The records of one step, or all."""
        return [record for record in self._records.values() if step in (None, record.step)]

    def pareto_front(
        self, step: str | None = None, nums: int | None = None, records: Iterable[Record] | None = None
    ) -> list[Record]:
        """The completed trials that no other one beats in all declared objectives; with one objective, the best."""
        return ranked(front(completed(self.of(step) if records is None else records)))[:nums]

    def choice(self, step: str | None = None, nums: int | None = None) -> list[Record]:
        """What to go on with: `pareto_front`; with one objective the best ``nums`` trials, by default the best one."""
        able = completed(self.of(step))
        if any(len(record.objectives) > 1 for record in able):
            return self.pareto_front(step, nums)
        return ranked(able)[: 1 if nums is None else nums]

    def best(self, step: str | None = None) -> Record | None:
        """The completed trial with the best first objective; None if there is none."""
        return next(iter(ranked(completed(self.of(step)))), None)

    def save(self, folder: str | os.PathLike[str], step: str | None = None) -> None:
        """Write the records of one step, or all, to `REPORTS` and `TABLE` in ``folder``, each whole or not at all."""
        place = Path(folder)
        # A record a line: indented JSON takes fifteen times as long, and is written again and again.
        text = '[\n' + ',\n'.join(json.dumps(record.as_dict()) for record in self.of(step)) + '\n]\n'
        write_atomically(place / REPORTS, text.encode())
        write_atomically(place / TABLE, self.table(step).encode())

    def keep(self, folder: str | os.PathLike[str], step: str | None = None) -> None:
        """Do as `save`, unless more than a twentieth of the time would go into it: for calls after each change."""
        place, began = Path(folder), time.monotonic()
        ended, took = self._kept.get(place, (0.0, 0.0))
        if began - ended >= 20 * took:
            self.save(place, step)
            ended = time.monotonic()
            self._kept[place] = ended, ended - began

    def table(self, step: str | None = None) -> str:
        """The trials that have ended, of one step or all, as CSV: step, number, status, values, scores."""
        ended = [record for record in self.of(step) if record.has_ended]
        keys = list(dict.fromkeys(key for record in ended for key in record.hps))
        scores = list(dict.fromkeys(name for record in ended for name in record.performance))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator='\n')
        writer.writerow(['step', 'number', 'status', *keys, *scores, 'epoch', 'moment', 'runtime', 'work_dir'])
        for each in ended:
            values = [each.hps.get(key, '') for key in keys] + [each.performance.get(name, '') for name in scores]
            rest = [each.epoch, each.moment, f'{each.runtime:.1f}', each.work_dir]
            writer.writerow([each.step, each.number, each.status, *values, *rest])
        return text.getvalue()


def completed(records: Iterable[Record]) -> list[Record]:
    """Those that have completed with a score for each objective."""
    return [record for record in records if record.status == COMPLETED and record.rewards]


def ranked(records: Iterable[Record]) -> list[Record]:
    """The best first objective first; equal ones in their order."""
    return sorted(records, key=lambda record: (record.rewards or [0.0])[0], reverse=True)


def in_words(record: Record) -> str:
    """A trial in a few words."""
    values = ', '.join(f'{key}={_short(value)}' for key, value in record.hps.items())
    scores = _scores(record, [name for name in record.objectives if name in record.performance])
    return '; '.join(part for part in (scores, values, record.message) if part)


def summary(report: Report, steps: Iterable[str], folder: Path) -> list[str]:
    """What has come of each of ``steps``, in lines; the report's files are in ``folder``."""
    lines = []
    for name in steps:
        records = report.of(name)
        if not records:
            continue
        found = report.pareto_front(name)
        what = 'best' if found and len(found[0].objectives) == 1 else 'front'
        many = 'trial' if len(records) == 1 else 'trials'
        counts = Counter(record.status for record in records)
        statuses = [f'{counts[each]} {each}' for each in (COMPLETED, PRUNED, FAILED, RUNNING) if each in counts]
        lines.append(f'{name}: {len(records)} {many} ({", ".join(statuses)}); {what}:')
        for record in found[:MOST]:
            others = _scores(record, [key for key in record.performance if key not in record.objectives])
            lines.append(f'  {record.number}: {in_words(record)}{others and f" ({others})"}')
        if len(found) > MOST:
            lines.append(f'  … and {len(found) - MOST} more')
        if found and found[0].weights_file is not None:
            moment = f' ({found[0].moment})' if found[0].moment else ''
            lines.append(f'  checkpoint of {found[0].number}: {shown(found[0].weights_file)}{moment}')
    return [*lines, f'Report {shown(folder / REPORTS)}']


def failures(records: list[Record]) -> str:
    """The trials that have failed, in a few words: ``nas 2, 5``; empty if none has."""
    by_step: dict[str, list[str]] = {}
    for record in records:
        if record.status == FAILED:
            by_step.setdefault(record.step, []).append(str(record.number))
    return '; '.join(f'{step} {shortened(numbers, MOST)}' for step, numbers in by_step.items())


def _scores(record: Record, names: Iterable[str]) -> str:
    return ', '.join(f'{name} {_short(record.performance[name])}' for name in names)


def _short(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)
