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
