"""Runs by config under FSDP2: stopped, killed by a signal, spoilt, resumed; on two ranks, in one start of them."""

import json

import pytest
import sharded_runs
import torch
from wrapping_runs import Points

import runnerkit
from runnerkit.checkpoint import load_checkpoint, why_damaged
from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.cli.checkpoints import convert_main as convert
from runnerkit.cli.predict import main as predict

pytestmark = pytest.mark.thorough  # tests/runner/test_sharded.py; tests/flow/stages/test_wrapping.py


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('sharded')


@pytest.fixture(scope='module')
def ranks(on_ranks, folder):
    return on_ranks(sharded_runs.__file__, 'everything_on', str(folder))


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(each, other[key]) for key, each in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if torch.is_tensor(one) else one == other


@pytest.mark.parametrize('name', sharded_runs.CASES)
def test_a_run_stopped_in_the_middle_of_an_epoch_goes_on_bit_for_bit(ranks, name):
    check_resumed(ranks, name)


@pytest.mark.thorough  # the test above, which has what these cases join
def test_other_runs_stopped_in_the_middle_of_an_epoch_go_on_bit_for_bit(on_ranks, tmp_path):
    ranks = on_ranks(sharded_runs.__file__, 'joined_on', str(tmp_path))
    for name in sharded_runs.JOINED:
        check_resumed(ranks, name)
    check_gone_on(ranks, 'to DDP')


def check_resumed(ranks, name):
    for whole, begun, resumed in (found[name] for found in ranks):
        assert (begun['iters'], begun['outcome'], resumed['outcome']) == (sharded_runs.STOP, 'stopped', 'completed')
        for key in ('weights', 'optimizer', 'scores', 'iters'):
            assert same(whole[key], resumed[key]), key
        assert whole['rows'] == begun['rows'] + resumed['rows']
        assert not [line for line in resumed['told'] if 'has changed' in line or 'lacks' in line]


def test_a_run_goes_on_with_the_other_wrapper_within_a_cycle(ranks):
    check_gone_on(ranks, 'to FSDP2')


def check_gone_on(ranks, name):
    for whole, begun, resumed in (found[name] for found in ranks):
        assert (begun['iters'], resumed['iters']) == (sharded_runs.STOP, 10)
        for key, value in whole['weights'].items():
            torch.testing.assert_close(resumed['weights'][key], value)
        assert not [line for line in resumed['told'] if 'lacks' in line]


def test_weights_of_a_file_and_of_a_folder_are_loaded(ranks, folder):
    for found in ranks:
        for name, weights in zip(('file', 'plain'), found['loaded'], strict=True):
            path = folder / name / 'latest.pth'
            assert is_checkpoint_folder(path) == (name == 'plain')
            saved = load_checkpoint(sharded_runs.Drawing(), path)['state_dict']
            assert all(torch.equal(value, saved[key]) for key, value in weights.items() if key in saved)


@pytest.mark.parametrize('name', ['plain', 'averages and best'])
def test_one_process_predicts_with_a_folder_as_with_the_file_that_is_made_of_it(ranks, folder, name):
    run, out = folder / name, folder / f'{name}.json'
    config, best = str(run / 'config.py'), next(run.glob('best_*'), run / 'latest.pth')
    for which, path in (('best', best), ('latest', run / 'latest.pth')):
        assert is_checkpoint_folder(path)
        file = folder / f'{name} {which}.pth'
        assert convert([str(path), str(file)]) == 0
        found = runnerkit.predict(run, 'val', which=which, device='cpu')
        assert all(map(torch.equal, found, runnerkit.predict(file, 'val', config=config, device='cpu')))
        answers = []
        for words in (
            [run, 'val', '--which', which],
            [path, 'val', '--trust'],
            [config, 'val', '--which', which],
            [config, 'val', '--checkpoint', path],
            [config, 'val', '--checkpoint', file],
        ):
            assert predict([*map(str, words), '--device', 'cpu', '--out', str(out)]) == 0
            answers.append(json.loads(out.read_text()))
        assert answers == [answers[-1]] * len(answers)
        assert len(answers[0]) == len(found) == 7
    if name == 'plain':  # whose newest weights are those with which the ranks ended
        model = sharded_runs.Drawing().eval()
        model.load_state_dict(ranks[0][name][2]['weights'], strict=False)
        for i, prediction in enumerate(found):
            torch.testing.assert_close(prediction, model(Points(7)[i]['x']).detach())


def test_a_run_goes_back_and_forgets_what_it_kept_of_the_cycle(ranks):
    for found in ranks:
        undisturbed, back = found['cycle'][0], found['back']
        assert len([line for line in back['told'] if 'Going back to' in line]) == 1
        assert same(undisturbed['weights'], back['weights'])
        assert same(undisturbed['optimizer'], back['optimizer'])


def test_a_save_that_fails_on_one_rank_fails_on_all(ranks):
    assert ranks[1]['refused'] == ['nothing to save'] * 2
    assert ranks[0]['refused'] == ["rank 1 has failed: ArithmeticError('nothing to save')"] * 2


@pytest.mark.parametrize('name', ['Line', 'Networks'])
def test_experiments_go_on_bit_for_bit(ranks, name):
    for whole, resumed in (found['experiments'][name] for found in ranks):
        assert resumed['begun'] == 3
        assert same(whole['weights'], resumed['weights'])
        assert same(whole['optimizer'], resumed['optimizer'])


def test_a_signal_to_one_rank_stops_all_after_the_same_iteration(ranks, folder):
    stops = [found['signal'][0]['iters'] for found in ranks]
    assert stops[0] == stops[1] >= sharded_runs.STOP
    assert why_damaged(folder / f'signal/iter_{stops[0]}.pth') is None
    for found in ranks:
        assert f'SIGTERM: the run stops after iteration {stops[0]}' in ' '.join(ranks[0]['signal'][0]['told'])
        assert same(found['signal'][1]['weights'], found['plain'][0]['weights'])
