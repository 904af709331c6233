"""``runnerkit report``, ``runs``, ``compare``: what runs have done, from their records alone."""

from __future__ import annotations

import json
import math
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from runnerkit.cli.arguments import argument, flag
from runnerkit.cli.errors import check_extension, check_writable
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.utils.ending import UsageError
from runnerkit.utils.logging import print_out, printable
from runnerkit.utils.suggest import suggestion

if TYPE_CHECKING:
    from runnerkit.flow.report.comparison import Comparison


@command_line(
    'runnerkit runs',
    'List the runs below a folder, newest first.',
    argument('folder', nargs='?', default='work_dirs', help='the folder to search (default: work_dirs)'),
    argument('--sort', metavar='KEY', help='sort by a key of the records: best_score (the best first), duration …'),
    argument('--outcome', metavar='NAME', help='only runs with this outcome: running, completed, failed …'),
    flag('--earlier', 'also list runs that later ones have moved to <work dir>.1 …'),
    flag('--json', 'print the records as JSON, one a line'),
)
def runs_main(args: Namespace) -> int:
    """Print the list."""
    from runnerkit.flow.report.comparison import runs

    with wrong_usage(OSError):
        found = runs(args.folder, earlier=args.earlier)
    outcomes = sorted({each['outcome'] for each in found})
    if args.outcome and outcomes and args.outcome not in outcomes:
        raise UsageError(f'no run below {args.folder} is {args.outcome!r}; their outcomes are {", ".join(outcomes)}')
    found = [each for each in found if args.outcome in (None, each['outcome'])]
    if args.sort and found:
        keys = list(dict.fromkeys(key for each in found for key in each))
        if args.sort not in keys:
            raise UsageError(f'--sort: no key {args.sort!r}{suggestion(args.sort, keys)}; there are {", ".join(keys)}')
        known = [each for each in found if each.get(args.sort) is not None]
        known.sort(key=lambda each: (isinstance(each[args.sort], str), each[args.sort]))
        if args.sort == 'best_score':
            known.sort(key=_best_first)
        found = known + [each for each in found if each.get(args.sort) is None]
    if args.json:
        for each in found:
            print_out(json.dumps(in_plain(each)))
    else:
        print_out(runs_table(found) or f'no runs below {args.folder}')
    return 0


def _best_first(record: dict[str, Any]) -> tuple[str, float]:
    """Runs with the same score are neighbours."""
    value = record['best_score']
    return record['best'], -value if record['best_rule'] == 'greater' else value


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the terminal; columns of numbers are aligned on the right."""
    cells = [[printable(cell, 60) for cell in row] for row in [head, *rows]]
    columns = []
    for column in zip(*cells, strict=True):
        width, is_right = max(map(len, column)), all(cell[:1].isdigit() or cell[:1] == '-' for cell in column[1:])
        columns.append([cell.rjust(width) if is_right else cell.ljust(width) for cell in column])
    return '\n'.join('  '.join(row).rstrip() for row in zip(*columns, strict=True))


def runs_table(records: Sequence[dict[str, Any]]) -> str:
    """The list of runs for the terminal; empty if there are none."""
    from runnerkit.utils.numbers import in_bytes, in_seconds, in_short, moment

    head = ('run', 'outcome', 'epoch', 'iterations', 'best', 'ended', 'duration', 'size')
    rows = []
    for each in records:
        best = '-' if each['best'] is None else f'{in_short(each["best_score"])} {each["best"]}'
        numbers = [in_short(each['epoch']), str(each['iterations']), best, moment(each['ended']) or '-']
        rows.append([each['name'], each['outcome'], *numbers, in_seconds(each['duration']), in_bytes(each['bytes'])])
    return aligned(head, rows) if rows else ''


def in_plain(value: Any) -> Any:
    """``value`` with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, dict):
        return {key: in_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [in_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@command_line(
    'runnerkit compare',
    'Show the scores of runs side by side, and the keys whose values differ.',
    argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs'),
    flag('--json', 'print the comparison as JSON'),
)
def compare_main(args: Namespace) -> int:
    """Print the comparison."""
    from runnerkit.flow.report.comparison import compare

    with wrong_usage(OSError):
        found = compare(args.work_dirs)
    print_out(json.dumps(in_plain(asdict(found))) if args.json else comparison_text(found))
    return 0


def comparison_text(found: Comparison) -> str:
    """A comparison for the terminal: the scores, the spread over seeds, the keys that differ."""
    from runnerkit.utils.numbers import in_seconds, in_short

    rows = [
        [
            in_seconds(cell) if name == 'duration' else in_short(cell)
            for name, cell in zip(found.columns, row, strict=True)
        ]
        for row in found.rows
    ]
    parts = [aligned(found.columns, rows)]
    for group in found.groups:
        spread = [f'{name} {in_short(mean)} ± {in_short(dev)}' for name, (mean, dev, _, _) in group.scores.items()]
        parts.append(printable(f'{", ".join(group.names)} differ by their seed alone: {", ".join(spread)}', 9999))
    if found.differing:
        keys = [[key, *map(in_short, values)] for key, values in found.differing.items()]
        parts.append(aligned(['key', *found.names], keys))
    return '\n\n'.join(parts)


@command_line(
    'runnerkit report',
    'Write the curves, scores, times, warnings and settings of a run into one HTML file, or compare several runs in '
    'one, or show the trials of a study. Runs may be running; nothing of them is executed.',
    argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs, or of one study'),
    argument('--out', metavar='FILE.html', default='', help='default: report.html in the only work dir, else here'),
)
def report_main(args: Namespace) -> None:
    """Write the report."""
    place = args.out or os.path.join(args.work_dirs[0] if len(args.work_dirs) == 1 else '.', 'report.html')
    check_extension('--out', place, ('.html', '.htm'), 'a report is written')
    if os.path.isdir(os.path.dirname(place) or '.'):  # else a folder is made, or there is no run
        check_writable('--out', place)
    from runnerkit.search.study_page import write_report

    with wrong_usage(OSError, ValueError):
        print_out(f'Report {write_report(args.work_dirs, args.out)}')
