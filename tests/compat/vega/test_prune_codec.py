"""A code of kept channels, and back."""

import pytest

from runnerkit.compat.vega.networks import SearchSpace
from runnerkit.compat.vega.prune_codec import PruneCodec

SECTION = {
    'type': 'SearchSpace',
    'modules': ['backbone'],
    'backbone': {'type': 'Net', 'base_chn': [2, 3], 'base_chn_node': [2], 'num_classes': 10},
}


def test_decode_and_encode():
    codec = PruneCodec(SECTION)
    assert codec.length == 7
    code = (0, 1, 1, 1, 0, 0, 1)
    desc = codec.decode(code)
    assert desc['modules'] == ['backbone']
    assert desc['backbone'] == {**SECTION['backbone'], 'chn_node': [[1]], 'chn': [[0, 1], [2]]}
    assert codec.encode(desc) == code
    assert 'chn' not in SECTION['backbone']


def test_the_section_of_the_seed_has_464_bits():
    backbone = {'base_chn': [16, 16, 16, 32, 32, 32, 64, 64, 64], 'base_chn_node': [16, 16, 32, 64]}
    assert PruneCodec({'modules': ['backbone'], 'backbone': backbone}).length == 464


def test_a_network_without_modules_and_an_object_with_the_section():
    desc = PruneCodec(SECTION['backbone']).decode([1] * 7)
    assert desc['chn'] == [[0, 1], [0, 1, 2]]
    assert PruneCodec(SearchSpace(SECTION)).decode([1] * 7) == {'modules': ['backbone'], 'backbone': desc}


def test_a_layer_keeps_at_least_one_channel():
    codec = PruneCodec(SECTION)
    desc = codec.decode([0] * 7)
    assert desc['backbone']['chn'] == [[0], [0]]
    assert codec.encode(desc) == (1, 0, 1, 0, 1, 0, 0)


def test_the_whole_network_keeps_all():
    assert PruneCodec(SECTION).encode(SECTION) == (1,) * 7


@pytest.mark.parametrize(
    ('section', 'error', 'words'),
    [
        (None, TypeError, 'search_space must describe the network to prune'),
        ({'modules': ['backbone'], 'backbone': {'type': 'Net'}}, KeyError, 'base_chn and base_chn_node'),
        ({'base_chn': 16}, TypeError, 'base_chn must be a list of widths'),
    ],
)
def test_wrong_sections(section, error, words):
    with pytest.raises(error, match=words):
        PruneCodec(section)


def test_wrong_codes_and_descriptions():
    codec = PruneCodec(SECTION['backbone'])
    with pytest.raises(ValueError, match='must have 7 bits, one for each channel, but got 3'):
        codec.decode([1, 0, 1])
    with pytest.raises(ValueError, match=r'a layer of 2 channels cannot keep \[2\]'):
        codec.encode({**SECTION['backbone'], 'chn': [[2], [0]]})
    with pytest.raises(TypeError, match='chn must list the kept channels of 2 layers'):
        codec.encode({**SECTION['backbone'], 'chn': [[1]]})
