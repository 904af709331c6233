"""Lightning's Trainer, with its own averages, logs to CSV files (and TensorBoard) and checkpoints."""

import logging
from pathlib import Path

import torch
from job import begun
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EMAWeightAveraging, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader


class Module(LightningModule):
    def __init__(self, job, net):
        super().__init__()
        self.job, self.net = job, net
        self.key, self.metric = job.metric() if job.metric else (None, None)

    def training_step(self, batch, batch_idx):
        loss = self.job.loss(self.net(batch[0]), batch[1])
        self.log('loss', loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self.net(x)
        self.log('val_loss', self.job.loss(out, y))
        if self.metric is not None:
            self.metric(out, y)
            self.log(self.key, self.metric)

    def configure_optimizers(self):
        optimizer = self.job.optimizer(self.net.parameters())
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.job.share(step, total))
        return {'optimizer': optimizer, 'lr_scheduler': {'scheduler': schedule, 'interval': 'step'}}


def main(name, work_dir):
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    job, work_dir = begun(name), Path(work_dir)
    seed_everything(0)
    train, val = job.data()
    module = Module(job, job.network(train))
    watched = {} if job.metric is None else {'monitor': module.key, 'mode': 'max'}
    callbacks = [ModelCheckpoint(work_dir, save_last=True, **watched), LearningRateMonitor('step')]
    if job.momentum:
        callbacks.append(EMAWeightAveraging(decay=1 - job.momentum))
    loggers = [CSVLogger(work_dir), *([TensorBoardLogger(work_dir)] if job.has_board else [])]
    trainer = Trainer(
        accelerator='cpu',
        devices=1,
        max_epochs=job.epochs,
        default_root_dir=work_dir,
        gradient_clip_val=job.clip,
        log_every_n_steps=job.log_every,
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(train, job.batch, shuffle=True), DataLoader(val, job.val_batch))
