"""Evaluation while training: when, by whom, and which checkpoint is the best."""

import errno
import json
import math
import re
import shutil
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from mmcv_record import benchmark
from support import Measured, Noisy, Tiny, loader, tiny_runner
from torch.utils.data import DataLoader, Dataset

from runnerkit import evaluation
from runnerkit.checkpoint import NotSavedError, Store
from runnerkit.checkpoint.store import best_name
from runnerkit.flow.look.log_lines import best_of, read_log
from runnerkit.hooks import (
    CheckpointHook,
    DistEvalHook,
    EarlyStoppingHook,
    EvalHook,
    Hook,
    IterTimerHook,
    OptimizerHook,
    TextLoggerHook,
)
from runnerkit.hooks.hook import Score
from runnerkit.runner import EpochBasedRunner

attempts = benchmark('kills.attempts')


class Scored(Dataset):
    """MMCV's protocol: the data set itself says what predictions are worth."""

    def __init__(self, scores):
        self.scores = list(scores)
        self.calls = []

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return {'x': torch.full((4,), float(i))}

    def evaluate(self, results, logger=None, **options):
        self.calls.append((len(results), options))
        return {'acc': self.scores.pop(0), 'other': 1.0}


class Predicts(Tiny):
    def forward(self, x, return_loss=True):
        if return_loss:
            return super().forward(x)
        assert not self.training
        return super().forward(x).flatten().tolist()


def evaluated(tmp_path, scores, epochs=None, kind='epoch', hooks=(), limit=None, **options):
    data = Scored(scores)
    runner = tiny_runner(kind, model=Predicts(), work_dir=tmp_path, **(limit or {'max_epochs': epochs or len(scores)}))
    hook = EvalHook(DataLoader(data, batch_size=2), **{'by_epoch': kind == 'epoch', **options})
    runner.register_hook(hook, 'LOW')
    for each in hooks:
        runner.register_hook(each, 'VERY_LOW')
    runner.run([loader(8)], [('train', 1)])
    return data, runner, hook


def best_files(tmp_path):
    return sorted(path.name for path in tmp_path.glob('best_*'))


def test_the_data_set_is_asked_with_all_predictions(tmp_path):
    data, runner, _ = evaluated(tmp_path, [0.1, 0.2], metric='mAP')
    assert data.calls == [(3, {'metric': 'mAP'})] * 2
    assert runner.model.training
    assert best_files(tmp_path) == []


@pytest.mark.parametrize(
    'scores, rule, best, name',
    [
        ([0.1, 0.3, 0.2], None, 0.3, 'best_acc_epoch_2.pth'),
        ([0.3, 0.1, 0.2], 'less', 0.1, 'best_acc_epoch_2.pth'),
        ([0.0, -1.0], None, 0.0, 'best_acc_epoch_1.pth'),
        ([0.2, 0.2], None, 0.2, 'best_acc_epoch_1.pth'),
        ([0.2, 0.2], 'less', 0.2, 'best_acc_epoch_1.pth'),
        ([0.1, 0.2, math.inf], None, 0.2, 'best_acc_epoch_2.pth'),
        ([-math.inf, 0.2, math.nan], 'less', 0.2, 'best_acc_epoch_2.pth'),
    ],
)
def test_the_best_is_kept_and_only_it(tmp_path, scores, rule, best, name):
    _, runner, _ = evaluated(tmp_path, scores, save_best='acc', rule=rule)
    assert best_files(tmp_path) == [name]
    assert runner.meta['hook_msgs']['best_score'] == best
    assert runner.meta['hook_msgs']['best_ckpt'] == str(tmp_path / name)
    assert torch.load(tmp_path / name)['meta']['hook_msgs']['best_score'] == best


