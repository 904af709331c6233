import pytest
import torch

from runnerkit.checkpoint import conditions
from runnerkit.checkpoint.conditions import Change, changes, general_conditions, hook_changes, loader_changes, table
from runnerkit.data import build_dataloader
from runnerkit.data.kinds import loader_facts

WAS = {
    'runner': 'by epoch',
    'workflow': [['train', 1]],
    'world size': 2,
    'optimizer': {'': 'SGD'},
    'precision': {},
    'accumulation': {'': 1},
    'torch': '2.6.0',
    'threads': 4,
    'length': '8 epochs',
    'seed': 3,
}

#: Another value of each, and words of what follows from it.
OTHERS = {
    'runner': ('by iteration', 'the loaders start over'),
    'workflow': ([['train', 2]], 'starts over with its first entry'),
    'world size': (4, 'batches, gradients and iterations per epoch'),
    'optimizer': ({'': 'Adam'}, 'another formula'),
    'precision': ({'': 'bf16'}, 'rounded differently'),
    'accumulation': ({'': 2}, 'updates use another number of batches'),
    'torch': ('2.7.0', 'last bits'),
    'threads': (1, 'last bits'),
    'length': ('9 epochs', 'the run ends there'),
    'seed': (4, 'the data comes in another order'),
}


@pytest.mark.parametrize('what', WAS)
def test_each_condition_that_changed_is_a_line(what):
    now, text = OTHERS[what]
    (change,) = changes(WAS, {**WAS, what: now})
    assert change[:3] == (what, WAS[what], now)
    assert text in change.follows


def test_what_is_equal_or_was_not_saved_or_is_not_known_now_is_no_change():
    assert changes(WAS, dict(WAS)) == []
    for what in WAS:
        others = {**WAS, what: 'other'}
        assert changes({key: each for key, each in WAS.items() if key != what}, others) == []
        assert changes(others, {key: each for key, each in WAS.items() if key != what}) == []
    assert changes({}, WAS) == changes({**WAS, 'of another version': 1}, {**WAS, 'of another version': 2}) == []


def test_every_condition_has_a_test_here():
    assert set(conditions._FOLLOWS) == set(WAS)
    assert set(conditions._LOADER_FOLLOWS) == set(LOADERS)


def test_hooks_that_are_gone_or_new():
    found = hook_changes(['EMAHook#0', 'SyncBuffersHook#0'], ['EMAHook#0', 'EMAHook#1', 'StepLrUpdaterHook#0'])
    assert [each[:3] for each in found] == [
        ('hook SyncBuffersHook#0', 'registered', 'gone'),
        ('hook EMAHook#1', 'absent', 'registered'),
        ('hook StepLrUpdaterHook#0', 'absent', 'registered'),
    ]
    assert 'its state is dropped' in found[0].follows
    assert 'without a state' in found[1].follows


@pytest.mark.parametrize(
    'name',
    [
        'TextLoggerHook',
        'TensorboardLoggerHook',
        'HistoryHook',
        'ProgressBarHook',
        'CheckpointHook',
        'IterTimerHook',
        'ProfilerHook',
        'EmptyCacheHook',
    ],
)
def test_hooks_that_only_look_on_may_come_and_go(name):
    assert hook_changes([f'{name}#0'], []) == hook_changes([], [f'{name}#0']) == []


# --- loaders ---------------------------------------------------------------------------------------------------------


def loader(length=12, batch=2, kind=list, **options):
    options = {'seed': 3, 'ranks': (0, 1), **options}
    return loader_facts(build_dataloader(kind(range(length)), batch, 0, **options))


class Numbers(list):
    pass


#: What is built otherwise, and what is told of it.
LOADERS = {
    'kind': (loader(seeded=False), 'kind', 'SeededLoader', 'DataLoader'),
    'dataset': (loader(kind=Numbers), 'dataset', 'list', 'Numbers'),
    'length': (loader(13), 'length', 12, 13),
    'batch_size': (loader(batch=3), 'batch_size', 2, 3),
    'batches': ({**loader(), 'batches': 5}, 'batches', 6, 5),
    'seed': (loader(seed=4), 'seed', 3, 4),
    'shuffle': (loader(shuffle=False), 'shuffle', True, False),
}


@pytest.mark.parametrize('what', LOADERS)
def test_each_change_of_a_loader_is_one_line(what):
    now, *expected = LOADERS[what]
    (change,) = loader_changes(1, loader(), now)
    assert list(change[:3]) == [f'loader 1: {expected[0]}', *expected[1:]]
    assert change.follows == conditions._LOADER_FOLLOWS[what]


def test_loaders_that_are_equal_but_for_workers_and_ranks():
    assert loader_changes(0, loader(), loader()) == []
    assert loader_changes(0, loader(), {**loader(), 'workers': 4}) == []
    assert loader_changes(0, loader(), loader(ranks=(0, 3))) == []  # the world size has a line of its own
    assert loader_changes(0, {}, loader()) == []  # of the first format


def test_another_batch_size_where_the_order_is_not_known_begins_the_epoch_anew():
    was = loader_facts(torch.utils.data.DataLoader(range(12), 2))
    now = loader_facts(torch.utils.data.DataLoader(range(12), 3))
    (change,) = loader_changes(0, was, now)
    assert (change.was, change.now) == (2, 3)
    assert 'starts over' in change.follows


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_changed_setting_of_many_groups_is_one_line_with_its_values():
    was = [{'lr': 0.1 * factor, 'parameters': [str(i)]} for i, factor in enumerate([1, 2, 1, 2, 3, 4])]
    now = [{'lr': group['lr'] / 10, 'parameters': []} for group in was]
    (change,) = conditions.optimizer_changes('G', was, now, True)
    assert change.what == 'optimizer G: lr'
    assert change.was == '0.1, 0.2, 0.30000000000000004 …'
    assert change.now.startswith('0.01, 0.02, ')
    assert conditions.optimizer_changes('', was, was, True) == []
    assert conditions.optimizer_changes('', was, now, False)[0].follows == conditions.STATE_WINS


def test_settings_of_hooks_that_only_look_on_are_left_out_but_not_those_of_checkpoints():
    was = {'TextLoggerHook#0': {'interval': 1}, 'CheckpointHook#0': {'interval': 1}, 'Gone#0': {'x': 1}}
    now = {'TextLoggerHook#0': {'interval': 2}, 'CheckpointHook#0': {'interval': 2}, 'New#0': {'x': 2}}
    assert [change.what for change in conditions.setting_changes(was, now)] == ['hook CheckpointHook#0: interval']


# --- all -------------------------------------------------------------------------------------------------------------


def test_the_machines_part():
    found = general_conditions()
    assert found['threads'] == torch.get_num_threads()
    assert torch.__version__.startswith(found['torch'])
    assert '+' not in found['torch']


def test_the_table():
    found = [Change('threads', 4, 16, 'sums differ'), Change('optimizer', {'': 'SGD'}, {'': 'Adam'}, 'so do steps')]
    assert table(found).splitlines() == [
        '           was          is',
        'threads    4            16            sums differ',
        "optimizer  {'': 'SGD'}  {'': 'Adam'}  so do steps",
    ]
