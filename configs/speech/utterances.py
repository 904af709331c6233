"""640 utterances of two Japanese vowels by nine men (Kudo et al. 1999), shipped in the package aeon."""

from __future__ import annotations

from functools import cache
from importlib import metadata

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

FILE = 'aeon/datasets/data/JapaneseVowels/JapaneseVowels_{}.ts'
SPEAKERS = 9


class Utterances(Dataset):
    """Utterances `[frames, 12]` (12 LPC cepstrum coefficients in each of 7 to 29 frames) and their speakers, 0 to 8.

    Coefficients are normalised with mean and deviation over all frames of the training utterances.

    Args:
        part: 'train' (270 utterances) or 'test' (370).
        fold: leave out every fifth training utterance, beginning with this one (0 to 4), or keep only these
            (``'only 0'``). Use it to choose settings without the test utterances. None: keep all.
    """

    def __init__(self, part: str, fold: int | str | None = None) -> None:
        if part not in ('train', 'test'):
            raise ValueError(f"part={part!r} is neither 'train' nor 'test'")
        frames = torch.cat([utterance for utterance, _ in read('train')])
        self.mean, self.deviation = frames.mean(0), frames.std(0)
        self.items = read(part)
        if fold is not None:
            left, only = int(str(fold).split()[-1]), str(fold).startswith('only')
            self.items = [item for i, item in enumerate(self.items) if (i % 5 == left) == only]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        utterance, speaker = self.items[index]
        return (utterance - self.mean) / self.deviation, speaker


def together(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """A batch: utterances `[n, frames, 12]` with zeros after the shorter ones, their lengths and speakers `[n]`."""
    utterances, speakers = zip(*items, strict=True)
    lengths = torch.tensor([len(utterance) for utterance in utterances])
    return pad_sequence(list(utterances), batch_first=True), lengths, torch.tensor(speakers)


@cache
def read(part: str) -> list[tuple[Tensor, int]]:
    """All utterances of ``part`` with their speakers."""
    try:
        path = metadata.distribution('aeon').locate_file(FILE.format(part.upper()))
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            'the utterances ship inside the package aeon: pip install --no-deps -r requirements/data.txt'
        ) from error
    with open(str(path), encoding='utf-8-sig') as file:
        lines = [line.strip() for line in file]
    begin = next(i for i, line in enumerate(lines) if line.lower() == '@data') + 1
    found = []
    for line in filter(None, lines[begin:]):
        *dimensions, label = line.split(':')
        numbers = [[float(value) for value in dimension.split(',')] for dimension in dimensions]
        found.append((torch.tensor(numbers).T.contiguous(), int(label) - 1))
    return found