def test_a_best_score_that_is_not_finite_does_not_count(tmp_path):
    """As another program, or an earlier version, may have stored it."""
    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=1)
    runner.meta['hook_msgs'] = {'best_score': math.nan}
    runner.register_hook(EvalHook(DataLoader(Scored([0.1])), save_best='acc'))
    runner.run([loader(4)], [('train', 1)])
    assert best_files(tmp_path) == ['best_acc_epoch_1.pth']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_an_evaluation_before_the_training_has_its_own_line(kind, tmp_path):
    runner = tiny_runner(kind, Predicts(), tmp_path, **{f'max_{kind}s': 1})
    runner.register_logger_hooks({'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]})
    by_epoch = kind == 'epoch'
    runner.register_hook(EvalHook(DataLoader(Scored([0.1, 0.2])), 0, by_epoch=by_epoch, save_best='acc'), 'LOW')
    kept = {}

    class Keeps(Hook):
        def before_train_iter(self, runner):
            kept.update(torch.load(tmp_path / best_files(tmp_path)[0])['runnerkit']['ranks'][0])

    runner.register_hook(Keeps(), 'LOWEST')
    runner.run([loader(4)], [('train', 1)])
    lines = attempts.log_of(tmp_path)
    assert [(line['mode'], line['step'], line.get('acc')) for line in lines] == [
        ('val', 0, 0.1),
        ('train', 1, None),
        ('val', 1, 0.2),
    ]
    assert kept['hooks']['EvalHook#0']['initial_flag'] is False  # a run that resumes it does not evaluate once more


def test_a_best_one_that_cannot_be_saved_leaves_the_former_one_and_its_score(tmp_path, monkeypatch, caplog):
    written = Store.write

    def full_at_the_second_epoch(store, name, checkpoint, *args):
        if checkpoint['meta']['epoch'] == 2:
            raise NotSavedError(errno.ENOSPC, 'No space left on device', name)
        written(store, name, checkpoint, *args)

    monkeypatch.setattr(Store, 'write', full_at_the_second_epoch)
    _, runner, hook = evaluated(tmp_path, [0.1, 0.3, 0.3], epochs=2, save_best='acc')
    assert best_files(tmp_path) == ['best_acc_epoch_1.pth']
    assert runner.meta['hook_msgs'] == {'best_score': 0.1, 'best_ckpt': hook.best_ckpt_path}
    assert hook.best_ckpt_path == str(tmp_path / 'best_acc_epoch_1.pth')
    assert 'best_acc_epoch_2.pth could not be saved: No space left on device' in caplog.text
    runner._max_epochs = 3
    runner.run([loader(8)], [('train', 1)])
    assert best_files(tmp_path) == ['best_acc_epoch_3.pth']  # as good as the one that was lost


def test_the_best_of_the_other_direction_is_forgotten():
    for rule, left in (('less', {'best_score': 0.5, 'best_ckpt': 'x'}), ('greater', {})):
        hook = EvalHook(DataLoader(Scored([])), save_best='acc', rule='less')
        hook._messages = {'best_score': 0.5, 'best_ckpt': 'x'}
        hook.load_state_dict({'initial_flag': False, 'key_indicator': 'acc', 'rule': rule})
        assert hook._messages == left


@pytest.mark.parametrize(
    'options, epochs',
    [
        ({}, [1, 2, 3, 4, 5]),
        ({'interval': 2}, [2, 4]),
        ({'start': 3}, [3, 4, 5]),
        ({'start': 3, 'interval': 2}, [3, 5]),
        ({'start': 0}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_when_by_epoch(tmp_path, options, epochs):
    when = []

    class When(Scored):
        def evaluate(self, results, logger=None):
            when.append(runner.completed_epochs)
            return {'acc': 0.0}

    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=5)
    runner.register_hook(EvalHook(DataLoader(When([])), **options), 'LOW')
    runner.run([loader(4)], [('train', 1)])
    assert when == epochs


def test_val_step_and_metrics_where_the_data_set_is_silent(tmp_path):
    logged = []

    class Look(Hook):
        def after_train_epoch(self, runner):
            logged.append(dict(runner.log_buffer.output))

    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=2)
    hook = EvalHook(loader(10), save_best='error')
    runner.register_hook(hook, 'LOW')
    runner.register_hook(Look(), 'LOWEST')
    runner.run([loader(8)], [('train', 1)])
    assert hook.rule == 'less'  # declared by the metric
    assert logged[0]['error'] == pytest.approx(logged[0]['loss'], rel=1e-5)
    assert best_files(tmp_path) == [f'best_error_epoch_{1 + (logged[1]["error"] < logged[0]["error"])}.pth']


def test_auto_prefers_the_models_metric_to_its_loss(tmp_path):
    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=1)
    hook = EvalHook(loader(10), save_best='auto')
    runner.register_hook(hook, 'LOW')
    runner.run([loader(8)], [('train', 1)])
    assert hook.key_indicator == 'error'
    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=1)
    runner.register_hook(EvalHook(loader(10), save_best='eror'), 'LOW')
    with pytest.raises(ValueError, match=r"save_best='eror' is none of the model's metrics \(error\) nor a loss"):
        runner.run([loader(8)], [('train', 1)])


def test_a_test_fn_replaces_the_loop(tmp_path):
    data, _, _ = evaluated(tmp_path, [0.1], test_fn=lambda model, loader: ['x'] * 7)
    assert data.calls == [(7, {})]


def test_subclasses_may_replace_the_evaluation(tmp_path):
    class Mine(EvalHook):
        def _do_evaluate(self, runner):
            assert not runner.model.training
            self._save_ckpt(runner, 0.25)

    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Mine(DataLoader(Scored([])), save_best='acc'), 'LOW')
    runner.run([loader(4)], [('train', 1)])
    assert best_files(tmp_path) == ['best_acc_epoch_1.pth']


