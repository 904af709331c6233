"""Comparisons for tests. They return a result; the test decides whether to fail."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from typing import Any


def check_python_script(cmd: str) -> None:
    """Run a Python script in this process, as ``python script.py arguments`` would.

    Args:
        cmd: the script and its arguments, separated by spaces; a leading ``python`` is optional.
    """
    from unittest.mock import patch  # which imports asyncio

    argv = cmd.split()
    if argv[0] == 'python':
        argv = argv[1:]
    with patch.object(sys, 'argv', argv):
        runpy.run_path(argv[0], run_name='__main__')


def assert_dict_contains_subset(dict_obj: dict[Any, Any], expected_subset: dict[Any, Any]) -> bool:
    """Whether a dict has these entries; arrays and tensors must be equal in all elements."""
    return all(key in dict_obj and _equal(dict_obj[key], value) for key, value in expected_subset.items())


def assert_attrs_equal(obj: Any, expected_attrs: dict[str, Any]) -> bool:
    """Whether an object has these attributes; arrays and tensors must be equal in all elements."""
    return all(hasattr(obj, name) and _equal(getattr(obj, name), value) for name, value in expected_attrs.items())


def assert_dict_has_keys(obj: dict[str, Any], expected_keys: Iterable[str]) -> bool:
    """Whether a dict has all of these keys."""
    return set(expected_keys) <= set(obj)


def assert_keys_equal(result_keys: Iterable[str], target_keys: Iterable[str]) -> bool:
    """Whether both have the same keys, in any order."""
    return set(result_keys) == set(target_keys)


def assert_is_norm_layer(module: Any) -> bool:
    """Whether a module is a batch, instance, group or layer norm."""
    from torch.nn import GroupNorm, LayerNorm

    from runnerkit.compat.mmcv.torch_layers import _BatchNorm, _InstanceNorm

    return isinstance(module, (_BatchNorm, _InstanceNorm, GroupNorm, LayerNorm))


def assert_params_all_zeros(module: Any) -> bool:
    """Whether a layer's weight is zero everywhere, and its bias, if it has one."""
    bias = getattr(module, 'bias', None)
    return not module.weight.any() and (bias is None or not bias.any())


def _equal(value: Any, expected: Any) -> bool:
    shapes = [each.shape for each in (value, expected) if hasattr(each, 'shape')]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        return False
    same = value == expected
    return bool(same.all() if hasattr(same, 'all') else same)
