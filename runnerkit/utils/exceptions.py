"""Errors about arguments that code written for MMCV may still catch; and saying more about an error that is passing
through, without changing what kind of error it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from runnerkit.utils.suggest import did_you_mean


class WrongValue(ValueError, AssertionError):
    """A value that cannot be used, where MMCV stopped at an ``assert``: whoever catches that goes on to do so."""


class WrongType(TypeError, AssertionError):
    """A value of a type that cannot be used, where MMCV stopped at an ``assert``."""


class WrongKey(KeyError, AssertionError):
    """A key or name that cannot be used, where MMCV stopped at an ``assert``."""


def raise_with_context(error: Exception, before: str, after: str = '', note: str | None = None) -> NoReturn:
    """Raise ``error`` once more, chained to itself, with text before and after its message.

    The class and the attributes stay the same. An error whose class builds its message from other things (an
    ``OSError`` with a number) gets a note instead, as by ``add_note``, and is raised as it is.

    Args:
        error: the error that was caught.
        before: what its message is to begin with, such as ``'ResNet: '``.
        after: what it is to end with.
        note: the note; by default ``before`` and ``after``.
    """
    told = with_message(error, before, after)
    if told is not None:
        raise told from error
    text = note or f'{before}{after}'
    if hasattr(error, 'add_note'):
        error.add_note(text)
    else:  # Python 3.10: kept where later versions look for it
        error.__notes__ = [*getattr(error, '__notes__', []), text]  # type: ignore[attr-defined]
    raise error


def with_message(error: Exception, before: str, after: str) -> Exception | None:
    """``error`` once more with text around its message; None where its class does not allow that."""
    cls = type(error)
    if len(error.args) > 1 or not all(isinstance(arg, str) for arg in error.args):
        return None
    text = f'{before}{"".join(error.args)}{after}'
    # A constructor written in Python may want more than a message, so it is left out; those in C store the message.
    told = cls.__new__(cls, text)
    if not inspect.isfunction(cls.__init__):
        cls.__init__(told, text)
    told.args = (text,)
    told.__dict__.update(error.__dict__)
    return told if before in str(told) else None


def one_line(error: BaseException) -> str:
    """``error`` as a command-line tool prints it: its message, or its class where it has none, and its notes."""
    # str() of a KeyError is the repr of its message.
    message = str(error.args[0]) if isinstance(error, KeyError) and len(error.args) == 1 else str(error)
    notes = getattr(error, '__notes__', [])
    return ' '.join([message or type(error).__name__, *(f'({note})' for note in notes)]).replace('\n', ' ')


def check_keywords(given: Iterable[str], function: Callable[..., Any], owner: str, *others: Callable[..., Any]) -> None:
    """Refuse keyword arguments that ``function``, to which ``owner`` hands them on, does not take.

    Args:
        given: the keywords.
        function: what they are for; one with ``**kwargs`` takes them all.
        owner: whom the user gave them to.
        *others: functions whose parameters may have been meant, too.

    Raises:
        TypeError: with the nearest right one.
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            known = [*parameters, *(name for other in others for name in inspect.signature(other).parameters)]
            raise TypeError(
                f'{owner} got an unexpected argument {name!r}, which {function.__name__} does not take either; '
                f'{did_you_mean(name, known)}'.rstrip('; ')
            )
