import pytest

from runnerkit.compat.vega.datasets import dataset_of_mode
from runnerkit.data import DATASETS, build_dataset


class Takes(list):
    def __init__(self, size, mode='train'):
        super().__init__(range(size))
        self.mode = mode


class Simple(list):
    def __init__(self, size):
        super().__init__(range(size))


def test_a_class_that_takes_a_mode_gets_it():
    built = build_dataset(
        {'type': 'runnerkit.compat.vega.datasets.dataset_of_mode', 'dataset': {'type': Takes, 'size': 3}, 'mode': 'val'}
    )
    assert (type(built), built.mode, len(built)) == (Takes, 'val', 3)
    assert dataset_of_mode({'type': Takes, 'size': 3, 'mode': 'test'}, 'val').mode == 'test'  # what the config says
    assert type(dataset_of_mode({'type': Simple, 'size': 3}, 'val')) is Simple


def test_a_class_by_name():
    DATASETS.register_module('Takes', module=Takes)
    try:
        assert dataset_of_mode({'type': 'Takes', 'size': 1}, 'val', needs_mode=True).mode == 'val'
    finally:
        del DATASETS.module_dict['Takes']
    with pytest.raises(KeyError, match='Missing is not in the dataset registry'):
        dataset_of_mode({'type': 'Missing'}, 'val', needs_mode=True)


def test_a_validation_on_the_training_data_is_refused():
    with pytest.raises(ValueError, match='takes no mode.*val would be the training data: write dataset.val'):
        dataset_of_mode({'type': Simple, 'size': 3}, 'val', needs_mode=True)


class Divides(list):
    def __init__(self, size, mode, train_portion=1.0):
        super().__init__([mode, train_portion] * size)


def test_a_portion_divides_the_training_data_or_reaches_a_class_that_takes_it():
    def part(kind, mode, portion, needs_mode=True):
        return [*dataset_of_mode({'type': kind, 'size': 10}, mode, needs_mode, portion)]

    for kind in (Takes, Simple):
        assert part(kind, 'train', 0.75) == [*range(7)]
        assert part(kind, 'val', 0.75) == [7, 8, 9]
        assert part(kind, 'val', 0.75, needs_mode=False) == [*range(10)]  # its own section
        assert part(kind, 'test', 0.75, needs_mode=False) == [*range(10)]
    assert part(Takes, 'train', 1) == [*range(10)]
    assert part(Divides, 'val', 0.5)[:2] == ['val', 0.5]
    assert part(Divides, 'val', None)[:2] == ['val', 1.0]


@pytest.mark.parametrize('portion', [0, 1.5, '0.9'])
def test_a_wrong_portion(portion):
    with pytest.raises(
        ValueError, match=r'dataset\.train_portion must be above 0 and at most 1, such as 0\.9, but got'
    ):
        dataset_of_mode({'type': Simple, 'size': 3}, 'train', train_portion=portion)
