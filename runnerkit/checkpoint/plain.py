"""Reduces a state to tensors and plain Python values, so that loading a checkpoint never has to run code."""

from __future__ import annotations

import _codecs
import io
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from runnerkit.utils.logging import printable

_CONTAINERS = frozenset({dict, list, tuple})
_UNCHANGED = frozenset({type(None), bool, float, complex, torch.Size, torch.device, torch.layout})

#: How to get the plain value from an instance of a subclass, even if it overrides methods.
_PLAIN_NUMBERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
)

#: Integers below it are written as such.
_SMALL = 1 << 63

#: torch.load reads integers of up to 255 bytes; one bit is the sign.
_INT_BITS = 255 * 8 - 1

#: Longer strings need a pickle opcode that torch.load refuses.
_LENGTH = 1 << 30

_DEPTH = 100

#: Type codes of numpy numbers with an exact equivalent in Python: no long doubles, dates or records.
_NUMPY_NUMBERS = frozenset('?bBhHiIlLqQefdFD')


class _Refused(Exception):
    """Why a value cannot be stored, worded to follow "… holds"; ``steps`` is the way to it, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.steps: list[str] = []


class _EmptyBytes:
    """Replaces ``b''``: pickle writes that as a call of ``bytes``, but torch.load allows only ``_codecs.encode``."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _codecs.encode, ('', 'latin1')


def plain_checkpoint(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """``checkpoint`` with its values converted to what loads without running code; see `to_plain`."""
    return {name: to_plain(value, name) for name, value in checkpoint.items()}


def to_plain(value: Any, where: str) -> Any:
    """A copy of ``value`` that ``torch.load(…, weights_only=True)`` reads back equal and with the same types.

    Tensors are shared, not copied. Some types are simplified:

    - tensor subclasses (also `torch.nn.Parameter`) and tensors with attributes become plain tensors;
    - numpy scalars, enum members and subclasses of int, float and str become Python values;
    - numpy arrays and ranges become lists, frozen sets become sets, named tuples become tuples;
    - mappings become dicts, except `OrderedDict` and `Counter`; paths become strings.
    """
    try:
        return _plain(value, _DEPTH)
    except _Refused as refused:
        place, reason = where + ''.join(reversed(refused.steps)), str(refused)
    raise TypeError(f'{printable(place)} holds {printable(reason)}')


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if (kind is str and len(value) <= _LENGTH) or (kind is int and -_SMALL < value < _SMALL):
        return value
    if kind is int or kind is str:
        return _within_limits(value)
    if isinstance(value, Tensor):
        return _plain_tensor(value)
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if isinstance(value, np.generic):
        return _plain(_from_numpy(value), depth)
    if isinstance(value, (Mapping, set, frozenset, list, tuple, np.ndarray)):
        if depth == 0:
            raise _Refused(f'values nested more than {_DEPTH} levels deep, or that contain themselves')
        return _plain_container(value, depth)
    return _plain_single(value)


def _plain_container(value: Any, depth: int) -> Any:
    if isinstance(value, (set, frozenset)):
        members = {_plain_key(item, depth) for item in value}
        if len(members) < len(value):
            raise _Refused(f'members that become equal when they are made plain: {printable(repr(value), 80)}')
        return members
    if isinstance(value, np.ndarray):
        listed = _from_numpy(value)
        return listed if value.dtype.char in _NUMPY_NUMBERS else _plain(listed, depth)
    is_mapping, items = isinstance(value, Mapping), {}
    for key, item in value.items() if is_mapping else enumerate(value):
        # Most keys are short names or small numbers, which are plain.
        is_plain = (type(key) is str and len(key) <= _LENGTH) or (type(key) is int and -_SMALL < key < _SMALL)
        plain = key if is_plain else _plain_key(key, depth)
        is_container = type(item) in _CONTAINERS and depth > 1  # most of them, without a frame in between
        try:
            items[plain] = (_plain_container if is_container else _plain)(item, depth - 1)
        except _Refused as refused:
            refused.steps.append(f'[{printable(repr(key), 80)}]')
            raise
    if len(items) < len(value):
        raise _Refused(f'keys that become equal when they are made plain: {printable(repr(list(value)), 80)}')
    if not is_mapping:
        return tuple(items.values()) if isinstance(value, tuple) else [*items.values()]
    if isinstance(value, Counter):
        return Counter(items)
    if not isinstance(value, OrderedDict):
        return items
    ordered = OrderedDict(items)
    if hasattr(value, '_metadata'):  # the versions of the modules in a state dict
        ordered._metadata = _plain_container({'_metadata': value._metadata}, depth)['_metadata']  # type: ignore[attr-defined]
    return ordered


def _plain_single(value: Any) -> Any:
    for base, plain in _PLAIN_NUMBERS:
        if isinstance(value, base):
            return _within_limits(plain(value))
    if type(value) is bytes:
        return _within_limits(value) if value else _EmptyBytes()
    if type(value) is bytearray:
        return bytearray(_within_limits(value))
    if type(value) is torch.dtype and _is_readable(value):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, range):
        return list(value)
    name = str(value) if isinstance(value, torch.dtype) else f'a {_type_name(value)}'
    raise _Refused(
        f'{name}, which a checkpoint cannot hold: give tensors, numbers, strings, lists, tuples, sets and dicts '
        '(a hook: in its state_dict)'
    )


