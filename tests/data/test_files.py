"""Data sets of files."""

import pytest
from torch.utils.data import Dataset

from runnerkit.data import DATASETS
from runnerkit.data.files import dataset_of_files


class Numbers(Dataset):
    def __init__(self, scale):
        raise FileNotFoundError("the data set's own files are not here")

    @classmethod
    def from_files(cls, files, scale, **settings):
        return [(cls.__name__, file, scale) for file in files]


class NoFiles:
    pass


class Wrong:
    @classmethod
    def from_files(cls, files):
        return None


@pytest.mark.parametrize(
    'cfg',
    [
        dict(type=Numbers, scale=2, part='test'),
        dict(type='Numbers', scale=2),
        dict(type=f'{__file__}:Numbers', scale=2),
        [dict(type=Numbers, scale=2), dict(type=NoFiles)],
        dict(type='RepeatDataset', dataset=dict(type=Numbers, scale=2), times=3),
        dict(type='ConcatDataset', datasets=[dict(type=Numbers, scale=2)]),
        dict(type='RepeatDataset', dataset=[dict(type='RepeatDataset', dataset=dict(type=Numbers, scale=2))]),
    ],
)
def test_the_class_reads_the_files_with_the_settings_of_its_config(cfg, monkeypatch):
    monkeypatch.setitem(DATASETS.module_dict, 'Numbers', Numbers)
    assert dataset_of_files(cfg, ('a', 'b')) == [('Numbers', 'a', 2), ('Numbers', 'b', 2)]


@pytest.mark.parametrize(
    'cfg, error, text',
    [
        (
            dict(type=NoFiles),
            TypeError,
            r'NoFiles takes no files; write a class method from_files\(cls, files',
        ),
        (
            dict(type=Wrong),
            TypeError,
            r'from_files of Wrong has returned None; write a class method .*\[\(load\(file\),\) for',
        ),
        (dict(type='Nmbers'), KeyError, 'Nmbers is not in the dataset registry'),
        (dict(part='test'), KeyError, 'must contain the key "type"'),
        (dict(type=Numbers), TypeError, "from_files.*missing 1 required positional argument: 'scale'"),
        ([1, 2], TypeError, 'the data set int is built already: only one that a config describes takes files'),
    ],
)
def test_errors_say_what_to_write(cfg, error, text):
    with pytest.raises(error, match=text):
        dataset_of_files(cfg, ['a'])
