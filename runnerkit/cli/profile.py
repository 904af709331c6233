"""``runnerkit profile cfg.py``: print the table of torch's profiler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runnerkit.cli.arguments import add_shared, count
from runnerkit.cli.errors import usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import guarded, load_config, stopped_by
from runnerkit.utils.exit_codes import SIGNALLED
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit profile') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description="Run torch's profiler over the first iterations of a training and print its table. Nothing is "
        'kept.',
    )
    add_shared(parse, 'config', '--cfg-options', '--device')
    parse.add_argument('--iters', type=count, default=20, help='how many iterations to measure (default: 20)')
    parse.add_argument(
        '--warmup',
        type=count,
        default=10,
        help='how many iterations to run first, without measuring (default: 10)',
    )
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code, as ``runnerkit train`` does."""
    args = parser().parse_args(argv)
    cfg = load_config(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.flow import Flow, Options
    from runnerkit.flow.look.profile import Profile

    runner = partial(Profile, iters=args.iters, warmup=args.warmup)
    stages = {'startup': None, 'runner': runner}
    context = Flow(cfg, Options(device=args.device, dry_run=True), stages=stages, guard=guarded).run()
    number = stopped_by(context.runner)
    if number is not None:
        return SIGNALLED + number
    print_out(context['profile'])
    return 0
