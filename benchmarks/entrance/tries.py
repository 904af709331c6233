"""Kill the same training in each framework, start it again, and write what comes of it into results.json.

    python benchmarks/entrance/tries.py runnerkit_loop runnerkit_config plain
    /tmp/lightning/bin/python benchmarks/entrance/tries.py lightning_trainer

A checkpoint is also cut in half, and options are misspelt. The README in this folder says how to make the environments.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / 'results.json'

KILLED, IN_SAVE, CUT = 'killed in an epoch', 'killed in a save', 'newest checkpoint cut'

#: For each try, the variables of the first start; the second start has none. See job.py.
TRIES = {KILLED: {'KILL_AT': '11'}, IN_SAVE: {'KILL_IN_SAVE': '2'}, CUT: {'KILL_AT': '11'}}

#: A file of the second checkpoint, for scripts that write several at a time.
FILES = {'lightning_trainer': '4', 'hf_trainer': '6', 'accelerate_loop': '4'}

#: The packages of a script, whose versions are recorded.
PACKAGES = {
    'lightning_trainer': ('lightning', 'torchdata'),
    'fabric_loop': ('lightning', 'torchdata'),
    'hf_trainer': ('transformers', 'accelerate'),
    'accelerate_loop': ('accelerate',),
    'mmengine_runner': ('mmengine',),
    'keras_fit': ('keras',),
}

#: The option of a script's optimizer and of its saves, and how each is misspelt.
LR, RATE = ('lr=LR', 'lerning_rate=LR'), ('learning_rate=LR', 'lerning_rate=LR')
MISSPELT = {
    'runnerkit_loop': (LR, ("'interval': 2", "'intervall': 2")),
    'runnerkit_config': (('lr=0.01', 'lerning_rate=0.01'), ('interval=2', 'intervall=2')),
    'plain': (LR,),
    'lightning_trainer': (LR, ('every_n_train_steps=2', 'every_n_train_step=2')),
    'fabric_loop': (LR,),
    'hf_trainer': (RATE, ('save_steps=2', 'save_step=2')),
    'accelerate_loop': (LR,),
    'mmengine_runner': (("'lr': LR", "'lerning_rate': LR"), ("'interval': 2", "'intervall': 2")),
    'keras_fit': (RATE, ('save_freq=2', 'save_frequ=2')),
}


def started(script: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A training, when it has ended."""
    command = [sys.executable, str(script), str(folder)]
    if script.stem == 'runnerkit_config':
        command = [sys.executable, '-m', 'runnerkit', 'train', str(script), '--work-dir', str(folder)]
        command += ['--auto-resume', '--device', 'cpu']
    own = {'PYTHONPATH': f'{ROOT}:{HERE}', 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': '', **variables}
    return subprocess.run(command, cwd=folder.parent, env=os.environ | own, capture_output=True, text=True, timeout=400)


def weights(name: str, folder: Path) -> dict[str, torch.Tensor]:
    """The network's last weights."""
    if name != 'runnerkit_config':
        return torch.load(folder / 'weights.pt')
    states = torch.load(folder / 'latest.pth')['state_dict']
    return {key.removeprefix('model.'): value for key, value in states.items()}


def last_line(text: str) -> str:
    """What a failed process says at its end, without what a progress bar adds."""
    texts = text.strip().splitlines()
    return next((line for line in reversed(texts) if 'Error' in line), texts[-1])


def cut(folder: Path) -> str:
    """Cut the newest checkpoint in half; of a checkpoint of several files, the largest one. Returns its name."""
    suffixes = ('.pth', '.ckpt', '.pt', '.bin', '.safetensors')
    files = [path for path in folder.rglob('*') if path.suffix in suffixes and not path.is_symlink()]
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    if newest.parent != folder:
        newest = max(newest.parent.iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(newest, newest.stat().st_size // 2)
    return str(newest.relative_to(folder))


def outcome(name: str, folder: Path, undisturbed: dict[str, torch.Tensor], title: str) -> str:
    """What a second start makes of a killed run."""
    script = HERE / f'{name}.py'
    variables = dict(TRIES[title])
    if title == IN_SAVE:
        variables['KILL_IN_SAVE'] = FILES.get(name, '2')
    first = started(script, folder, **variables)
    if first.returncode != -signal.SIGKILL:
        return f'not killed: exit code {first.returncode}\n{first.stderr[-2000:]}'
    damaged = f'{cut(folder)}: ' if title == CUT else ''
    second = started(script, folder)
    if second.returncode:
        said = last_line(second.stderr).replace(f'{folder}/', '')
        return f'{damaged}the second start fails: {said}'
    found = weights(name, folder)
    if all(torch.equal(found[key], undisturbed[key]) for key in undisturbed):
        return f'{damaged}the same weights, bit for bit'
    most = max((found[key] - undisturbed[key]).abs().max() for key in undisturbed)
    return f'{damaged}other weights, by up to {most:.2g}'


def misspelt(name: str, place: Path, right: str, wrong: str) -> str:
    """What a script with a misspelt option says before its first training batch, in which it would be killed."""
    text = (HERE / f'{name}.py').read_text(encoding='utf-8')
    if text.count(right) != 1:
        sys.exit(f'{right!r} occurs {text.count(right)} times in {name}.py, expected once')
    script = place / f'{name}.py'
    script.write_text(text.replace(right, wrong), encoding='utf-8')
    result = started(script, place / 'misspelt', KILL_AT='1')
    if result.returncode in (0, -signal.SIGKILL):
        return 'trains'
    return f'refused: {last_line(result.stderr)}'


def lines(name: str) -> int:
    """The lines of a script that are neither blank nor comments."""
    texts = (HERE / f'{name}.py').read_text(encoding='utf-8').splitlines()
    return sum(bool(text.strip()) and not text.startswith(('#', '"""')) for text in texts)


def tried(name: str, place: Path) -> Iterator[tuple[str, str | int]]:
    """All tries of one script."""
    yield 'versions', ', '.join(f'{package} {metadata.version(package)}' for package in PACKAGES.get(name, ()))
    yield 'lines', lines(name)
    first = started(HERE / f'{name}.py', place / 'undisturbed')
    if first.returncode:
        sys.exit(first.stderr)
    undisturbed = weights(name, place / 'undisturbed')
    for title in TRIES if name != 'keras_fit' else ():  # job.py cannot kill the layers of Keras
        yield title, outcome(name, place / title, undisturbed, title)
    for title, (right, wrong) in zip(('optimizer', 'saves'), MISSPELT[name], strict=False):
        yield f'misspelt: {title}', misspelt(name, place, right, wrong)


def main() -> None:
    """Record what each try gives."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='+', choices=MISSPELT, help='scripts of this folder, without .py')
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as place:
            for title, value in tried(name, Path(place)):
                print(f'{name}, {title}: {value}', flush=True)
                results = json.loads(RESULTS.read_text(encoding='utf-8')) if RESULTS.exists() else {}
                results.setdefault(name, {})[title] = value
                RESULTS.write_text(json.dumps(results, indent=4) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
