"""Real processes in no time: forks of this one, which need not start Python and import torch."""

import atexit
import contextlib
import gc
import io
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
import warnings

import torch

from runnerkit.utils.logging import close_logger

PYTHON = sys.executable  # which tests replace


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


class WarmPopen(subprocess.Popen):
    """A `subprocess.Popen` that forks this process where a Python program is to be started: torch is imported there.

    For tests about real processes to which it does not matter that they begin with nothing: signals, exit codes, files
    and sockets are those of a started program. Anything but ``python -m`` and ``python script.py`` is started as ever.
    """

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others):
        words = [os.fspath(each) for each in args] if isinstance(args, (list, tuple)) else []
        if executable or preexec_fn or words[:1] != [PYTHON] or not is_program(words[1:2]):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)
            return
        _, _, _, read_in, write_in, read_out, write_out, read_err, write_err, *rest = others
        has_own_session = rest[5]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                if has_own_session:
                    os.setsid()
                _take_files({0: read_in, 1: write_out, 2: write_err}, pass_fds)
                if cwd is not None:
                    os.chdir(cwd)
                _run_program(words[1:], env)
            finally:
                os._exit(70)  # never reached
        self._child_created = True
        self._close_pipe_fds(read_in, write_in, read_out, write_out, read_err, write_err)


def is_program(words):
    """Whether Python's first argument is ``-m`` or a script, and no other flag."""
    return words == ['-m'] or bool(words) and not words[0].startswith('-')


def _take_files(streams, kept):
    """Put ``streams`` in the places of a program's, and close all files but these and the ``kept`` ones."""
    copies = {number: os.dup(file) for number, file in streams.items() if file != -1}
    for number, file in copies.items():
        os.dup2(file, number)
    for name in os.listdir('/proc/self/fd'):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _run_program(words, env):
    """Run ``-m module …`` or ``script.py …`` and end as Python would."""
    gc.freeze()  # a file object of the other process would close a file of this one
    atexit._clear()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (io.TextIOWrapper(open(fd, 'wb', 0), write_through=True) for fd in (1, 2))  # noqa: SIM115
    like_a_new_process()
    if loops := sys.modules.get('runnerkit.flow.own_loop'):  # as if it were imported now
        loops._living.clear()
        atexit.register(loops._close_all)
    warnings.resetwarnings()
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    sys.path[:0] = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    code = 0
    try:
        if words[0] == '-m':
            sys.argv = ['-m', *words[2:]]
            sys.path.insert(0, '')
            sys.modules.pop(words[1], None)
            runpy.run_module(words[1], run_name='__main__', alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name='__main__')
    except SystemExit as end:
        code = end.code
        if not (code is None or isinstance(code, int)):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)


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
    for number in (
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGHUP,
        signal.SIGQUIT,
    ):  # the last two are of torch's launcher
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
