"""Writing checkpoints."""

import pytest
import torch
from torch import nn

from runnerkit.checkpoint import save_checkpoint
from runnerkit.checkpoint.save import save_latest_link
from runnerkit.version import __version__


def test_the_file_holds_mmcvs_parts(tmp_path):
    model = nn.Linear(2, 1)
    model.CLASSES = ('cat', 'dog')
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / 'deep' / 'a.pth'
    save_checkpoint(model, str(path), optimizer, meta={'epoch': 3}, state={'n': 1})
    loaded = torch.load(path, weights_only=True)
    assert set(loaded) == {'meta', 'state_dict', 'optimizer', 'runnerkit'}
    assert loaded['meta']['epoch'] == 3
    assert loaded['meta']['CLASSES'] == ('cat', 'dog')
    assert loaded['meta']['runnerkit_version'] == __version__
    assert {'time', 'mmcv_version'} <= set(loaded['meta'])
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(loaded['optimizer'])
    save_latest_link(str(path))
    assert (path.parent / 'latest.pth').resolve() == path.resolve()


def test_several_optimizers_by_name(tmp_path):
    model = nn.Linear(2, 1)
    optimizers = {'a': torch.optim.SGD([model.weight], lr=0.1), 'b': torch.optim.SGD([model.bias], lr=0.2)}
    save_checkpoint(model, str(tmp_path / 'a.pth'), optimizers)
    loaded = torch.load(tmp_path / 'a.pth', weights_only=True)['optimizer']
    assert {name: state['param_groups'][0]['lr'] for name, state in loaded.items()} == {'a': 0.1, 'b': 0.2}


def test_urls(tmp_path):
    save_checkpoint(nn.Linear(2, 1), f'file://{tmp_path}/a.pth')
    assert torch.load(tmp_path / 'a.pth', weights_only=True)['state_dict']['weight'].shape == (1, 2)


def test_wrong_meta(tmp_path):
    with pytest.raises(TypeError, match='meta must be a dict or None'):
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), meta='x')
    with pytest.raises(TypeError, match=r"meta\['x'\] holds a builtins.object"):
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), meta={'x': object()})
    assert list(tmp_path.iterdir()) == []
