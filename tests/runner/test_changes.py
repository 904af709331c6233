"""What a resumed run restores, and what it tells of what is not as it was."""

import logging

import pytest
import torch
from support import Counts, Noisy, Tiny, loader, tiny_runner, weights
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, EMAHook, Hook, OptimizerHook, TextLoggerHook
from runnerkit.optim.update import mean_gradients
from runnerkit.runner import EpochBasedRunner


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def start(folder, kind='epoch', hooks=(), optimizer=None, update=None, **limits):
    runner = tiny_runner(kind, work_dir=folder, optimizer=optimizer, **(limits or {'max_iters': 8}))
    runner.register_hook(OptimizerHook(**(update or {})), 'ABOVE_NORMAL')
    runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
    for hook in hooks:
        runner.register_hook(hook)
    return runner


@pytest.fixture
def saved(tmp_path):
    """A function that trains and gives the file after three iterations."""

    def train(data=None, **options):
        runner = start(tmp_path, **options)
        runner.run([loader() if data is None else data], [('train', 1)])
        return str(tmp_path / 'iter_3.pth')

    return train


def told(caplog):
    return [r.getMessage() for r in caplog.records if getattr(r, 'exactness', False) and r.levelno >= logging.WARNING]


def resumed(tmp_path, checkpoint, caplog, data=None, workflow=(('train', 1),), **options):
    """What a run tells that goes on from ``checkpoint``."""
    runner = start(tmp_path / 'resumed', **options)
    caplog.clear()
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.resume(checkpoint)
        runner.run([loader() if data is None else data], list(workflow))
    return '\n'.join(told(caplog))


def test_a_run_that_goes_on_as_it_was_tells_nothing(saved, tmp_path, caplog):
    assert resumed(tmp_path, saved(), caplog) == ''


def test_loggers_may_change(saved, tmp_path, caplog):
    assert resumed(tmp_path, saved(), caplog, hooks=[TextLoggerHook()]) == ''


CHANGES = {
    'optimizer': ({'optimizer': adam}, {'optimizer': adamw}, ['Adam', 'AdamW', 'another formula']),
    'precision': ({}, {'update': {'amp': 'bf16'}}, ['precision', 'bf16']),
    'accumulation': ({}, {'update': {'cumulative_iters': 2}}, ['accumulation']),
    'hook gone': ({'hooks': [Counts()]}, {}, ['hook Counts#0', 'gone', 'dropped']),
    'hook added': ({}, {'hooks': [Counts()]}, ['hook Counts#0', 'absent', 'without a state']),
    'runner': ({}, {'kind': 'iter'}, ['by epoch', 'by iteration', 'start over']),
    'batch size': ({}, {'data': loader(batch=5)}, ['batch_size', 'same sample']),
    'length': ({}, {'data': loader(24)}, ['length', 'twice or not at all']),
    'shuffling': ({}, {'data': loader(shuffle=False)}, ['shuffle', 'True', 'False']),
    'seed': ({}, {'data': build_dataloader(Noisy(20), 4, 0, seed=6)}, ['seed', '5', '6']),
    'loader': ({}, {'data': DataLoader(Noisy(20), 4)}, ['kind', 'SeededLoader', 'DataLoader']),
    'EMA gone': ({'hooks': [EMAHook()]}, {}, ['EMAHook', 'averages are dropped']),
}


@pytest.mark.parametrize('name', CHANGES)
def test_what_has_changed_is_told(name, saved, tmp_path, caplog):
    was, now, words = CHANGES[name]
    text = resumed(tmp_path, saved(**was), caplog, **now)
    assert all(word in text for word in words), text


def test_averages_that_are_dropped_are_told_once(saved, tmp_path, caplog):
    assert resumed(tmp_path, saved(hooks=[EMAHook()]), caplog).count('averages are dropped') == 1


def test_averages_of_a_file_of_mmcvs_are_told_although_it_names_no_hooks(saved, tmp_path, caplog):
    path = saved(hooks=[EMAHook()])
    file = torch.load(path)
    del file['runnerkit']
    torch.save(file, path)
    runner = start(tmp_path / 'resumed')
    runner.resume(path)
    assert 'averages are dropped' in '\n'.join(told(caplog))


def test_loaders_are_told_by_the_number_of_their_workflow_entry(tmp_path, caplog):
    start(tmp_path).run([loader(8), loader()], [('val', 1), ('train', 1)])
    runner = start(tmp_path / 'resumed')
    runner.resume(str(tmp_path / 'iter_3.pth'))
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        runner.run([loader(8), loader(24)], [('train', 1), ('train', 1)])  # nothing is known of the first entry
    assert [name for name in ('loader 0:', 'loader 1:') if name in '\n'.join(told(caplog))] == ['loader 1:']


