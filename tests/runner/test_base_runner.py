"""What both runners share: construction, the stack around a run, rings, updates, evaluation."""

import logging
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from ranks import on_ranks
from support import Measured, Recorder, Tiny, loader, tiny_runner
from torch import nn

from runnerkit.hooks import EvalHook, Hook, OptimizerHook
from runnerkit.hooks.hook import Outcome, Score
from runnerkit.runner import EpochBasedRunner, LogBuffer
from runnerkit.utils.report import report


@pytest.mark.parametrize(
    'arguments, error, text',
    [
        ({'batch_processor': 3, 'model': nn.Linear(1, 1)}, TypeError, 'batch_processor must be callable'),
        ({'batch_processor': print}, RuntimeError, 'cannot be both available'),
        ({'model': nn.Linear(1, 1)}, TypeError, 'Linear has no train_step'),
        ({'optimizer': 'SGD'}, TypeError, 'optimizer must be a torch.optim.Optimizer object or dict or None, but got'),
        ({'optimizer': {'a': 1}}, TypeError, r'optimizer\["a"\] is a'),
        ({'logger': 'x'}, TypeError, 'logger must be a logging.Logger object'),
        ({'meta': 'x'}, TypeError, 'meta must be a dict or None'),
        ({'work_dir': 3}, TypeError, '"work_dir" must be a str'),
        ({'max_epochs': 1, 'max_iters': 1}, ValueError, 'Only one of `max_epochs` or `max_iters`'),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        EpochBasedRunner(**{'model': Tiny(), **arguments})


def test_state_of_a_new_runner(tmp_path):
    meta = {'seed': 1}
    runner = EpochBasedRunner(Tiny(), work_dir=tmp_path / 'a' / 'b', meta=meta, max_epochs=3)
    runner.meta['more'] = 2
    assert meta == {'seed': 1}
    assert (tmp_path / 'a' / 'b').is_dir()
    assert (runner.model_name, runner.rank, runner.world_size, runner.max_epochs, runner.hooks) == ('Tiny', 0, 1, 3, [])
    assert (runner.epoch, runner.iter, runner.inner_iter, runner.mode, runner.outcome) == (0, 0, 0, None, None)
    with pytest.raises(RuntimeError, match='lr and momentum are not available'):
        runner.current_lr()


def test_current_lr_and_momentum():
    model = Tiny()
    sgd = torch.optim.SGD(
        [{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 0.5}], lr=0.1, momentum=0.9
    )
    adam = torch.optim.Adam(model.head.parameters(), betas=(0.8, 0.99))
    rms = torch.optim.Adagrad(model.parameters(), lr=0.3)
    runner = EpochBasedRunner(model, optimizer=sgd, max_epochs=1)
    assert (runner.current_lr(), runner.current_momentum()) == ([0.1, 0.5], [0.9, 0.9])
    runner = EpochBasedRunner(model, optimizer={'a': adam, 'b': rms}, max_epochs=1)
    assert runner.current_lr() == {'a': [1e-3], 'b': [0.3]}
    assert runner.current_momentum() == {'a': [0.8], 'b': [0]}


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


def test_a_failing_after_run_fails_a_run_that_was_fine():
    class Fail(Hook):
        def after_run(self, runner):
            raise RuntimeError('not closed')

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Fail())
    with pytest.raises(RuntimeError, match='not closed'):
        runner.run([loader(8)], [('train', 1)])


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


@pytest.mark.parametrize(
    'outputs, error, text',
    [
        (3, TypeError, r"Odd's step must return a dict\(loss=…, log_vars=…, num_samples=…\), but it returned 3"),
        ({'log_vars': {}}, KeyError, "returned no 'num_samples'"),
        ({'log_vars': {}, 'num_samples': 1}, KeyError, "returned no 'loss'"),
    ],
)
def test_what_a_step_must_return(outputs, error, text):
    class Odd(Tiny):
        def train_step(self, data, optimizer):
            return outputs

    runner = tiny_runner(model=Odd(), max_epochs=1)
    runner.register_hook(OptimizerHook())
    with pytest.raises(error, match=text):
        runner.run([loader(4)], [('train', 1)])


def test_the_log_buffer_keeps_no_graph():
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(8)], [('train', 1)])
    assert all(not value.requires_grad for value in runner.log_buffer.val_history['loss'])


