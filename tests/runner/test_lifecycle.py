"""The stack around a run: hooks are entered and left, rings nest, a run stops."""

import logging
import os
import signal
from contextlib import contextmanager

import pytest
from support import Recorder, Tiny, loader, tiny_runner

from runnerkit.hooks import Hook
from runnerkit.hooks.hook import Outcome
from runnerkit.runner import LogBuffer


def test_after_run_fires_and_learns_the_outcome_whatever_happens():
    for error, kind in ((ValueError('boom'), 'failed'), (KeyboardInterrupt(), 'interrupted')):
        ended = []

        class Fail(Hook):
            def after_train_iter(self, runner):
                raise error

            def after_run(self, runner):
                ended.append(runner.outcome)
                raise RuntimeError('after_run fails too')

        class Second(Hook):
            def after_run(self, runner):
                ended.append(runner.outcome)

        runner = tiny_runner(max_epochs=1)
        runner.register_hook(Fail())
        runner.register_hook(Second())
        with pytest.raises(type(error)):
            runner.run([loader(8)], [('train', 1)])
        assert ended == [Outcome(kind, error=error)] * 2


def test_a_lost_connection_of_a_run_without_ranks_is_of_no_rank(caplog):
    class Fail(Hook):
        def after_train_iter(self, runner):
            raise RuntimeError(message)

    for message in ('[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5265', 'boom'):
        caplog.clear()
        runner = tiny_runner(max_epochs=1)
        runner.register_hook(Fail())
        with pytest.raises(RuntimeError):
            runner.run([loader(8)], [('train', 1)])
        assert 'Another rank has died' not in caplog.text  # tests/distributed/test_watch.py has those of ranks


def test_a_failing_after_run_fails_a_run_that_was_fine(caplog):
    class Fail(Hook):
        def after_run(self, runner):
            raise RuntimeError('not closed')

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Fail())
    with pytest.raises(RuntimeError, match='not closed'):
        runner.run([loader(8)], [('train', 1)])
    assert str(runner.outcome) == "failed: RuntimeError('not closed')"
    assert 'Run failed' in caplog.messages[-1]


@pytest.mark.parametrize('error', [SystemExit(0), GeneratorExit(), KeyboardInterrupt()])
def test_after_run_of_all_hooks_is_called_where_one_ends_the_program(error):
    """But for KeyboardInterrupt, which leaves at once."""

    class Fail(Hook):
        def after_run(self, runner):
            raise error

    last, runner = Recorder(), tiny_runner(max_epochs=1)
    runner.register_hook(Fail())
    runner.register_hook(last, priority='LOWEST')
    with pytest.raises(type(error)) as caught:
        runner.run([loader(8)], [('train', 1)])
    assert caught.value is error
    at_once = isinstance(error, KeyboardInterrupt)
    assert runner.outcome == Outcome('interrupted' if at_once else 'failed', error=error)
    assert ('after_run' in last.names()) != at_once


def test_hooks_registered_in_before_run_fire():
    late = Recorder()

    class Registers(Hook):
        def before_run(self, runner):
            runner.register_hook(late)

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Registers())
    runner.run([loader(4)], [('train', 1)])
    assert late.names() == [
        'before_run',
        'before_train_epoch',
        'before_train_iter',
        'after_forward',
        'after_train_iter',
        'after_train_epoch',
        'after_run',
    ]


def test_edits_of_the_private_hook_list_take_effect():
    first, second = Recorder(), Recorder()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(first)
    runner._hooks.append(second)
    runner.call_hook('before_run')
    runner._hooks = [hook for hook in runner._hooks if hook is second]
    runner.call_hook('after_run')
    assert (first.names(), second.names()) == (['before_run'], ['before_run', 'after_run'])


class Ring(Hook):
    def __init__(self, name, log):
        self.name, self.log = name, log
        for span in ('around_run', 'around_epoch', 'around_iter', 'around_val'):
            setattr(self, span, lambda runner, span=span: self.span(span))

    @contextmanager
    def span(self, span):
        self.log.append(f'{self.name} {span} in')
        try:
            yield
        finally:
            self.log.append(f'{self.name} {span} out')


def test_rings_nest_by_priority_and_unwind_mirrored():
    log = []
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Ring('inner', log), priority='LOW')
    runner.register_hook(Ring('outer', log), priority='HIGH')
    runner.run([loader(4)], [('train', 1)])
    spans = ['around_run', 'around_epoch', 'around_iter']
    entered = [f'{name} {span} in' for span in spans for name in ('outer', 'inner')]
    assert log == entered + [line.replace(' in', ' out') for line in reversed(entered)]


