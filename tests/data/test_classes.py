"""What a data set calls its classes."""

import pytest
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from runnerkit.data.named import class_names


class Named(list):
    def __init__(self, **attributes):
        super().__init__([0, 1])
        vars(self).update(attributes)


@pytest.mark.parametrize(
    'dataset, names',
    [
        (Named(CLASSES=['a', 'b']), ('a', 'b')),
        (Named(classes=('a', 'b')), ('a', 'b')),
        (Named(CLASSES=('a',), classes=['b']), ('a',)),
        (Named(CLASSES=None, classes=['b']), ('b',)),  # None in MMDetection's base class
        (Subset(Named(CLASSES=['a']), [0]), ('a',)),
        (ConcatDataset([Subset(Named(CLASSES=['a']), [0]), Named(CLASSES=['b'])]), ('a',)),
        (Named(CLASSES='ab'), None),
        (Named(CLASSES=[0, 1]), None),
        (Named(CLASSES=[]), None),
        (TensorDataset(), None),
        (None, None),
    ],
)
def test_class_names(dataset, names):
    assert class_names(dataset) == names


def test_a_data_set_that_contains_itself():
    loop = Named()
    loop.dataset = loop
    assert class_names(loop) is None
