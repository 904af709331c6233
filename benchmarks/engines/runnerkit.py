"""runnerkit's runners."""

from __future__ import annotations

from typing import Any

from engines import mmcv_style
from engines.job import Job

import runnerkit.runner

DISTRIBUTION = 'runnerkit'


class Step:
    job: Job

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        x, y = data
        loss = self.job.loss(self(x), y)  # type: ignore[operator]
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}


def train(job: Job, kind: str) -> None:
    mmcv_style.train(job, kind, runnerkit.runner, job.build(Step))
