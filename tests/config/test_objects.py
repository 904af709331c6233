"""Objects in a config: told when it is written, and refused where it is read."""

import functools

import numpy as np
import pytest
from support import Tiny

from runnerkit.config import Config
from runnerkit.config.keys import wrong_values
from runnerkit.config.pretty import objects_in, refuse_marks

HELD = {
    'model': {'type': 'Supervised', 'model': Tiny(), 'loss': len},
    'data': {'train': [{'type': Tiny, 'size': np.int64(3), 'scale': np.zeros(3)}]},
    'custom_hooks': [functools.partial(print)],
    'own': lambda: 1,
    'steps': (range(3), None, 2.5, {1, 2}),
}
KEYS = ['model.model', 'data.train[0].scale', 'custom_hooks[0]', 'own']


def test_they_are_named_by_their_keys():
    assert list(objects_in(HELD)) == KEYS
    assert list(objects_in(HELD['data'], 'data')) == KEYS[1:2]


def test_a_written_config_has_marks_which_are_refused():
    again = Config.fromstring(Config(HELD).pretty_text, '.py')
    assert list(objects_in(again._cfg_dict)) == []
    assert again.model.model.startswith('<object> Tiny(')
    assert '\n' not in again.model.model
    found = list(wrong_values(again))
    assert [(each.key, each.level) for each in found] == list(zip(KEYS, ['error'] * 3 + ['warning'], strict=True))
    assert all('a Python object' in each.what for each in found)
    refuse_marks(again.steps, 'steps')
    refuse_marks(None, 'data')
    with pytest.raises(ValueError, match=r'cannot hold: data\.train\[0\]\.scale \(array.*config=dict\(model=net'):
        refuse_marks(again.data, 'data')


def test_a_mark_is_the_same_in_every_run():
    assert Config({'own': object()}).pretty_text == Config({'own': object()}).pretty_text
