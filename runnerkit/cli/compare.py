"""``runnerkit compare WORK_DIR …``: scores and differing settings of runs side by side."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from runnerkit.cli.arguments import argument, flag
from runnerkit.cli.errors import wrong_usage
from runnerkit.cli.parser import command
from runnerkit.cli.runs import aligned, in_plain
from runnerkit.utils.logging import print_out, printable

if TYPE_CHECKING:
    from runnerkit.flow.report.comparison import Comparison


@command(
    'runnerkit compare',
    'Show the scores of runs side by side, and the keys whose values differ.',
    argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs'),
    flag('--json', 'print the comparison as JSON'),
)
def main(args: Namespace) -> int:
    """Print the comparison."""
    from runnerkit.flow.report.comparison import compare  # imports torch

    with wrong_usage(OSError):
        found = compare(args.work_dirs)
    print_out(json.dumps(in_plain(asdict(found))) if args.json else comparison_text(found))
    return 0


def comparison_text(found: Comparison) -> str:
    """A comparison for the terminal: the scores, the spread over seeds, the keys that differ."""
    from runnerkit.utils.texts import in_seconds, in_short

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
