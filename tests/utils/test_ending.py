"""The exit codes of all commands; processes that are stuck, and end all the same."""

import ast
import ctypes
import os
import re
import signal
import sys
import threading

import pytest
from forks import Fork
from support import ROOT

from runnerkit.utils import ending
from runnerkit.utils.ending import ENDINGS, MEANINGS, code_of, end_after, end_not, end_now, limit_exit, stderr
from runnerkit.utils.exceptions import NonFiniteError

LIMIT = 0.3

#: Of an exit: it has to begin within that time, also on a slow machine.
EXIT_LIMIT = 1.0


def stuck_in_cpp():
    """With the interpreter's lock, so that no thread of Python's runs."""
    ctypes.PyDLL(None).sleep(300)


def stays():
    end_after(LIMIT)
    stuck_in_cpp()


def is_ended_now():
    end_now('Timeout (0:00:00)', 1)


def leaves_with_a_thread():
    threading.Thread(target=threading.Event().wait, args=(20,)).start()
    ctypes.pythonapi.Py_Exit(5)


def leaves_too_late():
    limit_exit(EXIT_LIMIT)
    leaves_with_a_thread()


def is_stuck_in_a_destructor():
    class Stuck:
        def __del__(self):
            stuck_in_cpp()

    sys.modules['stuck'] = Stuck()
    limit_exit(EXIT_LIMIT)
    ctypes.pythonapi.Py_Exit(5)


def is_stuck_after_the_interpreter():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has a handler
    limit_exit(EXIT_LIMIT)
    ending._MARGIN = 0
    ending.faulthandler = type('None', (), {'dump_traceback_later': staticmethod(lambda *args, **options: None)})
    libc = ctypes.CDLL(None)
    getattr(libc, '__cxa_atexit')(libc.pause, None, None)  # as destructors of C++ are called
    ctypes.pythonapi.Py_Exit(5)


def test_it_ends_with_its_stacks(tmp_path):
    """All of them wait at the same time."""
    forks = {}
    for function in (stays, is_ended_now, leaves_too_late, is_stuck_in_a_destructor, is_stuck_after_the_interpreter):
        folder = tmp_path / function.__name__
        folder.mkdir()
        forks[function] = Fork(function, folder=folder)
    assert forks.pop(is_stuck_after_the_interpreter).code() == -14
    for function, fork in forks.items():
        assert fork.code() == 1
        assert 'Timeout (0:00:0' in fork.said()
        assert function.__name__ in fork.said()


def goes_on():
    end_after(LIMIT)
    end_not()
    limit_exit(LIMIT)
    threading.Event().wait(2 * LIMIT)
    threading.Timer(3 * LIMIT, os._exit, [6]).start()  # the exit waits for it
    ctypes.pythonapi.Py_Exit(5)


def test_a_process_that_goes_on_has_no_limit(tmp_path):
    fork = Fork(goes_on, folder=tmp_path)
    assert fork.code() == 6, fork.said()


def test_where_stacks_are_written(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', None)
    assert stderr() is sys.__stderr__
    monkeypatch.setattr(sys, '__stderr__', None)
    assert stderr() is None


def test_the_page_has_the_table_of_the_code():
    page = (ROOT / 'docs/reference/commands.md').read_text().partition('## Exit codes')[2].partition('## ')[0]
    rows = re.findall(r'^\| (\d+) \| (.+) \|$', page, flags=re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == MEANINGS


def test_the_page_has_the_table_of_endings():
    page = (ROOT / 'docs/reference/commands.md').read_text().partition('| ended by | outcome | exit code |')[2]
    rows = re.findall(r'^\| (\S.*) \| (\w+) \| (.+) \|$', page, flags=re.MULTILINE)
    assert tuple(rows) == ENDINGS


@pytest.mark.parametrize(
    'error, code',
    [
        *(
            (SystemExit(*given), 1)
            for given in ((), (None,), (0,), (256,), (-512,), (False,), ('text',), ([],), (0.0,))
        ),
        *((SystemExit(given), given % 256) for given in (1, True, 2, 255, 257, -1)),
        (KeyboardInterrupt(), 130),
        (NonFiniteError(), 5),
        *((kind(), 1) for kind in (BaseException, GeneratorExit, ValueError, FloatingPointError)),
    ],
)
def test_an_exception_has_its_code(error, code):
    assert code_of(error) == code


@pytest.mark.thorough  # tests/cli/test_main.py has each code
def test_commands_return_codes_by_their_names():
    """But for 0, and for `compat`, whose program runs another one."""
    found = []
    for path in (ROOT / 'runnerkit/cli').glob('*.py'):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef) and each.name in ('main', 'checked'):
                returns = [node.value for node in ast.walk(each) if isinstance(node, ast.Return)]
                numbers = [value.value for value in returns if isinstance(value, ast.Constant)]
                found += [(path.name, number) for number in numbers if number != 0]
    assert found == []
