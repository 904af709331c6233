"""`torch.load` that never runs code from a file: tensors, plain values, and numpy numbers and arrays of numbers.

MMCV's files hold numpy values (a best score). numpy's own constructors are not safe: ``dtype.__setstate__`` does not
check its input, and an object array built from a file's bytes holds pointers chosen by the file's author. So the names
of numpy's constructors in a file are mapped to functions of ours, which create nothing but numbers.
"""

from __future__ import annotations

import math
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals

ENV_TRUST_PICKLES = 'RUNNERKIT_TRUST_PICKLES'

#: The end of the message about a refused file; the flag is that of the tools.
HOW_TO_TRUST = (
    f'If you trust the author of the file, say so with --trust-pickles, {ENV_TRUST_PICKLES}=1 or '
    '"with runnerkit.checkpoint.trusted_pickles():". Code in it then runs with your permissions.'
)

_YES = ('1', 'true', 'yes', 'on')
_trusted: ContextVar[bool] = ContextVar('trusted_pickles', default=False)


@contextmanager
def trusted_pickles(trust: bool = True) -> Iterator[None]:
    """Inside this context, in this thread, checkpoints are loaded even if that runs code inside them.

    It applies to loading, resuming, pretrained weights and all URL schemes. Use it for single files of known origin,
    and save what you need from them in a new file.

    Args:
        trust: if False, the context changes nothing.
    """
    token = _trusted.set(trust or _trusted.get())
    try:
        yield
    finally:
        _trusted.reset(token)


def pickles_are_trusted() -> bool:
    """Whether code in checkpoints may run now: inside `trusted_pickles`, or allowed by the environment variable."""
    return _trusted.get() or os.environ.get(ENV_TRUST_PICKLES, '').strip().lower() in _YES


#: The number types that a file may name, as numpy writes them: kind and size in bytes.
_CODES = frozenset(('b1', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'f16', 'c8', 'c16', 'c32'))

#: The end of the state of a number type: no sub-array, no fields, no flags.
_NO_MORE = (None, None, None, -1, -1, 0)

_lock = threading.RLock()  # torch keeps one list of allowed names for all threads


def safe_load(file: Any, map_location: Any = 'cpu', mmap: bool = False) -> Any:
    """The content of ``file``, loaded without running code from it.

    Names that the user allows (`torch.serialization.add_safe_globals`) are respected, except numpy's constructors.
    """
    if isinstance(file, str | os.PathLike) and not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError(f'{os.fspath(file)} is not a regular file')
    with only_safe_names():
        loaded = torch.load(file, map_location=map_location, weights_only=True, mmap=mmap)
    try:
        return _with_arrays(loaded, {})
    except RecursionError:
        raise ValueError('its values are nested too deeply') from None


@contextmanager
def only_safe_names() -> Iterator[None]:
    """While this lasts, `torch.load` makes numbers of the names of numpy, whatever the user allows."""
    with _lock:
        before = get_safe_globals()
        clear_safe_globals()
        add_safe_globals([each for each in before if not _full_name(each).startswith('numpy.')])
        add_safe_globals([(stand_in, name) for name, stand_in in _STAND_INS.items()])
        try:
            yield
        finally:
            clear_safe_globals()
            add_safe_globals(before)


class _Dtype:
    """Replaces ``numpy.dtype`` in a file: a type of numbers, in one byte order or the other."""

    numpy: Any = None  # until __init__ is called, which pickle can skip

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        if not isinstance(code, str) or code not in _CODES:
            raise UnpicklingError(f'numpy.dtype({code!r}) is no type of numbers')
        try:
            self.numpy = np.dtype(code)
        except TypeError as error:  # long doubles have other sizes on other machines
            raise UnpicklingError(f'numpy.dtype({code!r}) does not exist on this machine') from error

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, sub-array, field names, fields, size, alignment, flags): numbers need only the first
        # two.
        if self.numpy is None or type(state) is not tuple or state[:1] + state[2:] != (3, *_NO_MORE):
            raise UnpicklingError(f'numpy.dtype with the state {state!r} is no type of numbers')
        if state[1] not in ('<', '>', '|', '='):
            raise UnpicklingError(f'numpy.dtype with the byte order {state[1]!r}')
        self.numpy = self.numpy.newbyteorder(state[1])


class _Array:
    """Replaces an array in a file; `_with_arrays` replaces it by the array."""

    numpy: Any = None

    def __init__(self, *args: Any) -> None:
        if args:
            raise UnpicklingError('numpy.ndarray is called, which numpy never writes')

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise UnpicklingError('the state of a numpy array does not have five parts')
        _, shape, dtype, is_fortran, data = state
        self.numpy = _from_bytes(dtype, shape, data, 'F' if is_fortran else 'C')


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    """Replaces numpy's function of this name: creates an array, which ``__setstate__`` fills."""
    if kind is not _Array:
        raise UnpicklingError(f'numpy arrays of the class {kind!r} are not read')
    return _Array()


def _from_bytes(dtype: Any, shape: Any, data: Any, order: Any) -> Any:
    numbers = getattr(dtype, 'numpy', None) if type(dtype) is _Dtype else None
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if numbers is None or not is_shape or type(data) is not bytes:
        raise UnpicklingError('only numpy arrays of numbers are read')
    if math.prod(shape) * numbers.itemsize != len(data):
        raise UnpicklingError(f'a numpy array of shape {shape} and type {numbers} has {len(data)} bytes')
    try:
        return np.ndarray(shape, numbers, bytearray(data), order=order)
    except (OverflowError, ValueError) as error:
        raise UnpicklingError(f'a numpy array of shape {shape}: {error}') from error


#: By their names in files; numpy 2 renamed ``core`` to ``_core``.
_STAND_INS: dict[str, Any] = {
    'numpy.dtype': _Dtype,
    'numpy.ndarray': _Array,
    **dict.fromkeys(('numpy.core.multiarray._reconstruct', 'numpy._core.multiarray._reconstruct'), _reconstruct),
    **dict.fromkeys(
        ('numpy.core.multiarray.scalar', 'numpy._core.multiarray.scalar'),
        lambda dtype, data: _from_bytes(dtype, (), data, 'C')[()],
    ),
}


def _full_name(allowed: Any) -> str:
    return str(allowed[1]) if isinstance(allowed, tuple) else f'{allowed.__module__}.{allowed.__qualname__}'


def _with_arrays(value: Any, done: dict[int, Any]) -> Any:
    """``value`` with each `_Array` replaced by its array; dicts and lists are changed in place."""
    if type(value) is _Array:
        return value.numpy
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value
    if isinstance(value, tuple):
        items = [_with_arrays(item, done) for item in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            done[id(value)] = tuple(items)
        return done[id(value)]
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        new = _with_arrays(item, done)
        if new is not item:
            value[key] = new
    return value
