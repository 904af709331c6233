"""The exit code of the training tool after a signal; what signals do before and after the run."""

import os
import signal
import socket
import time

import pytest
import torch

from runnerkit.cli.parser import usage_checked
from runnerkit.cli.train import main
from runnerkit.utils.ending import Grace, UsageError, ignoring_repeated_signals

HOOK = """
import os
from runnerkit.hooks import Hook


class Mine(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 6:
            os.kill(os.getpid(), int(os.environ['NUMBER']))
"""


def exit_code(of):
    """Of a fork, in which ``of`` may leave handlers behind."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = of()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize('name', ['SIGTERM', 'SIGUSR1', 'SIGINT'])
def test_the_exit_code_is_128_and_the_signal(name, project, train, monkeypatch):
    number = getattr(signal, name)
    monkeypatch.setenv('NUMBER', str(int(number)))
    (project / 'hook.py').write_text(HOOK)
    (project / 'hooked.py').write_text(
        "_base_ = 'cfg.py'\ncustom_hooks = [dict(type='{{ fileDirname }}/hook.py:Mine')]\n"
    )
    part = ['--work-dir', str(project / 'part')]
    assert exit_code(lambda: main([str(project / 'hooked.py'), *part])) == 128 + number
    assert (project / 'part' / 'iter_7.pth').exists()
    assert exit_code(lambda: main([str(project / 'cfg.py'), *part, '--auto-resume'])) == 0
    train(work_dir='whole')
    one, other = (torch.load(project / folder / 'epoch_3.pth')['state_dict'] for folder in ('part', 'whole'))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_what_comes_after_the_run_is_not_cut_off():
    def leave(stopped, after):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own
        with ignoring_repeated_signals(lambda: stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        if after:
            os.kill(os.getpid(), signal.SIGTERM)
        return 5

    assert exit_code(lambda: leave(stopped=True, after=True)) == 5
    assert exit_code(lambda: leave(stopped=False, after=False)) == -signal.SIGTERM


@pytest.mark.parametrize('fails', [False, True])
def test_what_comes_after_the_command_is_cut_off(monkeypatch, fails):
    """The exit of the interpreter, in which a thread, a tracker or a destructor may be stuck."""

    def leave():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert usage_checked(command)(None) == 2 * fails
        os.kill(os.getpid(), signal.SIGTERM)
        return 5

    def command(argv):
        with ignoring_repeated_signals(lambda: not fails):
            if fails:
                raise UsageError('Connection closed by peer')
        return 0

    monkeypatch.setenv('WORLD_SIZE', '2')
    assert exit_code(leave) == -signal.SIGTERM


def test_sigterm_ends_what_is_stuck_between_run_and_exit(monkeypatch):
    """A terminal stage, say, or a barrier: after a while."""

    def leave():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        Grace.__init__.__defaults__ = (0.2,)
        with ignoring_repeated_signals(lambda: True):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(300)

    assert exit_code(leave) == 128 + signal.SIGTERM


@pytest.mark.parametrize('ranks, code', [('1', -signal.SIGTERM), ('2', 6)])
def test_a_rank_that_has_failed_ends_by_itself(ranks, code, monkeypatch):
    """Although its launcher sends SIGTERM."""

    def fail():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own
        try:
            with ignoring_repeated_signals(lambda: False):
                raise RuntimeError('Connection closed by peer')
        except RuntimeError:
            os.kill(os.getpid(), signal.SIGTERM)
            return 6

    monkeypatch.setenv('WORLD_SIZE', ranks)
    assert exit_code(fail) == code


def test_a_training_that_ends_by_itself_leaves_the_handlers_alone(project, train):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    train('--cfg-options', 'runner.max_epochs=1')
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)] == before


def test_sigterm_ends_a_process_that_waits_for_its_peers(project, monkeypatch):
    """In C++, where no handler of Python's runs."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    for name, value in {'RANK': 0, 'WORLD_SIZE': 2, 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port}.items():
        monkeypatch.setenv(name, str(value))
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own
        try:
            main([str(project / 'cfg.py'), '--work-dir', str(project / 'run'), '--launcher', 'pytorch'])
        finally:
            os._exit(99)
    try:
        wait_until(lambda: accepts(port))
        time.sleep(0.2)
        os.kill(pid, signal.SIGTERM)
        ended = []
        wait_until(lambda: ended.append(os.waitpid(pid, os.WNOHANG)) or ended[-1][0] == pid)
        assert os.waitstatus_to_exitcode(ended[-1][1]) == -signal.SIGTERM
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise


def accepts(port):
    """Whether the process has begun to wait: rank 0 is where the others have to connect."""
    with socket.socket() as peer:
        return peer.connect_ex(('127.0.0.1', port)) == 0


def wait_until(holds, seconds=200):
    deadline = time.time() + seconds
    while not holds():
        if time.time() > deadline:
            raise TimeoutError
        time.sleep(0.01)
