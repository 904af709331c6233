"""Numbers from inside a step."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from runnerkit.log_buffer import LogBuffer
from runnerkit.utils.report import report, scope


def test_it_lands_in_the_innermost_scope():
    outer, inner = LogBuffer(), LogBuffer()
    with scope(outer):
        report('a', 1.0, num_samples=3)
        with scope(inner):
            report('a', torch.tensor(5.0))
        report('a', 2.0)
    assert outer.val_history == {'a': [1.0, 2.0]}
    assert outer.n_history == {'a': [3, 1]}
    assert inner.val_history == {'a': [torch.tensor(5.0)]}


def test_outside_a_run_it_says_where_it_belongs():
    with pytest.raises(RuntimeError, match=r"report\('a', …\) was called outside a run"):
        report('a', 1)
    with pytest.raises(KeyError), scope(LogBuffer()):
        raise KeyError
    with pytest.raises(RuntimeError, match='outside a run'):
        report('a', 1)


class Reports(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        report('inside', i)
        return i


def test_in_a_loader_worker_it_says_what_to_do():
    with scope(LogBuffer()), pytest.raises(RuntimeError, match='return the value with the sample'):
        list(DataLoader(Reports(), num_workers=1))
