"""``runnerkit find-lr cfg.py``: look for a good learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runnerkit.cli.arguments import add_shared, count, positive_number
from runnerkit.cli.errors import UsageError, check_one_process, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import guarded, load_config
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit find-lr') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Train for some iterations with a growing learning rate and show the loss '
        '(range test, Smith 2017). Nothing is kept.',
    )
    add_shared(parse, 'config', '--cfg-options', '--device')
    parse.add_argument('--from', dest='low', type=positive_number, default=1e-6, help='the first rate (default: 1e-6)')
    parse.add_argument('--to', dest='high', type=positive_number, default=10.0, help='the last one (default: 10)')
    parse.add_argument('--iters', type=count, default=100, help='how many iterations (default: 100)')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Run the test and print what it has found; returns the exit code, as ``runnerkit train`` does."""
    args = parser().parse_args(argv)
    check_one_process('runnerkit find-lr')
    if args.low >= args.high:
        raise UsageError(f'--from {args.low:g} must be below --to {args.high:g}')
    if args.iters < 3:
        raise UsageError(f'--iters must be at least 3, but got {args.iters}')
    cfg = load_config(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.flow import Flow, Options
    from runnerkit.flow.look.find_lr import FindLr

    runner = partial(FindLr, low=args.low, high=args.high, iters=args.iters)
    stages = {'startup': None, 'runner': runner}
    context = Flow(cfg, Options(device=args.device, dry_run=True), stages=stages, guard=guarded).run()
    if 'range_test' not in context:
        raise UsageError('the workflow does not train, so there is no learning rate to find')
    print_out(str(context['range_test']))
    return 0
