"""Comparing trainings with what the real MMCV recorded on one machine."""

import pytest
from support import benchmark

side_by_side = benchmark('side_by_side')
RECORD = side_by_side.recorded()
#: Whether this machine and torch compute the last bits as those of the record: then all of them have to be equal.
SAME_BITS = side_by_side.by_hand() == RECORD['by hand']


def assert_same(found, expected):
    """Lists of ``float.hex`` by name are equal; on a machine that computes otherwise, but for rounding."""
    assert found.keys() == expected.keys()
    if SAME_BITS:
        assert found == expected
    for name, values in found.items():
        assert [float.fromhex(x) for x in values] == pytest.approx(
            [float.fromhex(x) for x in expected[name]], rel=1e-3, abs=1e-5
        )
