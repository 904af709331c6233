"""The console script ``runnerkit``, and ``python -m runnerkit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from runnerkit.utils.exit_codes import USAGE

#: The commands: the module whose ``main`` is called, and a description.
COMMANDS = {
    'train': ('runnerkit.cli.train', 'train the model of a config file'),
    'search': ('runnerkit.cli.search', 'run the steps of a pipeline: search over configs, train the best ones'),
    'test': ('runnerkit.cli.test', 'evaluate a checkpoint'),
    'predict': ('runnerkit.cli.predict', 'apply a trained model to files or to a split of its data'),
    'export': ('runnerkit.cli.export', 'write a trained model as torch.export or ONNX'),
    'publish': ('runnerkit.cli.publish', 'write a checkpoint with only its weights, and its hash in the name'),
    'convert': ('runnerkit.cli.convert', 'convert a sharded checkpoint to one file, and back'),
    'report': ('runnerkit.cli.report', 'write the curves, scores and settings of runs into one HTML file'),
    'runs': ('runnerkit.cli.runs', 'list the runs below a folder'),
    'diff': ('runnerkit.cli.diff', 'find the first difference of two runs, and what led to it'),
    'compare': ('runnerkit.cli.compare', 'show scores and differing settings of runs side by side'),
    'replay': ('runnerkit.cli.replay', 'train a run again up to any moment, and look at it'),
    'verify': (
        'runnerkit.cli.verify',
        'replay a run between its checkpoints and compare them: does it reproduce here?',
    ),
    'ctl': ('runnerkit.cli.ctl', 'show, pause, save or stop a running training, or set its learning rate'),
    'profile': ('runnerkit.cli.profile', 'show where the time of a training iteration goes'),
    'summary': ('runnerkit.cli.summary', 'show the parameters, operations and shapes of a model'),
    'find-lr': ('runnerkit.cli.find_lr', 'look for a good learning rate'),
    'print-config': ('runnerkit.cli.print_config', 'print a config with its bases merged in'),
}


def usage() -> str:
    """The text of ``--help``."""
    rows = '\n'.join(f'  {name:<14}{purpose}' for name, (_, purpose) in COMMANDS.items())
    return f'usage: runnerkit COMMAND …\n\n{rows}\n\nrunnerkit COMMAND --help shows more.'


def way_out(words: Sequence[str]) -> str:
    """What to write instead of a command that does not exist."""
    from runnerkit.utils.suggest import suggestion

    if words[0].endswith(('.py', '.yaml', '.yml', '.json')):
        return f': use runnerkit train {" ".join(words)}'
    if words[0].startswith('-'):
        return ': flags follow a command, such as runnerkit train CONFIG …'
    return suggestion(words[0], COMMANDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv``; returns its exit code."""
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
    problem = 'a command is missing'
    if words:
        problem = f'unknown command {words[0]!r}{way_out(words)}'
    print(f'{usage()}\n\nerror: {problem}', file=sys.stderr)
    return USAGE