def test_report_lands_in_the_running_scope():
    class Reports(Tiny):
        def forward(self, x):
            report('size', len(x))
            return super().forward(x)

    found = {}

    class Look(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.average()
            found['train'] = runner.log_buffer.output['size']

        def after_val_epoch(self, runner):
            found['val'] = runner.log_buffer.output['size']

    runner = tiny_runner(model=Reports(), max_epochs=1)
    runner.register_hook(Look())
    runner.run([loader(8), loader(6, batch=6)], [('train', 1), ('val', 1)])
    assert found == {'train': 4, 'val': 6}


def test_evaluate_without_a_run():
    runner = tiny_runner(max_epochs=1)
    before = runner.log_buffer
    scores = runner.evaluate(loader(12), scope='test')
    assert set(scores) == {'loss'}
    assert runner.log_buffer is before
    assert runner.mode is None
    assert runner.model.training


def test_nested_hooks_hear_an_evaluation_and_the_runners_do_not():
    own, nested = Recorder(), Recorder()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(own)
    runner.evaluate(loader(4), hooks=[nested])
    assert own.names() == ['after_forward', 'after_evaluate']
    val_points = ['before_val_epoch', 'before_val_iter', 'after_val_iter', 'after_val_epoch']
    assert nested.names() == ['before_run', *val_points, 'after_evaluate', 'after_run']


class Hears(Hook):
    """Notes each evaluation's scores, and what the runner's are then."""

    def __init__(self):
        self.heard = []

    def after_evaluate(self, runner, scores):
        assert runner.model.training
        self.heard.append(scores)
        assert runner.scores == {**runner.scores, **{n: Score(v, runner.completed_iters) for n, v in scores.items()}}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_every_hook_hears_the_scores_of_every_evaluation(kind):
    first, last = Hears(), Hears()
    limit = {'max_epochs': 2} if kind == 'epoch' else {'max_iters': 4}
    runner = tiny_runner(kind, model=Measured(), **limit)
    runner.register_hook(last, 'LOWEST')
    runner.register_hook(first, 'HIGHEST')
    runner.register_hook(EvalHook(loader(6), by_epoch=kind == 'epoch', interval=1 if kind == 'epoch' else 2))
    entry = ('val', 1) if kind == 'epoch' else ('val', 2)
    runner.run([loader(8), loader(8)], [('train', 1 if kind == 'epoch' else 2), entry])
    scores = runner.evaluate(loader(6))
    # Twice by the EvalHook, twice by the workflow, and once at the end.
    assert len(first.heard) == 5
    assert first.heard == last.heard
    assert all(set(each) == {'loss', 'error'} and {type(v) for v in each.values()} == {float} for each in first.heard)
    assert runner.scores == {name: Score(float(value), 4) for name, value in scores.items()}


def test_what_is_no_score_is_none_and_what_the_log_held_before_stays():
    hears = Hears()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(hears)
    runner.log_buffer.output.update(loss=3.0, acc=0.1)
    with runner.around_val():
        assert runner.log_buffer.output == {}
    assert (hears.heard, runner.scores) == ([], {})
    with runner.around_val():
        runner.log_buffer.output.update(acc=np.float32(0.5), eval_iter_num=7, table='a | b', each=torch.ones(2))
    assert hears.heard == [{'acc': 0.5}]
    assert list(runner.log_buffer.output) == ['loss', 'acc', 'eval_iter_num', 'table', 'each']
    with pytest.raises(ValueError, match='boom'), runner.around_val() as found:
        found['acc'] = 0.9
        raise ValueError('boom')
    assert hears.heard == [{'acc': 0.5}]
    assert runner.scores == {'acc': Score(0.5, 0)}


class Visitor(Hook):
    """A hook of evaluations that may fail at a point."""

    def __init__(self, fails_at=None):
        self.heard, self.fails_at = [], fails_at

    def hear(self, point, runner):
        self.heard.append((point, runner.iter, runner.outcome and runner.outcome.kind))
        if point == self.fails_at:
            raise ValueError(point)

    def before_run(self, runner):
        self.hear('before_run', runner)

    def after_val_epoch(self, runner):
        self.hear('after_val_epoch', runner)

    def after_run(self, runner):
        self.hear('after_run', runner)


def test_hooks_of_an_evaluation_are_entered_once_and_leave_with_the_run():
    visitor = Visitor()
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EvalHook(loader(6), hooks=[visitor]))
    for until in (2, 3):
        runner._max_epochs = until
        runner.run([loader(8)], [('train', 1)])
    assert visitor.heard == [
        ('before_run', 2, None),
        ('after_val_epoch', 2, None),
        ('after_val_epoch', 4, None),
        ('after_run', 4, 'completed'),
        ('before_run', 6, None),
        ('after_val_epoch', 6, None),
        ('after_run', 6, 'completed'),
    ]


@pytest.mark.parametrize('point', ['before_run', 'after_val_epoch', 'after_run'])
def test_hooks_of_an_evaluation_that_fails_are_left(point):
    visitors = [Visitor(), Visitor(point), Visitor()]
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EvalHook(loader(6), hooks=visitors))
    with pytest.raises(ValueError, match=point):
        runner.run([loader(8)], [('train', 1)])
    entered = visitors[:2] if point == 'before_run' else visitors
    outcome = 'completed' if point == 'after_run' else 'failed'
    assert {each.heard[-1][0::2] for each in entered} == {('after_run', outcome)}
    assert point != 'before_run' or visitors[2].heard == []
    alone = Visitor(point)
    with pytest.raises(ValueError, match=point):
        tiny_runner(max_epochs=1).evaluate(loader(6), hooks=[alone])
    assert alone.heard[-1][0] == 'after_run'


