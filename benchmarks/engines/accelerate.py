"""Accelerate: the plain loop with its wrappers around model, optimizer, loader and schedule.

Minimal: the wrappers alone. Default-like: a schedule by step, a timer by hand (it has none), its tracker every 50
iterations (one that writes JSON lines, as shown in its documentation), and its checkpoints every epoch.
"""

from __future__ import annotations

import json
import time
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from engines.job import END, LOG_EVERY, Job
from torch.optim.lr_scheduler import LinearLR

DISTRIBUTION = 'accelerate'


class JsonTracker(GeneralTracker):
    name = 'json'
    requires_logging_directory = False

    @on_main_process
    def __init__(self, path: Any) -> None:
        super().__init__()
        self.file = open(path, 'a')  # noqa: SIM115

    @property
    def tracker(self) -> Any:
        return self.file

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Not used."""

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.file.write(json.dumps({'step': step, **values}) + '\n')


def train(job: Job, kind: str) -> None:
    optimizer = job.optimizer()
    if job.default_like:
        default_like(job, optimizer)
        return
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(job.model, optimizer, job.loader)
    model.train()
    for _ in range(job.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = job.loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()


def default_like(job: Job, optimizer: Any) -> None:
    accelerator = Accelerator(cpu=True, log_with=JsonTracker(job.folder / 'log.json'))
    schedule = LinearLR(optimizer, 1.0, END, job.iterations)
    model, optimizer, loader, schedule = accelerator.prepare(job.model, optimizer, job.loader, schedule)
    accelerator.init_trackers('bench')
    model.train()
    done, began = 0, time.perf_counter()
    for epoch in range(job.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = job.loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            done += 1
            if done % LOG_EVERY == 0:
                took, began = (time.perf_counter() - began) / LOG_EVERY, time.perf_counter()
                values = {'loss': loss.item(), 'lr': schedule.get_last_lr()[0], 'time': took}
                accelerator.log(values, step=done)
        accelerator.save_state(str(job.folder / f'epoch_{epoch}'))
    accelerator.end_training()
