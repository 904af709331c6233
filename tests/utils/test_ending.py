"""Processes that are stuck, and end all the same."""

import ctypes
import os
import signal
import sys
import threading

from forks import Fork

from runnerkit.utils import ending
from runnerkit.utils.ending import end_after, end_not, end_now, limit_exit, stderr

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
