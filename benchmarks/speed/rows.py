"""Compare runnerkit with the plain loop in detail: one process per row, in which the variants take turns.

    PYTHONPATH=benchmarks python -m speed.rows clipping '{"rounds": 5, "folder": "/tmp/…"}'

Its standard output is one line of JSON: CPU microseconds per iteration of each variant, in every round, unless a
row says otherwise.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from engines import mmcv_style, plain
from engines.job import Clock, Job, points
from engines.runnerkit import Step
from speed.worker import own_output
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

import runnerkit.runner
from runnerkit.data import build_dataloader

SHORT = 10  # iterations of a short epoch
Ways = dict[str, Callable[[Clock, Path], None]]


@dataclass
class Options:
    """The settings of a row's measurement.

    Args:
        folder: the folder for files of runs.
        rounds: turns of each variant.
        warmup: iterations before the measurement.
        measured: measured iterations.
        long: iterations of the long run.
    """

    folder: str
    rounds: int = 5
    warmup: int = 100
    measured: int = 1000
    long: int = 1_000_000


class Chain(nn.Module):
    """Many modules in sequence, and the tiny job's classifier at their end."""

    def __init__(self, links: Iterable[nn.Module]) -> None:
        super().__init__()
        self.links = nn.Sequential(*links, nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.links(x)


class LinearChain(Chain):
    """Layers that keep the scale of their input."""

    length = 1

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64) for _ in range(self.length - 1))


class IdentityChain(Chain):
    """As many modules without arithmetic."""

    length = 200

    def __init__(self) -> None:
        super().__init__(nn.Identity() for _ in range(self.length - 1))


def of_length(kind: type, length: int) -> type:
    """``kind`` of ``length`` links."""
    return type(kind.__name__, (kind,), {'length': length})


# --- the ways --------------------------------------------------------------------------------------------------------


