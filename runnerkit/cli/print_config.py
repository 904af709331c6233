"""`print_config.py cfg.py`: print a config with its bases and ``--cfg-options`` merged in."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.parser import Parser
from runnerkit.config import Config, unread_keys
from runnerkit.config.keys import resolve_synonyms
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.exit_codes import FAILURE
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit print-config') -> Parser:
    """The command line."""
    parse = Parser(prog=prog, description='Print a config, with its bases and the given options merged in.')
    add_shared(parse, 'config', '--cfg-options')
    return parse


def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit print-config') -> int:
    """Print a config.

    Args:
        argv: the arguments; by default those of the program.
        prog: the program's name, for messages.

    Returns:
        0, or 1 if the config cannot be read. (Wrong arguments end the program with 2.)
    """
    args = parser(prog).parse_args(argv)
    try:
        cfg = Config.fromfile(args.config, import_custom_modules=False)
        cfg.merge_from_dict(resolve_synonyms(cfg._cfg_dict, args.cfg_options or {}))
        errors = [finding for finding in unread_keys(cfg) if finding.level == 'error']
        text = cfg.pretty_text
    except Exception as error:
        print(f'{prog}: error: {one_line(error)}', file=sys.stderr)
        return FAILURE
    for finding in errors:
        print(f'warning: {finding}', file=sys.stderr)
    print_out(text.removesuffix('\n'))
    return 0
