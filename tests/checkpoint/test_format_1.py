"""Runs that were saved in the first format go on, and end with the bits that they would have ended with
(benchmarks/format_1_checkpoints.py)."""

import json
import lzma

import pytest
import torch
from mmcv_record import assert_same
from support import ROOT, benchmark

from runnerkit.checkpoint.format_1 import from_format_1

OLD = ROOT / 'tests/data/old'
format_1 = benchmark('format_1_checkpoints')


def unpacked(name, folder):
    """The checkpoint of this run."""
    path = folder / f'{name}.pth'
    path.write_bytes(lzma.decompress((OLD / f'format_1_{name}.pth.xz').read_bytes()))
    return path


@pytest.mark.parametrize('name', format_1.RUNS)
def test_a_resumed_run_ends_like_the_undisturbed_one(name, tmp_path, caplog):
    runner, loaders, workflow = format_1.build(str(tmp_path), **format_1.RUNS[name])
    torch.rand(7)
    runner.resume(str(unpacked(name, tmp_path)))
    assert runner.iter == format_1.RUNS[name]['saved']
    runner.run(loaders, workflow)
    end = json.loads((OLD / f'format_1_{name}.end.json').read_text(encoding='utf-8'))
    assert runner.iter == end['iter'] == format_1.TOTAL
    assert runner.epoch == end['epoch']
    assert_same(format_1.weights(runner), end['weights'])
    assert caplog.messages == []  # nothing has changed, and all of it is exact


#: Where the run was: epochs, iterations, whether an epoch is open, its batches, workflow entry, its units.
PROGRESS = {
    'inside_an_epoch': (1, 6, True, 2, 0, 0),
    'last_batch_of_an_epoch': (1, 8, True, 4, 0, 0),
    'end_of_an_epoch': (2, 8, False, 0, 0, 1),
    'a_generator_of_the_process': (1, 5, True, 1, 0, 0),
    'two_loaders_by_iteration': (1, 7, False, 0, 0, 1),
}


@pytest.mark.parametrize('name', PROGRESS)
def test_where_it_was(name, tmp_path):
    checkpoint = torch.load(unpacked(name, tmp_path), weights_only=True)
    state = from_format_1(checkpoint['runnerkit'], checkpoint['meta'])
    names = ('epochs', 'iters', 'epoch_is_open', 'batches', 'entry', 'units')
    assert state['format'] == 2
    assert tuple(state['progress'][each] for each in names) == PROGRESS[name]
    assert state['progress']['samples'] is None
    assert 'StepLrUpdaterHook#0' in state['ranks'][0]['hooks']


def test_readers_of_an_iteration_run_are_in_their_own_passes(tmp_path):
    checkpoint = torch.load(unpacked('two_loaders_by_iteration', tmp_path), weights_only=True)
    readers = from_format_1(checkpoint['runnerkit'], checkpoint['meta'])['ranks'][0]['readers']
    assert [(each['epoch'], each['batches'], each['begun']) for each in readers] == [(1, 1, True), (0, 2, True)]
    assert all(len(each['began']['held']['all']['in_order']) == 1 for each in readers)


def an_epoch_runners(**state):
    """A state of format 1 of an epoch runner with two ranks, as its first files were: without ``begun``."""
    ranks = [{'loaders': {'start': 0, 'rng': None, 'state': None, **state}, 'rng': rank} for rank in range(2)]
    return {'cursor': [1, 0], 'world_size': 2, 'workflow': [['train', 1], ['val', 1]], 'optimizers': {}, 'hooks': {
        'EMAHook#0': {'steps': 3}}, 'ranks': ranks}  # fmt: skip


@pytest.mark.parametrize('start', [0, 3])
def test_every_rank_gets_what_one_had_said_for_all(start):
    state = from_format_1(an_epoch_runners(start=start), {'epoch': 4, 'iter': 9})
    assert state['progress']['epoch_is_open'] == (start > 0)
    assert state['conditions']['world size'] == state['world_size'] == 2
    assert [rank['rng'] for rank in state['ranks']] == [0, 1]
    for rank in state['ranks']:
        assert rank['hooks'] == {'EMAHook#0': {'steps': 3}}
        before, reader = rank['readers']
        assert before is None
        assert (reader['epoch'], reader['begun'], reader['batches'], reader['held']) == (4, start > 0, start, {})


def test_an_iteration_run_that_had_not_begun():
    state = {**an_epoch_runners(), 'cursor': [0, 0]}
    state['ranks'] = [{'loaders': None, 'rng': 0}]
    assert from_format_1(state, {'epoch': 0, 'iter': 0})['ranks'][0]['readers'] == []
