"""``tools/train.py cfg.py``: train the model of a config."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from runnerkit.cli.errors import SIGNALLED, UsageError, ignoring_repeated_signals, usage_checked
from runnerkit.config import Config, DictAction
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.suggest import did_you_mean


def parser() -> argparse.ArgumentParser:
    """The command line, which is that of MMCV's downstream projects."""
    parse = argparse.ArgumentParser(prog='train.py', description='Train the model of a config file.')
    parse.add_argument('config', help='the config file (.py, .yaml or .json)')
    parse.add_argument(
        '--work-dir', help="where logs and checkpoints go (default: the config's, else work_dirs/<config>)"
    )
    parse.add_argument('--resume-from', metavar='CKPT', help='go on from this checkpoint, exactly')
    parse.add_argument('--load-from', metavar='CKPT', help='start from the weights of this checkpoint')
    parse.add_argument(
        '--auto-resume',
        action='store_true',
        help='go on from the newest usable checkpoint of the work dir, if any',
    )
    parse.add_argument('--no-validate', action='store_true', help='do not evaluate while training')
    parse.add_argument('--seed', type=seed, help="seed of everything random (default: the config's, else drawn)")
    parse.add_argument('--diff-seed', action='store_true', help='draw dropout masks and the like apart in each process')
    parse.add_argument('--deterministic', action='store_true', help='use deterministic algorithms only')
    parse.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        metavar='KEY=VALUE',
        help='change settings of the config, e.g. optimizer.lr=0.1',
    )
    parse.add_argument(
        '--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='who starts the processes'
    )
    parse.add_argument(
        '--trust-pickles', action='store_true', help='load checkpoints even where that runs code that is in them'
    )
    parse.add_argument('--local_rank', '--local-rank', type=int, default=0, help="set by torch's launcher")
    parse.add_argument('--gpu-id', type=int, default=0, help='the GPU to use, in a run of one process')
    parse.add_argument('--device', help='cpu, cuda, cuda:1 … (default: a GPU if there is one)')
    parse.add_argument('--auto-scale-lr', action='store_true', help='scale the learning rate with the batch size')
    parse.add_argument(
        '--dry-run',
        action='store_true',
        help='build everything, show it, run one iteration of each mode, leave no trace',
    )
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Train; returns the exit code: 0, 1 for a failure, 2 for wrong usage, and after a signal 128 and its number (143
    for SIGTERM, 130 for Ctrl-C)."""
    args = parser().parse_args(argv)
    if args.launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args.config, args.cfg_options)
    # Only now, so that a wrong flag or a missing config is answered without waiting for torch.
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow import Context, Flow
    from runnerkit.flow.dry_run import DryRun

    context = Context(cfg, options_of(args))
    flow = Flow()
    flow.stages[-2] = guarded(DryRun() if args.dry_run else flow.stages[-2])
    with trusted_pickles() if args.trust_pickles else nullcontext():
        flow(context)
    number = stopped_by(context.runner)
    return 0 if number is None else SIGNALLED + number


def guarded(stage: Callable[[Any], None]) -> Callable[[Any], None]:
    """The stage that trains, with repeated signals ignored from when one has stopped it."""

    def run(context: Any) -> None:
        with ignoring_repeated_signals(lambda: stopped_by(context.runner) is not None):
            stage(context)

    return run


def stopped_by(runner: Any) -> int | None:
    """The signal that has stopped the run; None where it ended otherwise, or has not ended."""
    if runner is None or runner.outcome is None or runner.outcome.kind != 'stopped':
        return None
    number: int | None = runner.stop_signal
    return number


def load_config(filename: str, overrides: dict[str, Any] | None = None) -> Any:
    """The config with the command line's ``--cfg-options`` merged in."""
    if not os.path.isfile(filename):
        folder = os.path.dirname(filename) or '.'
        hint = did_you_mean(os.path.basename(filename), os.listdir(folder)) if os.path.isdir(folder) else ''
        raise UsageError(f'there is no config file {filename}' + (f'; {hint}' if hint else ''))
    cfg = Config.fromfile(filename)
    if overrides:
        try:
            cfg.merge_from_dict(overrides)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise UsageError(f'--cfg-options does not fit {filename}: {one_line(error)}') from error
    return cfg


def seed(text: str) -> int:
    """A seed from the command line: a whole number of at least 0."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f'a seed is a whole number of at least 0, but got {text!r}')
    return int(text)


def options_of(args: argparse.Namespace) -> Any:
    """The flags that are not about the config."""
    from runnerkit.flow import Options

    return Options(
        work_dir=args.work_dir,
        resume_from=args.resume_from,
        load_from=args.load_from,
        auto_resume=args.auto_resume,
        validate=not args.no_validate,
        seed=args.seed,
        deterministic=args.deterministic,
        diff_seed=args.diff_seed,
        launcher=args.launcher,
        gpu_id=args.gpu_id,
        device=args.device,
        auto_scale_lr=args.auto_scale_lr,
        dry_run=args.dry_run,
    )
