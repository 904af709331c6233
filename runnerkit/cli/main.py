"""The console script ``runnerkit``, and ``python -m runnerkit``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from runnerkit.utils.ending import USAGE

#: The commands: module and name of what `runnerkit.cli.parser.command_line` has made, and its purpose.
COMMANDS = {
    'train': ('train:main', 'train the model of a config file'),
    'search': ('search:main', 'run the steps of a pipeline: search over configs, train the best ones'),
    'test': ('test:main', 'evaluate a checkpoint'),
    'predict': ('predict:main', 'apply a trained model to files or to a split of its data'),
    'export': ('export:main', 'write a trained model as torch.export or ONNX'),
    'publish': (
        'checkpoints:publish_main',
        'write a checkpoint with only its weights, and its hash in the name',
    ),
    'convert': ('checkpoints:convert_main', 'convert a sharded checkpoint to one file, and back'),
    'report': ('records:report_main', 'write the curves, scores and settings of runs into one HTML file'),
    'runs': ('records:runs_main', 'list the runs below a folder'),
    'diff': ('moment:diff_main', 'find the first difference of two runs, and what led to it'),
    'compare': ('records:compare_main', 'show scores and differing settings of runs side by side'),
    'replay': ('moment:replay_main', 'train a run again up to any moment, and look at it'),
    'verify': (
        'moment:verify_main',
        'replay a run between its checkpoints and compare them: does it reproduce here?',
    ),
    'ctl': ('ctl:main', 'show, start, pause, save or stop a running training'),
    'profile': ('look:profile_main', 'show where the time of a training iteration goes'),
    'summary': ('look:summary_main', 'show the parameters, operations and shapes of a model'),
    'find-lr': ('look:find_lr_main', 'look for a good learning rate'),
    'print-config': ('print_config:main', 'print a config with its bases merged in'),
}


#: The commands that load no torch, which would take seconds.
QUICK = ('report', 'runs', 'compare', 'ctl', 'print-config')


def say_loading(words: Sequence[str]) -> None:
    """On a terminal, say at once that a command loads torch, which takes seconds."""
    is_slow = words[0] not in QUICK and 'torch' not in sys.modules and not {'-h', '--help'} & {*words}
    if is_slow and os.environ.get('RANK', '0') == '0' and sys.stderr.isatty():
        print(f'runnerkit {words[0]}: loading torch …', file=sys.stderr, flush=True)


def command_named(name: str) -> Any:
    """A command of the table, which is imported only now."""
    module, _, function = COMMANDS[name][0].partition(':')
    return getattr(import_module(f'runnerkit.cli.{module}'), function)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv``; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        say_loading(words)
        code: int = command_named(words[0])(words[1:])
        return code
    if words and words[0] == '--version':
        from runnerkit.version import __version__

        print(f'runnerkit {__version__}')
        return 0
    rows = '\n'.join(f'  {name:<14}{purpose}' for name, (_, purpose) in COMMANDS.items())
    usage = f'usage: runnerkit COMMAND …\n\n{rows}\n\nrunnerkit COMMAND --help shows more.'
    if words and words[0] in ('-h', '--help'):
        print(usage)
        return 0
    problem = 'a command is missing'
    if words:
        from runnerkit.utils.suggest import suggestion

        way_out = suggestion(words[0], COMMANDS)
        if words[0].endswith(('.py', '.yaml', '.yml', '.json')):
            way_out = f': use runnerkit train {" ".join(words)}'
        elif words[0].startswith('-'):
            way_out = ': flags follow a command, such as runnerkit train CONFIG …'
        problem = f'unknown command {words[0]!r}{way_out}'
    print(f'{usage}\n\nerror: {problem}', file=sys.stderr)
    return USAGE
