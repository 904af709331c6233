"""MMCV's small functions for plain values, paths and layers; decorators for requirements and renamed arguments."""

from __future__ import annotations

import functools
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from torch import nn

from runnerkit.optim.builder import TORCH_OPTIMIZERS
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.imports import import_modules_from_strings as import_modules_from_strings  # MMCV has it here, too
from runnerkit.utils.paths import StrPath, is_filepath

F = TypeVar('F', bound=Callable[..., Any])


def is_str(x: object) -> bool:
    """Whether ``x`` is text."""
    return isinstance(x, str)


# --- sequences -------------------------------------------------------------------------------------------------------


def iter_cast(inputs: Iterable[Any], dst_type: type, return_type: Callable[[Iterable[Any]], Any] | None = None) -> Any:
    """Convert every element to ``dst_type``.

    Args:
        inputs: the elements.
        dst_type: the type to convert to.
        return_type: the type of the result; None gives an iterator.

    Raises:
        TypeError: ``inputs`` is not iterable, or ``dst_type`` is not a type.
    """
    if not isinstance(inputs, Iterable):
        raise TypeError(f'inputs must be an iterable object, but got {type(inputs)}: {inputs!r}')
    if not isinstance(dst_type, type):
        raise TypeError(f'"dst_type" must be a valid type, such as int, but got {dst_type!r}')
    elements: Iterator[Any] = map(dst_type, inputs)
    return elements if return_type is None else return_type(elements)


def list_cast(inputs: Iterable[Any], dst_type: type) -> list[Any]:
    """`iter_cast` into a list."""
    elements: list[Any] = iter_cast(inputs, dst_type, return_type=list)
    return elements


def tuple_cast(inputs: Iterable[Any], dst_type: type) -> tuple[Any, ...]:
    """`iter_cast` into a tuple."""
    elements: tuple[Any, ...] = iter_cast(inputs, dst_type, return_type=tuple)
    return elements


def is_seq_of(seq: object, expected_type: type | tuple[type, ...], seq_type: type | None = None) -> bool:
    """Whether ``seq`` is a sequence of ``expected_type`` only.

    Args:
        seq: the sequence to check.
        expected_type: one type or several, as for `isinstance`.
        seq_type: the kind of sequence it must be; None for any.
    """
    if seq_type is not None and not isinstance(seq_type, type):
        raise WrongType(f'seq_type must be a type, such as list, or None, but got {seq_type!r}')
    if not isinstance(seq, seq_type or Sequence):
        return False
    return all(isinstance(each, expected_type) for each in cast(Iterable[Any], seq))


def is_list_of(seq: object, expected_type: type | tuple[type, ...]) -> bool:
    """`is_seq_of` for lists."""
    return is_seq_of(seq, expected_type, seq_type=list)


def is_tuple_of(seq: object, expected_type: type | tuple[type, ...]) -> bool:
    """`is_seq_of` for tuples."""
    return is_seq_of(seq, expected_type, seq_type=tuple)


