"""Training tools of installed OpenMMLab packages, run as they are under `runnerkit.compat`."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def folder_of(package):
    """Where a package lies, which is not imported; without it, or without mmcv, the test is skipped."""
    for name in ('mmcv', package):
        if find_spec(name) is None:
            pytest.skip(f'{name} is not installed: docs/mmcv.md says how')
    return Path(find_spec(package).origin).parent


def train(package, config, folder, *arguments, work_dir='run', compat=('-m', 'runnerkit.compat')):
    """Run the package's ``tools/train.py`` in ``folder``; the lines of its JSON log. Without ``compat``, it runs with
    mmcv itself."""
    tool = folder_of(package) / '.mim' / 'tools' / 'train.py'
    path = [str(ROOT)]
    if not compat:  # mmcv imports torchvision for the addresses of models only
        (folder / 'standin').mkdir()
        (folder / 'standin' / 'torchvision.py').write_text("__version__ = '0'\nmodels = None\n")
        path.insert(0, str(folder / 'standin'))
    done = subprocess.run(
        [sys.executable, *compat, str(tool), str(config), '--work-dir', work_dir, '--seed', '0', *arguments],
        cwd=folder,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(path), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in next((folder / work_dir).glob('*.log.json')).read_text().splitlines()]


def losses(lines):
    return [line['loss'] for line in lines if line.get('mode') == 'train']


def scores(lines, name):
    return [line[name] for line in lines if line.get('mode') == 'val']
