"""The training with MMCV or runnerkit; only the import differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.job import END, Job
from torch import nn


def train(
    job: Job, kind: str, library: Any, model: nn.Module, wrapped: Callable[[nn.Module], nn.Module] = lambda model: model
) -> None:
    """Train with the runners of ``library``.

    Minimal: the optimizer hook alone. Default-like: the five default hooks: poly schedule by iteration, optimizer,
    checkpoint every epoch, timer, and a text logger, which writes the log file and a JSON file.
    """
    model.job = job  # type: ignore[assignment]
    common = {
        'model': wrapped(model),
        'optimizer': job.optimizer(),
        'work_dir': str(job.folder),
        'logger': job.logger(),
        'meta': {},
    }
    if kind == 'epoch':
        runner = library.EpochBasedRunner(**common, max_epochs=job.epochs)
    else:
        runner = library.IterBasedRunner(**common, max_iters=job.iterations)
    if job.default_like:
        runner.register_training_hooks(
            lr_config={'policy': 'poly', 'power': 1, 'min_lr': END * job.lr, 'by_epoch': False},
            optimizer_config=dict(job.optimizer_config),
            checkpoint_config={'interval': job.save_every * (1 if kind == 'epoch' else len(job.loader))},
            log_config={'interval': job.log_every, 'hooks': [{'type': 'TextLoggerHook'}]},
        )
    else:
        runner.register_optimizer_hook(dict(job.optimizer_config))
    runner.run([job.loader], [('train', 1)])
