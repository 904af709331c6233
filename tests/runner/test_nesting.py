"""Runs inside a run: whose they are, how they end, and how a resumed run starts them again."""

import copy
import logging
import os
import signal
import time

import pytest
import torch
from support import Measured, Tiny, loader, thinned, tiny_runner
from support import weights as tensor_of

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.checkpoint.loader import load_tensors
from runnerkit.hooks import CheckpointHook, EMAHook, Hook, NestedRunHook, OptimizerHook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils.report import report


def weights(model):
    return tensor_of(model).tolist()


class Killed(Exception):
    """Stands for kill -9: nothing is saved."""


class At(Hook):
    """Calls a function after the iteration ``at`` of its runner."""

    def __init__(self, at, call):
        self.at, self.call = at, call

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.at:
            self.call(runner)


class Inner(NestedRunHook):
    """Trains for eight iterations: a model of its own, or the outer run's."""

    def __init__(self, shares=False, hooks=list, kind='iter', **options):
        super().__init__(**{'name': 'inner', 'interval': 4, **options})
        self.shares, self.hooks, self.kind, self.children = shares, hooks, kind, []

    def make(self, runner):
        model = runner.model if self.shares else Tiny()
        limit = {'max_iters': 8} if self.kind == 'iter' else {'max_epochs': 2}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        child = tiny_child(self.kind, model, optimizer, self.work_dir_of(runner), **limit)
        child.register_hook(OptimizerHook())
        for hook in self.hooks():
            child.register_hook(hook)
        self.children.append(child)
        return child, [loader(16, 4)], [('train', 1)]


def tiny_child(kind, model, optimizer, work_dir=None, **limits):
    runner_type = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}[kind]
    return runner_type(model, optimizer=optimizer, work_dir=work_dir, **limits)


def outer_runner(work_dir, kind, inner, ema=False, saves=(3, False), cumulative_iters=1):
    runner = tiny_runner(kind, work_dir=work_dir, max_epochs=2)
    runner.register_hook(OptimizerHook(cumulative_iters=cumulative_iters), 'ABOVE_NORMAL')
    runner.register_hook(CheckpointHook(*saves))
    if ema:
        runner.register_hook(EMAHook(momentum=0.3, warm_up=1))
    runner.register_hook(inner)
    return runner


def resumed_runner(work_dir, *args, **options):
    """One that continues from the newest checkpoint of ``work_dir``."""
    runner = outer_runner(work_dir, *args, **options)
    runner.resume(find_latest_checkpoint(str(work_dir)))
    return runner


def run(runner):
    runner.run([loader(24, 4)], [('train', 1)])
    return runner


def raises(child):
    raise Killed


def stops_the_outer_one(child):
    if child.parent.completed_iters == 8:
        child.parent.stop('now')


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@thinned(shares=[False, True], inner_kind=['epoch', 'iter'])
def test_a_run_killed_inside_gives_the_same_bits(kind, inner_kind, shares, tmp_path):
    inner = Inner(shares, kind=inner_kind)
    whole = run(outer_runner(tmp_path / 'whole', kind, inner, ema=not shares))
    assert [child.completed_iters for child in inner.children] == [8, 8, 8]

    def die(child):
        if child.parent.completed_iters == 8:
            raise Killed

    runner = outer_runner(tmp_path / 'cut', kind, Inner(shares, lambda: [At(6, die)], kind=inner_kind), ema=not shares)
    with pytest.raises(Killed):
        run(runner)
    again = Inner(shares, kind=inner_kind)
    resumed = resumed_runner(tmp_path / 'cut', kind, again, ema=not shares)
    assert resumed.iter == 6
    run(resumed)
    for mine, theirs in zip(again.children, inner.children[1:], strict=True):
        assert weights(mine.model) == weights(theirs.model)
    assert weights(resumed.model) == weights(whole.model)
    assert resumed.completed_iters == whole.completed_iters == 12


def test_a_nested_run_that_leaves_the_model_alone_does_not_change_the_training(tmp_path):
    alone = tiny_runner('epoch', max_epochs=2)
    alone.register_hook(OptimizerHook())
    run(alone)
    beside = run(outer_runner(tmp_path, 'epoch', Inner(kind='epoch')))
    assert weights(alone.model) == weights(beside.model)
    assert alone.model.losses == beside.model.losses


