"""The checks of intervals against the run's length: three epochs of five iterations."""

import pytest
from plans import BY_ITER, plan, said, told
from support import Noisy
from torch.utils.data import DataLoader, DistributedSampler

from runnerkit.data import build_dataloader
from runnerkit.flow import Options
from runnerkit.flow.preflight.lengths import batch_norms_get_several_samples
from runnerkit.hooks import HOOKS, Hook


@HOOKS.register_module()
class PlanSometimes(Hook):
    """Counts what ``by_epoch`` says; if it does not say, nobody knows."""

    def __init__(self, interval, by_epoch=None):
        self.interval = interval
        if by_epoch is not None:
            self.by_epoch = by_epoch

    def after_train_iter(self, runner):
        pass


def sometimes(**options):
    return {'custom_hooks': [{'type': 'PlanSometimes', **options}]}


def logs(**options):
    return {'log_config': {'interval': 2, 'hooks': [{'type': 'TextLoggerHook', **options}]}}


SAVE = 'checkpoint_config.interval'
EMA = {'custom_hooks': {'type': 'EMAHook', 'interval': 16}}

CASES = [
    ({'runner.max_epochs': 0}, 'runner.max_epochs', 'nothing is trained', {'runner.max_epochs': 3}),
    ({SAVE: 4}, SAVE, 'only the last state is saved', {SAVE: 3}),
    ({SAVE: 4}, SAVE, 'only the last state is saved', {SAVE: -1}),
    ({SAVE: 4, 'checkpoint_config.save_last': False}, SAVE, 'no checkpoint is saved', {SAVE: 3}),
    ({SAVE: -1, 'checkpoint_config.save_last': False}, SAVE, 'no checkpoint is saved', {SAVE: 1}),
    ({'checkpoint_config': {'by_epoch': False, 'interval': 16}}, SAVE, '15 iterations', {SAVE: 15}),
    ({**BY_ITER, 'checkpoint_config': {'by_epoch': True}}, 'checkpoint_config.by_epoch', 'no checkpoint is saved',
     {'checkpoint_config': {'interval': 5}}),
    ({'log_config.interval': 6}, 'log_config.interval', 'an epoch has 5', {'log_config.interval': 5}),
    ({'runner': {'type': 'EpochBasedRunner', 'max_iters': 4}, 'lr_config': None, 'log_config.interval': 5},
     'log_config.interval', 'an epoch has 4', {'log_config.interval': 4}),
    (logs(interval=6), 'log_config.hooks[0].interval', 'an epoch has 5', logs(interval=6, ignore_last=False)),
    (logs(interval=16, by_epoch=False), 'log_config.hooks[0].interval', 'the run has 15',
     logs(interval=6, by_epoch=False)),
    ({**BY_ITER, **logs(by_epoch=True)}, 'log_config.interval', 'a workflow entry has 1',
     {**logs(), 'workflow': [('train', 5)]}),
    ({'optimizer_config.cumulative_iters': 16}, 'optimizer_config.cumulative_iters', 'change once',
     {'optimizer_config.cumulative_iters': 15}),
    (EMA, 'custom_hooks.interval', 'every 16 iterations', {'custom_hooks.interval': 15}),
    (sometimes(interval=4, by_epoch=True), 'custom_hooks[0].interval', '4 epochs',
     sometimes(interval=3, by_epoch=True)),
    (sometimes(interval=16), 'custom_hooks[0].interval', '16 iterations', sometimes(interval=4)),
]  # fmt: skip


@pytest.mark.parametrize('wrong, key, words, right', CASES)
def test_wrong_and_right(wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), 'warning', key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


def test_the_length_of_a_run_in_both_units(tmp_path):
    by_epoch, by_iter = plan(tmp_path), plan(tmp_path, BY_ITER, {'runner.max_iters': 11})
    assert (by_epoch.epochs, by_epoch.iters) == (3, 15)
    assert (by_iter.epochs, by_iter.iters) == (3, 11)
    cut = plan(tmp_path, {'runner': {'type': 'EpochBasedRunner', 'max_iters': 7}})
    assert (cut.epochs, cut.iters) == (2, 7)
    by_passes = plan(tmp_path, BY_ITER, {'runner': {'type': 'IterBasedRunner', 'max_epochs': 2}})
    assert (by_passes.epochs, by_passes.iters) == (2, 10)


def layers(*middle):
    first, last = [{'type': 'Linear', 'in_features': each, 'out_features': 12 - each} for each in (4, 8)]
    return {'model.model': [first, *middle, last]}


NORM = layers({'type': 'BatchNorm1d', 'num_features': 8})


@pytest.mark.parametrize(
    'changes, train, is_single',
    [
        (NORM, build_dataloader(Noisy(21), 4, 0), True),
        (NORM, DataLoader(Noisy(42), 4, sampler=DistributedSampler(Noisy(42), 2, 1)), True),
        (NORM, DataLoader(Noisy(21), 4, shuffle=True), True),
        (NORM, build_dataloader(Noisy(21), 4, 0, drop_last=True), False),
        (NORM, DataLoader(Noisy(21), 4, drop_last=True), False),
        (NORM, build_dataloader(Noisy(21), 4, 0, max_batches=5), False),
        (NORM, build_dataloader(Noisy(22), 4, 0), False),
        (NORM, build_dataloader(Noisy(20), 4, 0), False),
        (NORM, DataLoader(Noisy(3), 1), False),
        (NORM, DataLoader(Noisy(3), None), False),
        ({**NORM, 'runner': {'type': 'IterBasedRunner', 'max_iters': 5}}, build_dataloader(Noisy(21), 4, 0), False),
        ({**NORM, 'runner': {'type': 'IterBasedRunner', 'max_iters': 6}}, build_dataloader(Noisy(21), 4, 0), True),
        (layers(), build_dataloader(Noisy(21), 4, 0), False),
        (layers({'type': 'LayerNorm', 'normalized_shape': 8}), build_dataloader(Noisy(21), 4, 0), False),
    ],
)
def test_a_last_batch_of_one_sample_is_too_small_for_a_batch_norm(changes, train, is_single, tmp_path):
    of = plan(tmp_path, changes)
    of = type(of)(of.cfg, of.runner, [train], of.workflow, Options())
    found = [each.what for each in batch_norms_get_several_samples(of)]
    assert len(found) == is_single
    assert all('model.1 (BatchNorm1d)' in what and 'has one sample' in what for what in found)


def test_a_last_batch_of_one_validated_sample_is_fine(tmp_path):
    of = plan(tmp_path, NORM)
    of = type(of)(of.cfg, of.runner, [*of.loaders, DataLoader(Noisy(5), 4)], [('train', 1), ('val', 1)], Options())
    assert list(batch_norms_get_several_samples(of)) == []


def test_a_stream_has_no_length(tmp_path):
    of = plan(tmp_path, {'log_config.interval': 6, 'optimizer_config.cumulative_iters': 16})
    stream = type(of)(of.cfg, of.runner, [iter(())], of.workflow, Options())
    assert said(stream) == []


def test_the_history_has_no_interval_of_its_own(tmp_path):
    assert said(plan(tmp_path, {'custom_hooks': [{'type': 'HistoryHook'}]})) == []


def test_two_loggers_with_one_interval_are_told_once(tmp_path):
    hooks = [{'type': 'TextLoggerHook'}, {'type': 'TensorboardLoggerHook'}]
    assert len(said(plan(tmp_path, {'log_config': {'interval': 9, 'hooks': hooks}}))) == 1
