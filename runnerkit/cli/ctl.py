"""``runnerkit ctl WORK_DIR status``: look at a run of another process, and control it."""

from __future__ import annotations

import json
from argparse import Namespace

from runnerkit.cli.arguments import argument, positive_number
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.utils.control import COMMANDS, ask, check_command, host_and_port
from runnerkit.utils.logging import print_out


@command_line(
    'runnerkit ctl',
    'Control a run whose config has custom_hooks=[dict(type="ControlHook")], and print its answer as JSON. '
    f'{". ".join(f"{name}: {text}" for name, text in COMMANDS.items())}.',
    argument('work_dir', help='the work dir of the run; with --key-file its address, HOST:PORT'),
    argument('command', metavar='COMMAND', help=', '.join(COMMANDS)),
    argument('--timeout', type=positive_number, help='how many seconds to wait for the answer (default: no limit)'),
    argument(
        '--key-file', metavar='FILE', help='the key of a run on another machine; only its owner can read the file'
    ),
)
def main(args: Namespace) -> None:
    """Give the command: 1 if no run answers or the command failed."""
    with wrong_usage(ValueError):
        check_command(args.command)
        if args.key_file is not None:
            host_and_port(args.work_dir)
    print_out(json.dumps(ask(args.work_dir, args.command, args.timeout, args.key_file), indent=1))
