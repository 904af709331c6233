"""A careful hand-written loop: no schedule, no log, no checkpoints, in either configuration."""

from __future__ import annotations

from engines.job import END, Job

DISTRIBUTION = 'torch'


def train(job: Job, kind: str) -> None:
    if kind == 'epoch':
        by_epoch(job)
    elif kind == 'iter':
        by_iteration(job)
    else:
        with_schedule(job)


def by_epoch(job: Job) -> None:
    model, loader, optimizer, loss_of = job.model, job.loader, job.optimizer(), job.loss
    model.train()
    for _ in range(job.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()


def by_iteration(job: Job) -> None:
    model, loader, optimizer, loss_of = job.model, job.loader, job.optimizer(), job.loss
    model.train()
    batches = iter(loader)
    for _ in range(job.iterations):
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()


def with_schedule(job: Job) -> None:
    """The default-like training: never timed, it produces the reference weights."""
    optimizer = job.optimizer()
    job.model.train()
    done = 0
    for _ in range(job.epochs):
        for x, y in job.loader:
            optimizer.param_groups[0]['lr'] = job.lr * (END + (1 - END) * (1 - done / job.iterations))
            optimizer.zero_grad()
            job.loss(job.model(x), y).backward()
            optimizer.step()
            done += 1
