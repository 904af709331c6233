"""What may stand in a checkpoint."""

from collections import OrderedDict
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch

from runnerkit.checkpoint.plain import to_plain


class Colour(Enum):
    RED = 'red'


class Number(int):
    pass


def test_values_become_plain_and_load_without_running_code(tmp_path):
    value = {
        'np': np.float64(0.5),
        'array': np.arange(3),
        'range': range(2),
        'path': Path('a/b'),
        'enum': Colour.RED,
        'number': Number(3),
        'nested': [(1, {2.5}), OrderedDict(x=np.int64(4))],
        'none': None,
        'tensor': torch.ones(2),
    }
    plain = to_plain(value, 'meta')
    torch.save(plain, tmp_path / 'x.pth')
    loaded = torch.load(tmp_path / 'x.pth', weights_only=True)
    assert loaded.pop('tensor').tolist() == [1, 1]
    assert loaded == {
        'np': 0.5,
        'array': [0, 1, 2],
        'range': [0, 1],
        'path': str(Path('a/b')),
        'enum': 'red',
        'number': 3,
        'nested': [(1, {2.5}), OrderedDict(x=4)],
        'none': None,
    }
    assert type(loaded['number']) is int


def test_what_would_need_code_is_refused_by_its_place():
    with pytest.raises(TypeError, match=r"meta\['a'\]\[1\] holds a .*Thing, which a checkpoint cannot hold"):

        class Thing:
            pass

        to_plain({'a': [1, Thing()]}, 'meta')
