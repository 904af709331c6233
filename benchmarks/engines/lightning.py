"""Lightning's Trainer.

Minimal: ``barebones=True``, its documented mode for measuring its overhead. Default-like: its logger to CSV
files every 50 iterations with the learning rate, its checkpoints every epoch, its timer, and a schedule by step; no
progress bar and no summary.
"""

from __future__ import annotations

import logging
from typing import Any

from engines.job import END, LOG_EVERY, Job
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, Timer
from lightning.pytorch.loggers import CSVLogger
from torch.optim.lr_scheduler import LinearLR

DISTRIBUTION = 'lightning'


class Model(LightningModule):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.net, self.job, self.loss = job.model, job, job.loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = self.loss(self.net(x), y)
        if self.job.default_like:
            self.log('loss', loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = self.job.optimizer()
        if not self.job.default_like:
            return optimizer
        schedule = LinearLR(optimizer, 1.0, END, self.job.iterations)
        return {'optimizer': optimizer, 'lr_scheduler': {'scheduler': schedule, 'interval': 'step'}}


def train(job: Job, kind: str) -> None:
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    options: dict[str, Any] = {'barebones': True}
    if job.default_like:
        options = {
            'logger': CSVLogger(str(job.folder)),
            'log_every_n_steps': LOG_EVERY,
            'callbacks': [ModelCheckpoint(str(job.folder), save_top_k=-1), Timer(), LearningRateMonitor('step')],
            'enable_progress_bar': False,
            'enable_model_summary': False,
        }
    Trainer(accelerator='cpu', devices=1, max_epochs=job.epochs, **options).fit(Model(job), job.loader)