def test_rings_unwind_on_errors_and_span_validation():
    log = []

    class Fail(Hook):
        def before_val_iter(self, runner):
            raise ValueError('boom')

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Ring('ring', log))
    runner.register_hook(Fail())
    with pytest.raises(ValueError, match='boom'):
        runner.run([loader(4)], [('val', 1)])
    assert [line[5:] for line in log] == [
        'around_run in',
        'around_val in',
        'around_epoch in',
        'around_iter in',
        'around_iter out',
        'around_epoch out',
        'around_val out',
        'around_run out',
    ]


def test_a_runner_can_run_twice(caplog):
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(4)], [('train', 1)])
    runner._max_epochs = 3
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.run([loader(4)], [('train', 1)])
    assert runner.epoch == 3
    assert isinstance(runner.log_buffer, LogBuffer)


@pytest.mark.parametrize('limits, text', [({'max_epochs': 1}, '1 epochs'), ({'max_iters': 2}, '2 iterations')])
def test_the_banner_tells_workflow_limit_and_place(limits, text, tmp_path, caplog):
    runner = tiny_runner(work_dir=tmp_path, **limits)
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.run([loader(8)], [('train', 1)])
    assert f"Start running: workflow [('train', 1)], at most {text}, work dir {tmp_path}" in caplog.text
    assert 'Hooks, in the order in which they are called' in caplog.text


def test_hooks_that_were_not_entered_are_not_left():
    left = []

    class Fails(Hook):
        def before_run(self, runner):
            raise ValueError('boom')

        def after_run(self, runner):
            left.append('failing')

    class Never(Hook):
        def after_run(self, runner):
            left.append('never entered')

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Fails())
    runner.register_hook(Never(), 'LOW')
    with pytest.raises(ValueError, match='boom'):
        runner.run([loader(4)], [('train', 1)])
    assert left == ['failing']


def test_a_signal_between_training_and_validation_stops_the_run_before_the_validation():
    class Late(Hook):
        @contextmanager
        def around_iter(self, runner):
            yield  # the boundary of the iteration has been passed by then
            if runner.mode == 'train' and runner.completed_iters == 4:
                os.kill(os.getpid(), signal.SIGUSR1)

    recorder, runner = Recorder(), tiny_runner('iter', max_iters=8)
    runner.register_hook(Late())
    runner.register_hook(recorder)
    runner.run([loader(), loader()], [('train', 4), ('val', 3)])
    assert (str(runner.outcome), runner.iter) == ('stopped: SIGUSR1', 4)
    assert 'before_val_iter' not in recorder.names()


def test_the_batch_on_which_a_step_has_failed_comes_first_when_the_runner_runs_again():
    class Fails(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            seen.append(data)
            if len(seen) == 2:
                raise ZeroDivisionError
            return {'loss': None, 'log_vars': {}, 'num_samples': 1}

    seen, batches = [], [1, 2, 3]
    runner = tiny_runner(model=Fails(), max_epochs=1)
    with pytest.raises(ZeroDivisionError):
        runner.run([batches], [('train', 1)])
    runner.run([batches], [('train', 1)])
    assert seen == [1, 2, 2, 3]
    assert runner.completed_iters == 3


def test_a_loop_of_the_users_own_is_left_when_the_run_has_been_asked_to_end():
    class Stops(Hook):
        def after_train_epoch(self, runner):
            runner.stop('enough')

    runner, data, rounds = tiny_runner(max_epochs=3), loader(4), []
    runner.register_hook(Stops())
    with runner.custom_loop([data], [('train', 1)]):
        for number in range(3):
            runner.train(data)
            rounds.append(number)
    assert rounds == [0]
    assert str(runner.outcome) == 'stopped: enough'


def test_an_error_without_a_text_is_logged_by_its_class(caplog):
    class Broken(RuntimeError):
        def __str__(self):
            raise ZeroDivisionError('an error that cannot be shown')

        __repr__ = __str__

    class Fail(Recorder):
        def after_train_iter(self, runner):
            raise Broken

    hook = Fail()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(hook)
    with pytest.raises(Broken):
        runner.run([loader(8)], [('train', 1)])
    assert hook.names()[-1] == 'after_run'
    assert caplog.messages[-1] == 'Run failed: Broken (its __str__ raises ZeroDivisionError)'


def test_a_run_after_a_failed_after_run_continues_and_does_not_resume_again(tmp_path):
    class Fails(Hook):
        failed = False

        def after_run(self, runner):
            if not self.failed:
                self.failed = True
                raise RuntimeError('once')

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_checkpoint_hook({'interval': 1})
    runner.run([loader(8)], [('train', 1)])
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(Fails())
    runner.resume(str(tmp_path / 'epoch_1.pth'))
    with pytest.raises(RuntimeError, match='once'):
        runner.run([loader(8)], [('train', 1)])
    assert runner.snapshots.resumed is None
