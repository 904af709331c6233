"""ConfigDict: attributes, copies, pickles, and the origin that all of them keep."""

from __future__ import annotations

import copy
import pickle

import addict
import pytest

from runnerkit.config import ConfigDict
from runnerkit.config.config_dict import as_config, set_origin, walk
from runnerkit.config.origin import Origin, Place


def test_items_are_attributes_at_every_depth():
    config = ConfigDict(a={'b': [{'c': 1}]}, t=({'d': 2},))
    assert config.a.b[0].c == 1
    assert config.t[0].d == 2
    assert isinstance(config, addict.Dict)
    assert config.to_dict() == {'a': {'b': [{'c': 1}]}, 't': ({'d': 2},)}


def test_missing_names():
    config = ConfigDict(optimizer=1)
    with pytest.raises(
        AttributeError, match="^'ConfigDict' object has no attribute 'optimzer'; did you mean 'optimizer'"
    ):
        _ = config.optimzer
    with pytest.raises(AttributeError, match="^'ConfigDict' object has no attribute '__optimizer__'$"):
        _ = config.__optimizer__
    with pytest.raises(KeyError, match="^'optimzer'$"):
        _ = config['optimzer']
    assert config.get('x') is None
    assert not hasattr(config, 'x')
    assert config.pop('x', 3) == 3


@pytest.mark.parametrize(
    'duplicate',
    [copy.copy, copy.deepcopy, lambda c: c.copy(), lambda c: c.deepcopy()]
    + [lambda c, p=p: pickle.loads(pickle.dumps(c, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)],
)
def test_copies_keep_values_and_origin(duplicate):
    config = as_config({'a': {'b': [1, {'c': 2}]}}, Place('f.yaml'))
    twin = duplicate(config)
    assert twin == config
    assert type(twin) is type(twin.a) is type(twin.a.b[1]) is ConfigDict
    assert str(twin._origin_) == str(twin.a._origin_) == 'f.yaml'
    twin.new = 1
    assert 'new' not in config
    with pytest.raises(AttributeError):
        _ = twin.missing


def test_deepcopy_shares_nothing_and_keeps_sharing():
    inner = ConfigDict(x=[1])
    config = ConfigDict()
    config['a'] = config['b'] = inner
    twin = copy.deepcopy(config)
    assert twin.a is twin.b is not inner
    assert twin.a.x is not inner.x


def test_origin_is_no_item():
    config = ConfigDict(a=1)
    assert config._origin_ is None
    set_origin(config, Origin((Place('f.yaml'),)))
    assert list(config) == ['a']
    assert config == {'a': 1}


def test_union_stays_a_config_dict():
    assert type(ConfigDict(a=1) | {'b': 2}) is type({'b': 2} | ConfigDict(a=1)) is ConfigDict
    assert ConfigDict(a=1, b={'c': 1}) | {'b': {'d': 2}} == {'a': 1, 'b': {'c': 1, 'd': 2}}
    with pytest.raises(TypeError):
        ConfigDict(a=1) | 3


def test_as_config_copies_containers_and_keeps_origins():
    inner = as_config({'x': 1}, Place('a.yaml'))
    original = {'inner': inner, 'list': [1]}
    config = as_config(original, Place('b.yaml'))
    config.list.append(2)
    config.inner.x = 5
    assert original == {'inner': {'x': 1}, 'list': [1]}
    assert str(config.inner._origin_) == 'a.yaml'
    assert str(config._origin_) == 'b.yaml'


def test_walk_gives_dotted_keys():
    assert list(walk({'a': 1, 'b': {'c': [2], 'd': {}}})) == [('a', 1), ('b.c', [2])]