def slice_list(in_list: Sequence[Any], lens: int | list[int]) -> list[Any]:
    """Cut ``in_list`` into pieces.

    Args:
        in_list: the list to cut.
        lens: one length for all pieces, or a list with the length of each.

    Raises:
        TypeError: ``lens`` is of another type.
        ValueError: the pieces do not add up to the whole.
    """
    if isinstance(lens, int):
        if lens < 1 or len(in_list) % lens:
            raise WrongValue(
                f'a list of {len(in_list)} cannot be cut into pieces of {lens}: take a divisor of its length'
            )
        lens = [lens] * (len(in_list) // lens)
    if not isinstance(lens, list):
        raise TypeError(f'"indices" must be an integer or a list of integers, but got {type(lens)}: {lens!r}')
    if sum(lens) != len(in_list):
        raise ValueError(f'sum of lens and list length does not match: {sum(lens)} != {len(in_list)}')
    pieces, start = [], 0
    for length in lens:
        pieces.append(in_list[start : start + length])
        start += length
    return pieces


def concat_list(in_list: Iterable[Iterable[Any]]) -> list[Any]:
    """Concatenate the lists in ``in_list``."""
    return list(chain.from_iterable(in_list))


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """Return a function that repeats a single value ``n`` times in a tuple, and returns an iterable unchanged."""

    def to_tuple(x: Any) -> Any:
        """Return ``x`` if it is iterable, else a tuple that repeats it."""
        return x if isinstance(x, Iterable) else tuple(repeat(x, n))

    return to_tuple


to_1tuple = to_ntuple(1)
to_2tuple = to_ntuple(2)
to_3tuple = to_ntuple(3)
to_4tuple = to_ntuple(4)


# --- methods ---------------------------------------------------------------------------------------------------------


def is_method_overridden(method: str, base_class: type, derived_class: Any) -> bool:
    """Whether a class overrides a method of ``base_class``.

    Args:
        method: its name.
        base_class: the class that has it.
        derived_class: a class below that, or an object of one.
    """
    if not isinstance(base_class, type):
        raise WrongType(f"base_class doesn't accept instance, give its class: {type(base_class).__name__}")
    derived = derived_class if isinstance(derived_class, type) else type(derived_class)
    overridden: bool = getattr(derived, method) != getattr(base_class, method)
    return overridden


def has_method(obj: object, method: str) -> bool:
    """Whether ``obj`` has a callable attribute ``method``."""
    return callable(getattr(obj, method, None))


# --- decorators ------------------------------------------------------------------------------------------------------


def check_prerequisites(
    prerequisites: str | Sequence[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = ('Prerequisites "{}" are required in method "{}" but not found, please install them first.'),
) -> Callable[[F], F]:
    """Return a decorator for a function with requirements, which are checked when it is called.

    Args:
        prerequisites: the requirements.
        checker: whether one requirement is met.
        msg_tmpl: the message that is printed and raised; its two fields are the missing requirements and the
            function's name.

    Raises:
        RuntimeError: (by the decorated function) a requirement is not met.
    """
    needed = [prerequisites] if isinstance(prerequisites, str) else list(prerequisites)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            missing = [each for each in needed if not checker(each)]
            if missing:
                message = msg_tmpl.format(', '.join(missing), function.__name__)
                print(message)
                raise RuntimeError(f'Prerequisites not met: {message}')
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def _can_import(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def requires_package(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """Return a decorator for a function that needs Python packages; this is checked when it is called.

    Args:
        prerequisites: the names to import.
    """
    return check_prerequisites(prerequisites, checker=_can_import)


def requires_executable(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """Return a decorator for a function that needs programs on ``PATH``; this is checked when it is called.

    Args:
        prerequisites: the programs' names.
    """
    return check_prerequisites(prerequisites, checker=lambda name: shutil.which(name) is not None)


def deprecated_api_warning(name_dict: dict[str, str], cls_name: str | None = None) -> Callable[[F], F]:
    """Return a decorator for a function with renamed arguments: the old names still work, with a warning.

    Args:
        name_dict: maps each old name to the new one.
        cls_name: the class of a decorated method, for the warning.
    """

    def decorate(function: F) -> F:
        name = f'{cls_name}.{function.__name__}' if cls_name else function.__name__

        @functools.wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            for old, new in name_dict.items():
                if old not in kwargs:
                    continue
                if new in kwargs:
                    raise WrongValue(f'{name} got both {old!r} and {new!r}, which is its new name: give {new!r} only')
                warnings.warn(
                    f'"{old}" is deprecated in `{name}`, please use "{new}" instead', DeprecationWarning, stacklevel=2
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return renamed  # type: ignore[return-value]

    return decorate


def register_torch_optimizers() -> list[str]:
    """Return the names of torch's optimizers, which `OPTIMIZERS` already knows."""
    return TORCH_OPTIMIZERS


def get_bases_name(m: nn.Module) -> list[str]:
    """Return the names of the direct base classes of a module's class, which initializers use to find layers."""
    return [base.__name__ for base in type(m).__bases__]


def fopen(filepath: StrPath, *args: Any, **kwargs: Any) -> IO[Any]:
    """`open` for strings and paths only; file descriptors are refused."""
    if not is_filepath(filepath):
        raise ValueError(f'`filepath` should be a string or a Path, but got {type(filepath)}: {filepath!r}')
    return open(filepath, *args, **kwargs)


def check_file_exist(filename: StrPath, msg_tmpl: str = 'file "{}" does not exist') -> None:
    """Raise FileNotFoundError with ``msg_tmpl.format(filename)`` unless it is a file."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def symlink(src: StrPath, dst: StrPath, overwrite: bool = True, **kwargs: Any) -> None:
    """Make ``dst`` a symbolic link to ``src``; with ``overwrite``, an existing file is replaced."""
    if overwrite and os.path.lexists(dst):
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def find_vcs_root(path: StrPath, markers: tuple[str, ...] = ('.git',)) -> str | None:
    """The root of the repository: the nearest folder, from ``path`` upwards, with one of ``markers``; else None."""
    given = os.path.abspath(os.path.expanduser(path))
    folder = Path(os.path.dirname(given) if os.path.isfile(given) else given)
    for each in (folder, *folder.parents):
        if any((each / marker).exists() for marker in markers):
            return str(each)
    return None