def job(clock: Clock, folder: Path, length: int = 500, **options: Any) -> Job:
    """The tiny job with ``options`` and epochs of ``length`` iterations, long enough for the clock."""
    epoch = min(length, clock.last)
    return Job(DataLoader(points(epoch), 8), -(-clock.last // epoch), clock, folder, **options)


def by_hand(clock: Clock, folder: Path, kind: str = 'epoch', **options: Any) -> None:
    plain.train(job(clock, folder, **options), kind)


def by_hand_clipping(clock: Clock, folder: Path, **options: Any) -> None:
    made = job(clock, folder, **options)
    model, optimizer, parameters = made.model, made.optimizer(), list(made.model.parameters())
    model.train()
    for _ in range(made.epochs):
        for x, y in made.loader:
            optimizer.zero_grad()
            made.loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()


def by_runner(clock: Clock, folder: Path, kind: str = 'epoch', default_like: bool = True, **options: Any) -> None:
    made = job(clock, folder, default_like=default_like, **options)
    mmcv_style.train(made, kind, runnerkit.runner, made.build(Step))


def take_turns(ways: Ways, options: Options, rounds: int = 1, share: float = 1.0) -> dict[str, list[float]]:
    """CPU microseconds per iteration, of each variant in every round; the order of the variants rotates.

    Args:
        ways: the variants.
        options: the settings.
        rounds: a factor for the rounds of ``options``, for short iterations.
        share: a factor for its iterations, for long ones.
    """
    spent: dict[str, list[float]] = {name: [] for name in ways}
    names, measured = list(ways), int(options.measured * share)
    for turn in range(options.rounds * rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            clock = Clock([options.warmup, options.warmup + measured])
            with scratch(options) as folder:
                ways[name](clock, folder)
            (_, begin, _), (_, end, _) = clock.times[-2:]
            spent[name].append((end - begin) / measured * 1e6)
    return spent


@contextlib.contextmanager
def scratch(options: Options) -> Iterator[Path]:
    """A folder for one run, and its log file closed afterwards."""
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    yield folder
    logger = logging.getLogger('bench')
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    shutil.rmtree(folder)


# --- the rows --------------------------------------------------------------------------------------------------------


def loops(options: Options) -> dict[str, Any]:
    """The tiny job again: both loops, both configurations."""
    ways: Ways = {}
    for kind in ('epoch', 'iter'):
        ways[f'plain, {kind}'] = partial(by_hand, kind=kind)
        ways[f'runnerkit minimal, {kind}'] = partial(by_runner, kind=kind, default_like=False)
        ways[f'runnerkit default-like, {kind}'] = partial(by_runner, kind=kind)
    return take_turns(ways, options, rounds=3)


def epoch_end(options: Options) -> dict[str, Any]:
    """Milliseconds between two epochs, without log lines and checkpoints: by how much the median iteration across their
    border is longer than the median one within."""
    ways: Ways = {
        'plain': partial(by_hand, length=SHORT),
        'runnerkit': partial(by_runner, length=SHORT, log_every=10**9, save_every=10**9),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            clock = Clock(range(options.warmup, options.warmup + options.measured + 1))
            with scratch(options) as folder:
                ways[name](clock, folder)
            took: dict[bool, list[float]] = {True: [], False: []}  # by whether the second tick is an epoch's first
            for (_, before, _), (count, after, _) in itertools.pairwise(clock.times[1:]):
                took[count % SHORT == 1].append(after - before)
            spent[name].append((median(took[True]) - median(took[False])) * 1e3)
    return spent


def modules(options: Options) -> dict[str, Any]:
    """From 1 to 200 modules."""
    ways: Ways = {}
    for kind, length in ((LinearChain, 1), (LinearChain, 200), (IdentityChain, 200)):
        network = of_length(kind, length)
        ways[f'plain, {length} {kind.__name__}'] = partial(by_hand, network=network)
        ways[f'runnerkit, {length} {kind.__name__}'] = partial(by_runner, network=network)
    return take_turns(ways, options, share=0.2)


def log_event(options: Options) -> dict[str, Any]:
    """A line in every iteration, and none at all."""
    ways: Ways = {
        'plain': by_hand,
        'never': partial(by_runner, log_every=10**9),
        'always': partial(by_runner, log_every=1),
    }
    return take_turns(ways, options, rounds=2)


def adamw(options: Options) -> dict[str, Any]:
    """Default AdamW by hand; fused, by hand and by one line of a config; for a small and a longer network."""
    ways: Ways = {}
    for length in (1, 92):
        network = of_length(LinearChain, length)
        ways[f'plain, {length}'] = partial(by_hand, network=network, adamw={})
        ways[f'plain fused, {length}'] = partial(by_hand, network=network, adamw={'fused': True})
        ways[f'runnerkit fused, {length}'] = partial(by_runner, network=network, adamw={'fused': True})
    return take_turns(ways, options, share=0.2)


def clipping(options: Options) -> dict[str, Any]:
    """Gradients of 184 parameters clipped by their norm."""
    network = of_length(LinearChain, 92)
    return take_turns(
        {
            'plain': partial(by_hand_clipping, network=network),
            'runnerkit': partial(by_runner, network=network, optimizer_config={'grad_clip': {'max_norm': 1.0}}),
        },
        options,
        share=0.2,
    )


class Own(Dataset[Any]):
    """A user's data set: it is unknown that it draws nothing."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def loading(options: Options) -> dict[str, Any]:
    """A pass over a data set, microseconds per batch: torch's loader, and the loader that seeds each sample."""
    spent: dict[str, list[float]] = {}
    for batch in (8, 32, 128):
        dataset = Own(points(options.measured, batch))
        loaders = {
            f'plain, {batch}': DataLoader(dataset, batch, shuffle=True),
            f'runnerkit, {batch}': build_dataloader(dataset, batch, 0, shuffle=True, seed=0),
        }
        for loader in loaders.values():  # the first pass imports
            next(iter(loader))
        gc.collect()
        for turn in range(options.rounds):
            for name, loader in list(loaders.items())[:: 1 if turn % 2 else -1]:
                begin = time.process_time()
                for _ in loader:
                    pass
                spent.setdefault(name, []).append((time.process_time() - begin) / len(loader) * 1e6)
    return spent


class Nothing(nn.Linear):
    """A step without arithmetic, which records time and memory.

    Args:
        marks: the steps to record.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        super().__init__(1, 1)
        self.output = {'loss': torch.zeros(()), 'log_vars': {'loss': torch.zeros(())}, 'num_samples': 1}
        self.marks = iter(marks)
        self.due = next(self.marks)
        self.count = 0
        self.seen: list[tuple[int, float, float]] = []

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        self.count += 1
        if self.count == self.due:
            self.seen.append((self.count, time.process_time(), memory()))
            self.due = next(self.marks, 0)
        return self.output


def long_run(options: Options) -> dict[str, Any]:
    """An empty step with schedule, timer and log, in a long run: is the millionth step as fast as the thousandth?"""
    result: dict[str, Any] = {}
    first, window = 1000, min(10_000, options.long // 4)
    marks = sorted({first, first + window, options.long // 10, options.long - window, options.long})
    for kind in ('EpochBasedRunner', 'IterBasedRunner'):
        with scratch(options) as folder:
            model = Nothing(marks)
            batches = [torch.zeros(1)] * 1000
            limit = {'max_epochs': options.long // 1000} if kind[0] == 'E' else {'max_iters': options.long}
            made = Job(DataLoader(points(1)), 1, Clock([]), folder, default_like=True)
            runner = getattr(runnerkit.runner, kind)(
                model, optimizer=SGD(model.parameters(), lr=1), work_dir=folder, logger=made.logger(), **limit
            )
            runner.register_training_hooks(
                lr_config={'policy': 'poly', 'by_epoch': False},
                log_config={'interval': 50, 'hooks': [{'type': 'TextLoggerHook'}]},
            )
            runner.run([batches], [('train', 1)])
        at = {count: (cpu, mib) for count, cpu, mib in model.seen}
        result[kind] = {
            'iterations': options.long,
            'first_us': (at[first + window][0] - at[first][0]) / window * 1e6,
            'last_us': (at[options.long][0] - at[options.long - window][0]) / window * 1e6,
            'grown_mib': at[options.long][1] - at[first][1],
            'grown_last_nine_tenths_mib': at[options.long][1] - at[options.long // 10][1],
        }
    return result


def memory() -> float:
    """The current memory of this process, in MiB."""
    return int(Path('/proc/self/statm').read_text().split()[1]) * 4096 / 2**20


ROWS = {row.__name__: row for row in (loops, epoch_end, modules, log_event, adamw, clipping, loading, long_run)}


if __name__ == '__main__':
    torch.set_num_threads(1)
    output = own_output()
    row = ROWS[sys.argv[1]](Options(**json.loads(sys.argv[2])))
    print(json.dumps(row), file=output)
