"""Evaluations of a runner: their scores, hooks and ranks."""

import numpy as np
import pytest
import torch
from ranks import on_ranks
from support import Measured, Recorder, Tiny, loader, tiny_runner

from runnerkit.hooks import EvalHook, Hook
from runnerkit.hooks.hook import Score
from runnerkit.utils.waiting import pulse


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


def test_the_heartbeat_changes_with_each_iteration_and_is_none_where_a_pause_may_be_long(tmp_path):
    seen, pauses = [], []

    class Looks(Hook):
        def before_train_iter(self, runner):
            seen.append(runner.heartbeat)

        def after_train_iter(self, runner):
            seen.append(runner.heartbeat)

        def after_evaluate(self, runner, scores):
            pauses.append(('scored', runner.heartbeat is None))

        def before_val_iter(self, runner):
            pauses.append(('evaluates', runner.heartbeat is None))

        def after_save(self, runner):
            pauses.append(('saves', runner.heartbeat is None))

    class Nests(Hook):
        def after_train_epoch(self, runner):
            with runner.nested('inside'):
                child = tiny_runner(max_epochs=1)
                child.register_hook(Sees(runner))
                child.run([loader(8)], [('train', 1)])

    class Sees(Hook):
        def __init__(self, outer):
            self.outer = outer

        def after_train_iter(self, runner):
            inside.append(self.outer.heartbeat)

    inside = []
    hook = Looks()
    runner = tiny_runner(max_epochs=1, work_dir=str(tmp_path))
    for each in (hook, Nests(), EvalHook(loader(4), by_epoch=False, interval=1, hooks=[hook])):
        runner.register_hook(each)
    runner.register_checkpoint_hook({'interval': 1})
    assert runner.heartbeat is None
    runner.run([loader(12)], [('train', 1)])
    assert runner.heartbeat is None
    assert None not in seen
    assert len(set(seen)) >= 3
    assert set(pauses) == {('scored', False), ('evaluates', True), ('saves', True)}
    assert None not in inside
    assert len(set(inside)) == 2


def test_the_heartbeat_goes_on_while_a_stream_has_nothing():
    runner = tiny_runner(max_epochs=1)
    beats = []

    class Waits(Hook):
        def before_train_iter(self, runner):
            beats.append(runner.heartbeat)
            pulse()
            beats.append(runner.heartbeat)

    runner.register_hook(Waits())
    runner.run([loader(4)], [('train', 1)])
    assert beats[0] != beats[1]
