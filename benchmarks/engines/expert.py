"""The loop by hand again, by an expert who needs exactly the work of the default hooks.

Minimal: the plain loop. Default-like: runnerkit's learning rates, times, log lines (text and JSON) and checkpoints, at
the same iterations. Losses stay on their device between two log lines. Passes are whole, as in the jobs, so one loop
serves both kinds, which differ in the counters of lines and files.
"""

from __future__ import annotations

import json
import os
import random
import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from engines import plain
from engines.job import END, Job
from torch import Tensor
from torch.optim import Optimizer

DISTRIBUTION = 'torch'


def train(job: Job, kind: str) -> None:
    if job.default_like:
        default_like(job, by_epoch=kind == 'epoch')
    else:
        plain.train(job, kind)


def default_like(job: Job, by_epoch: bool) -> None:
    model, loader, optimizer, loss_of = job.model, job.loader, job.optimizer(), job.loss
    total, interval, lowest, falling = job.iterations, job.log_every, END * job.lr, job.lr - END * job.lr
    log = Log(job, optimizer, by_epoch)
    add_loss, add_size, add_wait, add_time = (each.append for each in (log.losses, log.sizes, log.waits, log.times))
    model.train()
    done, began = 0, time.time()
    for epoch in range(1, job.epochs + 1):
        if by_epoch:
            log.clear()
            began = time.time()
        for inner, (x, y) in enumerate(loader, 1):
            add_wait(time.time() - began)
            lr = falling * (1 - done / total) + lowest
            for group in optimizer.param_groups:
                group['lr'] = lr
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            done += 1
            add_loss(loss.detach())
            add_size(x.size(0))
            now = time.time()
            add_time(now - began)
            began = now
            if (inner if by_epoch else done) % interval == 0:
                log.write(epoch, inner, done)
        log.logger.info('Saving checkpoint at %s', f'{epoch} epochs' if by_epoch else f'{done} iterations')
        save(job, optimizer, f'epoch_{epoch}.pth' if by_epoch else f'iter_{done}.pth', epoch, done)


class Log:
    """The values since the last log line, and the log files."""

    def __init__(self, job: Job, optimizer: Optimizer, by_epoch: bool) -> None:
        self.job, self.optimizer, self.by_epoch = job, optimizer, by_epoch
        self.losses: list[Tensor] = []
        self.sizes: list[int] = []
        self.waits: list[float] = []
        self.times: list[float] = []
        self.logger = job.logger()
        self.file = open(job.folder / 'log.json', 'a', encoding='utf-8')  # noqa: SIM115 (open for the whole run)
        self.started = time.monotonic()

    def write(self, epoch: int, inner: int, done: int) -> None:
        """Write a line of text and one of JSON with the averages, and reset them."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        losses = torch.stack(self.losses).cpu().double()  # the only wait for the device
        loss = float((losses * sizes).sum() / sizes.sum())
        wait, took = sum(self.waits) / len(self.waits), sum(self.times) / len(self.times)
        lr, total = self.optimizer.param_groups[0]['lr'], self.job.iterations
        left = timedelta(seconds=int((time.monotonic() - self.started) / done * (total - done)))
        place = f'Epoch [{epoch}][{inner}/{len(self.job.loader)}]' if self.by_epoch else f'Iter [{done}/{total}]'
        self.logger.info(
            '%s\tlr: %.3e, eta: %s, time: %.3f, data_time: %.3f, loss: %.4f', place, lr, left, took, wait, loss
        )
        line = {'mode': 'train', 'epoch': epoch, 'iter': inner if self.by_epoch else done, 'step': done, 'lr': lr}
        times = {'data_time': wait, 'time': took, 'timestamp': round(time.time(), 3)}
        self.file.write(json.dumps({**line, 'loss': loss, **times}) + '\n')
        self.file.flush()
        self.clear()

    def clear(self) -> None:
        for values in (self.losses, self.sizes, self.waits, self.times):
            values.clear()


def save(job: Job, optimizer: Optimizer, name: str, epoch: int, done: int) -> None:
    """Write everything that a resume needs; the file is complete or missing, even after a power failure."""
    generator = job.loader.generator
    checkpoint: dict[str, Any] = {
        'epoch': epoch,
        'iter': done,
        'state_dict': job.model.state_dict(),
        'optimizer': optimizer.state_dict(),
        'rng': {
            'python': random.getstate(),
            'numpy': np.random.get_state(),
            'torch': torch.get_rng_state(),
            'cuda': torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            'loader': None if generator is None else generator.get_state(),
        },
    }
    temporary = job.folder / f'.{name}.tmp'
    with open(temporary, 'wb') as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, job.folder / name)
    link = job.folder / '.latest.pth.tmp'
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    os.replace(link, job.folder / 'latest.pth')
    folder = os.open(job.folder, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
