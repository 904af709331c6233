"""The job of every engine: one network, one loader, one optimizer, one loss, and a clock inside the loss.

The clock is the same few bytecodes in every engine, including the plain loop, and needs no hook of an engine: between
its n-th and its m-th tick there are m - n whole iterations.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

LOG_EVERY = 50  # iterations
SEED = 1  # of random numbers in training; engines that seed by themselves get this one
END = 0.1  # the schedule of the default-like configuration falls linearly to this share of the learning rate


class Clock:
    """Records CPU time (of all threads) and wall time at some ticks, and counts Python calls between two of them.

    Args:
        marks: the ticks to record, in addition to the second. Garbage is collected before the first of them.
        calls: count the calls of Python functions between the first two marks after tick 2. Nothing else can be
            measured then.
        pause: called at each of ``marks``. Its time is subtracted from all times, including the work of other threads
            meanwhile: background work of an engine would not be counted (no engine here does any).
    """

    def __init__(self, marks: Iterable[int], calls: bool = False, pause: Callable[[], None] | None = None) -> None:
        self.count = self.calls = 0
        self.times: list[tuple[int, float, float]] = []
        self.paused_cpu = self.paused_wall = 0.0
        self._counting = calls
        self._pause = pause
        ordered = sorted({2, *marks})
        self.last = ordered[-1]
        self._marks = iter(ordered)
        self._due = next(self._marks)

    def tick(self) -> None:
        self.count += 1
        if self.count == self._due:
            if len(self.times) == 1:
                gc.collect()  # garbage of imports takes 0.1 s, and would fall into a random measurement
            self.times.append((self.count, *self.now()))
            self._due = next(self._marks, 0)
            if self._pause is not None and len(self.times) > 1:
                cpu, wall = time.process_time(), time.perf_counter()
                self._pause()
                self.paused_cpu += time.process_time() - cpu
                self.paused_wall += time.perf_counter() - wall
            if self._counting and len(self.times) in (2, 3):
                sys.setprofile(self._call if len(self.times) == 2 else None)

    def now(self) -> tuple[float, float]:
        """CPU and wall time, without the pauses."""
        return time.process_time() - self.paused_cpu, time.perf_counter() - self.paused_wall

    def _call(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event == 'call'


class Net(nn.Module):
    """The network of the tiny job."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def points(length: int, batch: int = 8) -> TensorDataset:
    """``length`` batches of random points of random classes."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch * length, 64, generator=generator)
    return TensorDataset(x, torch.randint(10, (batch * length,), generator=generator))


@dataclass
class Job:
    """One training.

    Args:
        loader: yields pairs (input, class).
        epochs: passes over it.
        clock: ticks once per iteration.
        folder: the folder for the engine's files.
        default_like: with a schedule, a timer, a log and checkpoints; otherwise without everything optional.
        network: the class of the model.
        lr: the learning rate of SGD with momentum 0.9.
        weight_decay: the weight decay of SGD.
        adamw: arguments of AdamW; None uses SGD.
        optimizer_config: the section of that name, for runners of MMCV's style.
        log_every: iterations between two of their log lines.
        save_every: epochs between two of their checkpoints.
    """

    loader: DataLoader[Any]
    epochs: int
    clock: Clock
    folder: Path
    default_like: bool = False
    network: Callable[[], nn.Module] = Net
    lr: float = 0.01
    weight_decay: float = 0.0
    adamw: dict[str, Any] | None = None
    optimizer_config: dict[str, Any] = field(default_factory=dict)
    log_every: int = LOG_EVERY
    save_every: int = 1
    model: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.build()

    def build(self, *steps: type) -> nn.Module:
        """The model with its initial weights, and with the methods of ``steps`` for engines that need them there."""
        torch.manual_seed(0)
        self.model = type('Model', (*steps, self.network), {})() if steps else self.network()
        torch.manual_seed(SEED)  # whatever random numbers the initial weights used
        return self.model

    @property
    def iterations(self) -> int:
        return self.epochs * len(self.loader)

    def optimizer(self) -> Optimizer:
        if self.adamw is not None:
            return AdamW(self.model.parameters(), lr=self.lr, **self.adamw)
        return SGD(self.model.parameters(), lr=self.lr, momentum=0.9, weight_decay=self.weight_decay)

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        self.clock.tick()
        return cross_entropy(logits, classes)

    def logger(self) -> logging.Logger:
        """Writes only to a file, because consoles differ."""
        logger = logging.getLogger('bench')
        logger.setLevel(logging.INFO if self.default_like else logging.ERROR)
        logger.propagate = False
        logger.addHandler(logging.FileHandler(self.folder / 'run.log'))
        logger.handlers[0].setFormatter(logging.Formatter('%(asctime)s - %(name)s - %(levelname)s - %(message)s'))
        return logger