def test_without_its_hook_training_goes_on_from_the_raw_weights(tmp_path):
    runner = start(tmp_path, hooks=[EMAHook(momentum=0.5)], max_iters=3)
    runner.run([loader()], [('train', 1)])
    raw = {name: value for name, value in runner.model.state_dict().items() if not name.startswith('ema_')}
    other = start(tmp_path / 'other')
    other.resume(str(tmp_path / 'iter_3.pth'))
    found = other.model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in raw.items())


def test_an_optimizer_of_another_kind_is_refused(saved, tmp_path):
    runner = start(tmp_path / 'resumed')
    with pytest.raises(ValueError, match='it has no momentum, nesterov, which SGD needs: it is of another kind'):
        runner.resume(saved(optimizer=adam))


def test_a_hooks_state_that_does_not_fit_is_refused_with_its_name(saved, tmp_path):
    class Other(Counts):
        def load_state_dict(self, state):
            self.n = state['m']

    checkpoint = saved(hooks=[Counts()])
    Other.__name__ = 'Counts'
    runner = start(tmp_path / 'resumed', hooks=[Other()])
    runner.resume(checkpoint)
    with pytest.raises(ValueError, match="the state of the hook Counts#0 in the checkpoint does not fit .*'m'"):
        runner.run([loader()], [('train', 1)])


def test_a_file_without_the_optimizer_is_told(tmp_path, caplog):
    runner = tiny_runner(work_dir=tmp_path, max_iters=3)
    runner.register_hook(CheckpointHook(interval=3, by_epoch=False, save_optimizer=False))
    runner.run([loader()], [('train', 1)])
    assert 'holds no optimizer state' in resumed(tmp_path, str(tmp_path / 'iter_3.pth'), caplog)


def test_with_another_batch_size_the_epoch_goes_on_with_the_same_sample(tmp_path):
    class Seen(Tiny):
        def __init__(self):
            super().__init__()
            self.seen = []

        def train_step(self, data, optimizer, **kwargs):
            self.seen += data[0].tolist()
            return super().train_step(data, optimizer)

    class Numbers(Noisy):
        def __getitem__(self, i):
            return torch.full((4,), float(i)), torch.zeros(1)

    def run(folder, batch, checkpoint=None, **limits):
        runner = tiny_runner(model=Seen(), work_dir=tmp_path / folder, **limits)
        runner.register_hook(OptimizerHook())
        runner.register_hook(CheckpointHook(interval=3, by_epoch=False))
        if checkpoint:
            runner.resume(str(checkpoint))
        runner.run([build_dataloader(Numbers(20), batch, 0, seed=5)], [('train', 1)])
        return runner, [sample[0] for sample in runner.model.seen]

    _, first = run('first', 4, max_iters=3)
    runner, rest = run('rest', 3, tmp_path / 'first' / 'iter_3.pth', max_epochs=1)
    assert sorted(first + rest) == list(range(20))
    assert (runner.iter, runner.epoch, runner.max_iters) == (7, 1, 7)  # 3 of 5 are 4 of 7


def test_shares_of_the_users_own_begin_anew_with_another_batch_size(saved, tmp_path, caplog):
    def own(batch):
        return DataLoader(Noisy(20), batch_sampler=BatchSampler(SequentialSampler(range(20)), batch, False))

    text = resumed(tmp_path, saved(data=own(4)), caplog, data=own(5))
    assert 'the open epoch starts over: ranks or batch size changed' in text


def test_what_is_not_known_to_be_exact_is_told_at_the_first_start(tmp_path, caplog):
    runner = start(tmp_path, max_iters=1)
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.run([DataLoader(Noisy(20), 4, num_workers=1)], [('train', 1)])
    (record,) = [r for r in caplog.records if getattr(r, 'exactness', False)]
    assert record.levelno == logging.INFO
    assert 'A resume of this run may not be exact. DataLoader of Noisy: ' in record.getMessage()


@pytest.mark.parametrize('is_old', [True, False])
def test_shards_of_a_torch_that_does_not_compute_them_exactly_are_told(tmp_path, caplog, monkeypatch, is_old):
    from runnerkit.runner import changes

    monkeypatch.setattr(changes, 'is_sharded', lambda model: True)
    monkeypatch.setattr(changes, 'shards_exactly', lambda: not is_old)
    runner = start(tmp_path, max_iters=1)
    with caplog.at_level(logging.INFO, 'runnerkit'):
        runner.run([DataLoader(Noisy(20), 4)], [('train', 1)])
    assert ('may not be exact. Before torch 2.13, a model sharded by fully_shard' in caplog.text) is is_old


