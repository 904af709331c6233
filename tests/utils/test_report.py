"""Numbers from inside a step."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from runnerkit.data.loader import keep_queues
from runnerkit.log_buffer import LogBuffer
from runnerkit.utils.report import image_scope, report, report_image, scope


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
        list(keep_queues(iter(DataLoader(Reports(), num_workers=1))))


def test_a_picture_reaches_the_innermost_scope_as_bytes():
    outer, inner = [], []

    def into(found):
        return image_scope(lambda name, pixels: not found.append((name, pixels.shape)))

    with into(outer):
        with into(inner):
            report_image('a', np.ones((2, 3)))
        report_image('b', torch.ones(3, 4, 5))
    assert (outer, inner) == ([('b', (4, 5, 3))], [('a', (2, 3, 1))])


def test_a_picture_that_nothing_takes_is_a_warning():
    with pytest.warns(UserWarning, match=r"report_image\('a', …\) was called outside a run"):
        report_image('a', np.ones((2, 3)))
    with image_scope(lambda name, pixels: False), pytest.warns(UserWarning, match='no hook of this run takes pictures'):
        report_image('a', np.ones((2, 3)))


@pytest.mark.parametrize('name, error', [(3, TypeError), ('', ValueError), ('a' * 101, ValueError)])
def test_other_names_of_pictures_are_refused(name, error):
    with pytest.raises(error, match='the name of a picture must'):
        report_image(name, np.ones((2, 3)))
