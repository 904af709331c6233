"""Ending a run whose score no longer improves: when, on all ranks, after a resume, and what is refused."""

import logging
import math

import pytest
from support import Measured, Tiny, loader, tiny_runner
from torchmetrics import Accuracy

from runnerkit.hooks import CheckpointHook, EarlyStoppingHook, EvalHook, Hook, OptimizerHook
from runnerkit.parallel import MMDistributedDataParallel


class Scripted(Tiny):
    """Its evaluations have the scores of a script, over and over the last one."""

    def __init__(self, scores, name='acc'):
        super().__init__()
        self.scores, self.name, self.left = list(scores), name, 0

    def val_step(self, data, optimizer=None, **kwargs):
        score = self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]
        return {'loss': None, 'log_vars': {self.name: score}, 'num_samples': 1}


def stopped(tmp_path, scores, kind='epoch', workflow=False, save=False, resume=None, name='acc', hooks=(), **options):
    """A run of at most ten epochs (or iterations) of which each is evaluated once."""
    model = scores if isinstance(scores, Tiny) else Scripted(scores, name)
    runner = tiny_runner(kind, model, tmp_path, **{f'max_{kind}s': 10})
    hook = EarlyStoppingHook(**{'monitor': 'acc', **options})
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(hook)
    for each in hooks:
        runner.register_hook(each)
    if save:
        runner.register_hook(CheckpointHook(interval=1, by_epoch=kind == 'epoch'))
    loaders = [loader(8)]
    if workflow:
        loaders.append(loader(4))
    else:
        runner.register_hook(EvalHook(loader(4), by_epoch=kind == 'epoch'), 'LOW')
    if resume is not None:
        runner.resume(str(resume))
    runner.run(loaders, [('train', 1), ('val', 1)][: len(loaders)])
    return runner, hook


def done(runner):
    return runner.completed_epochs if runner.by_epoch else runner.completed_iters


WHEN = [
    ([0.1, 0.2, 0.2, 0.1, 0.3], {'patience': 2}, 4),
    ([0.1, 0.2, 0.1, 0.3, 0.1, 0.2], {'patience': 2}, 6),  # a better one begins the count anew
    ([0.5], {'patience': 1}, 2),
    ([0.5], {}, 4),
    ([0.1, 0.15, 0.25, 0.35, 0.36, 0.37], {'patience': 2, 'min_delta': 0.09}, 6),
    ([3.0, 2.0, 2.5, 2.5], {'patience': 2, 'rule': 'less'}, 4),
    ([math.nan, 0.3, math.nan, math.nan], {'patience': 2}, 4),
    ([-math.inf, math.inf, 0.4, 0.3, math.inf, -math.inf, 0.5], {'patience': 3}, 6),
    ([0.1 * k for k in range(10)], {'patience': 1}, 10),
]


@pytest.mark.parametrize('scores, options, epochs', WHEN)
def test_when_a_run_stops(tmp_path, scores, options, epochs):
    runner, _ = stopped(tmp_path, scores, **options)
    assert done(runner) == epochs


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('workflow', [False, True])
def test_either_runner_and_either_way_to_evaluate(tmp_path, kind, workflow):
    runner, hook = stopped(tmp_path, [0.1, 0.9, 0.2, 0.3, 0.4], kind, workflow, patience=2)
    assert done(runner) == 4
    iters = 2 * (2 if kind == 'epoch' else 1)
    assert (hook.best, hook.best_iter) == (0.9, iters)
    assert runner.outcome.kind == 'stopped'
    assert runner.outcome.reason == f'acc has not improved for 2 evaluations (best: 0.9 at iteration {iters})'


def test_the_rule_is_that_of_save_best(tmp_path):
    assert stopped(tmp_path, [0.1, 0.2, 0.2], name='val_loss', monitor='val_loss', patience=1)[1].rule == 'less'
    measured = Measured()
    _, hook = stopped(tmp_path, measured, monitor='error', patience=50)
    assert hook.rule == 'less'
    measured.metrics = {'error': Accuracy(task='binary')}
    hook.before_run(tiny_runner(model=measured))
    assert hook.rule == 'greater'
    _, hook = stopped(tmp_path, Measured(), monitor='error', rule='greater', patience=50)
    assert hook.rule == 'greater'
    with pytest.raises(ValueError, match="rule='greater' or rule='less'"):
        stopped(tmp_path, [0.1], monitor='quality')


