"""``runnerkit completion bash``: print a script that lets a shell complete commands, flags and files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from runnerkit.cli.main import COMMANDS
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out

SHELLS = ('bash', 'zsh', 'fish')

#: Arguments whose values are files.
_FILES = ('config', 'source', 'inputs', 'checkpoint', 'resume_from', 'load_from', 'out', 'trace')


def parser(prog: str = 'runnerkit completion') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Print a completion script. Save it with: runnerkit completion bash > '
        '~/.local/share/bash-completion/completions/runnerkit; runnerkit completion zsh > FOLDER/_runnerkit '
        '(a FOLDER in your $fpath); runnerkit completion fish > ~/.config/fish/completions/runnerkit.fish. '
        'For this shell only: source <(runnerkit completion bash).',
    )
    parse.add_argument('shell', choices=SHELLS)
    return parse


def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit completion') -> int:
    """Print the script; returns the exit code."""
    args = parser(prog).parse_args(argv)
    print_out(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script for one of `SHELLS`."""
    import shtab

    text: str = shtab.complete(whole_parser({**dict.fromkeys(_FILES, shtab.FILE), 'work_dir': shtab.DIRECTORY}), shell)
    return text.rstrip('\n')


def whole_parser(completers: Mapping[str, Any]) -> argparse.ArgumentParser:
    """One parser for all commands, as `shtab` wants it.

    Args:
        completers: what completes an argument, by its name in the parsed arguments.
    """
    whole = argparse.ArgumentParser(prog='runnerkit')
    whole.add_argument('--version', action='store_true', help='print the version')
    commands = whole.add_subparsers()
    for name, (module, purpose) in COMMANDS.items():
        one = import_module(module).parser()
        for action in one.arguments:
            if action.dest in completers:
                action.complete = completers[action.dest]
        commands.add_parser(name, help=purpose, description=purpose, parents=[one], add_help=False)
    return whole