@pytest.mark.parametrize('states', [[{'accumulated': 1}, {'accumulated': 2}], [{'accumulated': 1}, {'accumulated': 0}]])
def test_ranks_at_different_places_of_a_cycle_have_no_mean(states):
    with pytest.raises(ValueError, match='same number of ranks'):
        mean_gradients([{**state, 'grads': [torch.ones(2)]} for state in states])


def test_the_mean_counts_ranks_that_have_not_used_a_parameter():
    grads = [[torch.ones(2), None, None], [None, None, torch.ones(1)]]
    means = mean_gradients([{'accumulated': 1, 'grads': each} for each in grads])
    assert [mean if mean is None else mean.tolist() for mean in means] == [[0.5, 0.5], None, [0.5]]


def test_the_same_bits_in_a_run_of_another_kind_of_save(tmp_path):
    """A file that is saved in the middle of a cycle brings its gradients."""
    whole = start(tmp_path / 'whole', update={'cumulative_iters': 3})
    whole.run([loader()], [('train', 1)])
    part = start(tmp_path / 'part', update={'cumulative_iters': 3})
    part.resume(str(tmp_path / 'whole' / 'iter_4.pth'))
    part.run([loader()], [('train', 1)])
    assert torch.equal(weights(part.model), weights(whole.model))


def test_a_loader_that_is_evaluated_on_and_nobody_knew_is_told(tmp_path, caplog):
    class Evaluates(Hook):
        def __init__(self, attribute):
            generator = torch.Generator().manual_seed(1)
            setattr(self, attribute, DataLoader(Noisy(8), 4, shuffle=True, generator=generator))
            self.attribute = attribute

        def after_train_epoch(self, runner):
            runner.evaluate(getattr(self, self.attribute))

    for attribute, is_told in (('dataloader', False), ('loader', True)):
        runner = start(tmp_path / attribute, hooks=[Evaluates(attribute)])
        runner.run([loader()], [('train', 1)])
        other = tmp_path / f'{attribute} resumed'
        checkpoint = str(tmp_path / attribute / 'iter_6.pth')
        text = resumed(other, checkpoint, caplog, hooks=[Evaluates(attribute)], max_iters=12)
        assert ('cannot be restored this late' in text) == is_told


def test_generators_go_to_entries_of_the_same_mode(tmp_path):
    """With another workflow, a validation does not get the states of a training."""

    def shuffled(seed):
        return DataLoader(Noisy(8), 4, shuffle=True, generator=torch.Generator().manual_seed(seed))

    def run(folder, loaders, workflow, checkpoint=None, **limits):
        runner = tiny_runner(work_dir=tmp_path / folder, **limits)
        runner.register_hook(CheckpointHook(interval=1))
        if checkpoint:
            runner.resume(str(checkpoint))
        runner.run(loaders, workflow)

    run('first', [shuffled(1)], [('train', 1)], max_epochs=1)
    val, read_once = shuffled(2), shuffled(2)
    list(read_once)
    run('second', [val, shuffled(1)], [('val', 1), ('train', 1)], tmp_path / 'first' / 'epoch_1.pth', max_epochs=1)
    assert torch.equal(val.generator.get_state(), read_once.generator.get_state())


def test_a_validation_that_is_cut_is_told(tmp_path, caplog):
    class Saves(Hook):
        def after_val_iter(self, runner):
            if runner.inner_iter == 0 and runner.iter == 2:
                runner.save_checkpoint(str(tmp_path), 'inside.pth')

    def run(checkpoint=None):
        runner = tiny_runner('iter', work_dir=tmp_path, max_iters=4)
        runner.register_hook(Saves())
        if checkpoint:
            runner.resume(checkpoint)
        runner.run([loader(), loader(8)], [('train', 2), ('val', 2)])

    run()
    assert 'saved inside a validation' not in caplog.text
    run(str(tmp_path / 'inside.pth'))
    assert 'cover the remaining batches only' in caplog.text


def test_gradients_of_a_sharded_model_are_the_mean_already():
    """Each rank's state holds the same ones, and their sum by three divided by three may be another number."""
    gradient = torch.tensor([0.1, 1 / 3, 1e-3])
    assert mean_gradients([{'accumulated': 1, 'grads': [gradient]}] * 3)[0] is gradient


