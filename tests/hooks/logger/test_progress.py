"""The bar, on a real pseudo-terminal and in a pipe."""

import io
import os
import pty
import re
import sys

import pytest
import torch
from forks import Fork, shown_on
from support import loader, tiny_runner

from runnerkit.hooks import EvalHook, Hook, ProgressBarHook, TextLoggerHook
from runnerkit.hooks.hook import Score
from runnerkit.hooks.logger import progress
from runnerkit.hooks.logger.progress import on_host
from runnerkit.utils.logging import console


class Prints(Hook):
    def after_train_iter(self, runner):
        print('printed by a hook')


def train():
    os.environ.update(TERM='xterm', COLUMNS='100')
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(TextLoggerHook(interval=1))
    hook = ProgressBarHook()
    runner.register_hook(hook, 'LOWEST')
    runner.register_hook(Prints(), 'LOWEST')
    runner.run([loader(8)] * 2, [('train', 1), ('val', 1)])
    assert hook._bar is None


def test_on_a_terminal_it_stands_below_whole_log_lines(tmp_path):
    master, slave = pty.openpty()
    process = Fork(train, folder=tmp_path, stderr=slave)
    os.close(slave)
    seen = shown_on(master)
    seen = seen.decode()
    assert process.code() == 0, seen
    assert ' epoch 2/2' in seen
    assert '4/4' in seen
    for line in ('Epoch [1][1/2]', 'Epoch [2][2/2]', 'Epoch(val) [2][2]'):
        assert line in seen
    assert seen.count('Epoch [1][1/2]') == 1
    assert process.said('stdout') == 'printed by a hook\n' * 4  # not a terminal
    assert 'printed' not in seen


def test_in_a_pipe_there_are_only_plain_lines(tmp_path):
    process = Fork(train, folder=tmp_path)
    assert process.code() == 0, process.said()
    assert '\x1b' not in process.said()
    assert '4/4' not in process.said()
    assert 'Epoch [1][1/2]' in process.said()
    assert process.said('stdout') == 'printed by a hook\n' * 4


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

    console.cache_clear()  # it reads the terminal's width once
    yield attach
    console.cache_clear()


def test_it_follows_the_run_and_starts_where_that_is_resumed(terminal, monkeypatch):
    shown = terminal()
    monkeypatch.setattr(progress, 'PAUSE', 0)
    seen = []

    class Look(Hook):
        def after_train_iter(self, runner):
            task = bar._bar.tasks[0]
            seen.append((task.description, task.completed, task.total))

        def before_val_epoch(self, runner):
            seen.append(bar._bar.tasks[0].description)

    bar = ProgressBarHook()
    runner = tiny_runner(max_epochs=3)
    runner._epoch, runner._iter = 1, 2
    runner.register_hook(bar)
    runner.register_hook(Look(), 'LOWEST')
    runner.run([loader(8)] * 2, [('train', 1), ('val', 1)])
    first, second = ([(f'epoch {epoch}/3', 2 * epoch - 1 + i, 6) for i in range(2)] for epoch in (2, 3))
    assert seen == [*first, 'val epoch 2/3', *second, 'val epoch 3/3']
    assert 'val epoch 3/3' in shown.getvalue()
    assert 'epoch 4/3' not in shown.getvalue()


def test_other_ranks_have_none(terminal):
    shown = terminal()
    runner = tiny_runner(max_epochs=1)
    runner._rank = 1
    runner.register_hook(ProgressBarHook())
    runner.run([loader(8)], [('train', 1)])
    assert 'epoch 1/1' not in shown.getvalue()


class Figures(Hook):
    """Notes what the bar shows after each iteration."""

    def __init__(self, bar):
        self.bar = bar
        self.seen = []

    def after_train_iter(self, runner):
        self.seen.append(self.bar._bar.tasks[0].fields['figures'])


def figures(runner, monkeypatch, terminal, **hooks):
    terminal()
    monkeypatch.setattr(progress, 'PAUSE', 0)
    monkeypatch.setenv('COLUMNS', '200')
    bar = ProgressBarHook()
    look = Figures(bar)
    runner.register_training_hooks(**{'lr_config': {'policy': 'step', 'step': [1], 'gamma': 0.5}, **hooks})
    runner.register_hook(EvalHook(loader(8), interval=1), 'LOW')
    runner.register_hook(bar, 'LOWEST')
    runner.register_hook(look, 'LOWEST')
    runner.run([loader(8)], [('train', 1)])
    return look.seen


