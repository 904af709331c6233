"""``runnerkit compare WORK_DIR …``: scores and differing settings of runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from runnerkit.cli.errors import usage_checked, wrong_usage
from runnerkit.cli.parser import Parser
from runnerkit.cli.runs import aligned, in_plain
from runnerkit.utils.logging import print_out, printable

if TYPE_CHECKING:
    from runnerkit.flow.report.comparison import Comparison


def parser(prog: str = 'runnerkit compare') -> Parser:
    """The command line."""
    parse = Parser(prog=prog, description='Show the scores of runs side by side, and the keys whose values differ.')
    parse.add_argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs')
    parse.add_argument('--json', action='store_true', help='print the comparison as JSON')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; returns the exit code."""
    args = parser().parse_args(argv)
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
