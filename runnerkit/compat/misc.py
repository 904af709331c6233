"""Checks and conversions of plain values, and decorators for functions that need something or changed a name."""

from __future__ import annotations

import functools
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, repeat
from typing import Any, TypeVar, cast

from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.imports import import_modules_from_strings as import_modules_from_strings  # MMCV has it here, too

F = TypeVar('F', bound=Callable[..., Any])


def is_str(x: object) -> bool:
    """Whether ``x`` is text."""
    return isinstance(x, str)


# --- sequences -------------------------------------------------------------------------------------------------------


def iter_cast(inputs: Iterable[Any], dst_type: type, return_type: Callable[[Iterable[Any]], Any] | None = None) -> Any:
    """Every element turned into ``dst_type``.

    Args:
        inputs: the elements.
        dst_type: what each is turned into.
        return_type: what they are put into; None gives an iterator.

    Raises:
        TypeError: ``inputs`` cannot be iterated, or ``dst_type`` is no type.
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
    """Whether ``seq`` is a sequence with nothing but ``expected_type`` in it.

    Args:
        seq: what is looked at.
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
    """``in_list`` cut into pieces.

    Args:
        in_list: what is cut.
        lens: the length of every piece, or of each.

    Raises:
        TypeError: ``lens`` is something else.
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
    """The elements of all the lists in ``in_list``, in one list."""
    return list(chain.from_iterable(in_list))


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """A function that repeats a single value ``n`` times in a tuple, and gives back what is iterable as it is."""

    def to_tuple(x: Any) -> Any:
        """``x`` if it is iterable, else a tuple of it."""
        return x if isinstance(x, Iterable) else tuple(repeat(x, n))

    return to_tuple


to_1tuple = to_ntuple(1)
to_2tuple = to_ntuple(2)
to_3tuple = to_ntuple(3)
to_4tuple = to_ntuple(4)


# --- methods ---------------------------------------------------------------------------------------------------------


def is_method_overridden(method: str, base_class: type, derived_class: Any) -> bool:
    """Whether a class has a method of its own where ``base_class`` has one.

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
    """Whether ``obj`` has something callable by the name ``method``."""
    return callable(getattr(obj, method, None))


# --- decorators ------------------------------------------------------------------------------------------------------


def check_prerequisites(
    prerequisites: str | Sequence[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = ('Prerequisites "{}" are required in method "{}" but not found, please install them first.'),
) -> Callable[[F], F]:
    """A decorator for a function that needs something to be there when it is called.

    Args:
        prerequisites: what is needed.
        checker: whether one of them is there.
        msg_tmpl: what is printed and raised, with places for those that are not, and for the function's name.

    Raises:
        RuntimeError: (by the decorated function) something is not there.
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


def _importable(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def requires_package(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """A decorator for a function that needs Python packages; they are looked for when it is called.

    Args:
        prerequisites: the names that they are imported by.
    """
    return check_prerequisites(prerequisites, checker=_importable)


def requires_executable(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """A decorator for a function that needs programs; they are looked for on ``PATH`` when it is called.

    Args:
        prerequisites: the programs' names.
    """
    return check_prerequisites(prerequisites, checker=lambda name: shutil.which(name) is not None)


def deprecated_api_warning(name_dict: dict[str, str], cls_name: str | None = None) -> Callable[[F], F]:
    """A decorator for a function some of whose arguments have new names: the old ones go on working, with a warning.

    Args:
        name_dict: the new name by the old one.
        cls_name: the class whose method it is, for the warning.
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