@pytest.mark.parametrize('log_config', [None, {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]}])
def test_it_shows_loss_rate_and_the_latest_scores(terminal, monkeypatch, log_config):
    """Also where the last logger empties the output of the log buffer, or there is no logger."""
    runner = tiny_runner(max_epochs=2)
    losses = []
    step = runner.model.train_step
    runner.model.train_step = lambda *args, **kwargs: losses.append(step(*args, **kwargs)) or losses[-1]
    seen = figures(runner, monkeypatch, terminal, optimizer_config={}, log_config=log_config)
    begin = 0 if log_config is None else 2  # a logger clears the buffer at the beginning of an epoch
    numbers = [float(each['loss'].detach()) for each in losses]
    assert seen[0] == f'loss {numbers[0]:.4f}  lr 1.0e-01'
    assert seen[1] == f'loss {sum(numbers[:2]) / 2:.4f}  lr 1.0e-01'
    assert [each.split('  ')[:2] for each in seen[2:]] == [
        [f'loss {sum(recent) / len(recent):.4f}', 'lr 5.0e-02'] for recent in (numbers[begin:3], numbers[begin:4])
    ]
    assert all(re.fullmatch(r'val loss 0[.]\d+', each.split('  ')[2]) for each in seen[2:])


def test_it_waits_between_two_updates(terminal, monkeypatch):
    terminal()
    monkeypatch.setattr(progress, 'PAUSE', 1000)
    bar = ProgressBarHook()
    look = Figures(bar)
    runner = tiny_runner(max_epochs=1)
    for hook in (bar, look):
        runner.register_hook(hook)
    runner.run([loader(12)], [('train', 1)])
    assert look.seen[1] == look.seen[2] != ''


def test_values_on_a_device_are_not_waited_for():
    assert on_host([1.0, torch.tensor(2.0), torch.tensor(3.0, device='meta')]) == [1.0, 2.0]
    assert on_host(range(100)) == [*map(float, range(90, 100))]
    assert on_host([]) == []


def test_a_line_is_never_broken_at_80_columns(terminal, monkeypatch):
    shown = terminal()
    monkeypatch.setenv('COLUMNS', '80')
    monkeypatch.setattr(progress, 'PAUSE', 0)

    class Told(Hook):
        def before_run(self, runner):
            runner.scores = {f'accuracy_{i}': Score(0.98765, 1) for i in range(5)}

    runner = tiny_runner(max_epochs=100)
    runner._max_iters = 90000
    for hook in (Told(), ProgressBarHook()):
        runner.register_hook(hook)
    runner._epoch = 98
    runner.run([loader(8)], [('train', 1)])
    lines = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', shown.getvalue()).replace('\r', '\n').splitlines()
    lines = [line.rstrip() for line in lines if '━' in line]
    assert max(map(len, lines)) <= 80
    assert any('lr 1.0e-01' in line for line in lines), lines[-3:]


@pytest.mark.parametrize('kind, limit', [('epoch', {'max_epochs': 2}), ('iter', {'max_iters': 4})])
def test_the_loss_stays_that_of_the_training_in_a_validation(kind, limit, terminal, monkeypatch):
    terminal()
    monkeypatch.setattr(progress, 'PAUSE', 0)
    monkeypatch.setenv('COLUMNS', '200')
    bar = ProgressBarHook()
    seen = []

    class Look(Hook):
        def note(self, runner):
            seen.append(bar._bar.tasks[0].fields['figures'].split('  ')[0])

        after_train_iter = before_val_epoch = after_val_iter = note

        def after_evaluate(self, runner, scores):
            self.note(runner)

    runner = tiny_runner(kind, **limit)
    for hook in (bar, Look()):
        runner.register_hook(hook)
    runner.run([loader(8), loader(8)], [('train', 2 if kind == 'iter' else 1), ('val', 1)])
    # Two iterations of training, then the validation: nothing changes until the next iteration.
    assert len(set(seen)) == 4
    assert all(seen.index(loss) + seen.count(loss) == len(seen) - seen[::-1].index(loss) for loss in seen)
