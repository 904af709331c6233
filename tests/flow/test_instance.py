"""The first stage: device, seed, work dir, data."""

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Instance, Options
from runnerkit.flow.instance import choose_device, required_section


def test_devices():
    assert choose_device('cpu', 0, 1) == torch.device('cpu')
    assert choose_device('cuda:1', 0, 1) == torch.device('cuda:1')
    assert choose_device(None, 0, 1).type == ('cuda' if torch.cuda.is_available() else 'cpu')
    if not torch.cuda.is_available():
        assert choose_device('cuda', 3, 1) == torch.device('cuda:3')


def test_missing_sections():
    with pytest.raises(KeyError, match=r"has no 'data'; a run needs model, data, optimizer and runner"):
        required_section(Config({'model': 1}), 'data')


class Five(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return i


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
    train, val = (Instance().build_loader(context, data, split) for split in ('train', 'val'))
    assert [batch.tolist() for batch in train] == [[0, 1], [2, 3]]
    assert [batch.tolist() for batch in val] == [[0, 1, 2], [3, 4]]
    with pytest.raises(KeyError, match="the config's data has no 'test' section; it has"):
        Instance().build_loader(context, data, 'test')


def test_drawn_seeds_are_put_into_the_config():
    context = Context(Config({}), Options())
    Instance().settle_seed(context)
    assert context.cfg.seed == context.seed
    context = Context(Config({'seed': 5}), Options(seed=7))
    Instance().settle_seed(context)
    assert context.seed == 7
