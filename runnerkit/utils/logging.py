"""Loggers that write to console and file on rank 0; a failing write never stops a run."""

from __future__ import annotations

import logging
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

from runnerkit.utils.env import process_rank

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = '%(asctime)s - %(name)s - %(levelname)s - %(message)s'

#: ``extra=DETAIL`` marks a line that a console shows only if it is `ConsoleHandler.verbose`; log files have every line.
DETAIL = {'is_detail': True}

#: ``extra=NOT_EXACT`` marks a line about a resume that is not exact.
NOT_EXACT = {'exactness': True}

_RESULT = {'is_result': True}

#: The loggers that `get_logger` has set up, without their children.
logger_initialized: dict[str, bool] = {}

_STYLES = {'WARNING': 'yellow', 'ERROR': 'bold red', 'CRITICAL': 'bold red'}


#: Unicode's categories of characters that control a terminal, reorder or hide text, or cannot be encoded.
_UNSAFE = ('Cc', 'Cf', 'Cs', 'Zl', 'Zp')

#: A break before what looks like the beginning of a log record.
_FORGED = re.compile(r'\n(?=\d{4}-\d\d-\d\d |\d\d:\d\d:\d\d )')


def harmless(text: str) -> str:
    """``text`` with escaped control characters, except newlines and tabs.

    Everything that runnerkit prints or logs passes through this function: a message may quote a file from elsewhere.
    """
    if text.replace('\t', '').replace('\n', '').isprintable():
        return text
    unsafe = (each for each in set(text) if unicodedata.category(each) in _UNSAFE and each not in '\n\t')
    return text.translate({ord(each): each.encode('unicode_escape').decode() for each in unsafe})


class HarmlessFormatter(logging.Formatter):
    """Escapes the control characters of a record, and indents lines in it that look like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return _FORGED.sub('\n ', harmless(super().format(record)))


#: What a terminal shows, whose width is limited.
_SHORT = HarmlessFormatter('%(asctime)s %(message)s', '%H:%M:%S')
_SHORT_WITH_LEVEL = HarmlessFormatter('%(asctime)s %(levelname)s %(message)s', '%H:%M:%S')


def is_terminal() -> bool:
    """Whether stderr, where the log goes, is a terminal."""
    return bool(getattr(sys.stderr, 'isatty', lambda: False)())


@lru_cache(maxsize=1)
def console() -> Console:
    """The one rich console for stderr, shared by log lines and progress bars so that neither overwrites the other."""
    from rich.console import Console

    return Console(stderr=True)


def get_logger(
    name: str, log_file: str | os.PathLike[str] | None = None, log_level: int | str = logging.INFO, file_mode: str = 'w'
) -> logging.Logger:
    """The logger ``name``, set up at the first call unless one of its parents is.

    Only rank 0 writes to the file; the other ranks log errors only. Later calls do not change the logger, except that
    a new ``log_file`` is added, with the new level.

    Args:
        name: its parts are separated by dots; ``a.b`` writes where ``a`` writes.
        log_file: a file to write to, in addition to the console; its folder must exist.
        log_level: the lowest level that is logged.
        file_mode: ``'w'`` overwrites the file, ``'a'`` appends to it.
    """
    logger = logging.getLogger(name)
    first = name not in logger_initialized
    if first and any(name.startswith(f'{parent}.') for parent in logger_initialized):
        return logger
    rank = process_rank()
    if first:
        handler: Any
        for handler in logging.getLogger().handlers:  # of the user's, or of a library: lines would be shown twice
            if type(handler) is logging.StreamHandler and _not_from_us not in handler.filters:
                handler.addFilter(_not_from_us)
        logger.addHandler(ConsoleHandler())
        logger_initialized[name] = True
    written = [handler.baseFilename for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    adds_file = log_file is not None and rank == 0 and os.path.abspath(log_file) not in written
    if adds_file:
        logger.addHandler(LogFileHandler(str(log_file), file_mode))
    if first or adds_file:
        logger.setLevel(log_level if rank == 0 else logging.ERROR)
        for handler in _own_handlers(logger):
            handler.setLevel(log_level)
    return logger


def set_verbose(logger: logging.Logger, verbose: bool) -> None:
    """Choose whether the console handlers of ``logger`` show lines marked as `DETAIL`; by default they do."""
    for handler in logger.handlers:
        if isinstance(handler, ConsoleHandler):
            handler.verbose = verbose


def close_logger(name: str) -> None:
    """Close the handlers of the logger ``name``; `get_logger` can set it up again."""
    logger_initialized.pop(name, None)
    logger = logging.getLogger(name)
    for handler in _own_handlers(logger):
        logger.removeHandler(handler)
        handler.close()


def close_log_file(logger: logging.Logger, log_file: str | os.PathLike[str]) -> None:
    """Write no more to ``log_file``, which `get_logger` has added; it can add it again."""
    for handler in _own_handlers(logger):
        if isinstance(handler, LogFileHandler) and handler.baseFilename == os.path.abspath(log_file):
            logger.removeHandler(handler)
            handler.close()


def print_log(msg: object, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Log or print ``msg``.

    Args:
        msg: the message.
        logger: a logger or its name; None prints to stdout, ``'silent'`` prints nothing.
        level: the level of the message.

    Raises:
        TypeError: ``logger`` is something else.
    """
    if logger is None:
        print_out(str(msg))
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif isinstance(logger, str):
        if logger != 'silent':
            get_logger(logger).log(level, msg)
    else:
        raise TypeError(
            f'logger should be either a logging.Logger object, its name, "silent" or None, but got {type(logger)}: '
            f'{logger!r}'
        )


