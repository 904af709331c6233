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
        self.folder = folder
        for name in ('stdout', 'stderr'):
            (folder / name).write_text('')
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                if has_own_group:
                    os.setsid()
                self._redirect(stderr)
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

    def _redirect(self, stderr):
        os.dup2(os.open(self.folder / 'stderr', os.O_WRONLY) if stderr is None else stderr, 2)
        os.dup2(os.open(self.folder / 'stdout', os.O_WRONLY), 1)
        sys.stdout, sys.stderr = (io.TextIOWrapper(open(fd, 'wb', 0), write_through=True) for fd in (1, 2))  # noqa: SIM115
        like_a_new_process()

    def send(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)

    def code(self):
        """Wait for its end: its exit code, or the negative number of the signal that it died of."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def said(self, where='stderr'):
        """What it has written so far."""
        return (self.folder / where).read_text()


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
