"""Comparing trainings with what the real MMCV recorded on one machine."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def benchmark(name):
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f'benchmarks/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