def print_result(text: str, logger: logging.Logger) -> None:
    """Print ``text`` on stdout and write it to the logger's files; its console, which is stderr, does not show it."""
    logger.info('%s', text, extra=_RESULT)
    print_out(text)


def print_out(text: str) -> None:
    """Print ``text`` on stdout. A reader that has gone (``… | head``) is no error: the rest is dropped.

    Control characters are escaped, and characters that the stream's encoding lacks are replaced.
    """
    encoding = getattr(sys.stdout, 'encoding', None) or 'utf-8'
    try:
        print(harmless(text).encode(encoding, 'replace').decode(encoding), flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, 'w')  # noqa: SIM115 (to the end of the process, which flushes stdout once more)


def print_err(text: str) -> None:
    """Print ``text`` on stderr, with escaped control characters."""
    print(harmless(text), file=sys.stderr)


@contextmanager
def harmless_warnings() -> Iterator[None]:
    """Escape the control characters of warnings, which may also come from other libraries."""
    former = warnings.formatwarning
    warnings.formatwarning = lambda *args, **kwargs: harmless(former(*args, **kwargs))
    try:
        yield
    finally:
        warnings.formatwarning = former


def printable(text: object, most: int = 1000) -> str:
    """``text`` on one line, of limited length: newlines and other invisible characters are escaped (``\\n``).

    Use it for text from files and servers that must stay on its line; `harmless` protects the terminal in any case.
    """
    text = str(text)
    shown = text[:most]
    if not shown.isprintable():
        shown = ''.join(each if each.isprintable() else each.encode('unicode_escape').decode() for each in shown)
    return shown if len(text) <= most else f'{shown}… ({len(text)} characters)'


def shortened(names: Sequence[object], most: int = 12) -> str:
    """The first ``most`` of ``names``, escaped and separated by commas; if there are more, also their number."""
    shown = ', '.join(printable(name, 200) for name in names[:most])
    return shown + (f' … ({len(names)} in all)' if len(names) > most else '')


class WarnsOnce:
    """Warns only once that something cannot be written.

    Args:
        what: the name of what is written, for the message.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.warned = False

    def __call__(self, error: BaseException) -> None:
        """Warn of ``error``, at the first call only."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f'{self.what} cannot be written ({error}); the run continues without it', RuntimeWarning, stacklevel=3
            )

    @contextmanager
    def instead_of_raising(self) -> Iterator[None]:
        """For code that only observes the run and meets values of the user's, which may raise anything: warn of it."""
        try:
            yield
        except Exception as error:
            self(error)


class _Tolerant(logging.Handler):
    """A handler that warns once if a line cannot be written."""

    _trouble: WarnsOnce

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._trouble(error)
        else:  # an error of the caller, such as arguments that do not match the message
            super().handleError(record)


class ConsoleHandler(_Tolerant, logging.StreamHandler):
    """Writes lines to the current ``sys.stderr``: above any progress bar on a terminal, as plain text in a pipe.

    On a terminal, a line begins with the time of day only, and with the level from WARNING on.

    Attributes:
        verbose: whether lines marked as `DETAIL` are shown.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(HarmlessFormatter(FORMAT))
        self._trouble = WarnsOnce('the log on the console')
        self.verbose = True

    @property
    def stream(self) -> TextIO:
        """The current ``sys.stderr``, which tests and notebooks replace."""
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        if hasattr(record, 'is_result') or (hasattr(record, 'is_detail') and not self.verbose):
            return
        from multiprocessing import parent_process

        # In a loader's worker, rich's lock may have been held at the fork, and would never be released.
        if not is_terminal() or parent_process() is not None:
            super().emit(record)
            return
        try:
            from rich.text import Text

            short = _SHORT if record.levelno < logging.WARNING else _SHORT_WITH_LEVEL
            line = Text(short.format(record), style=_STYLES.get(record.levelname, ''))
            console().print(line, soft_wrap=True)
        except Exception:
            self.handleError(record)


class LogFileHandler(_Tolerant, logging.FileHandler):
    """Writes lines to a file."""

    def __init__(self, path: str, mode: str) -> None:
        logging.FileHandler.__init__(self, path, mode, encoding='utf-8')
        self.setFormatter(HarmlessFormatter(FORMAT))
        self._trouble = WarnsOnce(f'the log file {path}')

    def close(self) -> None:
        """Close the file; an error of the disk is only warned of."""
        try:
            super().close()
        except OSError as error:
            self._trouble(error)


def _own_handlers(logger: logging.Logger) -> list[logging.Handler]:
    return [each for each in logger.handlers if isinstance(each, (ConsoleHandler, LogFileHandler))]


def _not_from_us(record: logging.LogRecord) -> bool:
    return not any(record.name == name or record.name.startswith(f'{name}.') for name in logger_initialized)
