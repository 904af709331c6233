"""The console script ``runnerkit``, and ``python -m runnerkit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

#: Each command, the module whose ``main`` it calls, and what it is for.
COMMANDS = {
    'train': ('runnerkit.cli.train', 'train the model of a config file'),
    'test': ('runnerkit.cli.test', 'evaluate a checkpoint'),
    'profile': ('runnerkit.cli.profile', 'tell where the time of a training iteration goes'),
    'batch': ('runnerkit.cli.batch', 'rebuild one batch of a training, and look for bad numbers in it'),
    'print-config': ('runnerkit.cli.print_config', 'show a config with everything it inherits'),
}


def usage() -> str:
    """What ``--help`` shows."""
    rows = '\n'.join(f'  {name:<14}{purpose}' for name, (_, purpose) in COMMANDS.items())
    return f'usage: runnerkit COMMAND …\n\n{rows}\n\nrunnerkit COMMAND --help tells more.'


def main(argv: Sequence[str] | None = None) -> int:
    """Call the command that ``argv`` names; returns its exit code."""
    from runnerkit.utils.suggest import did_you_mean
    from runnerkit.version import __version__

    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        return import_module(COMMANDS[words[0]][0]).main(words[1:])
    if words and words[0] in ('-h', '--help'):
        print(usage())
        return 0
    if words and words[0] == '--version':
        print(f'runnerkit {__version__}')
        return 0
    problem = (
        f'there is no command {words[0]!r}; {did_you_mean(words[0], COMMANDS)}'.rstrip('; ')
        if words
        else 'a command is needed'
    )
    print(f'{usage()}\n\nerror: {problem}', file=sys.stderr)
    return 2
