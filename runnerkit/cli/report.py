"""``runnerkit report WORK_DIR …``: write what runs have done into one HTML file."""

from __future__ import annotations

import os
from argparse import Namespace

from runnerkit.cli.arguments import argument
from runnerkit.cli.errors import check_extension, check_writable, wrong_usage
from runnerkit.cli.parser import command
from runnerkit.utils.logging import print_out


@command(
    'runnerkit report',
    'Write the curves, scores, times, warnings and settings of a run into one HTML file, or compare several runs in '
    'one, or show the trials of a study. Runs may be running; nothing of them is executed.',
    argument('work_dirs', nargs='+', metavar='WORK_DIR', help='the work dirs of the runs, or of one study'),
    argument('--out', metavar='FILE.html', default='', help='default: report.html in the only work dir, else here'),
)
def main(args: Namespace) -> None:
    """Write the report."""
    place = args.out or os.path.join(args.work_dirs[0] if len(args.work_dirs) == 1 else '.', 'report.html')
    check_extension('--out', place, ('.html', '.htm'), 'a report is written')
    if os.path.isdir(os.path.dirname(place) or '.'):  # else a folder is made, or there is no run
        check_writable('--out', place)
    from runnerkit.search.study_page import write_report  # imports torch

    with wrong_usage(OSError, ValueError):
        print_out(f'Report {write_report(args.work_dirs, args.out)}')
