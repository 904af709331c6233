"""``runnerkit diff A B``: what sets two runs apart, and where they parted."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from runnerkit.cli.arguments import argument, flag
from runnerkit.cli.errors import UsageError, wrong_usage
from runnerkit.cli.parser import command
from runnerkit.cli.replay import ranks
from runnerkit.cli.runs import in_plain
from runnerkit.utils.exit_codes import DIFFERENT
from runnerkit.utils.logging import print_out

if TYPE_CHECKING:
    from runnerkit.flow.moment.diff import Diff, Row

#: How many rows of a section are shown.
_MOST = 12


@command(
    'runnerkit diff',
    'Compare two runs from the outside in: config, code, machine, data, seeds, log lines, checkpoints. '
    f'The exit code is 0 if all are equal, {DIFFERENT} if something differs.',
    *(argument(name.lower(), metavar=name, help='a work dir or a checkpoint') for name in 'AB'),
    flag('--exactly', 'replay both runs, and find what parted first'),
    flag('--json', 'print the comparison as JSON'),
    *('--trust', '--launcher', '--local-rank'),
)
def main(args: Namespace) -> int:
    """Print the comparison."""
    from runnerkit.distributed import get_dist_info  # imports torch
    from runnerkit.flow.moment.diff import as_plain, diff

    is_first = True
    with wrong_usage(OSError, ValueError):
        found = diff(args.a, args.b)
        if args.exactly:
            from runnerkit.flow.moment.exactly import exactly

            with ranks(args.launcher, args.a):
                found = exactly(found, args.trust)
                is_first = get_dist_info()[0] == 0
    if not (found.rows or found.is_equal or found.parting):
        raise UsageError(found.sentence)
    if is_first:
        print_out(json.dumps(in_plain(as_plain(found))) if args.json else diff_text(found))
    return 0 if found.is_equal else DIFFERENT


def diff_text(found: Diff) -> str:
    """A comparison for the terminal: the differences of each section, and the sentence."""
    from runnerkit.flow.moment.diff import SECTIONS

    parts = []
    for section in SECTIONS:
        own = [row for row in found.rows if row.section == section]
        lines = [text for row in own[:_MOST] for text in _row_lines(row)]
        if len(own) > _MOST:
            lines.append(f'… and {len(own) - _MOST} more; --json has all')
        parts += ['\n'.join([section, *(f'  {line}' for line in lines)])] if lines else []
    return '\n\n'.join([*parts, *(['\n'.join(found.notes)] if found.notes else []), found.sentence])


def _row_lines(row: Row) -> Iterator[str]:
    yield f'{row.name}: {row.note}' if row.note else row.name
    if row.a or row.b:
        yield f'  A  {row.a}'
        yield f'  B  {row.b}'
