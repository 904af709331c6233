"""Runs that evaluate on several data sets, from the config to the scores."""

import copy
import json

import pytest
import torch
from plans import BY_ITER, CONFIG, config, said
from support import Noisy

import runnerkit
from runnerkit.cli.test import main
from runnerkit.config import PreflightError
from runnerkit.flow import Flow, Options
from runnerkit.flow.preflight import Plan
from runnerkit.hooks import Hook

NAMES = ('clean', 'noisy')
QUICK = {'seed': 3, 'device': 'cpu'}


class Scored(Noisy):
    """A data set that scores predictions itself."""

    def evaluate(self, results, logger=None):
        return {'count': len(results), 'note': 'x'}

    def __getitem__(self, i):
        return {'x': torch.zeros(4)}


class Predicts(torch.nn.Linear):
    """A model in MMCV's way: it predicts, and the data set scores."""

    def __init__(self):
        super().__init__(4, 1)

    def forward(self, x, return_loss=True):
        return list(super().forward(x))

    def train_step(self, data, optimizer, **kwargs):
        loss = super().forward(data[0]).square().mean()
        return {'loss': loss, 'log_vars': {'loss': loss.item()}, 'num_samples': len(data[0])}


class Stops(Hook):
    def __init__(self, at):
        self.at = at

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.at:
            runner.stop('enough')


def named(kind='epoch', **changes):
    """`CONFIG` with two validation sets by name and a split of another name."""
    cfg = copy.deepcopy({**CONFIG, **(BY_ITER if kind == 'iter' else {}), **changes})
    cfg['data']['val'] = {name: {'type': 'support.Noisy', 'length': n} for name, n in zip(NAMES, (6, 9), strict=True)}
    cfg['data']['val_hard'] = {'type': 'support.Noisy', 'length': 5}
    return cfg


def without_times(records):
    return [{key: value for key, value in each.items() if 'time' not in key} for each in records]


def scores_of(history):
    """The names of the scores of each evaluation."""
    return [sorted(key for key in each if '/' in key) for each in history if each['mode'] == 'val']


BOTH = [['clean/error', 'clean/loss', 'noisy/error', 'noisy/loss']]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_all_are_evaluated_under_their_names(kind, tmp_path):
    result = runnerkit.train(named(kind), tmp_path, evaluation__save_best='noisy/error', **QUICK)
    assert scores_of(result.history) == BOTH * 3
    assert set(result.scores) == set(BOTH[0])
    best = min(record['noisy/error'] for record in result.history if 'noisy/error' in record)
    saved = torch.load(result.best_checkpoint, weights_only=True)
    assert saved['meta']['hook_msgs']['best_score'] == best
    assert 'best_noisy_error_' in result.best_checkpoint


def test_each_score_is_what_the_data_set_alone_would_give(tmp_path):
    both = runnerkit.train(named(), tmp_path / 'both', evaluation__save_best=None, **QUICK)
    for name, length in zip(NAMES, (6, 9), strict=True):
        alone = runnerkit.train(CONFIG, tmp_path / name, data__val__length=length, evaluation__save_best=None, **QUICK)
        assert both.scores[f'{name}/error'] == alone.scores['error']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_entries_of_the_workflow_run_each_in_turn(kind, tmp_path):
    workflow = [('train', 1), ('val', 1), ('val_hard', 1)] if kind == 'epoch' else [('train', 5), ('val', 2)]
    result = runnerkit.train(named(kind, workflow=workflow, evaluation=None), tmp_path, **QUICK)
    each = [['clean/error', 'clean/loss'], ['noisy/error', 'noisy/loss'], ['val_hard/error', 'val_hard/loss']]
    assert scores_of(result.history) == (each if kind == 'epoch' else each[:2]) * 3
    (log,) = tmp_path.glob('*.log.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [sorted(key for key in line if '/' in key) for line in lines if line['mode'] == 'val'] == scores_of(
        result.history
    )


@pytest.mark.parametrize(
    ('at', 'kind'),
    [
        (5, 'epoch'),
        (7, 'iter'),
        *(pytest.param(*row, marks=pytest.mark.thorough) for row in ((5, 'iter'), (7, 'epoch'))),
    ],
)
def test_a_resume_is_exact(kind, at, tmp_path):
    """Also of what is drawn from the generators of loaders that are only evaluated on."""
    n = 1 if kind == 'epoch' else 5
    own = {'samples_per_gpu': 2, 'seeded': False, 'shuffle': True}
    cfg = named(kind, workflow=[('train', n), ('val', 1), ('val_hard', 1)])
    cfg['data'].update(val_dataloader=own, val_hard_dataloader=own)
    cfg['evaluation'] = {'interval': 1 if kind == 'epoch' else 3, 'save_best': 'clean/error'}
    cfg['checkpoint_config'] = {'interval': 1, 'by_epoch': False, 'max_keep_ckpts': 1}
    whole = runnerkit.train(cfg, tmp_path / 'whole', **QUICK)
    first = runnerkit.train(cfg, tmp_path / 'cut', custom_hooks=[Stops(at)], **QUICK)
    rest = runnerkit.train(cfg, tmp_path / 'cut', resume=True, **QUICK)
    assert first.outcome.reason == 'enough'
    assert len(rest.history) > 6
    assert without_times(rest.history) == without_times(whole.history[-len(rest.history) :])
    assert rest.scores == whole.scores


