"""``runnerkit profile cfg.py``: show where the time of a training iteration goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from runnerkit.cli.arguments import add_shared, count
from runnerkit.cli.errors import UsageError, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import guarded, load_config, stopped_by
from runnerkit.utils.exit_codes import SIGNALLED
from runnerkit.utils.logging import print_out
from runnerkit.utils.stopwatch import SORT_KEYS, time_table


def parser(prog: str = 'runnerkit profile') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Run the first iterations of a training and show where their time goes: data, forward, backward, '
        'update, each hook. Nothing is kept.',
    )
    add_shared(parse, 'config', '--cfg-options', '--device')
    parse.add_argument('--iters', type=count, default=50, help='how many iterations to measure (default: 50)')
    parse.add_argument(
        '--warmup',
        type=count,
        default=10,
        help='how many iterations to run first, without measuring (default: 10)',
    )
    parse.add_argument(
        '--sort', choices=list(SORT_KEYS), default='total', help='how to sort the table (default: total)'
    )
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; returns the exit code, as ``runnerkit train`` does."""
    args = parser().parse_args(argv)
    cfg = load_config(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.flow import Flow, Options
    from runnerkit.flow.look.profile import Profile

    runner = partial(Profile, iters=args.iters, warmup=args.warmup)
    stages = {'startup': None, 'runner': runner}
    context = Flow(cfg, Options(device=args.device, dry_run=True), stages=stages, guard=guarded).run()
    stage = context['profile']
    number = stopped_by(context.runner)
    if number is not None:
        return SIGNALLED + number
    if not stage.measured:
        raise UsageError(f'the training ends after {stage.done} iterations, within --warmup {args.warmup}')
    print_out(profile_table(stage, args.sort))
    return 0


def profile_table(stage: Any, sort_by: str) -> str:
    """The table, with a summary above it."""
    parts = stage.watch.parts()
    mean = sum(part.seconds for part in parts) / stage.measured
    return (
        f'{stage.measured} iterations after {stage.warmup} for warming up: {1e3 * mean:.3f} ms each, '
        f'{1 / mean:.4g} per second ({stage.watch.clock.description})\n\n' + time_table(parts, stage.measured, sort_by)
    )
