"""Sequences of tokens that a seed makes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Tokens(Dataset):
    """Sequences `[length]` with the next tokens `[length]`: each token is the one before plus 0, 1 or 2.

    Args:
        number: how many sequences.
        length: tokens in one.
        seed: of the random numbers.
    """

    def __init__(self, number: int, length: int = 32, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        steps = torch.randint(3, (number, length + 1), generator=generator)
        first = torch.randint(256, (number, 1), generator=generator)
        self.tokens = (first + steps.cumsum(1)) % 256

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.tokens[index, :-1], self.tokens[index, 1:]