def test_data_sets_that_score_themselves(tmp_path):
    cfg = named(model={'type': Predicts}, optimizer={'type': 'SGD', 'lr': 0.1})
    for part in cfg['data']['val'].values():
        part['type'] = Scored
    cfg['evaluation'] = {'save_best': 'noisy/count', 'rule': 'greater'}
    result = runnerkit.train(cfg, tmp_path, **QUICK)
    assert result.scores == {'clean/count': 6, 'noisy/count': 9}
    assert 'best_noisy_count_epoch_1' in result.best_checkpoint


def test_the_first_data_set_decides_where_the_best_is_chosen_automatically(tmp_path):
    result = runnerkit.train(named(), tmp_path, evaluation__save_best='auto', **QUICK)
    assert 'best_clean_error_' in result.best_checkpoint


def test_testing_gives_the_scores_of_all(tmp_path, capsys):
    cfg = named()
    runnerkit.train(cfg, tmp_path / 'run', evaluation__save_best=None, **QUICK)
    capsys.readouterr()
    path = tmp_path / 'run' / 'config.py'
    assert main([str(path), str(tmp_path / 'run'), '--split', 'val', '--device', 'cpu']) == 0
    names = [line.split(':')[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [f'val {score}' for score in ('clean/loss', 'clean/error', 'noisy/loss', 'noisy/error')]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'changes, words',
    [
        ({'evaluation.save_best': 'error'}, 'choose one of clean/error, noisy/error'),
        ({'evaluation.save_best': 'nosy/error'}, 'choose one of clean/error, noisy/error'),
        (
            {'workflow': [('train', 1), ('val_hrd', 1)]},
            r"val_hrd.*\(data has train, val, val_hard\); did you mean 'val_hard'",
        ),
        ({'workflow': [('train', 1), ('hard', 1)]}, r'hard.*\(data has train, val, val_hard\)'),
        ({'workflow': [('val', 1), ('val_hard', 1)]}, 'never trains'),
        ({'data.train': {'_delete_': True, 'a': {'type': 'support.Noisy'}}}, 'trains on one'),
        ({'data.val': {'_delete_': True, 'typ': 'support.Noisy'}}, "its 'typ' is 'support.Noisy'"),
        (
            {'custom_hooks': [{'type': 'EarlyStoppingHook', 'monitor': 'error'}]},
            "no data set has the score 'error'\n.*Write clean/error, noisy/error",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, words, tmp_path):
    changes = {'evaluation.save_best': 'noisy/error', **changes}
    with pytest.raises((PreflightError, TypeError, ValueError), match=f'(?s){words}'):
        runnerkit.train(named(), tmp_path, cfg_options=changes, **QUICK)


def test_a_split_that_the_workflow_names_is_no_misspelling():
    def told(workflow):
        plan = Plan(cfg=config({'data.vals': {'type': 'support.Noisy'}, 'workflow': workflow}), options=Options())
        return [where for where, _ in said(plan)]

    assert ('error', 'data.vals') in told([('train', 1)])
    assert ('error', 'data.vals') not in told([('train', 1), ('vals', 1)])


# --- ranks -----------------------------------------------------------------------------------------------------------


def test_with_two_ranks_both_know_all_scores(on_ranks, tmp_path):
    """Of data sets by name, of splits that are entries, and of the first samples; every group's rate is logged."""
    first, second = on_ranks(__file__, 'train_on_rank', str(tmp_path))
    assert first == second
    (_, history, _), (few, overfitted) = first
    entries = [['clean/error', 'clean/loss'], ['noisy/error', 'noisy/loss'], ['val_hard/error', 'val_hard/loss']]
    assert scores_of(history) == [BOTH[0], *entries] * 3
    (log,) = (tmp_path / 'named').glob('*.log.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[1]['lr_groups'] == {'x10': 0.1}
    assert set(few) == {'error', 'loss'}
    assert max(record['step'] for record in overfitted) == 3  # an epoch is one batch of three samples on each rank


def train_on_rank(rank, folder):
    workflow = [('train', 1), ('val', 1), ('val_hard', 1)]
    rates = {'optimizer__lr': 0.1, 'optimizer__paramwise_cfg': {'custom_keys': {'model.0': {'lr_mult': 0.1}}}}
    options = {**QUICK, **rates, 'evaluation__save_best': 'noisy/error'}
    result = runnerkit.train(named(workflow=workflow), f'{folder}/named', **options)
    few = runnerkit.train(CONFIG, f'{folder}/few', overfit=6, **QUICK)
    named_result = result.scores, without_times(result.history), result.best_checkpoint
    return named_result, (few.scores, without_times(few.history))


def test_overfitting_keeps_the_names_of_the_scores(tmp_path):
    """So that ``save_best`` and hooks find theirs; the workflow's other splits have the same samples, too."""
    changes = {'evaluation': {'interval': 1, 'save_best': 'noisy/error'}, 'workflow': [('train', 1), ('val_hard', 1)]}
    context = Flow(config(named(**changes)), Options(work_dir=str(tmp_path), overfit=4, **QUICK)).run()
    scores = {name: score.value for name, score in context.runner.scores.items()}
    assert {*scores} == {f'{name}/{score}' for name in (*NAMES, 'val_hard') for score in ('loss', 'error')}
    assert scores['clean/error'] == scores['noisy/error']
    assert [len(loader.dataset) for loader in (*context.loaders, *context.val_loader.values())] == [4] * 4
