"""Data sets made of data sets."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from runnerkit.data.builder import DATASETS
from runnerkit.utils.numbers import check_whole_number


@DATASETS.register_module()
class RepeatDataset(Dataset[Any]):
    """A data set several times over, as one long epoch.

    An epoch of a small data set is over before its workers are warm; repeated, they restart less often. With seeded
    samples every repetition of a sample has its own augmentation.

    Args:
        dataset: map-style, with a length.
        times: at least 1.

    Raises:
        TypeError: ``times`` is no whole number.
        ValueError: ``times`` is less than 1.
    """

    def __init__(self, dataset: Dataset[Any], times: int) -> None:
        check_whole_number('times', times)
        self.dataset = dataset
        self.times = times

    def __len__(self) -> int:
        return self.times * len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        length = len(self.dataset)  # type: ignore[arg-type]
        if not 0 <= index < self.times * length:
            raise IndexError(f'index {index} is out of range for {length} samples {self.times} times')
        return self.dataset[index % length]
