"""`print_config.py cfg.py`: print a config with its bases and ``--cfg-options`` merged in."""

from __future__ import annotations

from collections.abc import Sequence

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import read_config_with_options
from runnerkit.config import format_config, unread_keys
from runnerkit.utils.logging import print_err, print_out


def parser(prog: str = 'runnerkit print-config') -> Parser:
    """The command line."""
    parse = Parser(prog=prog, description='Print a config, with its bases and the given options merged in.')
    add_shared(parse, 'config', '--cfg-options')
    parse.add_argument('--style', help="format the text in one of yapf's styles: pep8, google, facebook, yapf")
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit print-config') -> int:
    """Print a config; returns the exit code.

    Args:
        argv: the arguments; by default those of the program.
        prog: the program's name, for its usage.
    """
    args = parser(prog).parse_args(argv)
    cfg = read_config_with_options(args.config, args.cfg_options)
    errors = [finding for finding in unread_keys(cfg) if finding.level == 'error']
    text = format_config(cfg, args.style) if args.style else cfg.pretty_text
    for finding in errors:
        print_err(f'warning: {finding}')
    print_out(text.removesuffix('\n'))
    return 0
