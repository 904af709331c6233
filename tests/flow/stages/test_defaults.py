"""What a config need not say."""

import pytest

from runnerkit.config import Config
from runnerkit.flow.stages.defaults import (
    custom_of_kind,
    fill_in,
    length_of_run,
    mode_of,
    required_section,
    split_of,
    splits_in,
    validates,
)
from runnerkit.hooks import CheckpointHook, OptimizerHook, TextLoggerHook

EPOCHS = {'runner': {'type': 'EpochBasedRunner', 'max_epochs': 3}}
TEXT = {'type': 'TextLoggerHook', 'ignore_last': False}


def filled(**cfg):
    cfg = Config(cfg)
    fill_in(cfg)
    return cfg


def test_by_epochs_a_line_every_fifty_iterations_and_at_each_end_and_a_checkpoint_each_epoch():
    cfg = filled(**EPOCHS)
    assert cfg.log_config == {'interval': 50, 'hooks': [TEXT]}
    assert cfg.checkpoint_config == {'interval': 1, 'max_keep_ckpts': 3}
    assert filled(total_epochs=3).checkpoint_config.interval == 1


@pytest.mark.parametrize(
    ('runner', 'line', 'save'),
    [
        ({'type': 'IterBasedRunner', 'max_iters': 40000}, 50, 4000),
        ({'type': 'IterBasedRunner', 'max_iters': 100}, 10, 10),
        ({'type': 'IterBasedRunner', 'max_iters': 3}, 1, 1),
        ({'type': 'IterBasedRunner', 'max_epochs': 3}, 50, 1000),
    ],
)
def test_by_iterations_the_intervals_fit_the_runs_length(runner, line, save):
    cfg = filled(runner=runner)
    assert cfg.log_config == {'interval': line, 'hooks': [{'type': 'TextLoggerHook'}]}
    assert cfg.checkpoint_config == {'interval': save, 'max_keep_ckpts': 3}


def test_what_the_config_says_stays():
    for given in (
        dict(log_config=None, checkpoint_config=None),
        dict(log_config={'interval': 7, 'hooks': []}, checkpoint_config={'interval': 2}),
    ):
        assert dict(filled(**EPOCHS, **given)) == {**EPOCHS, **given}


def test_an_interval_alone_is_that_of_the_text_log():
    assert filled(**EPOCHS, log_config={'interval': 7}).log_config == {'interval': 7, 'hooks': [TEXT]}
    assert filled(**EPOCHS, log_config={'interval': 7, 'hooks': None}).log_config == {'interval': 7, 'hooks': []}


def test_custom_hooks_of_these_kinds_take_their_place():
    cfg = filled(**EPOCHS, custom_hooks=[{'type': 'CheckpointHook', 'interval': 5}])
    assert 'checkpoint_config' not in cfg
    assert 'log_config' in cfg
    cfg = filled(**EPOCHS, custom_hooks={'type': 'TextLoggerHook'})
    assert 'log_config' not in cfg
    assert 'checkpoint_config' in cfg


def test_which_custom_hooks_there_are():
    assert custom_of_kind({'custom_hooks': [CheckpointHook()]}, CheckpointHook)
    assert custom_of_kind({'custom_hooks': [{'type': CheckpointHook}]}, CheckpointHook)
    assert custom_of_kind({'custom_hooks': ({'type': 'Fp16OptimizerHook'},)}, OptimizerHook)
    assert not custom_of_kind({'custom_hooks': [{'type': 'NoSuchHook'}, {'type': 'CheckpointHook'}]}, TextLoggerHook)
    assert not custom_of_kind({'custom_hooks': None}, TextLoggerHook)


def test_the_length_of_odd_runners_is_not_known():
    assert length_of_run({}) == (True, None)
    assert length_of_run({'runner': [{'name': 'phase1'}]}) == (True, None)
    assert length_of_run({'runner': {'type': 'IterBasedRunner', 'max_iters': 'many'}}) == (False, None)


def test_names_of_hooks_are_enough():
    cfg = filled(**EPOCHS, log_config={'hooks': ['TensorboardLoggerHook', TEXT]}, custom_hooks=['EMAHook'])
    assert cfg.log_config.hooks == [{'type': 'TensorboardLoggerHook'}, TEXT]
    assert cfg.custom_hooks == [{'type': 'EMAHook'}]


def test_an_experiment_says_its_intervals_in_its_own_section():
    training = {'max_iteration': 900, 'save_interval': 225, 'log_interval': 45}
    cfg = filled(runner={'type': 'experiments.Line'}, training=training)
    assert (cfg.log_config.interval, cfg.checkpoint_config.interval) == (45, 225)
    assert filled(runner={'type': 'experiments.Line'}, training={'max_iteration': 100}).log_config.interval == 10


def test_missing_sections():
    with pytest.raises(
        KeyError, match=r"has no 'data' \(nor optimizer, runner\); a run needs model, data, optimizer, runner"
    ):
        required_section(Config({'model': 1}), 'data')


# --- the splits of data -----------------------------------------------------------------------------------------------

ONE = {'type': 'Noisy'}
DATA = {
    'samples_per_gpu': 4,
    'pin_memory': True,
    'train': ONE,
    'val': ONE,
    'val_hard': {'a': ONE, 'b': ONE},
    'val_hard_dataloader': {'samples_per_gpu': 2},
    'train_big': [ONE],
    'test': ONE,
    'dis': ONE,
}


def test_the_splits_are_what_holds_data():
    assert splits_in(DATA) == ['train', 'val', 'val_hard', 'train_big', 'test', 'dis']


@pytest.mark.parametrize(
    'name, split, mode',
    [
        ('train', 'train', 'train'),
        ('val', 'val', 'val'),
        ('val_hard', 'val_hard', 'val'),
        ('test', 'test', 'val'),
        ('train_big', 'train_big', 'train'),
        ('dis', 'dis', 'dis'),  # a step of the model, with data of its own
        ('gen', 'train', 'gen'),  # one without
        ('val_easy', 'train', 'val_easy'),  # no split: refused later, unless the model has such a step
    ],
)
def test_what_an_entry_names(name, split, mode):
    assert (split_of(name, DATA), mode_of(name, DATA)) == (split, mode)


def test_what_validates():
    assert validates([('train', 1), ('val', 1), ('val_hard', 2)], DATA) == ['val', 'val_hard']
    assert validates([('val', 1)], None) == ['val']
    assert validates('nonsense', DATA) == validates([3, (), (4, 1)], DATA) == []
