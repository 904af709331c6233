"""The nearest right names."""

from __future__ import annotations

import pytest

from runnerkit.utils.suggest import did_you_mean, edit_distance, near_miss, nearest, suggestion


def test_nearest():
    names = ['EpochBasedRunner', 'IterBasedRunner', 'TextLoggerHook', 'CheckpointHook', 'EMAHook', 'SGD', 'sgd']
    assert nearest('CheckpiontHook', names)[0] == 'CheckpointHook'
    assert nearest('checkpointhook', names)[0] == 'CheckpointHook'
    assert nearest('Checkpoint', names)[0] == 'CheckpointHook'
    assert nearest('Text', names) == ['TextLoggerHook']
    assert nearest('Sgd', names) == ['SGD', 'sgd']
    assert nearest('basedrunner', names, n=1) in (['EpochBasedRunner'], ['IterBasedRunner'])
    assert nearest('Zebra', names) == []
    assert nearest('x', []) == []


def test_did_you_mean():
    assert did_you_mean('lrr', ['lr', 'wd']) == "did you mean 'lr'?"
    assert did_you_mean('name1', ['name2', 'name3', 'name4']) == "did you mean 'name4', 'name3' or 'name2'?"
    assert did_you_mean('abcd1', ['abcd2', 'abcd3']) in (
        "did you mean 'abcd2' or 'abcd3'?",
        "did you mean 'abcd3' or 'abcd2'?",
    )
    assert did_you_mean('zebra', ['lr']) == ''


@pytest.mark.parametrize(
    ('a', 'b', 'distance'),
    [('', '', 0), ('', 'abc', 3), ('abc', '', 3), ('same', 'same', 0), ('train', 'trian', 1), ('kitten', 'sitting', 3)]
    + [('ab', 'ba', 1), ('abcd', 'badc', 2), ('after_train_iter', 'after_train_itr', 1), ('a', 'b', 1)],
)
def test_edit_distance(a, b, distance):
    assert edit_distance(a, b) == edit_distance(b, a) == distance


@pytest.mark.parametrize(
    ('name', 'meant'),
    [('optimzer', 'optimizer'), ('Optimizer', 'optimizer'), ('trian', 'train'), ('train', None), ('layer2', None)]
    + [('lr', None), ('other', None), ('optmzr', None), ('optimizer_x', 'optimizer')],
)
def test_near_miss(name, meant):
    assert near_miss(name, iter(['optimizer', 'train', 'layer1', 'layer12', 'wd'])) == meant


def test_a_suggestion_continues_a_message_or_adds_nothing():
    assert suggestion('lrr', ['lr', 'wd']) == "; did you mean 'lr'?"
    assert suggestion('zebra', ['lr']) == ''
