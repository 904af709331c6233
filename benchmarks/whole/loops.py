"""The CPU seconds of a plain loop's epochs, and of the same ones with `runnerkit.loop`, in turns in one process.

    python benchmarks/whole/loops.py [tiny] [lenet] [--rounds 40]

``silent`` is `runnerkit.loop` without ``run.log``. Nothing is saved. The first epoch of each is not counted.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / 'configs' / 'mnist'))

import torch
from digits import Digits
from networks import LeNet
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import runnerkit

KINDS = ('plain', 'loop', 'silent')


def tiny():
    """A network that costs nearly nothing, and its batches."""
    data = TensorDataset(torch.randn(1600, 16), torch.randint(4, (1600,)))
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return net, DataLoader(data, batch_size=16, shuffle=True)


def lenet():
    """LeNet and real digits."""
    data = Digits('train')
    return LeNet(), DataLoader(TensorDataset(data.images, data.labels), batch_size=64, shuffle=True)


def epochs(job, kind, rounds, work_dir):
    """Give the CPU seconds of one epoch after another."""
    torch.manual_seed(0)
    net, loader = job()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    run = None
    if kind != 'plain':
        run = runnerkit.loop(work_dir, model=net, optimizer=optimizer, seed=0, checkpoint_config=None)
    for _ in range(rounds + 1) if run is None else run.epochs(rounds + 1):
        began = time.process_time()
        for x, y in loader if run is None else run.batches(loader):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if kind == 'loop':
                run.log(loss=loss)
        yield time.process_time() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('jobs', nargs='*', help='tiny, lenet')
    parser.add_argument('--rounds', type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for job in (tiny, lenet):
        if job.__name__ in (options.jobs or ('tiny', 'lenet')):
            with tempfile.TemporaryDirectory() as folder:
                ways = {kind: epochs(job, kind, options.rounds, f'{folder}/{kind}') for kind in KINDS}
                seen = {kind: [] for kind in KINDS}
                for _ in range(options.rounds + 1):
                    for kind in random.sample(KINDS, len(KINDS)):
                        seen[kind].append(next(ways[kind]))
                for kind in KINDS:
                    ratios = sorted(a / b for a, b in list(zip(seen[kind], seen['plain'], strict=True))[1:])
                    row = {'job': f'{job.__name__} loop', 'way': kind}
                    row['cpu of an epoch'] = round(statistics.median(seen[kind][1:]), 4)
                    row |= {'ratio': round(statistics.median(ratios), 3)}
                    quarter = len(ratios) // 4
                    row |= {'middle half': [round(ratios[quarter], 3), round(ratios[-1 - quarter], 3)]}
                    print(json.dumps(row), flush=True)
                for kind in KINDS:
                    ways[kind].close()


if __name__ == '__main__':
    main()
