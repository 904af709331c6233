"""What the tools say in place of other tools' flags is a command that works."""

import re

import pytest

from runnerkit.cli.foreign import FLAGS
from runnerkit.cli.train import main

#: A value for each key; others get 2.
VALUES = {'optimizer.type': 'SGD', 'lr_config.policy': 'Fixed', 'amp': 'bf16', 'log_level': 'INFO'}
VALUES |= {'cudnn_benchmark': 'True', 'optimizer.momentum': '0.9'}

HINTS = sorted(
    {
        given.strip()
        for hints in FLAGS.values()
        for hint in ([hints] if isinstance(hints, str) else hints)
        for given in re.findall(r'--cfg-options ((?:[\w.]+=[\w.]+ ?)+)', hint)
    }
)


@pytest.mark.parametrize('hint', [hint for hint in HINTS if hint != 'compile=True'])  # two seconds
def test_each_hint_works(project, capsys, hint):
    """On a config that says ``batch_size`` and ``num_workers``, as the README's does."""
    config = project / 'cfg.py'
    text = config.read_text().replace('samples_per_gpu', 'batch_size').replace('workers_per_gpu', 'num_workers')
    config.write_text(f"{text}\nlr_config = dict(policy='Fixed')\n")
    given = [
        f'{key}={VALUES.get(key, "2") if value == "VALUE" else value}'
        for key, value in (word.split('=') for word in hint.split())
    ]
    arguments = [str(config), '--dry-run', '--work-dir', str(project / 'run'), '--cfg-options', *given]
    assert main(arguments) == 0, capsys.readouterr().err
