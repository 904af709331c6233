"""Ignite's Engine, as create_supervised_trainer builds it.

Minimal: no handlers, and the loss is not read. Default-like: a schedule by iteration, a timer of iterations, a log file
every 50 iterations, and its checkpoints every epoch.
"""

from __future__ import annotations

from typing import Any

from engines.job import END, LOG_EVERY, Job
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, PiecewiseLinear, Timer

DISTRIBUTION = 'pytorch-ignite'


def train(job: Job, kind: str) -> None:
    optimizer = job.optimizer()
    trainer = create_supervised_trainer(
        job.model, optimizer, job.loss, output_transform=lambda x, y, y_pred, loss: loss.detach()
    )
    if job.default_like:
        add_handlers(job, trainer, optimizer)
    trainer.run(job.loader, max_epochs=job.epochs)


def add_handlers(job: Job, trainer: Engine, optimizer: Any) -> None:
    schedule = PiecewiseLinear(optimizer, 'lr', [(0, job.lr), (job.iterations, END * job.lr)])
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    timer = Timer(average=True)
    timer.attach(
        trainer, start=Events.EPOCH_STARTED, resume=Events.ITERATION_STARTED, pause=Events.ITERATION_COMPLETED,
        step=Events.ITERATION_COMPLETED,
    )  # fmt: skip
    logger = job.logger()

    @trainer.on(Events.ITERATION_COMPLETED(every=LOG_EVERY))
    def log(engine: Engine) -> None:
        state = engine.state
        lr = optimizer.param_groups[0]['lr']
        logger.info(
            f'[{state.epoch}][{state.iteration}] lr: {lr:.3e}, time: {timer.value():.4f}, loss: {state.output:.4f}'
        )

    parts = {'model': job.model, 'optimizer': optimizer, 'trainer': trainer}
    saver = DiskSaver(str(job.folder), require_empty=False)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(parts, saver, n_saved=None))
