"""Other processes of this machine."""

import os

from runnerkit.utils.processes import is_alive


def test_whether_a_process_lives():
    assert is_alive(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(pid)  # it has ended, and nobody has asked for its exit code
    os.waitpid(pid, 0)
    assert not is_alive(pid)
