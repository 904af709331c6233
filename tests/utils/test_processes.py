"""Other processes of this machine."""

import os
import signal
import sys

import pytest

from runnerkit.utils.env import is_alive, process_state, start_of


def test_whether_a_process_lives():
    assert is_alive(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(pid)  # it has ended, and nobody has asked for its exit code
    os.waitpid(pid, 0)
    assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != 'linux', reason='needs /proc')
def test_whether_a_process_is_stopped_and_when_it_was_started():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    assert (process_state(pid), process_state(os.getpid())) == ('T', 'R')
    assert start_of(pid) == start_of(pid) != start_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (process_state(pid), start_of(pid)) == (None, None)
