"""What a command says of an error, or of an unknown flag: one clear message instead of a traceback where that would
not help, and an exit code. A command that does well imports none of it."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from runnerkit.config.origin import PreflightError
from runnerkit.registry import is_placed
from runnerkit.utils.ending import USAGE, CommandLineExit, UsageError, code_of, world_size
from runnerkit.utils.exceptions import ToldByFirstRank, one_line
from runnerkit.utils.logging import print_err
from runnerkit.utils.suggest import suggestion

#: What a rank says that has only lost another one: the last ``error:`` is that one's.
_PEER_IS_GONE = (
    "another rank has died or does not answer: see its error, or its exit code in the launcher's summary (-9: it was "
    'killed, often for its memory)'
)

_PACKAGE = Path(__file__).resolve().parent.parent

#: The file whose calls run config files.
_RUNS_CONFIGS = str(_PACKAGE / 'config' / 'parse.py')


def check_extension(flag: str, path: str, extensions: Sequence[str], what: str) -> None:
    """Check the extension of a file to write, before torch is imported."""
    extension = os.path.splitext(path)[1].lower()
    if extension not in extensions:
        hint = suggestion(extension, extensions)
        raise UsageError(f'{flag} {path}: {what} as {", ".join(extensions)}{hint}')


def check_writable(flag: str, path: str) -> None:
    """Check that a file can be written to ``path``, before the work that leads to it."""
    folder = os.path.dirname(path) or '.'
    if not os.path.isdir(folder):
        raise UsageError(f'{flag} {path}: no such folder: {folder}')
    if os.path.isdir(path):
        raise UsageError(f'{flag} {path} is a folder: give a file in it')
    place = path if os.path.exists(path) else folder
    if not os.access(place, os.W_OK):
        raise UsageError(f'{flag} {path}: {place} is not writable: give another path')


def text_of(error: BaseException) -> str:
    """What the commands print of an error: one line, but for those with a list."""
    if isinstance(error, PreflightError):
        return str(error)
    text, name = one_line(error), type(error).__name__
    says_why = isinstance(error, Exception) or isinstance(getattr(error, 'code', None), str) or text.startswith(name)
    return text if says_why else f'{name}: {text}'


def ended_by(error: BaseException) -> int:
    """Say what ends a command; returns its exit code."""
    if isinstance(error, CommandLineExit):
        if error.code:
            leave_for_torchrun(error)
        raise SystemExit(error.code) from None  # no way out for a run whose code has called this command
    if isinstance(error, KeyboardInterrupt):
        print_err('interrupted')
        return code_of(error)
    code = USAGE if is_usage(error) else code_of(error)
    rank = _rank()
    if isinstance(error, ToldByFirstRank):
        print_err(f'{rank or "this rank"} ends: rank 0 has failed, and says why')
    else:
        is_refusal = isinstance(error, UsageError) or is_self_explanatory(error)  # a user's sys.exit is none
        if os.environ.get('RUNNERKIT_TRACEBACK') or not is_refusal:
            show_traceback(error)
        logging.getLogger('runnerkit').debug('failed', exc_info=True)
        text = text_of(error)
        names_rank = text.startswith('rank ')  # perhaps another one
        if rank and _is_lost(error):
            print_err(f'{rank} ends: {text if names_rank else _PEER_IS_GONE}')
        else:
            print_error(f'{rank}: {text}' if rank and not names_rank else text)
    leave_for_torchrun(error)  # whose summary calls the rank that ends first the cause
    return code


def is_usage(error: BaseException) -> bool:
    """Whether ``error`` is about what the user wrote: a flag, a path, or a line of the config. An error in the
    user's code is another."""
    if isinstance(error, (UsageError, PreflightError)):
        return True
    if _is_lost(error):  # while something of the config was built
        return False
    is_missing = isinstance(error, FileNotFoundError) and error.errno is None  # with a sentence of ours
    return (is_missing or is_placed(error)) and is_self_explanatory(error)


def check_one_process(prog: str) -> None:
    """Refuse to run ``prog`` in several processes: each would do the same, and none knows of the others."""
    if (count := world_size()) > 1:
        raise UsageError(
            f'{prog} works in one process, but torchrun has started {count} (WORLD_SIZE={count}): call it without '
            'torchrun'
        )


def print_error(message: str) -> None:
    """Print ``message`` on stderr, and before it the place of the page that explains it, if one does."""
    from runnerkit.cli.troubleshooting import section_about

    if place := section_about(message):
        print_err(f'help: {place}')
    print_err(f'error: {message}')


