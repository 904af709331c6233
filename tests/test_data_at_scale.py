"""A data set of a billion samples costs what a small one does: nowhere is there a list of all of them."""

import json
import multiprocessing
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

LENGTH = 10**9

#: MiB by which a process may grow. A list of all indices takes 7,629.
MOST = 100

#: What all workers of a process have held at most, in MiB.
WORKERS_PEAK = multiprocessing.Value('d', 0.0)

CONFIG = """
model = dict(
    type='Supervised',
    model=[dict(type='Linear', in_features=2, out_features=1)],
    loss=dict(type='MSELoss'),
)
data = dict(
    samples_per_gpu=4, workers_per_gpu=2, train=dict(type='test_data_at_scale.Billion', length={length}, forward=True)
)
optimizer = dict(type='SGD', lr=0.1)
runner = dict(type='IterBasedRunner', max_iters={iters})
checkpoint_config = dict(interval=2)
log_config = dict(interval=1)
seed = 3
"""


def peak():
    """The most memory that this process has held so far, in MiB."""
    (line,) = (line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM'))
    return int(line.split()[1]) / 1024


class Billion(Dataset):
    """A sample is its index; the worker that makes it notes its peak."""

    def __init__(self, length=LENGTH, forward=False):
        self.length = length
        self.forward = forward

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.forward:
            return torch.tensor([index / LENGTH, 1.0]), torch.zeros(1)
        WORKERS_PEAK.value = max(WORKERS_PEAK.value, peak())
        return torch.tensor(index)


def read():
    """What many ways to read cost: by name, the indices and by how many MiB this process and its workers have grown."""
    from runnerkit.data import build_dataloader
    from runnerkit.data.reader import Reader, epoch_batches

    # What is loaded once belongs to nobody.
    for workers in (0, 2):
        torch.cat([*build_dataloader(Billion(100), 4, workers, seed=3)])
    before, found = peak(), {}
    ways = {
        'usual': {},
        'in order': {'shuffle': False, 'round_up': False},
        'dropped': {'drop_last': True},
        'limited': {'max_batches': 10**8 - 7},
        "torch's loader": {'seeded': False},
        'batch sampler': {'batch_sampler': {'type': 'BatchSampler'}},
    }
    for name, options in ways.items():
        for world_size, workers in ((1, 0), (3, 0), (1, 2), (3, 2)):
            if name != 'usual' and (world_size, workers) != (3, 0):
                continue
            loader = build_dataloader(Billion(), 4, workers, seed=3, ranks=(world_size - 1, world_size), **options)
            reader = Reader(loader)
            batches = [*islice(reader.batches(1), 3)]
            start = 0 if name == 'batch sampler' else len(loader) - 9
            if start:
                assert 9 <= len([*islice(epoch_batches(loader, 1, start), 20)]) <= 10
            state = reader.state_dict(2)
            reader = Reader(loader)
            reader.load_state_dict(state)
            again = next(reader.batches(1))
            assert name == 'batch sampler' or torch.equal(again, batches[2])
            found[f'{name}, {world_size} ranks, {workers} workers'] = max(peak(), WORKERS_PEAK.value) - before
    return found


def train(folder):
    """By how many MiB a training and its continuation grow over the same with few samples."""
    from runnerkit.cli.train import main

    peaks = []
    for length, iters in ((100, 2), (LENGTH, 2), (LENGTH, 4)):
        config = Path(folder) / f'of_{length}_{iters}.py'
        config.write_text(CONFIG.format(length=length, iters=iters))
        assert main([str(config), '--work-dir', f'{folder}/{length}', '--device', 'cpu', '--auto-resume']) == 0
        peaks.append(peak())
    return {'training': peaks[-1] - peaks[0]}


@pytest.mark.thorough  # tests/data/test_permutation.py
def test_a_billion_samples_are_read_and_trained_on_in_little_memory(tmp_path):
    code = f'import json, test_data_at_scale as it; print(json.dumps([it.read(), it.train({str(tmp_path)!r})]))'
    run = subprocess.run(
        [sys.executable, '-c', code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    read_, trained = json.loads(run.stdout.splitlines()[-1])
    assert len(read_) == 9
    assert {name: grown for name, grown in {**read_, **trained}.items() if grown > MOST} == {}