def test_the_outer_runs_gradients_and_modes_are_as_they_were(tmp_path):
    found = []

    class Looks(Hook):
        def after_train_iter(self, runner):
            found.append(
                ([None if p.grad is None else p.grad.clone() for p in runner.model.parameters()], runner.model.training)
            )

    class After(Looks):
        runs_last = True

    runner = outer_runner(tmp_path, 'epoch', Inner(shares=True), cumulative_iters=3)  # in the middle of a cycle
    runner.register_hook(Looks(), 'ABOVE_NORMAL')
    runner.register_hook(After())
    run(runner)
    for (before, was), (after, now) in zip(found[::2], found[1::2], strict=True):
        assert was == now
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_nested_runs_draw_other_numbers_by_name_and_moment(tmp_path):
    inners = Inner(), Inner(name='other')
    runner = outer_runner(tmp_path, 'epoch', inners[0])
    runner.register_hook(inners[1])
    runner.model.body[3].p = 0.0  # so that the outer run itself draws nothing
    run(runner)
    assert len({tuple(child.model.losses) for inner in inners for child in inner.children}) == 6


@thinned(how=['SIGTERM', 'stop'], kind=['epoch', 'iter'])
def test_the_end_of_the_outer_run_ends_the_inner_one_which_starts_again(kind, how, tmp_path, caplog):
    whole_inner = Inner()
    whole = run(outer_runner(tmp_path / 'whole', kind, whole_inner))

    def end(runner):
        if runner.parent.completed_iters == 8:
            if how == 'SIGTERM':
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                runner.parent.stop('enough')

    after = []

    class Late(Inner):
        def collect(self, runner, child):
            after.append(runner.completed_iters)

    stopped = outer_runner(tmp_path / 'cut', kind, Late(hooks=lambda: [At(3, end)]))
    run(stopped)
    assert (stopped.completed_iters, stopped.unfinished) == (8, ('inner',))
    assert after == [4]  # the rest of the span is skipped
    assert (stopped.outcome.kind, stopped.outcome.reason) == ('stopped', 'SIGTERM' if how == 'SIGTERM' else 'enough')

    again = Inner()
    resumed = resumed_runner(tmp_path / 'cut', kind, again)
    with caplog.at_level(logging.WARNING):
        run(resumed)
    assert "inside the nested run 'inner', which starts again from its beginning" in caplog.text
    assert [len(child.model.losses) for child in again.children] == [8, 8]
    assert not resumed.unfinished
    assert resumed.scores == whole.scores
    assert weights(again.children[0].model) == weights(whole_inner.children[1].model)
    assert weights(again.children[1].model) == weights(whole_inner.children[2].model)
    assert weights(resumed.model) == weights(whole.model)


def test_a_run_that_goes_on_in_the_same_process_starts_it_again(tmp_path):
    whole_inner = Inner()
    whole = run(outer_runner(tmp_path / 'whole', 'epoch', whole_inner))
    inner = Inner(hooks=lambda: [At(3, stops_the_outer_one)] if len(inner.children) < 2 else [])
    runner = run(outer_runner(tmp_path / 'cut', 'epoch', inner))
    assert (runner.completed_iters, runner.unfinished) == (8, ('inner',))
    data = runner.readers.entries[0].dataloader
    runner.run([data], [('train', 1)])
    assert weights(runner.model) == weights(whole.model)
    assert weights(inner.children[2].model) == weights(whole_inner.children[1].model)


def test_stopped_once_more_before_the_inner_run_is_over(tmp_path):
    whole_inner = Inner()
    whole = run(outer_runner(tmp_path / 'whole', 'epoch', whole_inner))
    for at in (2, 5, 7):
        inner = Inner(
            hooks=lambda at=at: [At(at, lambda child: child.parent.completed_iters == 8 and child.parent.stop('now'))]
        )
        runner = outer_runner(tmp_path / 'cut', 'epoch', inner)
        latest = find_latest_checkpoint(str(tmp_path / 'cut'))
        if latest is not None:
            runner.resume(latest)
        run(runner)
        assert (runner.completed_iters, runner.unfinished) == (8, ('inner',))
    again = Inner()
    resumed = run(resumed_runner(tmp_path / 'cut', 'epoch', again))
    assert weights(resumed.model) == weights(whole.model)
    assert weights(again.children[0].model) == weights(whole_inner.children[1].model)