def leave_for_torchrun(error: BaseException) -> None:
    """Leave the error that is being handled where torchrun looks for it: its summary has the traceback then, from the
    first line of the user's code on, unless it is only that of a rank that has lost another one."""
    if os.environ.get('TORCHELASTIC_ERROR_FILE'):  # so torch is there, and is imported in any case
        from runnerkit.distributed.watch import record

        if not _is_lost(error):
            whole = part = error.__traceback__
            while part is not None and not is_of_user(part.tb_frame.f_code.co_filename):
                part = part.tb_next
            record(error.with_traceback(part or (None if is_self_explanatory(error) else whole)))
            error.__traceback__ = whole


def _rank() -> str:
    """``'rank 1'`` of several; else empty."""
    return f'rank {os.environ["RANK"]}' if world_size() > 1 and 'RANK' in os.environ else ''


def _is_lost(error: BaseException) -> bool:
    watch = sys.modules.get('runnerkit.distributed.watch')  # without it there is one rank
    return watch is not None and watch.is_lost(error)


def is_self_explanatory(error: BaseException) -> bool:
    """Whether the error's message is enough: runnerkit raised it, or it has a note that says where to look.

    If the user's code is in the traceback, the error may be there, and the traceback shows the line. Of an error in a
    config file, the message names the line.
    """
    chain: BaseException | None = error
    while chain is not None:
        files = files_of(chain.__traceback__)
        if any(is_of_user(path) and before != _RUNS_CONFIGS for before, path in pairwise(['', *files])):
            return False
        chain = chain.__cause__
    files = files_of(error.__traceback__)
    return not files or not is_installed(files[-1]) or bool(getattr(error, '__notes__', ()))


def show_traceback(error: BaseException) -> None:
    """Print the traceback on stderr, from the first line of the user's code on; all of it where there is none, or if
    RUNNERKIT_TRACEBACK is set."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = None if os.environ.get('RUNNERKIT_TRACEBACK') else shown
    while part is not None:
        first = next((i for i, frame in enumerate(part.stack) if is_of_user(frame.filename)), None)
        if first is not None:
            del part.stack[:first]
            shown = part  # what comes of it is the message's
            break
        part = part.__cause__
    print_err(''.join(shown.format()).removesuffix('\n'))


def files_of(trace: TracebackType | None) -> list[str]:
    """The files of all frames of a traceback."""
    return [] if trace is None else [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]


def is_of_user(path: str) -> bool:
    """Whether ``path`` belongs neither to runnerkit, nor to Python, nor to an installed package."""
    ours = _PACKAGE in Path(path).parents
    is_compiled = path.endswith('.pyx')  # of numpy, for one; it has no folder
    return not (ours or is_installed(path) or is_compiled or path.startswith(('<', sys.base_prefix)))


def is_installed(path: str) -> bool:
    """Whether ``path`` belongs to an installed package other than runnerkit."""
    return 'site-packages' in path and _PACKAGE not in Path(path).parents


# --- unknown flags ----------------------------------------------------------------------------------------------------

_OWN_FLAG = re.compile(r'--[a-z][a-z-]*(?![\w-])')
_EPOCHS = '--cfg-options runner.max_epochs=VALUE'
_BATCH = '--cfg-options data.batch_size=VALUE'
_WORKERS = '--cfg-options data.workers=VALUE'
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


def problem_with_flag(flag: str, value: str | None, flags: Collection[str]) -> str:
    """What to say about ``flag``, which is not among ``flags``, with the value that seems to be meant for it."""
    if hint := hint_for_flag(flag, value, flags):
        way_out = f': {"use " * hint.startswith("--")}{hint}'
    elif '.' in flag and '--cfg-options' in flags:
        way_out = f': use --cfg-options {flag.strip("-")}={value or "…"}'
    else:
        way_out = suggestion(f'--{_usual_name(flag)}', flags)
    return f'unknown flag {flag}{way_out}'


def problem_with_setting(setting: str, flags: Collection[str]) -> str:
    """What to say about ``optimizer.lr=0.1``, or ``epochs=5``, that does not follow ``--cfg-options``."""
    key, _, value = setting.partition('=')
    hint = hint_for_flag(key, value, flags)
    right = hint if hint.startswith('--cfg-options') else f'--cfg-options {setting}'
    return f'{setting} is not a flag; to set a key of the config: {right}'


def hint_for_flag(flag: str, value: str | None, flags: Collection[str]) -> str:
    """What `FLAGS` has for ``flag`` and fits a tool with these ``flags``; empty if nothing does."""
    hint = FLAGS.get(_usual_name(flag), '')
    fits = all(own in flags for own in _OWN_FLAG.findall(hint))
    return hint.replace('VALUE', value or '…') if fits else ''


def _usual_name(flag: str) -> str:
    """A flag of another tool as `FLAGS` has it."""
    return flag.strip('-').replace('_', '-').lower()
