"""Measure communication by number of ranks: collectives, bytes and CPU time of one rank, and the data of a save.

    python benchmarks/ranks.py [iterations] [rounds]

The process is rank 0 of 1, 8, 64 and 1,024, in torch's fake process group: every call is made, without peers. The
model is small and has no wrapper, so the all-reduce of the gradients is not included. Counts are of the whole run. CPU
time is that of the process over the iterations of one epoch except the first ten, the least of the rounds. Bytes are
those of the tensors that this rank passes to collectives.

The second table has the pickled data that each other rank sends to rank 0 at a save. Rank 0 keeps them once for each
rank.
"""

from __future__ import annotations

import gc
import logging
import math
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers the backend
from torch.utils.data import Dataset

from runnerkit.data import build_dataloader
from runnerkit.hooks import EMAHook, Hook
from runnerkit.runner import IterBasedRunner

RANKS = (1, 8, 64, 1024)
COLLECTIVES = ('all_reduce', 'broadcast', 'all_gather', 'gather', 'reduce', 'scatter', 'barrier')
BATCH = 4
INTERVAL = 10  # iterations between two log lines


class Points(Dataset):
    """Enough for an epoch of 250 iterations on the most ranks."""

    def __len__(self) -> int:
        return max(RANKS) * BATCH * 250

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4,), i / len(self)), torch.zeros(1)


class Net(nn.Module):
    """Layers that a step can train.

    Args:
        widths: of the layers.
        norms: whether a BatchNorm, which has buffers, follows each.
    """

    def __init__(self, widths: tuple[int, ...] = (4, 8, 1), norms: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norms else [])]
        self.layers = nn.Sequential(*layers)

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """The mean squared error."""
        x, y = data
        loss = nn.functional.mse_loss(self.layers(x), y)
        return {'loss': loss, 'log_vars': {'loss': loss, 'error': loss.sqrt()}, 'num_samples': len(x)}


@contextmanager
def joined(world_size: int, rank: int = 0) -> Iterator[None]:
    """Be a rank of a group without other processes; a single process joins none."""
    if world_size > 1:
        # A real store, which the agreement on stopping reads.
        store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)
        dist.init_process_group('fake', store=store, rank=rank, world_size=world_size)
    try:
        yield
    finally:
        if world_size > 1:
            dist.destroy_process_group()


@contextmanager
def counted() -> Iterator[list[tuple[int, str]]]:
    """Count the collectives: the bytes and name of each one, in order.

    torch's collectives of objects count as their underlying collectives.
    """
    calls: list[tuple[int, str]] = []
    originals = {name: getattr(distributed_c10d, name) for name in COLLECTIVES}

    def counting(name: str, call: Any) -> Any:
        def collective(*args: Any, **kwargs: Any) -> Any:
            tensors = [each for value in (*args, *kwargs.values()) for each in _tensors(value)]
            calls.append((sum(tensor.nbytes for tensor in tensors), name))
            return call(*args, **kwargs)

        return collective

    try:
        for name, call in originals.items():
            for module in (dist, distributed_c10d):
                setattr(module, name, counting(name, call))
        yield calls
    finally:
        for name, call in originals.items():
            for module in (dist, distributed_c10d):
                setattr(module, name, call)


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls of Python functions in this thread; the list's one number."""
    number = [0]

    def count(frame: Any, event: str, arg: Any) -> None:
        number[0] += event == 'call'

    sys.setprofile(count)
    try:
        yield number
    finally:
        sys.setprofile(None)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else []  # a list contains the data of other ranks


def runner_of(model: nn.Module, work_dir: str, iterations: int, **options: Any) -> IterBasedRunner:
    """A runner with the hooks of an ordinary config, except checkpoints, which have a separate table."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    logger = logging.getLogger('benchmarks.ranks')
    logger.setLevel(logging.ERROR)
    runner = IterBasedRunner(model, optimizer=optimizer, work_dir=work_dir, logger=logger, max_iters=iterations)
    loggers = [{'type': 'TextLoggerHook'}, {'type': 'TextLoggerHook'}]
    runner.register_training_hooks(
        {'policy': 'step', 'step': [1000]},
        {'grad_clip': {'max_norm': 10.0}, **options},
        None,
        {'interval': INTERVAL, 'hooks': loggers},
    )
    return runner


def train(world_size: int, iterations: int) -> tuple[float, list[tuple[int, str]]]:
    """Train as rank 0 of this many ranks.

    Returns:
        CPU seconds of the iterations except the first ten, and the collectives of all of them.
    """
    with joined(world_size), tempfile.TemporaryDirectory() as folder, counted() as calls:
        runner = runner_of(Net(), folder, iterations)
        loader = build_dataloader(Points(), BATCH, 0, seed=1, dist=world_size > 1)
        began: list[float] = []
        step = runner.run_iter

        def run_iter(*args: Any, **kwargs: Any) -> None:
            if runner.iter == INTERVAL:
                began.append(time.process_time())
            step(*args, **kwargs)

        runner.run_iter = run_iter
        runner.run([loader], [('train', 1)])
        return time.process_time() - began[0], calls


class Saves(Hook):
    """Records the data that its rank would send at a save after some iterations, and stops there."""

    def __init__(self, iterations: int) -> None:
        self.iterations, self.size = iterations, 0

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter + 1 == self.iterations:
            self.size = len(pickle.dumps(runner.snapshots.saver.rank_state()))


def gathered(model: nn.Module, iterations: int, accumulation: int = 1) -> int:
    """Bytes that a rank sends to rank 0 at a save after some iterations, also with averaged weights."""
    with joined(2, rank=1), tempfile.TemporaryDirectory() as folder:
        runner = runner_of(model, folder, iterations + accumulation, cumulative_iters=accumulation)
        saves = Saves(iterations)
        runner.register_hook(EMAHook())
        runner.register_hook(saves, 'LOWEST')
        runner.run([build_dataloader(Points(), BATCH, 0, seed=1, dist=True)], [('train', 1)])
        return saves.size


def main(iterations: int = 200, rounds: int = 7) -> None:
    """Measure, and print both tables."""
    torch.set_num_threads(1)
    print('| ranks | collectives | bytes of all | Python calls an iteration | CPU µs an iteration |')
    print('|---|---|---|---|---|')
    seconds = dict.fromkeys(RANKS, math.inf)
    for turn in range(rounds):  # in turn, since other programs may use the machine for a while
        for ranks in RANKS[:: 1 - turn % 2 * 2]:
            gc.collect()
            took, _ = train(ranks, iterations)
            seconds[ranks] = min(seconds[ranks], took)
    for ranks in RANKS:
        with counted_calls() as python:
            found = train(ranks, iterations)[1]
        micros = seconds[ranks] / (iterations - INTERVAL) * 1e6
        size, calls = sum(size for size, _ in found), python[0] / iterations
        print(f'| {ranks:,} | {len(found)} | {size:,} | {calls:.0f} | {micros:.0f} |')
    print('\n| what each rank sends at a save | bytes | of that for each parameter |\n|---|---|---|')
    small, large = Net(), Net((4, 1000, 1000, 1))
    parameters = sum(each.numel() for each in large.parameters())
    base = gathered(small, 600)
    for name, model, cycle in (
        ('a small model, 600 iterations', small, 1),
        (f'{parameters:,} parameters', large, 1),
        (f'{parameters:,} parameters, within an accumulation cycle', large, 7),
    ):
        size = gathered(model, 600, cycle)
        print(f'| {name} | {size:,} | {max(0, size - base) / parameters:.1f} |')


if __name__ == '__main__':
    main(*map(int, sys.argv[1:]))
