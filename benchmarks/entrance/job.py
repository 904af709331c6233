"""What every script here trains: 100 wines in 7 batches, a small network with dropout, for three epochs.

Two variables of the environment end the process with SIGKILL: ``KILL_AT=11`` in the 11th training batch (the fourth of
the second epoch), ``KILL_IN_SAVE=2`` in the second checkpoint, once its content but not its end is written.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / 'configs' / 'tabular'))
from table import wines

EPOCHS, BATCH_SIZE, LR = 3, 16, 0.01

__all__ = ['BATCH_SIZE', 'EPOCHS', 'LR', 'Net', 'wines']


class Net(nn.Sequential):
    """13 measurements give the scores of three cultivars."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(13, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
        self.batches = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += self.training
        if self.training and self.batches == int(os.environ.get('KILL_AT', 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


saves, save = 0, torch.serialization._save


def killed_save(*args: Any, **kwargs: Any) -> None:
    """Writes a checkpoint without its end, if it is the one that the environment names."""
    global saves
    saves += 1
    save(*args, **kwargs)
    if saves == int(os.environ['KILL_IN_SAVE']):
        os.kill(os.getpid(), signal.SIGKILL)


if 'KILL_IN_SAVE' in os.environ:
    torch.serialization._save = killed_save  # type: ignore[assignment]
