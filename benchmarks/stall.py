"""Measure how long training waits for a checkpoint: written at once, in the background, and by plain torch.save.

    python benchmarks/stall.py [megabytes] [rounds] [folder]

One model with its momenta (400 MB together by default) is saved by each of the four in turn, in every round. The last
line is the lower limit for saving in the background: a copy of the same tensors into existing memory. torch has one
thread; CPU seconds are those of the training thread. If they are much smaller than the wall time, other processes used
the machine, or the disk was slow.
"""

from __future__ import annotations

import itertools
import logging
import os
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

from runnerkit.runner import EpochBasedRunner

BOUND = 1.3  # a background save may take this many times as long as the copy


class Net(nn.Module):
    """Enough square layers to reach the size."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        layers = round(megabytes / 2 / 4)  # of 4 MB, each with its momentum
        self.layers = nn.ModuleList(nn.Linear(1000, 1000) for _ in range(layers))

    def train_step(self, data, optimizer):
        """Not used."""


def timed(act) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return time.perf_counter() - wall, time.thread_time() - cpu


def main(megabytes: int = 400, rounds: int = 9, folder: str | None = None) -> None:
    """Measure, and print the table."""
    logging.getLogger('runnerkit').setLevel(logging.ERROR)
    torch.set_num_threads(1)
    model = Net(megabytes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    momenta = [state['momentum_buffer'] for state in optimizer.state.values()]
    tensors = [*model.state_dict().values(), *momenta]
    buffers = [torch.zeros_like(tensor) for tensor in tensors]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=place, max_epochs=1)
        path = os.path.join(place, 'plain.pth')
        count = itertools.count()

        def save() -> None:
            runner.save_checkpoint(place, filename_tmpl=f'iter_{next(count) % 2}.pth')

        def save_async() -> None:
            runner.save(place, f'iter_{next(count) % 2}.pth', async_save=True)

        def plainly() -> None:
            torch.save({'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()}, path)

        def copy() -> None:
            torch._foreach_copy_(buffers, tensors)

        ways = {
            'torch.save': plainly,
            'runnerkit, at once': save,
            'runnerkit, in the background': save_async,
            'copy into reused buffers': copy,
        }
        copy()
        first = timed(save_async)[0]
        runner.finish_saving()
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        written = []
        for _ in range(rounds):
            for name, act in ways.items():
                seconds[name].append(timed(act))
                written.append(timed(runner.finish_saving)[0] if act is save_async else 0.0)
    size = sum(tensor.nbytes for tensor in tensors) / 1e6
    load = os.getloadavg()[0]
    print(f'{size:.0f} MB in {len(tensors)} tensors, {rounds} rounds, load {load:.1f}')
    print(f'{"stall per checkpoint":<30}{"median":>10}{"least":>10}{"most":>10}{"CPU":>10}  s')
    for name, each in seconds.items():
        walls = [wall for wall, _ in each]
        cpu = statistics.median(cpu for _, cpu in each)
        print(f'{name:<30}{statistics.median(walls):>10.3f}{min(walls):>10.3f}{max(walls):>10.3f}{cpu:>10.3f}')
    print(f'the first one in the background, which allocates: {first:.3f} s; written within {max(written):.2f} s')
    ratio = statistics.median(
        ours[0] / copied[0]
        for ours, copied in zip(
            seconds['runnerkit, in the background'], seconds['copy into reused buffers'], strict=True
        )
    )
    verdict = 'within the goal' if ratio <= BOUND else 'ABOVE THE GOAL'
    print(f'background / copy, median of the rounds: {ratio:.2f} (at most {BOUND}: {verdict})')
    sys.exit(ratio > BOUND)


if __name__ == '__main__':
    main(*(int(each) if each.isdigit() else each for each in sys.argv[1:]))
