"""The bar, on a real pseudo-terminal and in a pipe."""

import io
import os
import pty
import sys

import pytest
from forks import Fork
from support import loader, tiny_runner

from runnerkit.hooks import Hook, ProgressBarHook, TextLoggerHook


def train():
    os.environ.update(TERM='xterm', COLUMNS='100')
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(TextLoggerHook(interval=1))
    hook = ProgressBarHook()
    runner.register_hook(hook, 'LOWEST')
    runner.run([loader(8)] * 2, [('train', 1), ('val', 1)])
    assert hook._bar is None


def test_on_a_terminal_it_stands_below_whole_log_lines(tmp_path):
    master, slave = pty.openpty()
    process = Fork(train, folder=tmp_path, stderr=slave)
    os.close(slave)
    seen = b''
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    seen = seen.decode()
    assert process.code() == 0, seen
    assert ' epoch 2/2' in seen
    assert '4/4' in seen
    for line in ('Epoch [1][1/2]', 'Epoch [2][2/2]', 'Epoch(val) [2][2]'):
        assert line in seen
    assert seen.count('Epoch [1][1/2]') == 1


def test_in_a_pipe_there_are_only_plain_lines(tmp_path):
    process = Fork(train, folder=tmp_path)
    assert process.code() == 0, process.said()
    assert '\x1b' not in process.said()
    assert 'train epoch' not in process.said()
    assert 'Epoch [1][1/2]' in process.said()
    assert process.said('stdout') == ''


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Makes stderr a terminal; called in the test, since pytest takes stderr back before each."""
    terminal = Terminal()
    monkeypatch.setenv('TERM', 'xterm')

    def attach():
        monkeypatch.setattr(sys, 'stderr', terminal)
        return terminal

    return attach


def test_it_follows_the_run_and_starts_where_that_is_resumed(terminal):
    shown = terminal()
    seen = []

    class Look(Hook):
        def after_train_iter(self, runner):
            task = bar._bar.tasks[0]
            seen.append((task.description, task.completed, task.total))

    bar = ProgressBarHook()
    runner = tiny_runner(max_epochs=3)
    runner._epoch, runner._iter = 1, 2
    runner.register_hook(bar)
    runner.register_hook(Look(), 'LOWEST')
    runner.run([loader(8)] * 2, [('train', 1), ('val', 1)])
    assert seen == [(f'train epoch {epoch}/3', iters, 6) for epoch, iters in [(2, 3), (2, 4), (3, 5), (3, 6)]]
    assert 'val epoch 3/3' in shown.getvalue()


def test_by_iteration_it_has_no_epochs(terminal):
    shown = terminal()
    runner = tiny_runner('iter', max_iters=2)
    runner.register_hook(ProgressBarHook())
    runner.run([loader(8)], [('train', 1)])
    assert 'train ' in shown.getvalue()
    assert 'train epoch' not in shown.getvalue()


def test_a_run_without_known_end_has_a_bar_without_one(terminal):
    shown = terminal()

    class Stream:
        def __iter__(self):
            return iter(list(loader(8)))

    bar = ProgressBarHook()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(bar)
    runner.run([Stream()], [('train', 1)])
    assert 'train epoch 1/1' in shown.getvalue()


def test_other_ranks_have_none(terminal):
    shown = terminal()
    runner = tiny_runner(max_epochs=1)
    runner._rank = 1
    runner.register_hook(ProgressBarHook())
    runner.run([loader(8)], [('train', 1)])
    assert 'epoch 1/1' not in shown.getvalue()
