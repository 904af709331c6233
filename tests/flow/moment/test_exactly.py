"""Two runs are replayed: each planted difference is found at its iteration, and named for what it is."""

import re

import planted
import pytest

from runnerkit.flow.moment.diff import diff
from runnerkit.flow.moment.exactly import MEANINGS, exactly


def plant(what, at=5):
    return {'custom_hooks.0.what': what, 'custom_hooks.0.at': at}


# What is planted; the iteration, kind and name of what parts first; a part of the sentence.
CASES = {
    'a bit of a weight': (
        plant('flip'),
        (6, 'prepared', 'body.0.weight'),
        r'changed body.0.weight before the step, by 1 ulp',
    ),
    'a hook that draws a number': (
        plant('draw'),
        (6, 'drawn before the step', 'torch'),
        'drawn or seeded random numbers of torch',
    ),
    'a learning rate in its fifth digit': (
        {'optimizer.lr': 0.10001},
        (1, 'rate', 'learning rate'),
        r'differs \(\[0.1\] in A, \[0.10001\] in B\): optimizer.lr',
    ),
}
RARER = {
    'an activation': (
        plant('output', 3),
        (4, 'output', 'body.2'),
        'batches are equal; .* first in the output of body.2',
    ),
    'one value of a batch': (plant('batch', 7), (8, 'prepared', "batch['x']"), r"changed batch\['x'\] before the step"),
    'a bit of a gradient': (
        plant('gradient', 5),
        (6, 'final gradient', 'body.0.weight'),
        'backward pass is equal, .* by 1 ulp',
    ),
    'a bit of a momentum': (
        plant('momentum'),
        (6, 'prepared', 'momentum_buffer of parameter 5'),
        'before the step, by 1 ulp',
    ),
    'a buffer': (plant('buffer'), (6, 'prepared', 'body.1.running_mean'), 'changed body.1.running_mean'),
    'a draw of Python': (
        plant('draw_python', 2),
        (3, 'drawn before the step', 'python[1]'),
        'random numbers of python before',
    ),
    'a new seed': (
        plant('reseed', 0),
        (1, 'drawn before the step', 'torch'),
        'In iteration 1 a hook has drawn or seeded',
    ),
    'labels in another order': (plant('labels'), (6, 'prepared', "batch['y']"), r"changed batch\['y'\]"),
    'a loss': (
        plant('scale', 6),
        (7, 'loss', ''),
        'outputs of all modules are equal, but the loss differs, by [0-9]+ ulp',
    ),
    'a rate at an iteration': (plant('rate', 10), (11, 'rate', 'learning rate'), r'differs \(\[0.1\] in A, \[0.1000'),
    'two samples swapped': (
        {'data.train.swapped': [3, 9]},
        (1, 'batch', "batch['x']"),
        'samples are equal, but their values',
    ),
    'one sample changed': (
        {'data.train.changed': 3},
        (1, 'batch', "batch['x']"),
        'data.train.changed is absent in A and 3',
    ),
    'a sample that comes later': (
        {'data.train.changed': 21},
        (4, 'batch', "batch['x']"),
        'Equal up to iteration 3; in iteration 4',
    ),
    'a data set of other length': (
        {'data.train.length': 23},
        (1, 'samples', 'samples'),
        r'samples differ \(\[3, .* in A, \[',
    ),
    'another batch size': ({'data.samples_per_gpu': 3}, (1, 'samples', 'samples'), 'samples differ'),
    'another seed': ({'seed': 1}, (1, 'state', 'body.0.weight'), 'body.0.weight differs from the beginning on'),
    'another dropout': ({'model.dropout': 0.31}, (1, 'output', 'body.3'), 'output of body.3'),
    'another momentum': (
        {'optimizer.momentum': 0.91},
        (2, 'update', 'body.0.weight'),
        'body.0.weight differs after the update',
    ),
    'another decay': (
        {'optimizer.weight_decay': 1e-4},
        (1, 'update', 'body.0.weight'),
        'optimizer.weight_decay is absent',
    ),
    'clipped gradients': (
        {'optimizer_config.grad_clip': dict(max_norm=0.1)},
        (1, 'update', 'body.0.weight'),
        'optimizer_config.grad_clip',
    ),
}


def parting_of(config, run, folder, options, **keywords):
    other = planted.train(config, folder, options, **keywords)
    found = exactly(diff(run, other))
    return found, tuple(found.parting[key] for key in ('iteration', 'kind', 'name'))


def check(config, run, tmp_path, case):
    options, place, sentence = case
    found, parting = parting_of(config, run, tmp_path / 'other', options)
    assert parting == place
    assert re.search(sentence, found.sentence), found.sentence
    if place[0] > 1:
        assert found.sentence.startswith(f'Equal up to iteration {place[0] - 1}; in iteration {place[0]} ')


@pytest.mark.parametrize('case', CASES)
def test_what_is_planted_is_found_at_its_iteration(config, run, tmp_path, case):
    check(config, run, tmp_path, CASES[case])


@pytest.mark.thorough  # the test above has the most different ones
@pytest.mark.parametrize('case', RARER)
def test_each_of_the_others_is_found_as_well(config, run, tmp_path, case):
    check(config, run, tmp_path, RARER[case])


@pytest.mark.thorough
def test_another_version_of_the_code(config, run, tmp_path):
    code = planted.CODE.replace('* self.scale', '* self.scale * (1 + 1e-6)')
    other = planted.train(planted.project(tmp_path, code), tmp_path / 'run')
    found = exactly(diff(run, other))
    assert found.parting['kind'] == 'loss'
    assert 'the code in code/own.py differs, first in line' in found.sentence


@pytest.mark.thorough
def test_another_thread_count(config, run, tmp_path):
    found, (iteration, kind, _) = parting_of(config, run, tmp_path / 'other', {'num_threads': 2})
    if iteration is None:  # on this machine, two threads give the same sums
        assert found.first is None
    else:
        assert kind in ('output', 'loss', 'gradient')
    assert 'num_threads is 1' in found.sentence


@pytest.mark.thorough
def test_dropout_that_is_seeded_anew_at_a_resume(config, run, tmp_path):
    planted.train(config, tmp_path / 'other', stop_after=1)
    found, parting = parting_of(config, run, tmp_path / 'other', plant('reseed', 6), resume=True)
    assert parting == (7, 'drawn before the step', 'torch')
    assert 'B was started again after 6 iterations' in found.notes


def test_what_no_replay_repeats_is_told_as_that(config, run, tmp_path):
    def log(line):
        return {**line, 'loss': 1.0} if line['step'] == 6 else line

    found = exactly(diff(run, planted.copied(run, tmp_path / 'other', log=log)))
    assert found.parting['iteration'] is None
    assert (
        'The replays are equal up to iteration 6, where the records differ (the replay of B does not repeat its log:'
        in (found.sentence)
    )


def test_equal_runs_need_no_replay(run):
    found = exactly(diff(run, run))
    assert found.is_equal
    assert found.parting is None


@pytest.mark.thorough
def test_equal_runs_without_fingerprints_are_replayed(config, tmp_path):
    options = {'log_config.fingerprint': False, 'checkpoint_config': None}
    one, other = (planted.train(config, tmp_path / name, options) for name in 'ab')
    found = exactly(diff(one, other))
    assert found.sentence == 'The replays are equal up to iteration 12, as the records are.'


def test_each_kind_has_a_meaning():
    assert all('{' not in text.format(name='x') for text in MEANINGS.values())
