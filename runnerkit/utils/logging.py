"""Loggers that write to the console and to a file, on the first process only, and never end a run."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

from runnerkit.utils.env import process_rank

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = '%(asctime)s - %(name)s - %(levelname)s - %(message)s'

#: The loggers that `get_logger` has set up, and not their children.
logger_initialized: dict[str, bool] = {}

_STYLES = {'WARNING': 'yellow', 'ERROR': 'bold red', 'CRITICAL': 'bold red'}


def is_terminal() -> bool:
    """Whether a person is watching: stderr, where the log goes, is a terminal."""
    return bool(getattr(sys.stderr, 'isatty', lambda: False)())


@lru_cache(maxsize=1)
def console() -> Console:
    """The one rich console for stderr; log lines and progress bars share it, so that neither tears up the other."""
    from rich.console import Console

    return Console(stderr=True)


def get_logger(
    name: str, log_file: str | os.PathLike[str] | None = None, log_level: int | str = logging.INFO, file_mode: str = 'w'
) -> logging.Logger:
    """The logger ``name``; set up at its first call, unless a parent of it is already.

    Only rank 0 writes to the file and below the level ERROR. Asked again, the logger stays as it is; a ``log_file``
    that it does not write yet is added, with the new level.

    Args:
        name: parts are separated by dots; ``a.b`` goes where ``a`` goes.
        log_file: a file to write beside the console; its folder must exist.
        log_level: the least severe level that is let through.
        file_mode: ``'w'`` starts the file anew, ``'a'`` goes on with it.
    """
    logger = logging.getLogger(name)
    first = name not in logger_initialized
    if first and any(name.startswith(f'{parent}.') for parent in logger_initialized):
        return logger
    rank = process_rank()
    if first:
        _spare_root_console()
        logger.addHandler(ConsoleHandler())
        logger_initialized[name] = True
    adds_file = log_file is not None and rank == 0 and not _writes_to(logger, log_file)
    if adds_file:
        logger.addHandler(LogFileHandler(str(log_file), file_mode))
    if first or adds_file:
        logger.setLevel(log_level if rank == 0 else logging.ERROR)
        for handler in _own_handlers(logger):
            handler.setLevel(log_level)
    return logger


def close_logger(name: str) -> None:
    """Close the console and files of the logger ``name``; `get_logger` can set it up anew."""
    logger_initialized.pop(name, None)
    logger = logging.getLogger(name)
    for handler in _own_handlers(logger):
        logger.removeHandler(handler)
        handler.close()


def print_log(msg: object, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Say ``msg``.

    Args:
        msg: what to say.
        logger: a logger or its name; None prints to stdout, ``'silent'`` says nothing.
        level: how severe it is.

    Raises:
        TypeError: ``logger`` is something else.
    """
    if logger is None:
        print(msg)
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


def printable(text: object, most: int = 1000) -> str:
    """``text`` on one line that cannot change what a terminal or a log shows around it.

    Use it for text that comes from a file or a server. Newlines, escape sequences, marks that reverse the direction of
    writing and other invisible characters are shown as Python writes them (``\\n``, ``\\x1b``).

    Args:
        text: anything; its ``str`` is taken.
        most: the number of characters, at most, that are shown.
    """
    text = str(text)
    shown = text[:most]
    if not shown.isprintable():
        shown = ''.join(each if each.isprintable() else each.encode('unicode_escape').decode() for each in shown)
    return shown if len(text) <= most else f'{shown}… ({len(text)} characters)'


def shortened(names: Sequence[object], most: int = 12) -> str:
    """The first ``most`` of ``names``, which may come from a file, separated by commas, and how many there are."""
    shown = ', '.join(printable(name, 200) for name in names[:most])
    return shown + (f' … ({len(names)} in all)' if len(names) > most else '')


class WarnsOnce:
    """Says once that something cannot be written, and leaves it at that.

    Args:
        what: what is being written, for the message.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.warned = False

    def __call__(self, error: BaseException) -> None:
        """Take note of ``error``."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f'{self.what} cannot be written ({error}); the run goes on without it', RuntimeWarning, stacklevel=3
            )


class _Tolerant(logging.Handler):
    """What both handlers do with a line that cannot be written."""

    _trouble: WarnsOnce

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._trouble(error)
        else:  # a mistake of the caller, such as arguments that do not fit the message
            super().handleError(record)


class ConsoleHandler(_Tolerant, logging.StreamHandler):
    """Lines to stderr, whatever that is at the moment: above any progress bar on a terminal, plain in a pipe."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter(FORMAT))
        self._trouble = WarnsOnce('the log on the console')

    @property
    def stream(self) -> TextIO:
        """Where lines go now; tests and notebooks replace it."""
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        from multiprocessing import parent_process

        # In a loader's worker, rich's lock may be that of a bar being drawn at the fork: nobody frees it there.
        if not is_terminal() or parent_process() is not None:
            super().emit(record)
            return
        try:
            from rich.text import Text

            line = Text(self.format(record), style=_STYLES.get(record.levelname, ''))
            console().print(line, soft_wrap=True)
        except Exception:
            self.handleError(record)


class LogFileHandler(_Tolerant, logging.FileHandler):
    """Lines to a file."""

    def __init__(self, path: str, mode: str) -> None:
        logging.FileHandler.__init__(self, path, mode, encoding='utf-8')
        self.setFormatter(logging.Formatter(FORMAT))
        self._trouble = WarnsOnce(f'the log file {path}')

    def close(self) -> None:
        """Close the file; what could not be written by then is lost."""
        try:
            super().close()
        except OSError as error:
            self._trouble(error)


def _own_handlers(logger: logging.Logger) -> list[logging.Handler]:
    return [each for each in logger.handlers if isinstance(each, (ConsoleHandler, LogFileHandler))]


def _writes_to(logger: logging.Logger, log_file: str | os.PathLike[str]) -> bool:
    path = os.path.abspath(log_file)
    return any(isinstance(each, logging.FileHandler) and each.baseFilename == path for each in logger.handlers)


def _not_from_us(record: logging.LogRecord) -> bool:
    return not any(record.name == name or record.name.startswith(f'{name}.') for name in logger_initialized)


def _spare_root_console() -> None:
    """Keep lines from being shown twice where the user, or a library, has given the root logger a console."""
    handler: Any
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler and _not_from_us not in handler.filters:
            handler.addFilter(_not_from_us)