def test_training_numbers_are_logged_before_an_evaluation_by_iteration(tmp_path):
    lines = []

    class Text(TextLoggerHook):
        def log(self, runner):
            lines.append((self.get_mode(runner), sorted(runner.log_buffer.output)))
            runner.log_buffer.clear_output()

    evaluated(
        tmp_path, [0.5], kind='iter', limit={'max_iters': 2}, interval=2, hooks=[Text(by_epoch=False, interval=2)]
    )
    assert ['loss'] == [key for key in lines[0][1] if key in ('loss', 'acc')]
    assert 'acc' in lines[1][1]


@pytest.mark.parametrize('priority', ['NORMAL', 'LOW'])
def test_scores_at_a_log_interval_are_no_values_of_the_training(tmp_path, priority):
    """Where the evaluation comes before the timer, the time of its iteration is logged after it."""
    runner = tiny_runner('iter', work_dir=tmp_path, max_iters=4)
    runner.register_hook(IterTimerHook(), 'LOW')
    runner.register_hook(EvalHook(loader(4), interval=2, by_epoch=False), priority)
    runner.register_hook(TextLoggerHook(interval=2, by_epoch=False), 'VERY_LOW')
    runner.run([loader(8)], [('train', 1)])
    lines = map(json.loads, next(tmp_path.glob('*.log.json')).read_text().splitlines())
    found = [(line['mode'], line['iter'], 'time' in line) for line in lines if 'mode' in line]
    assert found == [('train', 2, True), ('val', 2, False), ('train', 4, True), ('val', 4, False)]


def test_a_logger_of_the_evaluation_writes_its_own_lines(tmp_path):
    nested = TextLoggerHook()
    (tmp_path / 'earlier.log.json').write_text('{"mode": "train", "step": 100}\n')
    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=3)
    runner.register_hook(EvalHook(loader(6), hooks=[nested]), 'LOW')
    runner.run([loader(8)], [('train', 1)])
    meta, *lines = [json.loads(line) for line in Path(nested.json_log_path).read_text().splitlines()]
    assert 'mode' not in meta
    assert [(line['mode'], line['epoch'], line['step']) for line in lines] == [('val', n, 2 * n) for n in (1, 2, 3)]
    assert all({'loss', 'error'} <= set(line) for line in lines)
    assert nested._file is None
    assert not list(tmp_path.glob('*.superseded'))  # what other logs say is no affair of an evaluation's logger


