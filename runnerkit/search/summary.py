"""What a search prints at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnerkit.fileio.paths import shown
from runnerkit.search.record import COMPLETED, FAILED, PRUNED, RUNNING, Record
from runnerkit.search.study import format_value, told

if TYPE_CHECKING:
    from runnerkit.search.pipeline import Pipeline

#: How many records of a front are listed.
MOST = 5


def summary(pipeline: Pipeline) -> list[str]:
    """What has come of each step of a pipeline, in lines."""
    lines = []
    for name in pipeline.names:
        records = pipeline.report.of(name)
        if not records:
            continue
        found = pipeline.report.pareto_front(name)
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
    return [*lines, f'Report {shown(pipeline.work_dir / "reports.json")}']


def counts(records: list[Record]) -> list[str]:
    """How many of the records have which status: ``['15 completed', '9 pruned']``."""
    found = {
        status: sum(record.status == status for record in records) for status in (COMPLETED, PRUNED, FAILED, RUNNING)
    }
    return [f'{number} {status}' for status, number in found.items() if number]
