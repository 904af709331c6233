"""100,000 ratings of films (MovieLens-100K), with the data of user and film: does it have four or five stars?"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runnerkit.utils.imports import import_object

#: The ratings of each part, after shuffling. Settings were chosen by training on 'fit' and evaluating on 'choose';
#: together these are 'train'.
PARTS = {'test': slice(0, 10_000), 'choose': slice(10_000, 20_000), 'fit': slice(20_000, None)}
PARTS['train'] = slice(10_000, None)


class Reader(Dataset):
    """Samples of seven features `[7]` and whether the user liked the film, 1.0 or 0.0.

    The features are user, film, the user's age, gender and occupation, the film's year and set of genres. Each value
    has its own number, across all features, from 0.

    Attributes:
        features: of all samples `[n, 7]`.
        liked: of all samples `[n]`.

    Args:
        data_path: the function that reads the tables of the data set: ``file.py:function``.
        part: one of `PARTS`. The ratings are shuffled with a fixed seed.
    """

    def __init__(self, data_path: str, part: str) -> None:
        if part not in PARTS:
            raise ValueError(f'part={part!r} is none of {", ".join(PARTS)}')
        features, liked = samples(data_path)
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(liked))[PARTS[part]])
        self.features, self.liked = features[order], liked[order]

    def __len__(self) -> int:
        return len(self.liked)

    def __getitem__(self, index: int | list[int]) -> tuple[Tensor, Tensor]:
        return self.features[index], self.liked[index]


@cache
def samples(data_path: str) -> tuple[Tensor, Tensor]:
    """Features `[n, 7]` and labels `[n]` of all ratings, in the order of the file."""
    table = import_object(data_path)
    users = {user: about for user, *about in table('user')}
    films = {film: about for film, *about in table('item')}
    ratings = table('inter')
    rows = [(user, film, *users[user][:3], *films[film][1:]) for user, film, _, _ in ratings]
    columns, first = [], 0
    for column in zip(*rows, strict=True):
        values, numbers = np.unique(column, return_inverse=True)
        columns.append(torch.from_numpy(numbers + first))
        first += len(values)
    return torch.stack(columns, 1), torch.tensor([float(float(stars) >= 4) for _, _, stars, _ in ratings])
