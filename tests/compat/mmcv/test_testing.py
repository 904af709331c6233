"""Comparisons for tests."""

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.compat.mmcv.testing import (
    assert_attrs_equal,
    assert_dict_contains_subset,
    assert_dict_has_keys,
    assert_is_norm_layer,
    assert_keys_equal,
    assert_params_all_zeros,
    check_python_script,
)


def test_dicts():
    values = {'a': 1, 'b': (1, 2), 'c': np.arange(3), 'd': torch.ones(2)}
    assert assert_dict_contains_subset(values, {'a': 1, 'b': (1, 2)}) is True
    assert assert_dict_contains_subset(values, {'c': np.arange(3), 'd': torch.ones(2)})
    wrongs = ({'a': 2}, {'e': 1}, {'c': np.zeros(3)}, {'d': torch.ones(3)}, {'b': (1, 3)}, {'c': [0, 1, 3]})
    assert [assert_dict_contains_subset(values, wrong) for wrong in wrongs] == [False] * 6
    assert assert_dict_has_keys({'a': 1, 'b': 2}, ['a'])
    assert not assert_dict_has_keys({'a': 1}, ['a', 'b'])
    assert assert_keys_equal(['a', 'b'], ['b', 'a'])
    assert not assert_keys_equal(['a'], ['a', 'b'])


def test_attributes():
    class Thing:
        value = 1
        array = np.arange(2)

    assert assert_attrs_equal(Thing(), {'value': 1, 'array': np.arange(2)})
    assert not assert_attrs_equal(Thing, {'value': 2})
    assert not assert_attrs_equal(Thing, {'none': None})


@pytest.mark.parametrize(
    'layer', [nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.InstanceNorm1d(2), nn.LayerNorm(2), nn.SyncBatchNorm(2)]
)
def test_normalisation_layers(layer):
    assert assert_is_norm_layer(layer)


def test_other_layers():
    assert not any(map(assert_is_norm_layer, (nn.Conv2d(1, 1, 1), nn.LocalResponseNorm(2))))


def test_zeros():
    for bias in (True, False):
        layer = nn.Linear(2, 2, bias=bias)
        nn.init.zeros_(layer.weight)
        if bias:
            nn.init.ones_(layer.bias)
            assert assert_params_all_zeros(layer) is False
            nn.init.zeros_(layer.bias)
        assert assert_params_all_zeros(layer) is True
        nn.init.constant_(layer.weight, 0.1)
        assert not assert_params_all_zeros(layer)


def test_running_a_script(tmp_path, capsys):
    script = tmp_path / 'script.py'
    script.write_text('import sys\nprint(__name__, sys.argv[1:])\nif "fail" in sys.argv: sys.exit(3)\n')
    check_python_script(f'{script} a b')
    check_python_script(f'python {script}')
    assert capsys.readouterr().out == "__main__ ['a', 'b']\n__main__ []\n"
    with pytest.raises(SystemExit, match='3'):
        check_python_script(f'{script} fail')
    with pytest.raises(FileNotFoundError):
        check_python_script(str(tmp_path / 'missing.py'))
