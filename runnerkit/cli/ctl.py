"""``runnerkit ctl WORK_DIR status``: look at a run of another process, and control it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from runnerkit.cli.arguments import positive_number
from runnerkit.cli.errors import usage_checked, wrong_usage
from runnerkit.cli.parser import Parser
from runnerkit.utils.commands import COMMANDS, check_command
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit ctl') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Control a run whose config has custom_hooks=[dict(type="ControlHook")], and print its answer as '
        f'JSON. {". ".join(f"{name}: {text}" for name, text in COMMANDS.items())}.',
    )
    parse.add_argument('work_dir', help='the work dir of the run; with --key-file its address, HOST:PORT')
    parse.add_argument('command', metavar='COMMAND', help=', '.join(COMMANDS))
    parse.add_argument(
        '--timeout',
        type=positive_number,
        help='how many seconds to wait for the answer (default: no limit)',
    )
    parse.add_argument(
        '--key-file', metavar='FILE', help='the key of a run on another machine; only its owner can read the file'
    )
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Give the command; returns the exit code: 1 if no run answers or the command failed."""
    args = parser().parse_args(argv)
    from runnerkit.utils.control import ask, host_and_port

    with wrong_usage(ValueError):
        check_command(args.command)
        if args.key_file is not None:
            host_and_port(args.work_dir)
    print_out(json.dumps(ask(args.work_dir, args.command, args.timeout, args.key_file), indent=1))
    return 0
