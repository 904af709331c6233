"""``tools/search.py cfg.py``: do the steps of a pipeline, such as a search and the training of what it finds."""

from __future__ import annotations

import os
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from runnerkit.cli.arguments import argument, count
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.cli.train import read_config_with_options
from runnerkit.fileio.paths import shown
from runnerkit.utils.ending import SIGNALLED, SOME_FAILED, UsageError
from runnerkit.utils.logging import print_out

if TYPE_CHECKING:
    from runnerkit.search.pipeline import Pipeline


@command_line(
    'runnerkit search',
    'Run the steps listed in `pipeline`: search, train, measure. Rerun with the same work dir to continue. Exit codes: '
    '0: success; 1: an error, or a step without a usable result; 2: wrong usage; '
    f'{SOME_FAILED}: some trials failed; 128 plus the number of the signal that stopped it.',
    *('config', '--cfg-options', '--device'),
    argument('--work-dir', help="where all output goes (default: the config's, else work_dirs/<config>)"),
    argument(
        '--workers',
        type=count,
        metavar='N',
        help='run N trials at once, each in its own process (default: what the steps say)',
    ),
    argument(
        '--trust', help='also measure models whose work dirs were not made on this machine; this executes their code'
    ),
    one_process=True,
)
def main(args: Namespace) -> int:
    """Do the steps: 0, 1 after an error or if a step has nothing usable, 2 for wrong usage, 4 if
    some trials have failed, 128 plus the signal's number after a signal."""
    if args.work_dir is not None and os.path.isfile(args.work_dir):
        raise UsageError(f'--work-dir {args.work_dir} is a file: give a folder')
    cfg = read_config_with_options(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.search.pipeline import Pipeline
    from runnerkit.search.report import failures, summary

    with wrong_usage(KeyError, TypeError, ValueError, FileNotFoundError, of=f'{args.config}: '):
        pipeline = Pipeline(cfg, args.work_dir, args.device, args.workers, trust=args.trust)
    with stopping(pipeline):
        pipeline.run()
    if pipeline.stop_signal is not None:
        print_out(f'stopped by {signal.Signals(pipeline.stop_signal).name}; to continue, run the same command')
        return SIGNALLED + pipeline.stop_signal
    failed = failures(pipeline.report.all_records)
    print_out('\n'.join(summary(pipeline.report, pipeline.names, pipeline.work_dir)))
    if failed:
        print_out(
            f'done, but trials have failed: {failed}; for the reasons, see {shown(pipeline.work_dir / "reports.json")}'
        )
        return SOME_FAILED
    return 0


@contextmanager
def stopping(pipeline: Pipeline) -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGUSR1 end the running trials, which save; the second one ends at once."""

    def receive(number: int, frame: FrameType | None) -> None:
        if pipeline.stop_signal is not None:
            raise KeyboardInterrupt
        pipeline.stop(number)

    former: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            former[number] = signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