class InOrder(EpochBasedRunner):
    """Calls the hooks as MMCV does: by priority alone."""

    def call_hook(self, fn_name):
        for hook in self._hooks:
            if hasattr(hook, fn_name):
                getattr(hook, fn_name)(self)


class AsOurs(EpochBasedRunner):
    def call_hook(self, fn_name):
        super().call_hook(fn_name)


class AfterEpoch(Counts):
    def after_train_epoch(self, runner):
        pass


@pytest.mark.parametrize('kind, hook, priority, by_epoch, told_of', [
    (InOrder, EMAHook, 'NORMAL', False, 'EMAHook'),
    (InOrder, EMAHook, 'ABOVE_NORMAL', False, None),  # the averages move before the save
    (InOrder, EMAHook, 'NORMAL', True, None),  # they have moved when the epoch's end is saved
    (AsOurs, EMAHook, 'NORMAL', False, None),
    (EpochBasedRunner, EMAHook, 'NORMAL', False, None),
    (InOrder, Counts, 'NORMAL', False, 'Counts'),
    (InOrder, AfterEpoch, 'LOW', True, 'AfterEpoch'),
    (InOrder, TextLoggerHook, 'VERY_LOW', False, None),
])  # fmt: skip
def test_a_state_that_is_saved_before_it_moves_is_told(kind, hook, priority, by_epoch, told_of, tmp_path, caplog):
    def run(folder, stop, checkpoint=None):
        torch.manual_seed(0)
        model = Tiny()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = kind(model, optimizer=optimizer, work_dir=str(tmp_path / folder), max_iters=stop)
        runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
        runner.register_hook(CheckpointHook(interval=1, by_epoch=by_epoch))
        runner.register_hook(hook(), priority)
        if checkpoint:
            runner.resume(str(checkpoint))
        caplog.clear()
        with caplog.at_level(logging.INFO, 'runnerkit'):
            runner.run([loader()], [('train', 1)])
        found = [r for r in caplog.records if f'calls {told_of} after CheckpointHook' in r.getMessage()]
        assert [r.levelno for r in found] == (
            [] if told_of is None else [logging.WARNING if checkpoint else logging.INFO]
        )
        assert all('ABOVE_NORMAL' in r.getMessage() for r in found)
        assert told_of is not None or 'call_hook calls' not in caplog.text
        return runner

    whole = run('first', 6)
    name = 'epoch_1.pth' if by_epoch else 'iter_3.pth'
    again = run('second', 6, tmp_path / 'first' / name)
    if hook is EMAHook:
        exact = torch.equal(weights(again.model), weights(whole.model))
        assert exact == (told_of is None)


def test_what_was_logged_before_the_save_is_averaged_after_the_resume(tmp_path):
    class Stops(Hook):
        def after_train_iter(self, runner):
            runner.stop('enough')

    cut = tiny_runner(work_dir=tmp_path, max_epochs=1)
    cut.register_hook(CheckpointHook())
    cut.register_hook(Stops())
    cut.run([loader(12)], [('train', 1)])
    resumed = tiny_runner(max_epochs=1)
    resumed.resume(str(tmp_path))
    resumed.run([loader(12)], [('train', 1)])
    losses = [*cut.model.losses, *resumed.model.losses]
    assert len(losses) == 3
    assert resumed.log_buffer.val_history['loss'] == pytest.approx(losses)


class Begins(Counts):
    def before_train_epoch(self, runner):
        if runner.progress.batches == 0 or not self.is_careful:
            self.n += 100

    is_careful = False


class BeginsOnce(Begins):
    is_careful = True


@pytest.mark.parametrize(('hook', 'is_told'), [(Begins, True), (Counts, False)])
def test_hooks_that_begin_an_epoch_again_are_told(hook, is_told, tmp_path, caplog):
    undisturbed, counts = start(tmp_path, hooks=[hook()]), hook()
    undisturbed.run([loader()], [('train', 1)])
    text = resumed(tmp_path, str(tmp_path / 'iter_3.pth'), caplog, hooks=[counts])
    assert ('Begins.before_train_epoch is called a second time' in text) == is_told
    assert (counts.n != undisturbed.hooks[-1].n) == is_told


def test_a_hook_can_see_that_its_epoch_has_begun_before(tmp_path, caplog):
    undisturbed, counts = start(tmp_path, hooks=[BeginsOnce()]), BeginsOnce()
    undisturbed.run([loader()], [('train', 1)])
    resumed(tmp_path, str(tmp_path / 'iter_3.pth'), caplog, hooks=[counts])
    assert counts.n == undisturbed.hooks[-1].n == 208
