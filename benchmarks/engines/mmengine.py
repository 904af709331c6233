"""MMEngine's Runner with its two loops.

Minimal: all default hooks None. Default-like: its default hooks (iteration timer, logger every 50 iterations to a text
and a JSON file, schedules, checkpoint every epoch, runtime information) and a linear schedule by iteration.

In its favour, its sleep of two seconds before each pass is switched off here.
"""

from __future__ import annotations

import time
from typing import Any

from engines.job import END, LOG_EVERY, SEED, Job
from mmengine.model import BaseModel
from mmengine.runner import Runner

DISTRIBUTION = 'mmengine'
time.sleep = lambda seconds: None


class Model(BaseModel):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.net, self.loss = job.model, job.loss

    def forward(self, x: Any, y: Any, mode: str = 'tensor') -> dict[str, Any]:
        return {'loss': self.loss(self.net(x), y)}


def train(job: Job, kind: str) -> None:
    names = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')
    hooks: dict[str, Any] = dict.fromkeys(names)
    if job.default_like:
        by_epoch = kind == 'epoch'
        interval = 1 if by_epoch else len(job.loader)
        hooks = {
            'logger': {'type': 'LoggerHook', 'interval': LOG_EVERY},
            'checkpoint': {'type': 'CheckpointHook', 'interval': interval, 'by_epoch': by_epoch},
        }
    schedule = {'type': 'LinearLR', 'start_factor': 1.0, 'end_factor': END, 'by_epoch': False}
    loop = {'by_epoch': True, 'max_epochs': job.epochs}
    if kind == 'iter':
        loop = {'by_epoch': False, 'max_iters': job.iterations}
    Runner(
        model=Model(job),
        work_dir=str(job.folder),
        train_dataloader=job.loader,
        train_cfg=loop,
        optim_wrapper={'optimizer': job.optimizer()},
        param_scheduler=[{**schedule, 'end': job.iterations + 1}] if job.default_like else None,
        default_hooks=hooks,
        log_processor={'by_epoch': kind == 'epoch'},
        log_level='INFO' if job.default_like else 'ERROR',
        default_scope='mmengine',
        randomness={'seed': SEED},
        experiment_name='bench',
    ).train()
