"""Data sets of files."""

import re
from functools import partial

import pytest
from torch.utils.data import Dataset

from runnerkit.data import DATASETS
from runnerkit.data.files import CollateFiles, dataset_of_files


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


def pad(samples, key=1):
    return [sample[key] for sample in samples]


class Pad:
    def __call__(self, samples):
        return [sample['label'] for sample in samples]


@pytest.mark.parametrize(
    'function, sample, text',
    [
        (
            pad,
            ('words',),
            r'no target \(1 field\)\. In the collate_fn pad, read the target only if len\(samples\[0\]\) > 1$',
        ),
        (partial(pad, key=2), ['words', 'mask'], r'\(2 fields\)\. In the collate_fn pad, .* > 2$'),
        (
            Pad(),
            {'words': 0, 'mask': 1},
            r'\(only words, mask\)\. In the collate_fn Pad, .* if the samples have its key$',
        ),
        (pad, 3, r'\(no more than a int\)\. .* if the samples are tuples$'),
    ],
)
def test_a_collate_function_that_reads_targets_is_named(function, sample, text):
    collate = CollateFiles(function)
    with pytest.raises((IndexError, KeyError, TypeError)) as caught:
        collate([sample])
    assert re.search(text, ''.join(caught.value.__notes__))
    assert CollateFiles(len)([sample, sample]) == 2