def test_an_inner_run_that_stops_itself_is_over(tmp_path):
    inner = Inner(hooks=lambda: [At(3, lambda child: child.stop('good enough'))])
    runner = run(outer_runner(tmp_path, 'epoch', inner))
    assert [child.completed_iters for child in inner.children] == [3, 3, 3]
    assert runner.outcome.kind == 'completed'
    assert (runner.completed_iters, runner.unfinished) == (12, ())


def test_an_error_inside_is_the_outer_runs(tmp_path):
    runner = outer_runner(tmp_path, 'epoch', Inner(hooks=lambda: [At(2, raises)]))
    with pytest.raises(Killed):
        run(runner)
    assert runner.outcome.kind == 'failed'
    assert (runner.completed_iters, runner.unfinished) == (4, ())


def test_two_levels(tmp_path):
    class Middle(Inner):
        def make(self, runner):
            made = super().make(runner)
            self.innermost = Inner(name='innermost', hooks=self.inside)
            made[0].register_hook(self.innermost)
            return made

        def inside(self):
            return []

    whole_middle = Middle()
    whole = run(outer_runner(tmp_path / 'whole', 'epoch', whole_middle))

    class Cut(Middle):
        def inside(self):
            return [At(5, self.stop)]

        def stop(self, runner):
            if runner.parent.parent.completed_iters == 8 and runner.parent.completed_iters == 4:
                runner.parent.parent.stop('all of you')

    stopped = run(outer_runner(tmp_path / 'cut', 'epoch', Cut()))
    assert (stopped.completed_iters, stopped.unfinished) == (8, ('inner',))
    again = Middle()
    resumed = run(resumed_runner(tmp_path / 'cut', 'epoch', again))
    assert weights(resumed.model) == weights(whole.model)
    assert weights(again.children[0].model) == weights(whole_middle.children[1].model)
    assert weights(again.innermost.children[-1].model) == weights(whole_middle.innermost.children[-1].model)


def test_hooks_of_the_outer_run_act_meanwhile(tmp_path):
    calls = []

    class Waits(Hook):
        def while_waiting(self, runner):
            calls.append(runner.completed_iters)

    runner = outer_runner(tmp_path, 'epoch', Inner(interval=12))
    runner.register_hook(Waits())
    run(runner)
    assert calls == [12] * 8


def test_going_back_inside_ends_the_inner_run(tmp_path):
    went = []

    def back(child):
        if not went:
            went.append(child.parent.completed_iters)
            child.parent.roll_back(str(tmp_path / 'iter_3.pth'))

    inner = Inner(hooks=lambda: [At(2, back)])
    runner = run(outer_runner(tmp_path, 'epoch', inner))
    assert went == [4]
    assert runner.completed_iters == 12
    assert [child.completed_iters for child in inner.children] == [2, 8, 8, 8]
    assert inner.children[0].outcome.kind == 'interrupted'


