"""Real processes in no time: forks of this one, which need not start Python and import torch."""

import io
import logging
import os
import signal
import sys
import traceback

import torch

from runnerkit.utils.logging import close_logger


class Fork:
    """A fork of this process that calls a function and ends as a script of that function would.

    Its exit code is what the function returns or gives to ``sys.exit``, 130 for Ctrl-C, and 1 for any other exception.

    Args:
        function: what it calls.
        *args: what ``function`` is given.
        folder: where it writes ``stdout`` and ``stderr``.
        stderr: a file descriptor, such as a terminal's, instead of the file.
        has_own_group: whether it begins a process group.
        **options: what else ``function`` is given.
    """

    def __init__(self, function, *args, folder, stderr=None, has_own_group=False, **options):
        self._prepare(folder)
        self.pid = os.fork()
        if self.pid == 0:
            _do(function, args, options, folder, stderr, has_own_group)

    def _prepare(self, folder):
        self.folder = folder
        for name in ('stdout', 'stderr'):
            (folder / name).write_text('')

    def send(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)

    def code(self):
        """Wait for its end: its exit code, or the negative number of the signal that it died of."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def said(self, where='stderr'):
        """What it has written so far."""
        return (self.folder / where).read_text()


class CleanFork(Fork):
    """A fork of the process that `ranks` forks from, which has no threads.

    For what leaves through the exit of the interpreter. In a fork of a test process, destructors of C++ there may wait
    for threads that an earlier test has begun (torch's profiler, say, or a session of onnxruntime), and that the fork
    does not have: it is aborted ("No such process", -6), or waits for ever.
    """

    def __init__(self, function, *args, folder, **options):
        self._prepare(folder)
        context = torch.multiprocessing.get_context('forkserver')
        self._process = context.Process(target=_do, args=(function, args, options, folder))
        self._process.start()
        self.pid = self._process.pid

    def has_ended(self):
        """Whether it has."""
        return self._process.exitcode is not None

    def code(self):
        """As `Fork.code`."""
        self._process.join()
        return self._process.exitcode


def _do(function, args, options, folder, stderr=None, has_own_group=False):
    """What the fork does."""
    code = 1
    try:
        if has_own_group:
            os.setsid()
        os.dup2(os.open(folder / 'stderr', os.O_WRONLY) if stderr is None else stderr, 2)
        os.dup2(os.open(folder / 'stdout', os.O_WRONLY), 1)
        sys.stdout, sys.stderr = (io.TextIOWrapper(open(fd, 'wb', 0), write_through=True) for fd in (1, 2))  # noqa: SIM115
        like_a_new_process()
        code = function(*args, **options) or 0
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def like_a_new_process():
    """In a fork: leave no handlers of this process's, neither of signals nor of loggers."""
    torch.set_num_threads(1)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    close_logger('runnerkit')
    logging.getLogger().handlers.clear()


def launch(function, *args):
    """Call ``function`` in two processes that torch's launcher starts: it forks them, instead of starting Python."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    where = {'rdzv_backend': 'c10d', 'rdzv_endpoint': 'localhost:0', 'run_id': str(os.getpid())}
    config = LaunchConfig(1, 1, 2, **where, start_method='fork', max_restarts=0, monitor_interval=0.05)
    elastic_launch(config, _launched)(function, *args)


def _launched(function, *args):
    like_a_new_process()
    if function(*args):
        raise RuntimeError('its exit code is not 0')


def shown_on(terminal):
    """What was written to a terminal, once all who could write have ended; it is closed then.

    Args:
        terminal: the file descriptor of the end that ``pty.openpty`` calls master.
    """
    seen = b''
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(terminal)
    return seen
