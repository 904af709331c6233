"""Kill the same training in each framework, start it again, and say what comes of it.

    python benchmarks/entrance/tries.py runnerkit_loop runnerkit_config plain
    /tmp/lightning/bin/python benchmarks/entrance/tries.py lightning_trainer

The README in this folder says how to make the environments.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: For each try, the variables of the first start; the second start has none. See job.py.
TRIES = {
    'killed in the middle of the second epoch': {'KILL_AT': '11'},
    'killed while a checkpoint is written': {'KILL_IN_SAVE': '2'},
}


def started(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A training, when it has ended."""
    command = [sys.executable, str(HERE / f'{name}.py'), str(folder)]
    if name == 'runnerkit_config':
        command = [sys.executable, '-m', 'runnerkit', 'train', str(HERE / f'{name}.py'), '--work-dir', str(folder)]
        command += ['--auto-resume', '--device', 'cpu']
    own = {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': '', **variables}
    return subprocess.run(command, cwd=folder.parent, env=os.environ | own, capture_output=True, text=True, timeout=400)


def weights(name: str, folder: Path) -> dict[str, torch.Tensor]:
    """The network's last weights."""
    if name != 'runnerkit_config':
        return torch.load(folder / 'weights.pt')
    states = torch.load(folder / 'latest.pth')['state_dict']
    return {key.removeprefix('model.'): value for key, value in states.items()}


def outcome(name: str, folder: Path, undisturbed: dict[str, torch.Tensor], **variables: str) -> str:
    """What a second start makes of a killed run."""
    first = started(name, folder, **variables)
    if first.returncode != -signal.SIGKILL:
        return f'not killed: exit code {first.returncode}\n{first.stderr[-2000:]}'
    second = started(name, folder)
    if second.returncode:
        return f'the second start fails: {second.stderr.strip().splitlines()[-1]}'
    found = weights(name, folder)
    if all(torch.equal(found[key], undisturbed[key]) for key in undisturbed):
        return 'the same weights, bit for bit'
    return f'other weights, by up to {max((found[key] - undisturbed[key]).abs().max() for key in undisturbed):.2g}'


def lines(name: str) -> int:
    """The lines of a script that are neither blank nor comments."""
    texts = (HERE / f'{name}.py').read_text(encoding='utf-8').splitlines()
    return sum(bool(text.strip()) and not text.startswith(('#', '"""')) for text in texts)


def main() -> None:
    """Print what each try gives."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='+', help='scripts of this folder, without .py')
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as place:
            first = started(name, Path(place) / 'undisturbed')
            if first.returncode:
                sys.exit(first.stderr)
            undisturbed = weights(name, Path(place) / 'undisturbed')
            print(f'{name}, {lines(name)} lines')
            again = started(name, Path(place) / 'again')
            same = not again.returncode and all(
                torch.equal(value, undisturbed[key]) for key, value in weights(name, Path(place) / 'again').items()
            )
            print(f'  twice undisturbed: {"the same weights" if same else "other weights"}')
            for number, (title, variables) in enumerate(TRIES.items()):
                print(f'  {title}: {outcome(name, Path(place) / str(number), undisturbed, **variables)}', flush=True)


if __name__ == '__main__':
    main()
