from pathlib import Path

import numpy as np
import torch

from runnerkit.utils.imports import import_object

FILE = str(Path(__file__).parents[3] / 'configs/tabular/table.py')
wines, SOURCE = (import_object(f'{FILE}:{name}') for name in ('wines', 'FILE'))


def test_the_parts_are_the_rows_of_the_file_shuffled_and_scaled():
    parts = [wines(part).tensors for part in ('train', 'val', 'test')]
    assert [len(classes) for _, classes in parts] == [100, 30, 48]
    values, classes = (torch.cat(column) for column in zip(*parts))
    assert values.dtype == torch.float32
    assert torch.allclose(parts[0][0].mean(0), torch.zeros(13), atol=1e-5)
    assert torch.allclose(parts[0][0].std(0), torch.ones(13), atol=1e-5)
    table = torch.from_numpy(np.loadtxt(SOURCE, np.float32, delimiter=','))
    # The scale of a column is that of the training rows: both sides are scaled once more, by all rows.
    rows, source = (
        torch.cat([(part - part.mean(0)) / part.std(0), label[:, None]], 1)
        for part, label in ((values, classes), (table[:, :-1], table[:, -1]))
    )
    distances = torch.cdist(rows, source, compute_mode='donot_use_mm_for_euclid_dist')
    assert distances.min(1).values.max() < 1e-3  # each row is one of the file, with its class
    assert len(distances.min(1).indices.unique()) == len(table)
    assert not torch.equal(classes, table[:, -1].long())


def test_the_split_is_the_same_for_every_seed():
    np.random.seed(1)
    first = wines('val').tensors
    np.random.seed(2)
    assert all(map(torch.equal, first, wines('val').tensors))
