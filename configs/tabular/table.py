"""A table of numbers in a CSV file: 178 wines, 13 measurements of each, and its cultivar (in the package mlxtend)."""

from __future__ import annotations

from importlib import metadata

import numpy as np
import torch
from torch.utils.data import TensorDataset

FILE = metadata.distribution('mlxtend').locate_file('mlxtend/data/data/wine.csv')
COLUMNS = 'alcohol acid ash alkalinity magnesium phenols flavanoids others cyanins colour hue OD280 proline'
PARTS = {'train': slice(0, 100), 'val': slice(100, 130), 'test': slice(130, None)}


def wines(part: str) -> TensorDataset:
    """One part of the rows, which are shuffled and scaled: 13 values and a class in 0 to 2 each."""
    table = np.random.default_rng(0).permutation(np.loadtxt(FILE, np.float32, delimiter=','))
    values, classes = torch.from_numpy(table[:, :-1]), torch.from_numpy(table[:, -1]).long()
    train = values[PARTS['train']]
    values = (values - train.mean(0)) / train.std(0)
    dataset = TensorDataset(values[PARTS[part]], classes[PARTS[part]])
    dataset.columns = COLUMNS.split()  # names in the report
    return dataset
