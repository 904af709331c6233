"""A trained model, tested from Python."""

import json

import pytest
import torch
from plans import CONFIG

import runnerkit
from runnerkit.cli.test import main

DATA = {**CONFIG['data'], 'test': {'a': {'type': 'support.Noisy', 'length': 6}, 'b': {'type': 'support.Noisy'}}}
CFG = {**CONFIG, 'data': DATA}


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A training whose best epoch is not its last."""
    config = {**CFG, 'evaluation': {'save_best': 'error', 'rule': 'greater'}}
    return runnerkit.train(config, tmp_path_factory.mktemp('run'), seed=3, device='cpu')


def test_it_does_what_the_command_line_does(run, tmp_path):
    out, files = tmp_path / 'scores.json', [str(run.work_dir / 'config.py'), str(run.work_dir)]
    assert main([*files, '--device', 'cpu', '--out', str(out)]) == 0
    scores = runnerkit.test(run.work_dir, device='cpu')
    assert scores == json.loads(out.read_text())
    assert set(scores) == {'a/loss', 'a/error', 'b/loss', 'b/error'}


def test_which_weights_and_which_split(run):
    best, last = (runnerkit.test(run.work_dir, 'val', which=which, device='cpu') for which in ('best', 'latest'))
    assert best['error'] > last['error']
    by_path = runnerkit.test(CFG, 'val', run.best_checkpoint, device='cpu')
    assert by_path == runnerkit.test(run.work_dir / 'config.py', 'val', device='cpu') == best
    fewer = runnerkit.test(run.work_dir, 'val', device='cpu', cfg_options={'data.val.length': 2})
    assert fewer != best


@pytest.mark.parametrize(
    'arguments, error, words',
    [
        ({'which': 'last'}, ValueError, "did you mean 'latest'"),
        ({'split': 'tset'}, KeyError, "did you mean 'test'"),
        ({'source': {**CFG, 'work_dir': 'nowhere'}, 'split': '.'}, KeyError, "give weights as checkpoint='.'"),
        ({'source': 'nowhere'}, FileNotFoundError, "nowhere is neither a config nor a work dir.*checkpoint='nowhere'"),
        ({'source': CFG, 'checkpoint': 'nowhere.pth'}, FileNotFoundError, 'no checkpoint nowhere.pth'),
        ({'source': {**CFG, 'work_dir': 'nowhere'}, 'split': 'tset'}, KeyError,
         "no 'tset' section.*did you mean 'test'"),
        ({'source': CFG, 'split': 'work_dirs/other'}, KeyError,
         r"it has train, val, test. 'work_dirs/other' is a path: give weights as checkpoint='work_dirs/other'"),
        ({'source': 3}, TypeError, 'path of a config file, a Config or a dict'),
        ({'cfg_options': {'model.model': [{'type': 'Linear', 'in_features': 4, 'out_features': 1}]}}, ValueError,
         'does not fit the model.*allow_partial=True'),
    ],
)  # fmt: skip
def test_wrong_arguments(run, arguments, error, words):
    with pytest.raises(error, match=f'(?s){words}'):
        runnerkit.test(**{'source': run.work_dir, **arguments})


def test_weights_that_do_not_fit_may_be_allowed(run):
    layers = [*CONFIG['model']['model'], {'type': 'Linear', 'in_features': 1, 'out_features': 1}]
    other = {'model.model': layers}
    assert 'loss' in runnerkit.test(run.work_dir, 'val', allow_partial=True, device='cpu', cfg_options=other)


def test_two_ranks_that_the_caller_has_joined(on_ranks, run):
    alone = runnerkit.test(run.work_dir, 'val', device='cpu')
    first, second = on_ranks(__file__, 'scores_on_rank', str(run.work_dir))
    assert first == pytest.approx(alone, rel=1e-5)
    assert second == {}


def scores_on_rank(rank, work_dir):
    scores = runnerkit.test(work_dir, 'val', device='cpu')
    torch.distributed.barrier()  # both are still in the group
    return scores