def test_hooks_that_a_data_set_with_evaluate_never_calls_are_told(tmp_path, caplog):
    evaluated(tmp_path, [0.1])
    assert 'never called' not in caplog.text
    hook = EvalHook(DataLoader(Scored([0.1]), batch_size=2), hooks=[TextLoggerHook()])
    runner = tiny_runner(model=Predicts(), max_epochs=1)
    runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    assert 'the hooks of this EvalHook are never called (TextLoggerHook)' in caplog.text


def test_no_scores_are_warned_about(tmp_path):
    class Silent(Scored):
        def evaluate(self, results, logger=None):
            return {}

    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=1)
    runner.register_hook(EvalHook(DataLoader(Silent([])), save_best='acc'), 'LOW')
    with pytest.warns(UserWarning, match='Since `eval_res` is an empty dict'):
        runner.run([loader(4)], [('train', 1)])


@pytest.mark.parametrize('save_best', ['acc', 'auto'])
def test_a_score_of_none_is_warned_about_and_never_the_best(tmp_path, caplog, save_best):
    evaluated(tmp_path, [None, 0.1, None], save_best=save_best)
    assert caplog.text.count('acc is nan, which is never the best') == 2
    assert best_files(tmp_path) == ['best_acc_epoch_2.pth']


def test_scores_of_none_count_for_early_stopping(tmp_path):
    _, runner, _ = evaluated(tmp_path, [0.5, None, None, 0.6], hooks=[EarlyStoppingHook('acc', patience=2)])
    assert runner.outcome.reason == 'acc has not improved for 2 evaluations (best: 0.5 at iteration 2)'


@pytest.mark.parametrize('score', ['0.5', 0.5j, torch.ones(2), [0.5], {'a': 0.5}])
def test_a_score_that_is_no_number(tmp_path, score):
    text = f"save_best='acc' must name a number among the scores, but it is {score!r}; the numbers are: other"
    with pytest.raises(TypeError, match=re.escape(text)):
        evaluated(tmp_path, [score], save_best='acc')


def test_the_best_score_is_a_plain_number(tmp_path):
    _, runner, _ = evaluated(tmp_path, [torch.tensor([0.5]), Decimal('0.25')], save_best='acc')
    assert repr(runner.meta['hook_msgs']['best_score']) == '0.5'


def test_a_score_that_is_not_there(tmp_path):
    with pytest.raises(KeyError, match=r"save_best='mAP', but the evaluation gave acc, other"):
        evaluated(tmp_path, [0.1], save_best='mAP')


