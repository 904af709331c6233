"""A config's text as values by key, without running it."""

import pytest

from runnerkit.config import Config
from runnerkit.config.settings import differing, settings_in, settings_with_places


def test_values_by_dotted_key():
    text = "a = 1\nb = dict(c=(1, -2), d={'e': None, **a})\nhooks = [dict(type='X'), dict(type='Y')]\nf = g('/')\n"
    assert settings_in(text) == {
        'a': 1,
        'b.c': [1, -2],
        'b.d.e': None,
        'b.d.**': 'a',
        'hooks.0.type': 'X',
        'hooks.1.type': 'Y',
        'f': "g('/')",
    }


def test_a_text_that_is_no_python_has_no_values():
    assert settings_in('{') == settings_in('\0') == settings_in('(' * 10_000) == {}


def test_differing_keys():
    assert differing([{'a': 1, 'b': 2}, {'a': 1, 'b': 3, 'c': 4}, {'a': 1, 'b': 2}]) == ['b', 'c']
    assert differing([]) == []


def test_keys_that_are_not_of_a_base(tmp_path):
    (tmp_path / 'base.py').write_text("optimizer = dict(type='SGD', lr=0.1)\nother = 1\n")
    (tmp_path / 'mine.py').write_text("_base_ = 'base.py'\noptimizer = dict(lr=0.2)\n")
    cfg = Config.fromfile(tmp_path / 'mine.py')
    cfg.merge_from_dict({'other': 2})
    rows = [[key, value, place.rpartition('/')[2], differs] for key, value, place, differs in settings_with_places(cfg)]
    assert rows == [
        ['optimizer.type', "'SGD'", 'base.py:1', False],
        ['optimizer.lr', '0.2', 'mine.py:2', True],
        ['other', '2', '--cfg-options', True],
    ]
    alone = Config.fromfile(tmp_path / 'base.py')
    assert not any(differs for *_, differs in settings_with_places(alone))


@pytest.mark.parametrize('value', ['+'.join(['x'] * 700), 'x' + '.y' * 700, '-' * 700 + '1', '0x' + 'f' * 5000])
def test_values_that_python_cannot_write_do_not_hide_the_others(value):
    found = settings_in(f'seed = 1\na = {value}\n')
    assert found['seed'] == 1
    assert differing([found, {'seed': 1}]) == ['a']
