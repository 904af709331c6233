"""The loaders of a run."""

import re

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Options
from runnerkit.flow.stages.loading import build_loaders, first_samples, load_data


class Five(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return i


def test_the_first_samples_of_a_data_set():
    assert list(first_samples({'': Five()}, 2)) == [0, 1]
    assert list(first_samples({'': Five()}, 9)) == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match='--overfit takes samples of a data set, but data.train is a list_iterator'):
        first_samples({'': iter([1, 2])}, 1)
    with pytest.raises(TypeError, match='data.train has several data sets by name, clean, noisy, but one is needed'):
        first_samples({'clean': Five(), 'noisy': Five()}, 1)


def test_loaders_take_common_settings_and_their_splits_own():
    data = {
        'samples_per_gpu': 2,
        'workers_per_gpu': 0,
        'train': Five(),
        'val': Five(),
        'val_dataloader': {'samples_per_gpu': 3},
        'train_dataloader': {'drop_last': True, 'shuffle': False},
    }
    context = Context(Config({}), Options(), seed=1)
    train, val = (build_loaders(context, data, split)[''] for split in ('train', 'val'))
    assert [batch.tolist() for batch in train] == [[0, 1], [2, 3]]
    assert [batch.tolist() for batch in val] == [[0, 1, 2], [3, 4]]
    with pytest.raises(KeyError, match=r"no 'test' section; it has train, val \(use --split val\)"):
        build_loaders(context, data, 'test')


def test_a_loader_may_be_described_in_torchs_words():
    data = {
        'batch_size': 2,
        'num_workers': 0,
        'train': Five(),
        'val': Five(),
        'val_dataloader': {'samples_per_gpu': 3},
        'test': Five(),
        'test_dataloader': {'batch_size': 5, 'workers': 1},
    }
    context = Context(Config({}), Options(), seed=1)
    loaders = [build_loaders(context, data, split)[''] for split in ('train', 'val', 'test')]
    assert [(loader.batch_size, loader.num_workers) for loader in loaders] == [(2, 0), (3, 0), (5, 1)]


@pytest.mark.parametrize(
    ('data', 'words'),
    [
        ('samples_per_gpu=0', ['data.samples_per_gpu (', 'config.py:2)', 'at least 1, but got 0']),
        ("batch_size='many'", ['data.batch_size (', 'config.py:2)', "but got 'many'"]),
        ('workers_per_gpu=-1', ['data.workers_per_gpu (', 'config.py:2)', 'at least 0, but got -1']),
        ('samples_per_gpu=4, batch_size=8', ['data.batch_size (', 'config.py:2)', 'data.samples_per_gpu', 'two names']),
        ('num_workers=1, workers=1', ['data.workers', 'data.num_workers', 'two names']),
        ('num_workers=1, workers_per_gpu=1', ['data.num_workers', 'data.workers_per_gpu', 'two names']),
        ('train_dataloader=dict(batch_size=0)', ['data.train_dataloader.batch_size (', 'config.py:2)', 'got 0']),
        (
            'train_dataloader=dict(samples_per_gpu=1, batch_size=1)',
            ['data.train_dataloader.batch_size', 'data.train_dataloader.samples_per_gpu', 'two names'],
        ),
    ],
)
def test_wrong_loader_options_are_refused_with_their_place(data, words, tmp_path):
    path = tmp_path / 'config.py'
    path.write_text(f'data = dict(\n    {data})\n')
    with pytest.raises((TypeError, ValueError)) as caught:
        build_loaders(Context(Config({})), Config.fromfile(str(path)).data, 'train')
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_entries_share_a_data_set_and_not_a_loader():
    data = {'samples_per_gpu': 2, 'train': {'type': Five}}
    context = Context(Config({'data': data, 'workflow': [('dis', 1), ('gen', 1)]}), Options())
    load_data(context)
    first, second = context.loaders
    assert first is not second
    assert first.dataset is second.dataset
    with pytest.raises(TypeError, match='workflow must be a list of'):
        load_data(Context(Config({'data': data, 'workflow': 'train'}), Options()))


@pytest.mark.parametrize(
    'line, read, text',
    [
        ("workflow = 'train'", load_data, "but got 'train' (cfg.py:2)"),
        (
            'data = dict(samples_per_gpu=1)',
            load_data,
            "data has no 'train' section; it has none (cfg.py:2)",
        ),
        (
            "data = dict(train=dict(type='builtins.list'), train_dataloader=dict(sufle=1))",
            lambda context: build_loaders(context, context.cfg.data, 'train', {'': Five()}),
            '(cfg.py:2)',
        ),
    ],
)
def test_an_error_names_file_and_line(line, read, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text(f'x = 1\n{line}\n')
    with pytest.raises(Exception, match=re.escape(text)):
        read(Context(Config.fromfile('cfg.py')))
