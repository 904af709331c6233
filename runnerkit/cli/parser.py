"""What makes a function a command: a parser, and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

from runnerkit.cli.arguments import Argument, argument
from runnerkit.utils.ending import CommandLineExit, UsageError, obey_signals
from runnerkit.utils.logging import harmless_warnings

_FLAG = re.compile(r'--?[A-Za-z][\w.-]*')
_SETTING = re.compile(r'[A-Za-z_][\w.]*=')


def command_line(
    prog: str, description: str, *arguments: str | Argument | list[Argument], one_process: bool = False
) -> Callable[[Callable[[argparse.Namespace], int | None]], Any]:
    """Make a command of a function that gets its arguments and returns an exit code, or None for 0.

    The command is called with the words of the command line, and has a method ``parser``. Errors are messages on stderr
    and exit codes.
    """

    def decorate(call: Callable[[argparse.Namespace], int | None]) -> Any:
        def parser(prog: str = prog) -> Parser:
            parse = Parser(prog=prog, description=description)
            for each in arguments:
                group: Any = parse.add_mutually_exclusive_group() if isinstance(each, list) else parse
                for one in each if isinstance(each, list) else [each]:
                    names, options = argument(one) if isinstance(one, str) else one
                    group.add_argument(*names, **options)
            return parse

        def read(argv: Sequence[str] | None, prog: str = prog) -> argparse.Namespace:
            args = parser(prog).parse_args(argv)
            if one_process:
                from runnerkit.cli.errors import check_one_process

                check_one_process(prog)
            return args

        main: Any = usage_checked(call, read)
        main.parser = parser
        return main

    return decorate


def usage_checked(main: Callable[..., int | None], read: Callable[..., Any] | None = None) -> Callable[..., int]:
    """Turn errors of ``main``, and of ``read``, which makes its argument of ``argv``, into messages and exit codes."""

    @wraps(main)
    @harmless_warnings()
    def checked(argv: Sequence[str] | None = None, **kwargs: Any) -> int:
        try:
            return (main(argv, **kwargs) if read is None else main(read(argv, **kwargs))) or 0
        except BaseException as error:
            from runnerkit.cli.errors import ended_by

            return ended_by(error)
        finally:
            obey_signals()

    return checked


@contextmanager
def wrong_usage(*kinds: type[Exception], of: str = '') -> Iterator[None]:
    """Turn errors of these kinds into a `UsageError` with the same message, unless they come from the user's code."""
    try:
        yield
    except kinds as error:
        from runnerkit.cli.errors import is_self_explanatory, text_of

        if not is_self_explanatory(error):
            raise
        raise UsageError(f'{of}{text_of(error)}') from error


class Parser(argparse.ArgumentParser):
    """An argument parser whose error for an unknown flag says what to write instead.

    Flags cannot be shortened: ``--resume`` has another meaning in other tools, and a script should not depend on which
    flags exist.
    """

    @property
    def arguments(self) -> list[argparse.Action]:
        """The arguments that were added."""
        return self._actions

    @property
    def _flags(self) -> dict[str, argparse.Action]:
        return self._option_string_actions

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """As in `argparse.ArgumentParser`."""
        try:
            super().exit(status, message)
        except SystemExit as ending:
            raise CommandLineExit(ending.code) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in `argparse.ArgumentParser`, but an unknown flag is an error that comes before any other."""
        words = list(sys.argv[1:] if args is None else args)
        problem = self.problem_with(words)
        if problem is not None:
            self.error(problem)
        return super().parse_known_args(words, namespace)

    def problem_with(self, words: Sequence[str]) -> str | None:
        """Which flag in ``words`` does not exist, and what to write instead; None if there is none.

        Settings (``optimizer.lr=0.1``) that do not follow ``--cfg-options`` are treated like flags.
        """
        owner: argparse.Action | None = None  # the flag whose values these may be
        for i, word in enumerate(words):
            if word == '--':
                return None
            flag, given, value = word.partition('=')
            if _FLAG.fullmatch(flag):
                if flag not in self._flags:
                    from runnerkit.cli.errors import problem_with_flag

                    following = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith('-') else None
                    return problem_with_flag(flag, value if given else following, self._flags)
                owner = self._flags[flag] if self._flags[flag].nargs != 0 else None
            elif owner is None and self._is_setting(word):
                from runnerkit.cli.errors import problem_with_setting

                return problem_with_setting(word, self._flags)
            elif owner is not None and owner.nargs != '+':
                owner = None
        return None

    def _is_setting(self, word: str) -> bool:
        return bool(_SETTING.match(word)) and '--cfg-options' in self._flags and not os.path.exists(word)
