"""Error classes that MMCV code still catches as AssertionError, and adding text to an error without changing its
class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from runnerkit.utils.logging import printable
from runnerkit.utils.suggest import suggestion

#: The break after a line that ends without punctuation.
_LINE_WITHOUT_END = re.compile(r'(?<=[\w)\]}\'"])\n\s*(?=[\w(])')

#: What torch makes of an error in a loader's worker: its message is the whole traceback of the worker.
_IN_WORKER = re.compile(
    r'Caught \w+ (in [^\n]+)\.\nOriginal .*Traceback \(most recent call last\):\n(?: [^\n]*\n)+(.+)', re.DOTALL
)


class WrongValue(ValueError, AssertionError):
    """A wrong value where MMCV has an ``assert``: code that catches AssertionError keeps working."""


class WrongType(TypeError, AssertionError):
    """A value of a wrong type where MMCV has an ``assert``."""


class WrongKey(KeyError, AssertionError):
    """A wrong key or name where MMCV has an ``assert``."""


def raise_with_context(error: Exception, before: str, after: str = '', note: str | None = None) -> NoReturn:
    """Raise a copy of ``error``, chained to it, with text before and after its message.

    Class and attributes stay the same. If the class builds its message from other arguments (an ``OSError`` with a
    number), the error itself is raised with a note, as by ``add_note``.
    """
    told = with_message(error, before, after)
    if told is not None:
        raise told from error
    error.add_note(note or f'{before}{after}')
    raise error


def with_message(error: Exception, before: str, after: str) -> Exception | None:
    """A copy of ``error`` with text around its message; None if its class does not allow that."""
    cls = type(error)
    if len(error.args) > 1 or not all(isinstance(arg, str) for arg in error.args):
        return None
    text = f'{before}{_bare_key(error) or "".join(error.args)}{after}'
    # A constructor in Python may need more arguments, so it is not called; those in C store the message.
    told = cls.__new__(cls, text)
    if not inspect.isfunction(cls.__init__):
        cls.__init__(told, text)
    told.args = (text,)
    told.__dict__.update(error.__dict__)
    return told if before in str(told) else None


class NonFiniteError(FloatingPointError):
    """A loss, gradient or weight of a run is NaN or infinite."""


class PeerFailed(RuntimeError):
    """Another rank has failed, and this one ends with it."""


class ToldByFirstRank(RuntimeError):
    """Rank 0 has failed, and says why; the other ranks raise this."""


def one_line(error: BaseException) -> str:
    """``error`` on one line: its message, or its class if it has none, and its notes.

    Of an error in a loader's worker, the traceback is left out. A KeyError that is only a key keeps its class.

    Escape sequences are escaped: a message may quote names from an untrusted file.
    """
    # str() of a KeyError is the repr of its message.
    told = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else error
    try:
        message = str(told)
    except Exception as failure:  # of the user's own __str__
        message = f'{type(error).__name__} (its __str__ raises {type(failure).__name__})'
    worker = _IN_WORKER.fullmatch(message)  # its traceback ends with the error itself
    message = _bare_key(error) or (f'{worker[2].rstrip()}\n{worker[1]}' if worker else message)
    notes = getattr(error, '__notes__', [])
    text = ' '.join([message or type(error).__name__, *(f'({note})' for note in notes)])
    text = _LINE_WITHOUT_END.sub('; ', text).replace('\n', ' ').replace('\t', ' ')
    return printable(text, len(text))


def _bare_key(error: BaseException) -> str:
    """``"KeyError: 'length'"`` of a KeyError whose message is a key and no sentence; else empty."""
    if type(error) is not KeyError or len(error.args) != 1 or ' ' in str(error.args[0]):
        return ''
    return f'KeyError: {error.args[0]!r}'


def check_keywords(given: Iterable[str], function: Callable[..., Any], owner: str, *others: Callable[..., Any]) -> None:
    """Refuse keyword arguments that ``owner`` would pass to ``function``, which does not accept them."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            known = [*parameters, *(name for other in others for name in inspect.signature(other).parameters)]
            raise TypeError(
                f'{owner} got an unexpected argument {name!r}, which {function.__name__} does not take either'
                f'{suggestion(name, known)}'
            )
