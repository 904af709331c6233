"""Processes that are stuck, and end all the same."""

import contextlib
import ctypes
import faulthandler
import os
import sys
import threading

from forks import Fork

from runnerkit.utils import ending
from runnerkit.utils.ending import end_after, end_not, ending_after, limit_exit, stderr

LIMIT = 0.3

#: Of an exit: it has to begin within that time, also on a slow machine.
EXIT_LIMIT = 1.0


def stuck_in_cpp():
    """With the interpreter's lock, so that no thread of Python's runs."""
    ctypes.PyDLL(None).sleep(300)


def stays():
    end_after(LIMIT)
    stuck_in_cpp()


def fails_and_stays():
    try:
        with ending_after(300, exit_within=EXIT_LIMIT):
            raise ZeroDivisionError
    except ZeroDivisionError:
        leaves_with_a_thread()


def is_late():
    with ending_after(LIMIT, exit_within=300):
        threading.Event().wait()


def leaves_with_a_thread():
    threading.Thread(target=threading.Event().wait).start()
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


def test_it_ends_with_its_stacks(tmp_path):
    """All of them wait at the same time."""
    forks = {}
    for function in (stays, is_late, fails_and_stays, leaves_too_late, is_stuck_in_a_destructor):
        folder = tmp_path / function.__name__
        folder.mkdir()
        forks[function] = Fork(function, folder=folder)
    for function, fork in forks.items():
        assert fork.code() == 1
        assert (f'more than {LIMIT} s' if function is is_late else 'Timeout (0:00:0') in fork.said()
        assert function.__name__ in fork.said()


def is_stuck_after_the_interpreter():
    ending._MARGIN, ending.end_after = 0, lambda seconds: None  # Python's own part of the exit may take longer
    limit_exit(EXIT_LIMIT)
    libc = ctypes.CDLL(None)
    getattr(libc, '__cxa_atexit')(libc.pause, None, None)  # as destructors of C++ are called
    ctypes.pythonapi.Py_Exit(5)


def test_it_ends_although_python_is_gone(tmp_path):
    assert Fork(is_stuck_after_the_interpreter, folder=tmp_path).code() == 1


def goes_on():
    with ending_after(LIMIT, exit_within=300):
        pass
    end_after(LIMIT)
    end_not()
    limit_exit(LIMIT)
    limit_exit(None)
    threading.Timer(3 * LIMIT, os._exit, [6]).start()  # the exit waits for it
    ctypes.pythonapi.Py_Exit(5)


def test_a_limit_can_be_taken_back(tmp_path):
    assert Fork(goes_on, folder=tmp_path).code() == 6


def catches_and_goes_on():
    with contextlib.suppress(ZeroDivisionError), ending_after(300, exit_within=LIMIT):
        raise ZeroDivisionError
    threading.Event().wait(2 * LIMIT)
    threading.Timer(3 * LIMIT, os._exit, [6]).start()  # the exit waits for it
    ctypes.pythonapi.Py_Exit(5)


def test_a_process_that_goes_on_after_an_error_has_no_limit(tmp_path):
    fork = Fork(catches_and_goes_on, folder=tmp_path)
    assert fork.code() == 6, fork.said()


def limits_often():
    faulthandler.dump_traceback_later(2 * LIMIT)  # the user's
    for _ in range(5):
        with contextlib.suppress(ZeroDivisionError), ending_after(300, exit_within=300):
            raise ZeroDivisionError
    print(sum(thread.name == 'runnerkit-exit' for thread in threading.enumerate()))
    threading.Event().wait(4 * LIMIT)


def test_a_start_leaves_the_users_timer_and_one_thread(tmp_path):
    fork = Fork(limits_often, folder=tmp_path)
    assert fork.code() == 0
    assert 'Timeout (0:00:00.6' in fork.said()
    assert fork.said('stdout') == '1\n'


def test_where_stacks_are_written(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', None)
    assert stderr() is sys.__stderr__
    monkeypatch.setattr(sys, '__stderr__', None)
    assert stderr() is None