def _plain_key(key: Any, depth: int) -> Any:
    plain = _plain(key, depth - 1)
    try:
        hash(plain)
    except TypeError:
        raise _Refused(
            f'the key {printable(repr(key), 80)}, which becomes a {_type_name(plain)} and cannot be a key then'
        ) from None
    if any(isinstance(part, Tensor) for part in (plain if isinstance(plain, tuple) else [plain])):
        raise _Refused('a tensor as a key, which could not be looked up again: tensors are compared by identity')
    return plain


def _within_limits(value: Any) -> Any:
    """``value``, a number or string, unless it is too large for torch.load to read."""
    if isinstance(value, int):
        if value.bit_length() > _INT_BITS:
            raise _Refused(f'an integer of {value.bit_length()} bits; torch.load reads {_INT_BITS}: give a string')
    elif not isinstance(value, float) and len(value) > _LENGTH:
        raise _Refused(f'a {_type_name(value)} of length {len(value)}; up to {_LENGTH} can be stored: give a tensor')
    return value


def _from_numpy(value: Any) -> Any:
    """The Python value of a numpy scalar, or the list of an array."""
    if value.dtype.char not in _NUMPY_NUMBERS and value.dtype.kind not in 'USOT':
        raise _Refused(
            f'a {_type_name(value)} of {value.dtype}, which has no equivalent in Python: give numbers or strings'
        )
    if isinstance(value, np.ma.MaskedArray):
        raise _Refused(f'a {_type_name(value)}: give its data and its mask')
    return value.tolist()


def _plain_tensor(tensor: Tensor) -> Tensor:
    is_subclass = type(tensor) is not Tensor
    if is_subclass and is_lazy(tensor):
        raise _Refused(f'an uninitialised {_type_name(tensor)}: run a batch through the model before the first save')
    if is_subclass and type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        raise _Refused(
            f'a {_type_name(tensor)}, which wraps other tensors: give a plain one, e.g. its full_tensor(), to_local() '
            'or dequantize()'
        )
    if tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested):
        readable = _is_readable(tensor.dtype)
    else:
        readable = _can_be_read(tensor)
    if not readable:
        raise _Refused(
            f'a tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}, which torch.load refuses: give a plain '
            'one, e.g. its to_dense(), dequantize() or view(torch.uint8)'
        )
    if not is_subclass and not tensor.__dict__:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(Tensor).requires_grad_(tensor.requires_grad)


@cache
def _is_readable(dtype: torch.dtype) -> bool:
    """Whether torch.load reads ``dtype`` and tensors of that dtype."""
    try:
        return _can_be_read([dtype, torch.empty(1, dtype=dtype)])
    except (RuntimeError, TypeError):  # there are no such tensors
        return False


def _can_be_read(value: Any) -> bool:
    """Whether torch.load reads what torch.save writes for ``value``; it is tried."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception:  # whatever torch says, the answer is no
        return False
    return True


def _type_name(value: Any) -> str:
    kind = type(value)
    return f'{kind.__module__}.{kind.__qualname__}'
