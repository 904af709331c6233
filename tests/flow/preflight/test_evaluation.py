"""The checks of what is evaluated, when, and on what."""

import pytest
from plans import BY_ITER, plan, said, told

from runnerkit.flow.preflight import Plan
from runnerkit.runner import EpochBasedRunner

BLIND = {'model': {'type': 'PlanBlind'}, 'evaluation.save_best': None}
SIGHTED = {'model': {'type': 'PlanTiny'}}


def stopping(**options):
    return {'custom_hooks': [{'type': 'EarlyStoppingHook', 'monitor': 'error', 'patience': 2, **options}]}


CASES = [
    ('error', {'workflow': [('fly', 1)]}, 'workflow', 'no method named "fly"', {'workflow': [('train', 1)]}),
    ('error', {**BLIND, 'evaluation': None, 'workflow': [('train', 1), ('val', 1)]}, 'workflow', 'no val_step',
     SIGHTED),
    ('error', BLIND, 'evaluation', 'nothing computes scores', SIGHTED),
    ('warning', {'evaluation.interval': 4}, 'evaluation.interval', '4 epochs, but the run has 3',
     {'evaluation.interval': 3}),
    ('warning', {'evaluation.start': 4}, 'evaluation.start', "save_best='error' keeps nothing",
     {'evaluation.start': 3}),
    ('warning', {'evaluation': {'by_epoch': False, 'interval': 16}}, 'evaluation.interval', 'but the run has 15',
     {'evaluation.interval': 15}),
    ('warning', {**BY_ITER, 'evaluation': {'by_epoch': True}}, 'evaluation.by_epoch', 'nothing is evaluated',
     {'evaluation.by_epoch': False}),
    ('error', {'evaluation.save_best': 'eror'}, 'evaluation.save_best', "did you mean 'error'",
     {'evaluation.save_best': 'error'}),
    ('error', {'model.metrics': None}, 'evaluation.save_best', 'available: loss', {'evaluation.save_best': 'loss'}),
]  # fmt: skip


@pytest.mark.parametrize('level, wrong, key, words, right', CASES)
def test_wrong_and_right(level, wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), level, key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


def test_an_unknown_score_is_one_error(tmp_path):
    """Nothing in its name says whether greater is better, but that is no second error."""
    (((_, key), text),) = said(plan(tmp_path, {'evaluation.save_best': 'zzz'}))
    assert key == 'evaluation.save_best'
    assert "unknown score 'zzz'; available: error, loss" in text


class Empty:
    """A loader of the user's own that gives nothing."""

    def __len__(self):
        return 0


def test_empty_loaders(tmp_path):
    of = plan(tmp_path)
    assert told(Plan(runner=of.runner, loaders=[Empty()], workflow=[('train', 1)]), 'error', '', 'is empty')
    (evaluation,) = (hook for hook in of.hooks if hasattr(hook, 'dataloader'))
    evaluation.dataloader = Empty()
    evaluation.dataloader.dataset = None
    assert told(of, 'error', 'evaluation', 'no batches')


def test_a_data_set_that_scores_needs_no_val_step(tmp_path):
    of = plan(tmp_path, {'model': {'type': 'PlanBlind'}, 'evaluation': {'interval': 1}})
    (hook,) = (hook for hook in of.hooks if hasattr(hook, 'dataloader'))
    assert told(of, 'error', 'evaluation', 'nothing computes scores')
    hook.dataloader.dataset.evaluate = lambda results, logger: {}
    assert said(of) == []


def test_a_loop_of_the_users_own_has_a_workflow_of_its_own(tmp_path):
    class Own(EpochBasedRunner):
        def run(self, data_loaders, workflow):
            """It knows ('anything', 0)."""

    of = plan(tmp_path)
    runner = Own(of.model, optimizer=of.runner.optimizer, max_epochs=1)
    runner.register_optimizer_hook({})
    assert said(Plan(runner=runner, loaders=[[1]], workflow=[('anything', 0)])) == []


def test_options_that_the_data_set_does_not_take(tmp_path):
    of = plan(tmp_path, {'model': {'type': 'PlanTiny'}, 'evaluation': {'interval': 1}})
    (hook,) = (hook for hook in of.hooks if hasattr(hook, 'dataloader'))
    dataset = hook.dataloader.dataset
    dataset.evaluate = lambda results, logger=None, metric='mAP': {}
    hook.eval_kwargs = {'metric': 'bbox'}
    assert said(of) == []
    hook.eval_kwargs = {'metrik': 'bbox'}
    assert told(of, 'error', 'evaluation', 'metrik')
    hook.eval_kwargs, dataset.evaluate = {}, lambda results: {}
    assert told(of, 'error', 'evaluation', 'logger')
