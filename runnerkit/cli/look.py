"""``runnerkit summary``, ``find-lr``, ``profile``: they train a little, show what they see, and keep nothing."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from runnerkit.cli.arguments import argument, count, positive_number
from runnerkit.cli.parser import command_line
from runnerkit.cli.train import guarded, load_config, stopped_by
from runnerkit.utils.ending import SIGNALLED, UsageError
from runnerkit.utils.logging import print_out


def look(args: Namespace, module: str, stage: str, **options: Any) -> Any:
    """The context of a run of the config whose runner stage is that of ``runnerkit.flow.look.<module>``."""
    cfg = load_config(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.flow import Flow, Options

    runner = {'type': f'runnerkit.flow.look.{module}.{stage}', **options}
    flow = Flow(
        cfg, Options(device=args.device, dry_run=True), stages={'startup': None, 'runner': runner}, guard=guarded
    )
    return flow.run()


@command_line(
    'runnerkit summary',
    'Build the model of a config, take one training step with its first batch, and show parameters, floating-point '
    'operations, and the output of each top-level module. Nothing is kept.',
    *('config', '--cfg-options', '--device'),
    one_process=True,
)
def summary_main(args: Namespace) -> None:
    """Print the summary."""
    context = look(args, 'summary', 'Summarize')
    print_out(str(context['summary']) if 'summary' in context else 'the workflow does not train: nothing is measured')


@command_line(
    'runnerkit find-lr',
    'Train for some iterations with a growing learning rate and show the loss (range test, Smith 2017). Nothing is '
    'kept.',
    *('config', '--cfg-options', '--device'),
    argument('--from', dest='low', type=positive_number, default=1e-6, help='the first rate (default: 1e-6)'),
    argument('--to', dest='high', type=positive_number, default=10.0, help='the last one (default: 10)'),
    argument('--iters', type=count, default=100, help='how many iterations (default: 100)'),
    one_process=True,
)
def find_lr_main(args: Namespace) -> None:
    """Run the range test and print what it has found."""
    if args.low >= args.high:
        raise UsageError(f'--from {args.low:g} must be below --to {args.high:g}')
    if args.iters < 3:
        raise UsageError(f'--iters must be at least 3, but got {args.iters}')
    context = look(args, 'find_lr', 'FindLr', low=args.low, high=args.high, iters=args.iters)
    if 'range_test' not in context:
        raise UsageError('the workflow does not train, so there is no learning rate to find')
    print_out(str(context['range_test']))


@command_line(
    'runnerkit profile',
    "Run torch's profiler over the first iterations of a training and print its table. Nothing is kept.",
    *('config', '--cfg-options', '--device'),
    argument('--iters', type=count, default=20, help='how many iterations to measure (default: 20)'),
    argument(
        '--warmup', type=count, default=10, help='how many iterations to run first, without measuring (default: 10)'
    ),
)
def profile_main(args: Namespace) -> int:
    """Print the table."""
    context = look(args, 'profile', 'Profile', iters=args.iters, warmup=args.warmup)
    number = stopped_by(context.runner)
    if number is not None:
        return SIGNALLED + number
    print_out(context['profile'])
    return 0
