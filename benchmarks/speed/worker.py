"""Measure one training in a separate process; `benchmarks/bench.py` starts it in the engine's environment.

    PYTHONPATH=benchmarks python -m speed.worker '{"engine": "plain", "kind": "epoch", "folder": "/tmp", …}'

Its standard output is one line of JSON; output of the engine goes to standard error. With ``turns``, it first prints
``turn`` after each turn, and continues when it reads a line.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import torch
from engines.job import Clock, Job, points
from torch.utils.data import DataLoader, TensorDataset

MNIST = Path(__file__).resolve().parent.parent.parent / 'configs' / 'mnist'
STRETCH = 100  # iterations of the tiny job between two clock readings; also its turn
DIGITS_TURN = 50  # iterations of the other job


@dataclass
class Task:
    """The task of one process.

    Args:
        engine: a module of ``engines``.
        kind: one of its loops.
        folder: the folder for its files.
        started: the time when the process was requested, in seconds since the epoch.
        job: 'tiny', or 'digits' (configs/mnist).
        default_like: see `engines.job.Job`.
        epochs: the number of epochs.
        length: iterations per epoch of the tiny job; a multiple of `STRETCH`.
        warmup: iterations before the first that counts; a multiple of `STRETCH` and a half.
        calls: count calls of Python functions instead of measuring time.
        turns: wait for others after the start, and then after every turn.
        reference: a file with the weights that the training must end with; None: no check.
        writes_reference: write that file instead.
    """

    engine: str
    kind: str
    folder: str
    reference: str | None = None
    started: float = 0.0
    job: str = 'tiny'
    default_like: bool = False
    epochs: int = 6
    length: int = 500
    warmup: int = 250
    calls: bool = False
    turns: bool = False
    writes_reference: bool = False


def main(task: Task, output: IO[str] = sys.stdout) -> dict[str, Any]:
    """Train, and return the costs."""
    torch.set_num_threads(1)
    pause = partial(let_others, output) if task.turns else None
    job = tiny(task, pause) if task.job == 'tiny' else digits(task, pause)
    gc.collect()  # torch's import leaves a collection due, which takes 0.1 s and would count for the engine
    cpu = time.process_time()
    engine = importlib.import_module(f'engines.{task.engine}')
    import_cpu = time.process_time() - cpu
    engine.train(job, task.kind)
    cpu, wall = job.clock.now()
    if job.clock.count != job.iterations:
        raise RuntimeError(f'{task.engine} has trained {job.clock.count} iterations, not {job.iterations}')
    # The first mark is after one whole step, because torch imports parts of itself in it.
    (_, first_cpu, first_wall), (_, begin_cpu, begin_wall), *_ = job.clock.times
    return {
        'version': metadata.version(engine.DISTRIBUTION),
        'python': platform.python_version(),
        'import_cpu_s': import_cpu,
        'startup_cpu_s': first_cpu,
        'startup_wall_s': time.time() - (time.perf_counter() - first_wall) - task.started,
        'memory_mib': peak_memory(),
        'difference': difference(job, task),
        'training_cpu_s': cpu - begin_cpu,
        'training_wall_s': wall - begin_wall,
        **(per_iteration(job.clock, task) if task.job == 'tiny' else {}),
    }


def let_others(output: IO[str]) -> None:
    """Announce the end of a turn, and wait for the next."""
    print('turn', file=output, flush=True)
    if not sys.stdin.readline():
        raise EOFError('the process that gives the turns is gone')


def own_output() -> IO[str]:
    """Reserve standard output for this process's lines; engines' output, also from C, goes to standard error."""
    output = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    return output


def tiny(task: Task, pause: Callable[[], None] | None) -> Job:
    """Linear(64, 10), batches of 8."""
    last = (task.epochs - 1) * task.length + task.warmup  # the measurement has as many epoch ends as epochs
    clock = Clock(range(task.warmup, last + 1, STRETCH), task.calls, pause)
    return Job(DataLoader(points(task.length), 8), task.epochs, clock, Path(task.folder), task.default_like)


def digits(task: Task, pause: Callable[[], None] | None) -> Job:
    """The network and the data of configs/mnist, without augmentation: batches of 64 in a new order each epoch."""
    sys.path.insert(0, str(MNIST))
    from digits import PARTS, SPLIT_SEED, read
    from networks import LeNet

    images, labels = read()
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    chosen = torch.randperm(len(labels), generator=generator)[PARTS['train']]
    loader = DataLoader(TensorDataset(images[chosen], labels[chosen]), 64, shuffle=True, generator=generator)
    options = {'network': LeNet, 'lr': 0.05, 'weight_decay': 5e-4}
    clock = Clock(range(3, task.epochs * len(loader), DIGITS_TURN), pause=pause)
    return Job(loader, task.epochs, clock, Path(task.folder), task.default_like, **options)


def per_iteration(clock: Clock, task: Task) -> dict[str, float]:
    """Time per iteration, and beyond that at an epoch's end; or calls of Python functions."""
    if task.calls:
        return {'calls': clock.calls / STRETCH - 1}  # without the clock's own call
    marks = clock.times[1:]
    (first, cpu, wall), (last, last_cpu, last_wall) = marks[0], marks[-1]
    stretches = [(a[0], b[1] - a[1]) for a, b in itertools.pairwise(marks)]
    ends = [spent for begin, spent in stretches if begin // task.length != (begin + STRETCH - 1) // task.length]
    within = [spent for begin, spent in stretches if begin // task.length == (begin + STRETCH - 1) // task.length]
    return {
        'cpu_us': (last_cpu - cpu) / (last - first) * 1e6,
        'wall_us': (last_wall - wall) / (last - first) * 1e6,
        'within_us': statistics.median(within) / STRETCH * 1e6,
        'epoch_end_ms': (statistics.median(ends) - statistics.median(within)) * 1e3,
    }


def peak_memory() -> float:
    """The peak memory of this process, in MiB. Not ru_maxrss, which a process inherits from its parent."""
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1]) / 1024
    raise RuntimeError('/proc/self/status has no VmHWM: the benchmark needs Linux')


def difference(job: Job, task: Task) -> float:
    """The largest difference of a weight from the reference."""
    if task.reference is None:
        return 0.0
    weights = torch.cat([parameter.detach().flatten() for parameter in job.model.parameters()])
    if task.writes_reference:
        torch.save(weights, task.reference)
        return 0.0
    return float((weights - torch.load(task.reference)).abs().max())


if __name__ == '__main__':
    output = own_output()
    result = main(Task(**json.loads(sys.argv[1])), output)
    print(json.dumps(result), file=output)
