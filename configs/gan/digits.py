"""The data of the two networks: real digits with noise for fakes, and noise alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from runnerkit.utils.imports import import_object

FOLDER = __file__.rpartition('/')[0]
Digits = import_object(f'{FOLDER}/../mnist/digits.py:Digits')


class Noise(Dataset):
    """Vectors `[size]` from a normal distribution: new ones in each epoch, and the same in each run with that seed.

    Args:
        size: of the vectors.
        length: vectors per epoch.
    """

    def __init__(self, size: int, length: int = 3500) -> None:
        self.size, self.length = size, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        return torch.randn(self.size)


class RealAndNoise(Noise):
    """The 3,500 training digits `[1, 28, 28]` in ``[-1, 1]``, each with noise `[size]` for a fake one."""

    def __init__(self, size: int) -> None:
        self.digits = Digits('train')
        super().__init__(size, len(self.digits))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return 2 * self.digits[index][0] - 1, super().__getitem__(index)