def test_the_runners_own_hooks_are_not_entered_again_by_an_evaluation():
    own = Visitor()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(own)
    runner.evaluate(loader(6), hooks=[own])
    assert [point for point, *_ in own.heard] == ['after_val_epoch']


def test_a_runner_can_run_twice(caplog):
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(4)], [('train', 1)])
    runner._max_epochs = 3
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.run([loader(4)], [('train', 1)])
    assert runner.epoch == 3
    assert isinstance(runner.log_buffer, LogBuffer)


def test_few_frames_and_calls_lie_between_run_and_the_step():
    import sys

    frames = []

    class Deep(Tiny):
        def train_step(self, data, optimizer):
            frame, names = sys._getframe(1), []
            while frame.f_code.co_name != 'run':
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            frames.append(names)
            return super().train_step(data, optimizer)

    runner = tiny_runner(model=Deep(), max_epochs=1)
    runner.run([loader(4)], [('train', 1)])
    assert frames == [['run_iter', '_train_iter', 'train']]  # at most three


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


def test_a_call_hook_of_ones_own_sees_every_point():
    seen = []

    class Tells(EpochBasedRunner):
        def call_hook(self, fn_name):
            seen.append(fn_name)
            super().call_hook(fn_name)

    Tells(Tiny(), max_epochs=1).run([loader(4), loader(4)], [('train', 1), ('val', 1)])
    assert [name for name in seen if 'forward' not in name] == [
        'before_run',
        'before_train_epoch',
        'before_train_iter',
        'after_train_iter',
        'after_train_epoch',
        'before_val_epoch',
        'before_val_iter',
        'after_val_iter',
        'after_val_epoch',
        'after_run',
    ]


def test_a_mode_of_the_runner_runs_also_after_the_last_training_and_trains_with_train_step():
    class Warms(EpochBasedRunner):
        calls = ''

        def test(self, data_loader, **kwargs):
            self.calls += 't'

        def warm(self, data_loader, **kwargs):
            self.mode = 'warm'
            self.run_iter(next(iter(data_loader)), train_mode=True)
            self.calls += 'w'

    runner = Warms(Tiny(), max_epochs=2)
    runner.run([loader(4)] * 3, [('train', 1), ('test', 1), ('warm', 1)])
    assert runner.calls == 'twtw'


@pytest.mark.parametrize('limits', [{'max_epochs': 'ten'}, {'max_epochs': 12.0}, {'max_iters': -1}])
def test_limits_are_whole_numbers(limits):
    with pytest.raises(TypeError, match='must be a whole number of at least 0, but got'):
        tiny_runner(**limits)


def test_a_work_dir_is_on_this_machine(tmp_path):
    assert EpochBasedRunner(Tiny(), work_dir=f'file://{tmp_path}/run', max_epochs=1).work_dir == str(tmp_path / 'run')
    with pytest.raises(ValueError, match=r"out_dir='memory://run'"):
        EpochBasedRunner(Tiny(), work_dir='memory://run', max_epochs=1)


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


@pytest.mark.parametrize('limits', [{'max_iters': 10}, {'max_epochs': 2}])
def test_an_epoch_is_done_that_the_limit_or_a_stop_ends_with_its_last_batch(limits):
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 4:
                runner.stop('here')

    recorder, runner = Recorder(), tiny_runner(**limits)
    runner.register_hook(recorder)
    runner.register_hook(Stop())
    given = [loader(20)]
    for epochs in (1, 2):
        runner.run(given, [('train', 1)])
        assert recorder.names().count('after_train_epoch') == epochs
        assert (runner.epoch, runner.completed_epochs, runner.progress.epoch_is_open) == (epochs, epochs, False)
    assert (runner.iter, runner.outcome.kind) == (10, 'completed')


class ByRank(Tiny):
    """A buffer and losses that differ from rank to rank, of a number of samples that does, too."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.register_buffer('mark', torch.tensor(float(rank)))

    def val_step(self, data, optimizer):
        log_vars = {'loss': 10.0 * (self.rank + 1), 'mark': self.mark}
        return {'loss': None, 'log_vars': log_vars, 'num_samples': self.rank + 1}


def evaluates_on_rank(rank):
    runner = tiny_runner(model=ByRank(rank), max_epochs=1)
    return runner.evaluate([[0, 1]]), runner.scores


def test_ranks_evaluate_the_first_ones_buffers_and_average_over_all_samples():
    scores = {'loss': pytest.approx((10 * 1 + 20 * 2) / 3), 'mark': 0.0}
    for found, remembered in on_ranks(__file__, 'evaluates_on_rank'):
        assert found == scores
        assert {name: score.value for name, score in remembered.items()} == scores
