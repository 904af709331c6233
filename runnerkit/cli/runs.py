"""``runnerkit runs [FOLDER]``: a table of all runs below a folder."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from runnerkit.cli.arguments import argument, flag
from runnerkit.cli.errors import UsageError, wrong_usage
from runnerkit.cli.parser import command
from runnerkit.utils.logging import print_out, printable
from runnerkit.utils.suggest import suggestion


@command(
    'runnerkit runs',
    'List the runs below a folder, newest first.',
    argument('folder', nargs='?', default='work_dirs', help='the folder to search (default: work_dirs)'),
    argument('--sort', metavar='KEY', help='sort by a key of the records, such as best_score or duration'),
    argument('--outcome', metavar='NAME', help='only runs with this outcome: running, completed, failed …'),
    flag('--earlier', 'also list runs that later ones have moved to earlier/'),
    flag('--json', 'print the records as JSON, one a line'),
)
def main(args: Namespace) -> int:
    """Print the list."""
    from runnerkit.flow.report.comparison import runs  # imports torch

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
        found = known + [each for each in found if each.get(args.sort) is None]
    if args.json:
        for each in found:
            print_out(json.dumps(in_plain(each)))
    else:
        print_out(runs_table(found) or f'no runs below {args.folder}')
    return 0


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
    from runnerkit.utils.texts import in_bytes, in_seconds, in_short, moment

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
