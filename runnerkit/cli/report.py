"""``runnerkit report WORK_DIR …``: write what runs have done into one HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from runnerkit.cli.errors import check_extension, usage_checked, wrong_usage
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit report') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Write the curves, scores, times, warnings and settings of a run into one HTML file, or compare '
        'several runs in one, or show the trials of a study. Runs may be running; nothing of them is executed.',
    )
    parse.add_argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs, or of one study')
    parse.add_argument(
        '--out', metavar='FILE.html', default='', help='default: report.html in the only work dir, else here'
    )
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; returns the exit code."""
    args = parser().parse_args(argv)
    if args.out:
        check_extension('--out', args.out, ('.html', '.htm'), 'a report is written')
    from runnerkit.search.study_page import write_report  # imports torch

    with wrong_usage(OSError, ValueError):
        print_out(f'Report {write_report(args.work_dirs, args.out)}')
    return 0
