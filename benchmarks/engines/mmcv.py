"""MMCV 1.7.2's runners, bare (`epoch`, `iter`) and with the model in MMDataParallel, as in its tools.

In its favour, its sleep of two seconds before each epoch is switched off here.
"""

from __future__ import annotations

import sys
import time
import types
from typing import Any

sys.modules['torchvision'] = types.ModuleType('torchvision')  # imported only for URLs of models
time.sleep = lambda seconds: None

import mmcv.runner
from engines import mmcv_style
from engines.job import Job
from mmcv.parallel import MMDataParallel

DISTRIBUTION = 'mmcv'


class Step:
    job: Job

    def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        x, y = data
        loss = self.job.loss(self(x), y)  # type: ignore[operator]
        # Its log takes numbers: mmcls, mmseg and mmdet read each loss like this.
        logged = {'loss': loss.item()} if self.job.default_like else {}
        return {'loss': loss, 'log_vars': logged, 'num_samples': len(x)}


def train(job: Job, kind: str) -> None:
    unit, _, parallel = kind.partition(' ')
    wrapped = (lambda model: MMDataParallel(model, device_ids=[0])) if parallel else (lambda model: model)
    mmcv_style.train(job, unit, mmcv.runner, job.build(Step), wrapped)
