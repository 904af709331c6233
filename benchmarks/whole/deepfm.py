"""The job of configs/recommendation without runnerkit: its network, its ratings and its first weights."""

from importlib import metadata

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

FILE = 'recbole/dataset_example/ml-100k/ml-100k.{}'
PARTS = {'test': slice(0, 10_000), 'train': slice(10_000, None)}
MORE = 5.0  # ratings that each user and film gets in addition, with the overall share of positive ones


def table(name):
    """The rows of a table of MovieLens-100K, in the order of its file."""
    path = metadata.distribution('recbole').locate_file(FILE.format(name))
    with open(path, encoding='utf-8') as file:
        return [line.rstrip('\n').split('\t') for line in file.readlines()[1:]]


class Ratings(Dataset):
    """Samples of seven features `[7]`, and whether the user liked the film."""

    read = None

    def __init__(self, part):
        if Ratings.read is None:
            Ratings.read = samples()
        features, liked = Ratings.read
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(liked))[PARTS[part]])
        self.features, self.liked = features[order], liked[order]

    def __len__(self):
        return len(self.liked)

    def __getitem__(self, index):
        return self.features[index], self.liked[index]


def samples():
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


class DeepFM(nn.Module):
    def __init__(self, fields=7, features=2998, size=32, widths=(128, 64), dropout=0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))
        self.weights = nn.Embedding(features, 1)
        self.vectors = nn.Embedding(features, size)
        nn.init.zeros_(self.weights.weight)
        nn.init.normal_(self.vectors.weight, std=0.01)
        layers = []
        for before, width in zip([fields * size, *widths], widths, strict=False):
            layers += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(dropout)]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features):
        vectors = self.vectors(features)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return self.bias + self.weights(features).sum((1, 2)) + pairs + self.deep(vectors.flatten(1)).squeeze(1)


def network(train):
    """The network, with the log-odds of each user and film as its first weights."""
    net = DeepFM()
    features, liked = train.features, train.liked
    ids, share, size = features[:, :2].flatten(), liked.mean(), len(net.weights.weight)
    number, likings = ids.bincount(minlength=size), ids.bincount(liked.repeat_interleave(2), minlength=size)
    shares = (likings + MORE * share) / (number + MORE)
    bias, odds = (torch.logit(each, eps=0.001) for each in (share, shares))
    with torch.no_grad():
        net.bias.copy_(bias)
        net.weights.weight[:, 0].copy_(odds - bias)
    return net