def test_reports_and_logs_are_its_own(tmp_path):
    class Reports(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            report('seen', 1.0)
            return super().train_step(data, optimizer)

    class Own(Inner):
        def make(self, runner):
            child, loaders, workflow = super().make(runner)
            child.model = Reports()
            child.optimizer = torch.optim.SGD(child.model.parameters(), lr=0.1)
            return child, loaders, workflow

    inner = Own(interval=12)
    runner = run(outer_runner(tmp_path, 'epoch', inner))
    assert 'seen' in inner.children[0].log_buffer.val_history
    assert 'seen' not in runner.log_buffer.val_history


def test_an_evaluation_every_few_batches(tmp_path):
    class Test(NestedRunHook):
        def make(self, runner):
            return EpochBasedRunner(runner.model, max_epochs=1), [self.data], [('val', 1)]

    hook = Test('test', interval=4)
    hook.data = loader(8, 4, shuffle=False)
    runner = tiny_runner('epoch', model=Measured(), work_dir=tmp_path, max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(hook)
    run(runner)
    assert runner.scores['test/error'].iter == 12
    expected = runner.evaluate(hook.data)['error']
    assert runner.scores['test/error'].value == pytest.approx(expected)
    assert runner.model.training


def test_runs_outside_a_span_are_told_when_they_are_cut(tmp_path, caplog):
    class Bare(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 3:
                child = tiny_runner('iter', max_iters=8)
                child.register_hook(OptimizerHook())
                child.register_hook(At(2, lambda child: child.parent.stop('enough')))
                child.run([loader()], [('train', 1)])

    runner = outer_runner(tmp_path, 'epoch', Bare())
    with caplog.at_level(logging.WARNING):
        run(runner)
    assert runner.completed_iters == 4
    assert "run it in a span, with runner.nested('a name')" in caplog.text


def test_a_nested_run_that_no_hook_starts_again_is_logged(tmp_path, caplog):
    stop = Inner(hooks=lambda: [At(3, lambda child: child.parent.stop('enough'))])
    run(outer_runner(tmp_path, 'epoch', stop))
    resumed = resumed_runner(tmp_path, 'epoch', Hook())
    with caplog.at_level(logging.WARNING):
        run(resumed)
    assert 'no hook starts the nested runs again that were open: inner.' in caplog.text


def test_a_span_outside_of_a_run(tmp_path):
    runner = outer_runner(tmp_path, 'epoch', Hook())
    with pytest.raises(RuntimeError, match=r"nested\('x'\) is the span of a run inside this one"), runner.nested('x'):
        pass


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_of_two_nested_runs_at_one_moment_both_are_made(kind, tmp_path):
    def made(name, hooks=list):
        both = [Inner(hooks=hooks, name='first'), Inner(True, name='second')]
        runner = outer_runner(tmp_path / name, kind, both[0])
        runner.register_hook(both[1])
        return runner, *both

    whole = run(made('whole')[0])
    runner, first, second = made('cut', lambda: [At(5, stops_the_outer_one)])
    run(runner)
    assert [len(hook.children) for hook in (first, second)] == [2, 2]
    assert second.children[-1].completed_iters == 0
    assert runner.unfinished == ('first', 'second')

    runner, first, second = made('cut')
    runner.resume(find_latest_checkpoint(str(tmp_path / 'cut')))
    iters = []
    second.collect = lambda runner, child: iters.append((runner.iter, runner.epoch))
    run(runner)
    assert [len(hook.children) for hook in (first, second)] == [2, 2]
    assert iters == [(7, 1), (11, 1)]  # the counters are those of an undisturbed run
    assert weights(runner.model) == weights(whole.model)


def test_two_nested_runs_in_before_run_of_which_the_first_is_cut_short():
    class Probes(Hook):
        def __init__(self, name):
            self.name, self.counts = name, []

        def before_run(self, runner):
            with runner.nested(self.name):
                child = tiny_runner('iter', max_iters=4)
                self.counts.append(child.progress)
                child.register_hook(OptimizerHook())
                child.register_hook(At(2, lambda child: child.parent.stop('enough')))
                child.run([loader()], [('train', 1)])

    runner, hooks = tiny_runner(max_epochs=1), [Probes('first'), Probes('second')]
    for hook in hooks:
        runner.register_hook(hook)
    run(runner)
    assert (runner.outcome.kind, runner.iter, runner.unfinished) == ('stopped', 0, ('first', 'second'))
    assert [progress.iters for hook in hooks for progress in hook.counts] == [2, 0]


@pytest.mark.parametrize('by_epoch', [False, True])
def test_what_saves_behind_a_nested_run_saves_again_when_it_is_over(by_epoch, tmp_path):
    """The nested run trains the model after the last iteration: the last file has to hold that."""

    saves = (1 if by_epoch else 4, by_epoch)

    def inner(hooks=list):
        return Inner(True, hooks, interval=saves[0], by_epoch=by_epoch)

    def stop(child):
        if child.parent.completed_iters == 12:
            child.parent.stop('enough')

    path = tmp_path / ('epoch_2.pth' if by_epoch else 'iter_12.pth')
    run(outer_runner(tmp_path, 'epoch', inner(lambda: [At(6, stop)]), saves=saves))
    assert load_tensors(str(path))['runnerkit']['nested'] == ['inner']
    runner = run(resumed_runner(tmp_path, 'epoch', inner(), saves=saves))
    last = load_tensors(str(path))
    assert 'nested' not in last['runnerkit']
    assert torch.cat([each.float().flatten() for each in last['state_dict'].values()]).tolist() == weights(runner.model)


def test_a_signal_that_comes_right_before_a_nested_run_ends_it(tmp_path):
    whole = run(outer_runner(tmp_path / 'whole', 'epoch', Inner(shares=True)))
    inner = Inner(shares=True)
    runner = outer_runner(tmp_path / 'cut', 'epoch', inner)
    runner.register_hook(At(8, lambda runner: os.kill(os.getpid(), signal.SIGTERM)), 'HIGH')
    run(runner)
    assert (runner.completed_iters, runner.unfinished) == (8, ('inner',))
    assert inner.children[-1].completed_iters == 0
    assert runner.outcome.reason == 'SIGTERM'
    resumed = resumed_runner(tmp_path / 'cut', 'epoch', Inner(shares=True))
    assert weights(run(resumed).model) == weights(whole.model)


def test_a_run_whose_nested_run_a_signal_cuts_behind_the_last_epoch_has_not_ended(tmp_path):
    inner = Inner(by_epoch=True, interval=2, hooks=lambda: [At(3, lambda runner: os.kill(os.getpid(), signal.SIGTERM))])
    runner = run(outer_runner(tmp_path, 'epoch', inner))
    assert (runner.completed_iters, runner.unfinished) == (12, ('inner',))
    assert (str(runner.outcome), runner.stop_signal) == ('stopped: SIGTERM', signal.SIGTERM)
    again = Inner(by_epoch=True, interval=2)
    resumed = resumed_runner(tmp_path, 'epoch', again)
    assert run(resumed).outcome.kind == 'completed'
    assert [len(child.model.losses) for child in again.children] == [8]


def test_a_nested_run_cannot_average_the_outer_runs_model(tmp_path):
    runner = outer_runner(tmp_path, 'epoch', Inner(True, lambda: [EMAHook()]))
    with pytest.raises(ValueError, match='cannot average the very model of the run around it'):
        run(runner)
    assert not [name for name, _ in runner.model.named_buffers() if name.startswith('ema_')]


# --- several processes -----------------------------------------------------------------------------------------------


def ranked(rank, work_dir, mode):
    """The weights of an outer and of its last inner model, after a whole run, a stopped one, or a resumed one."""

    def end(child):
        if rank == 1 and child.parent.completed_iters == 8:
            child.parent.stop('rank 1 has enough')

    def until_it_is_heard(child):
        """The ranks agree beside the training, which is over in no time here."""
        patience = 400
        while child.parent.completed_iters == 8 and not child.is_ending and patience:
            patience -= 1
            time.sleep(0.05)

    inside = {'stopped': [At(3, end)], 'signalled': [At(3, until_it_is_heard)]}

    class Shared(Inner):
        def make(self, runner):
            child, _, workflow = super().make(runner)
            child.model = MMDistributedDataParallel(child.model)
            return child, [loader(32, 4, dist=True)], workflow

    inner = Shared(hooks=lambda: copy.deepcopy(inside.get(mode, [])))
    torch.manual_seed(0)
    model = MMDistributedDataParallel(Tiny())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runner = tiny_child('epoch', model, optimizer, work_dir, max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(CheckpointHook(interval=3, by_epoch=False))
    runner.register_hook(inner)
    if mode == 'signalled' and rank == 1:
        runner.register_hook(At(8, lambda runner: os.kill(os.getpid(), signal.SIGTERM)), 'HIGH')
    if mode == 'resumed':
        runner.resume(find_latest_checkpoint(work_dir))
    runner.run([loader(48, 4, dist=True)], [('train', 1)])
    inner_model = inner.children[1 if mode == 'whole' else 0].model.module
    cut = inner.children[-1].completed_iters
    return runner.completed_iters, cut, weights(runner.model.module), weights(inner_model)


@pytest.mark.thorough  # the tests of one process; tests/runner/test_sharded.py
def test_on_two_ranks(on_ranks, tmp_path):
    whole = on_ranks(__file__, 'ranked', str(tmp_path / 'whole'), 'whole')
    for how in ('stopped', 'signalled'):
        cut = on_ranks(__file__, 'ranked', str(tmp_path / how), how)
        resumed = on_ranks(__file__, 'ranked', str(tmp_path / how), 'resumed')
        assert {(iters, inside) for iters, inside, *_ in cut} == {(8, cut[0][1])}
        # A signal may have come before the nested run's third iteration; what stops it inside comes at the third.
        assert (3 if how == 'stopped' else 1) <= cut[0][1] < 8
        assert resumed == whole
