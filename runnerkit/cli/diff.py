"""``runnerkit diff A B``: what sets two runs apart, and where they parted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnerkit.cli.errors import UsageError, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.runs import aligned, in_plain
from runnerkit.utils.exit_codes import DIFFERENT
from runnerkit.utils.logging import print_out

if TYPE_CHECKING:
    from runnerkit.flow.moment.diff import Diff

#: How many rows of a section are shown.
_MOST = 12


def parser(prog: str = 'runnerkit diff') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Compare two runs from the outside in: config, code, machine, data, seeds, log lines, checkpoints. '
        f'The exit code is 0 if all are equal, {DIFFERENT} if something differs.',
    )
    for name in 'AB':
        parse.add_argument(name.lower(), metavar=name, help='a work dir or a checkpoint')
    parse.add_argument('--json', action='store_true', help='print the comparison as JSON')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; returns the exit code."""
    args = parser().parse_args(argv)
    from runnerkit.flow.moment.diff import as_plain, diff  # imports torch

    try:
        found = diff(args.a, args.b)
    except OSError as error:
        raise UsageError(str(error)) from error
    print_out(json.dumps(in_plain(as_plain(found))) if args.json else diff_text(found))
    return 0 if found.is_equal else DIFFERENT


def diff_text(found: Diff) -> str:
    """A comparison for the terminal: the differences of each section, and the sentence."""
    from runnerkit.flow.moment.diff import SECTIONS

    rows = []
    for section in SECTIONS:
        own = [row for row in found.rows if row.section == section]
        rows += [[section, row.name, row.a, row.b, row.note] for row in own[:_MOST]]
        if len(own) > _MOST:
            rows.append([section, f'… and {len(own) - _MOST} more', '', '', ''])
    parts = [aligned(['', '', 'A', 'B', ''], rows)] if rows else []
    return '\n\n'.join([*parts, *(['\n'.join(found.notes)] if found.notes else []), found.sentence])
