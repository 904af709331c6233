"""Comparing trainings with what the real MMCV recorded on one machine."""

import pytest
import torch
from support import benchmark

side_by_side = benchmark('side_by_side')
RECORD = side_by_side.recorded()
#: Whether this machine and torch compute the last bits as those of the record: then all of them have to be equal. What
#: the loop by hand computes is not all: with torch 2.9 it has the same bits, and Adam and norms have others.
BY_HAND = side_by_side.by_hand()
SAME_BITS = BY_HAND == RECORD['by hand'] and tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 13)
#: Whether this torch draws the same random numbers (torch 2.6 does not): then weights are the same but for rounding.
SAME_NUMBERS = [float.fromhex(x) for x in BY_HAND[:8]] == pytest.approx(
    [float.fromhex(x) for x in RECORD['by hand'][:8]], rel=1e-2, abs=1e-3
)


#: Biases before a norm, and the norms' means, which move with them. Such a bias has no gradient but what rounding
#: leaves, of which Adam makes whole steps: on another machine, other ones.
MADE_OF_ROUNDING = (
    'conv.bias',
    'ema_conv_bias',
    'norm.running_mean',
    'body.0.bias',
    'ema_body_0_bias',
    'body.1.running_mean',
)


def assert_same(found, expected):
    """Lists of ``float.hex`` by name are equal; on a machine that computes otherwise, but for rounding."""
    assert found.keys() == expected.keys()
    if not SAME_NUMBERS:
        pytest.skip('this torch draws other random numbers, so that a loop by hand begins with other weights')
    if SAME_BITS:
        assert found == expected
    for name in found.keys() - set(MADE_OF_ROUNDING):
        values = found[name]
        assert [float.fromhex(x) for x in values] == pytest.approx(
            [float.fromhex(x) for x in expected[name]], rel=1e-3, abs=1e-5
        )
