"""``runnerkit ctl WORK_DIR status``: look at a run of another process, and control it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from runnerkit.cli.errors import UsageError, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out

#: What a run can be told; the hook that obeys has the same names (it is not imported, since that takes seconds).
COMMANDS = {
    'status': 'tell where the run is',
    'pause': 'wait after the running iteration',
    'resume': 'go on after a pause',
    'save': 'save a checkpoint after the running iteration',
    'stop': 'end the run after the running iteration',
    'lr': 'set the learning rate to VALUE; with "schedule", give it back to the schedule',
}


def seconds(text: str) -> float:
    """A number of seconds of the command line, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f'a time is a number of seconds above 0, but got {text!r}')
    return value


def parser(prog: str = 'runnerkit ctl') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Control a run whose config has custom_hooks=[dict(type="ControlHook")], and print its answer as '
        f'JSON. {"; ".join(f"{name}: {text}" for name, text in COMMANDS.items())}.',
    )
    parse.add_argument('work_dir', help='of the run')
    parse.add_argument('command', choices=list(COMMANDS), metavar='COMMAND', help=', '.join(COMMANDS))
    parse.add_argument('value', nargs='?', metavar='VALUE', help='of lr: a number, or schedule')
    parse.add_argument('--timeout', type=seconds, help='how many seconds to wait for the answer (default: no limit)')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Give the command; returns the exit code: 1 if nobody answers or the command failed."""
    args = parser().parse_args(argv)
    if args.command == 'lr' and args.value is None:
        raise UsageError('lr needs a VALUE: a number, or schedule')
    if args.command != 'lr' and args.value is not None:
        raise UsageError(f'{args.command} takes no VALUE, but got {args.value!r}')
    from runnerkit.utils.control import ask

    print_out(json.dumps(ask(args.work_dir, args.command, args.value, args.timeout), indent=1))
    return 0