@pytest.mark.parametrize(
    'arguments, error, text',
    [
        ({'dataloader': [1]}, TypeError, 'dataloader must be a pytorch DataLoader'),
        ({'interval': 0}, ValueError, 'interval must be a whole number of at least 1, but got 0'),
        ({'start': -1}, ValueError, 'start must be a whole number of at least 0, or None, but got -1'),
        ({'by_epoch': 'yes'}, TypeError, 'by_epoch must be True or False'),
        ({'save_best': 3}, TypeError, 'save_best must be'),
        ({'save_best': 'acc', 'rule': 'more'}, KeyError, 'rule must be greater, less or None, but got more'),
        ({'save_best': 'unknown'}, ValueError, 'Cannot infer the rule for key unknown'),
        ({'greater_keys': [3]}, TypeError, 'must be names'),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        EvalHook(**{'dataloader': DataLoader(Scored([])), **arguments})


def test_rules_by_name():
    """tests/test_evaluation.py has the usual ones."""
    loader = DataLoader(Scored([]))
    assert EvalHook(loader, save_best='bbox_mAP').rule == 'greater'
    assert EvalHook(loader, save_best='x', greater_keys='x').rule == 'greater'
    assert EvalHook(loader, save_best='x', less_keys=['X']).rule == 'less'


# --- several ranks ---------------------------------------------------------------------------------------------------


class Hears(Hook):
    def __init__(self):
        self.heard = []

    def after_evaluate(self, runner, scores):
        self.heard.append(scores['acc'])


class FullAtTheThirdEpoch(EpochBasedRunner):
    def save_checkpoint(self, *args, **kwargs):
        if self.completed_epochs == 3:
            raise NotSavedError(errno.ENOSPC, 'No space left on device')
        return super().save_checkpoint(*args, **kwargs)


def asks_on_rank(rank, folder):
    from runnerkit.parallel import MMDistributedDataParallel

    found = {}
    for cls in (EvalHook, DistEvalHook, DistProgressive, DistOwnScores):
        work_dir, hears = folder / cls.__name__, Hears()
        model = MMDistributedDataParallel(Predicts())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = FullAtTheThirdEpoch(model, optimizer=optimizer, work_dir=work_dir, max_epochs=3)
        runner.register_hook(hears, 'HIGHEST')
        runner.register_optimizer_hook({})
        hook = cls(DataLoader(Scored([0.5, 0.7, 0.9]), batch_size=2), save_best='auto')
        runner.register_hook(hook, 'LOW')
        runner.run([loader(16, dist=True)], [('train', 1)])
        ranks = torch.load(hook.best_ckpt_path)['runnerkit']['ranks']
        found[cls.__name__] = (runner.iter, hook.key_indicator, hook.rule, runner.meta['hook_msgs']['best_score'])
        found[cls.__name__] += (hook.best_ckpt_path, len(ranks), hears.heard, runner.scores)
    return found


def scores_on_rank(rank, folder):
    from runnerkit.parallel import MMDistributedDataParallel

    runner = tiny_runner(model=MMDistributedDataParallel(Measured()), work_dir=folder, max_epochs=1)
    runner.register_optimizer_hook({})
    runner.run([loader(16, dist=True)], [('train', 1)])
    scores = runner.evaluate(loader(11, batch=2, dist=True, shuffle=False, round_up=False))
    alone = Measured()
    alone.load_state_dict(runner.model.module.state_dict())
    alone.eval()
    data = loader(11, batch=11, dist=False, shuffle=False)
    with torch.no_grad():
        expected = float(alone.val_step(next(iter(data)))['loss'])
    return {name: float(value) for name, value in scores.items()}, expected, keeps_a_better_one_alone(folder)


def keeps_a_better_one_alone(folder):
    """The first rank has saved a better one, of which the others do not know."""

    class Judges(Hook):
        def before_train_epoch(self, runner):
            hook._save_ckpt(runner, 0.9)

    hook = EvalHook(DataLoader(Scored([0.8]), batch_size=2), save_best='acc', rule='greater', interval=2)
    runner = tiny_runner(model=Predicts(), work_dir=folder, max_epochs=2)
    runner.register_hook(Judges())
    runner.register_hook(hook, 'LOW')
    runner.run([loader(16, dist=True)], [('train', 1)])
    return best_files(folder)


def test_only_the_first_rank_asks_the_data_set_and_all_have_a_part_in_the_best(on_ranks, tmp_path):
    first, second = on_ranks(__file__, 'asks_on_rank', tmp_path)
    assert first == second
    for name, found in first.items():
        path = tmp_path / name / 'best_acc_epoch_2.pth'
        scores = {'acc': Score(0.9, 6), 'other': Score(1.0, 6)}
        assert found == (6, 'acc', 'greater', 0.7, str(path), 2, [0.5, 0.7, 0.9], scores)
        assert best_files(tmp_path / name) == [path.name]


def test_ranks_with_unequal_shares_score_as_one_process(on_ranks, tmp_path):
    (scores, expected, best), (others, _, _) = on_ranks(__file__, 'scores_on_rank', tmp_path)
    assert scores == others
    assert best == ['best_acc_epoch_1.pth']
    assert scores['error'] == pytest.approx(expected, rel=1e-5)
    assert scores['loss'] == pytest.approx(expected, rel=1e-5)


# --- subclasses, as mmdet, mmseg and mmcls have them -----------------------------------------------------------------


class Progressive(EvalHook):
    """Evaluates by itself, with an interval of its own, and keeps what the model predicted."""

    def __init__(self, *args, dynamic_intervals=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.latest_results = None
        self.dynamic_intervals = dynamic_intervals

    def before_train_epoch(self, runner):
        if self.dynamic_intervals is not None and runner.epoch + 1 >= self.dynamic_intervals[0]:
            self.interval = self.dynamic_intervals[1]
        super().before_train_epoch(runner)

    def _do_evaluate(self, runner):
        if not self._should_evaluate(runner):
            return
        self.latest_results = self.test_fn(runner.model, self.dataloader)
        runner.log_buffer.output['eval_iter_num'] = len(self.dataloader)
        key_score = self.evaluate(runner, self.latest_results)
        if self.save_best and key_score:
            self._save_ckpt(runner, key_score)


class DistProgressive(DistEvalHook):
    """Only the first rank asks the data set, and saves."""

    def _do_evaluate(self, runner):
        results = self.test_fn(runner.model, self.dataloader, tmpdir=self.tmpdir, gpu_collect=self.gpu_collect)
        if runner.rank == 0:
            key_score = self.evaluate(runner, results)
            if self.save_best and key_score:
                self._save_ckpt(runner, key_score)


class DistOwnScores(DistEvalHook):
    """Asks the data set in its own way."""

    def evaluate(self, runner, results):
        scores = self.dataloader.dataset.evaluate(results)
        self._init_rule(self.rule, 'acc')
        for name, value in scores.items():
            runner.log_buffer.output[name] = value
        runner.log_buffer.ready = True
        return scores['acc']


def test_a_subclass_with_its_own_evaluation_and_interval(tmp_path):
    data = Scored([0.1, 0.3, 0.2])
    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=4)
    hook = Progressive(DataLoader(data), interval=2, save_best='acc', dynamic_intervals=(3, 1))
    runner.register_hook(hook, 'LOW')
    runner.run([loader(4)], [('train', 1)])
    assert [len(data.calls), len(hook.latest_results)] == [3, 3]  # after epochs 2, 3 and 4
    assert runner.scores == {'acc': Score(0.2, 4), 'other': Score(1.0, 4)}
    assert best_files(tmp_path) == ['best_acc_epoch_3.pth']


def test_a_save_outside_of_an_evaluation_is_made_at_once(tmp_path, monkeypatch):
    runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=1)
    hook = EvalHook(DataLoader(Scored([])), save_best='acc', start=5)
    runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    hook._save_ckpt(runner, 0.5)
    assert len(best_files(tmp_path)) == 1
    files = best_files(tmp_path)
    runner._epoch += 1
    for broken in (True, False):
        with torch.no_grad():
            runner.model.head.bias.fill_(torch.nan if broken else 0.0)
        hook._save_ckpt(runner, 0.6)  # of broken weights, or nobody can write it
        assert (best_files(tmp_path), runner.meta['hook_msgs']['best_score']) == (files, 0.5)
        assert [hook.best_ckpt_path] == [str(tmp_path / name) for name in files]
        monkeypatch.setattr(Store, 'write', Mock(side_effect=NotSavedError(errno.ENOSPC, 'full')))


@pytest.mark.parametrize('cls, name', [(EvalHook, 'single_gpu_test'), (DistEvalHook, 'multi_gpu_test')])
def test_the_default_test_is_found_by_its_modules_name(monkeypatch, tmp_path, cls, name):
    """Users' tests put something in its place, and in that of ``evaluate``; no data set is asked then."""
    asked = []
    monkeypatch.setattr(evaluation, name, lambda model, loader, **options: asked.append(sorted(options)))
    runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
    hook = cls(DataLoader(torch.ones(5, 2)))
    results = []
    hook.evaluate = lambda runner, predictions: results.append(predictions)
    hook.test_fn = lambda *args, **options: asked.append(sorted(options)) or 'predictions'
    runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    assert results == ['predictions', 'predictions']
    assert asked == [[] if cls is EvalHook else ['gpu_collect', 'tmpdir']] * 2
    assert cls(DataLoader(torch.ones(5, 2))).test_fn is getattr(evaluation, name)


def test_a_test_fn_of_dist_eval_hook_gets_a_folder(tmp_path):
    seen = []
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    hook = DistEvalHook(DataLoader(Scored([0.1])), test_fn=lambda model, loader, **options: seen.append(options) or [1])
    runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    assert seen == [{'tmpdir': str(tmp_path / '.eval_hook'), 'gpu_collect': False}]
    assert hook.broadcast_bn_buffer is True


# --- found by others -------------------------------------------------------------------------------------------------


def test_arguments_nobody_takes_are_refused():
    with pytest.raises(TypeError, match="EvalHook got an unexpected argument 'intervall'.*did you mean 'interval'"):
        EvalHook(loader(4), intervall=2)
    with pytest.raises(TypeError, match='interval must be a whole number of at least 1, but got 1.5'):
        EvalHook(loader(4), interval=1.5)


def test_the_best_of_the_run_that_was_resumed_is_not_deleted(tmp_path):
    evaluated(tmp_path / 'first', [0.5], save_best='acc')
    runner = tiny_runner(model=Predicts(), work_dir=tmp_path / 'second', max_epochs=2)
    runner.meta['hook_msgs'] = {'best_score': 0.5, 'best_ckpt': str(tmp_path / 'first' / 'best_acc_epoch_1.pth')}
    (tmp_path / 'second' / 'best_acc_epoch_1.pth').write_bytes(b'another one of that name')
    runner.register_hook(EvalHook(DataLoader(Scored([0.4, 0.6]), batch_size=2), save_best='acc'), 'LOW')
    runner.run([loader(8)], [('train', 1)])
    assert best_files(tmp_path / 'first') == ['best_acc_epoch_1.pth']
    assert best_files(tmp_path / 'second') == ['best_acc_epoch_1.pth', 'best_acc_epoch_2.pth']


def test_a_resume_elsewhere_tells_that_the_best_one_is_not_there(tmp_path, caplog):
    for folder, scores, limit in (('first', [0.5], 1), ('second', [0.4, 0.6], 3)):
        runner = tiny_runner(model=Predicts(), work_dir=tmp_path / folder, max_epochs=limit)
        runner.register_hook(EvalHook(DataLoader(Scored(scores), batch_size=2), save_best='acc'), 'LOW')
        runner.register_hook(CheckpointHook(interval=1))
        if folder == 'second':
            runner.resume(str(shutil.copy(tmp_path / 'first' / 'epoch_1.pth', tmp_path / 'second')))
        runner.run([loader(8)], [('train', 1)])
        is_told = 'the best checkpoint so far (score 0.5) is not there: the next one is saved' in caplog.text
        assert is_told == (folder == 'second')
    assert best_files(tmp_path / 'second') == ['best_acc_epoch_3.pth']


@pytest.mark.parametrize('score', ['x' * 300, 'précision', 'val/acc'])
def test_a_score_of_any_name_has_a_best_file_that_a_resume_replaces(score, tmp_path):
    class Named(Scored):
        def evaluate(self, results, logger=None, **options):
            return {score: self.scores.pop(0), f'{score}?': 0.0}

    for epochs, value in ((1, 0.5), (2, 0.75)):
        runner = tiny_runner(model=Predicts(), work_dir=tmp_path, max_epochs=epochs)
        hook = EvalHook(DataLoader(Named([value]), batch_size=2), save_best=score, rule='greater')
        runner.register_hook(hook, 'LOW')
        runner.register_hook(OptimizerHook())
        runner.register_hook(CheckpointHook())
        runner.register_hook(TextLoggerHook(), 'VERY_LOW')
        if epochs > 1:
            runner.resume(tmp_path / 'latest.pth')
        runner.run([loader(8)], [('train', 1)])
        (name,) = best_files(tmp_path)
        assert name == best_name(score, 'epoch', epochs)
        best = best_of(read_log(tmp_path).lines, name)
        assert (best.score, best.value) == (score, value)


@pytest.mark.parametrize('name', ['{}/epoch_9.pth', '{}/../precious.pth', '{}/best_of.txt', '{}/..', 3])
def test_what_a_checkpoint_says_of_the_best_one_deletes_nothing_else(name, tmp_path):
    """That path comes from a file that somebody else may have made."""
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    precious = [work_dir / 'epoch_9.pth', work_dir / 'best_of.txt', tmp_path / 'precious.pth']
    for path in precious:
        path.write_text('kept')
    runner = tiny_runner(model=Predicts(), work_dir=work_dir, max_epochs=1)
    former = name.format(work_dir) if isinstance(name, str) else name
    runner.meta['hook_msgs'] = {'best_score': 0.5, 'best_ckpt': former}
    runner.register_hook(EvalHook(DataLoader(Scored([0.6]), batch_size=2), save_best='acc'), 'LOW')
    runner.run([loader(8)], [('train', 1)])
    assert all(path.exists() for path in precious)
    assert (work_dir / 'best_acc_epoch_1.pth').exists()


# --- several loaders -------------------------------------------------------------------------------------------------


def by_name(*names):
    return {name: DataLoader(Noisy(4), batch_size=2) for name in names}


def test_several_loaders_have_readers_of_their_own_and_hear_hooks():
    class Hears(Hook):
        def __init__(self):
            self.heard = []

        def after_val_epoch(self, runner):
            self.heard.append(sorted(runner.log_buffer.output))

        def after_evaluate(self, runner, scores):
            self.heard.append(sorted(scores))

    runner, hears, own = tiny_runner('epoch', Measured(), max_epochs=1), Hears(), Hears()
    runner.register_hook(EvalHook(by_name('a', 'b'), hooks=[hears]), 'LOW')
    runner.register_hook(own, 'LOW')
    runner.run([loader(8)], [('train', 1)])
    each = [['a/error', 'a/loss'], ['b/error', 'b/loss']]
    assert hears.heard == [each[0], each[0], each[1], each[1]]
    assert own.heard == [each[0] + each[1]]  # one evaluation
    assert len(runner.readers.evaluations) == 2


def test_the_best_score_must_be_of_one_of_the_loaders(tmp_path):
    with pytest.raises(ValueError, match='choose one of a/error, b/error'):
        EvalHook(by_name('a', 'b'), save_best='error')
    assert EvalHook(by_name('a', 'b'), save_best='b/coco/mAP').key_indicator == 'b/coco/mAP'
    runner = tiny_runner('epoch', Measured(), tmp_path, max_epochs=1)
    runner.register_hook(EvalHook(by_name('a', 'b'), save_best='b/loss_of_what', rule='less'))
    with pytest.raises(KeyError, match='the evaluation gave a/loss, a/error, b/loss, b/error'):
        runner.run([loader(8)], [('train', 1)])


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_a_resume_is_exact_in_each_of_several_loaders(kind, tmp_path):
    """Each has a generator of its own, which decides in which order the samples take their noise."""

    def run(resume=None):
        limits = {'max_epochs': 4} if kind == 'epoch' else {'max_iters': 4}
        runner = tiny_runner(kind, Measured(), tmp_path, **limits)
        loaders = {
            name: DataLoader(Noisy(7), 2, shuffle=True, generator=torch.Generator().manual_seed(i))
            for i, name in enumerate('abc')
        }
        runner.register_hook(EvalHook(loaders, by_epoch=kind == 'epoch'), 'LOW')
        runner.register_hook(CheckpointHook(interval=2, by_epoch=kind == 'epoch'))
        if resume is not None:
            runner.resume(str(tmp_path / resume))
        runner.run([loader(8)], [('train', 1)])
        return runner

    whole = run()
    assert run(f'{kind}_2.pth').scores == whole.scores
