"""Weights into models: names revised, differences told."""

import logging

import pytest
import torch
from torch import nn

from runnerkit.checkpoint import get_state_dict, load_checkpoint, load_state_dict, weights_to_cpu
from runnerkit.checkpoint.state_dict import ema_name, shortened


def test_prefixes_of_wrappers_are_stripped(tmp_path):
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save({'state_dict': {f'module.{k}': v for k, v in model.state_dict().items()}}, tmp_path / 'a.pth')
    load_checkpoint(other, str(tmp_path / 'a.pth'), strict=True)
    assert torch.equal(model.weight, other.weight)


def test_names_are_revised(tmp_path):
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save({f'old_{k}': v for k, v in model.state_dict().items()}, tmp_path / 'a.pth')
    load_checkpoint(other, str(tmp_path / 'a.pth'), revise_keys=[('^old_', '')])
    assert torch.equal(model.weight, other.weight)


def test_differences_are_logged_or_raised(caplog):
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 3))
    state = {
        '0.weight': torch.ones(1, 2),
        '1.weight': torch.ones(5, 5),
        'extra': torch.ones(1),
        ema_name('0.weight'): torch.ones(1, 2),
    }
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        load_state_dict(model, state)
    assert model[0].weight.tolist() == [[1, 1]]
    for part in (
        '1.weight: shape (5, 5) in the file, (3, 1) in the model',
        'unexpected key in source state_dict: extra',
        'missing keys',
        '0.bias',
    ):
        assert part in caplog.text
    assert 'ema_0_weight' not in caplog.text
    with pytest.raises(RuntimeError, match='do not match exactly'):
        load_state_dict(model, state, strict=True)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    torch.save({'state_dict': {'encoder.w': torch.ones(3)}}, tmp_path / 'a.pth')
    with pytest.raises(
        ValueError,
        match=r'checkpoint of another model: not one of its weights \(encoder.w\) fits Linear \(weight, bias\)',
    ):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))


def test_a_file_without_weights_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / 'a.pth')
    with pytest.raises(RuntimeError, match='No state_dict found in checkpoint file .* it holds a list'):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))


def test_metadata_travels_along():
    model = nn.Sequential(nn.BatchNorm1d(2))
    state = weights_to_cpu(get_state_dict(model))
    assert state._metadata['0']['version'] == 2


def test_wrappers_are_looked_through():
    model = nn.Linear(2, 1)
    assert set(get_state_dict(nn.DataParallel(model))) == {'weight', 'bias'}


def test_long_lists_are_shortened():
    assert shortened(['a', 'b', 'c'], 2) == 'a, b … (3 in all)'
    assert shortened(['a'], 2) == 'a'