def test_a_run_that_was_stopped_trains_on_only_with_more_patience(tmp_path, caplog):
    stopped(tmp_path, [0.5], save=True, patience=2)
    last = tmp_path / 'latest.pth'
    again, _ = stopped(tmp_path / 'again', [0.5], resume=last, patience=2)
    assert (done(again), again.outcome.kind) == (3, 'stopped')
    more, _ = stopped(tmp_path / 'more', [0.5], resume=last, patience=4)
    assert done(more) == 5
    other, _ = stopped(tmp_path / 'other', [0.5], name='top', monitor='top', resume=last, patience=2)
    assert done(other) == 6
    assert "monitored 'acc'" in caplog.text


def test_a_score_that_never_comes(tmp_path, caplog):
    with pytest.raises(KeyError, match="no score of this run.* give the numbers acc; did you mean 'acc'"):
        stopped(tmp_path, [0.1], monitor='acc_')
    with pytest.raises(ValueError, match="monitor='eror' is none of the model's metrics .*did you mean 'error'"):
        stopped(tmp_path, Measured(), monitor='eror', rule='less')
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(EarlyStoppingHook('acc'))
    runner.run([loader(4)], [('train', 1)])
    assert "monitor='acc' never came, nothing was evaluated" in caplog.text
    caplog.clear()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(EarlyStoppingHook('los_acc'))
    runner.run([loader(4), loader(4)], [('train', 1), ('val', 1)])
    assert "monitor='los_acc' never came, the evaluations gave loss" in caplog.text


def test_one_of_several_data_sets_may_lack_the_score(tmp_path):
    class Two(Hook):
        def after_train_epoch(self, runner):
            for name, score in (('clean/acc', 0.5), ('noisy/acc', 0.5)):
                with runner.around_val() as found:
                    found[name] = score

    runner = tiny_runner(max_epochs=9)
    runner.register_hook(Two())
    runner.register_hook(EarlyStoppingHook('noisy/acc', patience=2))
    runner.run([loader(4)], [('train', 1)])
    assert runner.completed_epochs == 3


@pytest.mark.parametrize(
    'wrong, error, words',
    [
        ({'monitor': None}, TypeError, 'name of a score'),
        ({'patience': 0}, ValueError, 'at least 1'),
        ({'patience': 1.5}, TypeError, 'whole number'),
        ({'min_delta': -1}, ValueError, 'at least 0'),
        ({'min_delta': '1'}, TypeError, 'a number'),
        ({'rule': 'grater'}, ValueError, "did you mean 'greater'"),
    ],
)
def test_wrong_arguments(wrong, error, words):
    with pytest.raises(error, match=words):
        EarlyStoppingHook(**{'monitor': 'acc', **wrong})


def together(rank, folder):
    logging.getLogger('runnerkit').setLevel(logging.CRITICAL)
    ends = []
    for kind in ('epoch', 'iter'):
        # Scores are averaged over the ranks: alone, the second one would never stop.
        model = MMDistributedDataParallel(Scripted([0.1, 0.9, 0.2, 0.3] if rank == 0 else [0.1 * k for k in range(10)]))
        runner = tiny_runner(kind, model, f'{folder}/{kind}', **{f'max_{kind}s': 10})
        runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
        runner.register_hook(EarlyStoppingHook('acc', patience=2))
        runner.register_hook(EvalHook(loader(4, dist=False), by_epoch=kind == 'epoch'), 'LOW')
        runner.run([loader(16)], [('train', 1)])
        ends.append((runner.completed_iters, str(runner.outcome)))
    return ends


def test_all_ranks_stop_after_the_same_iteration(on_ranks, tmp_path):
    first, second = on_ranks(__file__, 'together', str(tmp_path))
    assert first == second
    assert [iters for iters, _ in first] == [8, 4]
