"""What makes a function a command: a parser, which explains the usual flags of other tools, and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from runnerkit.cli.arguments import Argument, argument
from runnerkit.cli.errors import check_one_process, usage_checked
from runnerkit.utils.ending import CommandLineExit
from runnerkit.utils.suggest import suggestion

_FLAG = re.compile(r'--?[A-Za-z][\w.-]*')
_SETTING = re.compile(r'[A-Za-z_][\w.]*=')
_OWN_FLAG = re.compile(r'--[a-z][a-z-]*(?![\w-])')
_EPOCHS = '--cfg-options runner.max_epochs=VALUE'
_BATCH = '--cfg-options data.batch_size=VALUE'
_WORKERS = '--cfg-options data.num_workers=VALUE'
_RESUME = '--auto-resume for the newest checkpoint of the work dir, or --resume-from CHECKPOINT'
_RANKS = 'start that many processes: torchrun --nproc_per_node VALUE … --launcher pytorch'
#: The usual flags of other training tools, and what to write instead; VALUE is replaced by the value that was given. A
#: hint is for the tools that have its flags.
FLAGS = {
    **dict.fromkeys(('epochs', 'max-epochs', 'num-epochs'), _EPOCHS),
    'max-iters': '--cfg-options runner.max_epochs=None runner.max_iters=VALUE',
    **dict.fromkeys(('lr', 'learning-rate'), '--cfg-options optimizer.lr=VALUE'),
    **dict.fromkeys(('batch-size', 'batch'), _BATCH),
    **dict.fromkeys(('workers', 'num-workers'), _WORKERS),
    'num-gpus': _RANKS,
    **dict.fromkeys(('amp', 'precision'), '--cfg-options amp=bf16 (or amp=fp16)'),
    **dict.fromkeys(('config', 'c'), 'the config is the first argument, without a flag'),
    **dict.fromkeys(('options', 'opts'), '--cfg-options VALUE'),
    **dict.fromkeys(('resume', 'resume-from-checkpoint'), _RESUME),
    **dict.fromkeys(('output', 'output-dir'), '--work-dir VALUE'),
    'eval': '--cfg-options evaluation.metric=VALUE',
}


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
                check_one_process(prog)
            return args

        main: Any = usage_checked(call, read)
        main.parser = parser
        return main

    return decorate


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
                    following = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith('-') else None
                    return f'unknown flag {flag}{self._way_out(flag, value if given else following)}'
                owner = self._flags[flag] if self._flags[flag].nargs != 0 else None
            elif owner is None and self._is_setting(word):
                hint = self._hint(flag, value)  # epochs=5
                setting = hint if hint.startswith('--cfg-options') else f'--cfg-options {word}'
                return f'{word} is not a flag; to set a key of the config: {setting}'
            elif owner is not None and owner.nargs != '+':
                owner = None
        return None

    def _is_setting(self, word: str) -> bool:
        return bool(_SETTING.match(word)) and '--cfg-options' in self._flags and not os.path.exists(word)

    def _way_out(self, flag: str, value: str | None) -> str:
        """What to write instead of ``flag``, which does not exist here."""
        hint = self._hint(flag, value)
        if hint:
            return f': {"use " * hint.startswith("--")}{hint}'
        if '.' in flag and '--cfg-options' in self._flags:
            return f': use --cfg-options {flag.strip("-")}={value or "…"}'
        return suggestion(f'--{_flag_name(flag)}', self._flags)

    def _hint(self, flag: str, value: str | None) -> str:
        """What `FLAGS` has for ``flag`` and fits this tool; empty if nothing does."""
        hint = FLAGS.get(_flag_name(flag), '')
        fits = all(own in self._flags for own in _OWN_FLAG.findall(hint))
        return hint.replace('VALUE', value or '…') if fits else ''


def _flag_name(flag: str) -> str:
    """A flag of another tool as `FLAGS` has it."""
    return flag.strip('-').replace('_', '-').lower()
