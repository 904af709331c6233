"""Live terminal view of a pipeline, and its summary."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from runnerkit.fileio.paths import shown
from runnerkit.flow.report.words import in_seconds
from runnerkit.search.record import COMPLETED, FAILED, PRUNED, RUNNING, Record
from runnerkit.search.study import format_value, told
from runnerkit.utils.logging import console, is_terminal, printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from runnerkit.search.pipeline import Pipeline

#: How many records of a front are listed.
MOST = 5


class View:
    """Shows, below the log lines on a terminal, which trials run, how many have ended, the best, and when it will be
    over; in a pipe, nothing: there is a log line for each trial that ends. It is a context.

    Args:
        pipeline: the one to watch; its ``on_change`` is set.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._live: Live | None = None

    def __enter__(self) -> View:
        self.pipeline.on_change = self.changed
        if is_terminal():
            from rich.live import Live

            # The table stays on the terminal while a trial in this process sends what it prints to a file.
            console.cache_clear()
            console().file = sys.stderr
            self._live = Live(self.table(), console=console(), refresh_per_second=2, transient=True,
                              redirect_stdout=False, redirect_stderr=False)  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            console.cache_clear()

    def changed(self, pipeline: Pipeline) -> None:
        """Show the news."""
        if self._live is not None:
            self._live.update(self.table())

    def table(self) -> Group:
        """How far the current step is, its running trials, and the best one or the front."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        name = self.pipeline.current
        table = Table()
        for column in ('trial', 'status', 'epoch', 'scores', 'values'):
            table.add_column(column, overflow='fold')
        records = [] if name is None else self.pipeline.report.of(name)
        for record in records:
            if record.status == RUNNING:
                self._add(table, record, RUNNING)
        for record in self.pipeline.report.pareto_front(name, MOST) if name is not None else []:
            self._add(table, record, 'front' if len(record.objectives) > 1 else 'best')
        return Group(Text(printable(self.headline())), table)

    def headline(self) -> str:
        """Which step it is, and how far: ``nas: 7 of 24 trials, 2 running, about 3 min``."""
        name = self.pipeline.current
        if name is None:
            return ''
        step, records = self.pipeline.steps[name], self.pipeline.report.of(name)
        ended = [record for record in records if record.has_ended]
        parts = [f'{name}: {len(ended)}{"" if step.total is None else f" of {step.total}"} trials']
        parts += counts(ended)
        running = len(records) - len(ended)
        if running:
            parts.append(f'{running} running')
        left = remaining(ended, step.total, step.slots)
        if left is not None:
            parts.append(f'about {in_seconds(left)} left')
        return ', '.join(parts)

    def summary(self) -> list[str]:
        """What has come of each step."""
        lines = []
        for name in self.pipeline.names:
            records = self.pipeline.report.of(name)
            if not records:
                continue
            found = self.pipeline.report.pareto_front(name)
            what = 'best' if found and len(found[0].objectives) == 1 else 'front'
            many = 'trial' if len(records) == 1 else 'trials'
            lines.append(f'{name}: {len(records)} {many} ({", ".join(counts(records))}); {what}:')
            for record in found[:MOST]:
                lines.append(f'  {record.number}: {told(record)}')
                rest = [key for key in record.performance if key not in record.objectives]
                if rest:
                    lines[-1] += f' ({", ".join(f"{key} {format_value(record.performance[key])}" for key in rest)})'
            if len(found) > MOST:
                lines.append(f'  … and {len(found) - MOST} more')
            if found and found[0].weights_file is not None:
                moment = f' ({found[0].moment})' if found[0].moment else ''
                lines.append(f'  checkpoint of {found[0].number}: {shown(found[0].weights_file)}{moment}')
        return [*lines, f'Report {shown(self.pipeline.work_dir / "reports.json")}']

    @staticmethod
    def _add(table: Any, record: Record, status: str) -> None:
        scores = ', '.join(f'{key} {format_value(value)}' for key, value in record.performance.items())
        values = ', '.join(f'{key}={format_value(value)}' for key, value in record.hps.items())
        cells = (str(record.number), status, str(record.epoch), scores, values)
        table.add_row(*(printable(cell).replace('[', r'\[') for cell in cells))


def counts(records: list[Record]) -> list[str]:
    """How many of the records have which status: ``['15 completed', '9 pruned']``."""
    found = {
        status: sum(record.status == status for record in records) for status in (COMPLETED, PRUNED, FAILED, RUNNING)
    }
    return [f'{number} {status}' for status, number in found.items() if number]


def remaining(ended: list[Record], total: int | None, slots: int) -> float | None:
    """The seconds until all trials have ended, if they take as long as those that have; None if that is not known."""
    if total is None or not ended or len(ended) >= total:
        return None
    return sum(record.runtime for record in ended) / len(ended) * (total - len(ended)) / slots
