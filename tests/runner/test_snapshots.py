"""Saving, loading, resuming: names, counts, and what is refused. That a resume is exact: test_resume_cells.py."""

import copy
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support import Counts, Noisy, Tiny, loader, thinned, tiny_runner, weights
from torch import nn
from torch.utils.data import DataLoader

from runnerkit.checkpoint import integrity, save_checkpoint
from runnerkit.checkpoint.store import own_messages
from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, EvalHook, Hook
from runnerkit.hooks.hook import Score
from runnerkit.optim.update import mean_gradients


class Draws(Hook):
    """Uses the run's own generators between iterations."""

    def after_train_iter(self, runner):
        runner.model.losses.append(random.random() + np.random.rand() + torch.rand(1).item())


def two_optimizers(model):
    return {
        'body': torch.optim.Adam(model.body.parameters(), lr=0.01),
        'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9),
    }


def test_entering_an_epoch_loads_nothing_before_it(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_iters=3)
    runner.register_checkpoint_hook({'interval': 3, 'by_epoch': False})
    runner.run([loader(20)], [('train', 1)])
    resumed = tiny_runner(work_dir=tmp_path, max_iters=5)
    resumed.resume(str(tmp_path / 'iter_3.pth'))
    asked = []

    class Counted(Noisy):
        def __getitem__(self, i):
            asked.append(i)
            return super().__getitem__(i)

    resumed.run([build_dataloader(Counted(20), 4, 0, seed=5)], [('train', 1)])
    assert len(asked) == 8


def test_a_stopped_run_says_where_it_is(tmp_path):
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 6:
                runner.stop('here')
                self.path = runner.save_checkpoint(runner.work_dir)

    stop = Stop()
    runner = tiny_runner(work_dir=tmp_path, max_epochs=3)
    runner.register_hook(stop, priority='LOWEST')
    runner.run([loader(20)], [('train', 1)])
    meta = torch.load(stop.path)['meta']
    assert stop.path.endswith('epoch_2.pth')  # the epoch it is in, not the one that is complete
    assert (meta['epoch'], meta['iter']) == (1, 7)


def test_the_place_in_the_workflow_is_kept(tmp_path):
    heard = []

    class Units(Hook):
        def before_epoch(self, runner):
            heard.append(runner.mode)

    def start(seed=0):
        runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
        runner.register_hook(Units())
        runner.register_checkpoint_hook({'interval': 1})
        return runner

    workflow = [('train', 2), ('val', 1)]
    start().run([loader(8), loader(4)], workflow)
    whole = list(heard)
    for epoch, left in ((1, 1), (2, 2), (3, 4)):
        heard.clear()
        resumed = start()
        resumed.resume(str(tmp_path / f'epoch_{epoch}.pth'))
        resumed.run([loader(8), loader(4)], workflow)
        assert heard == whole[left:]


# --- names, counts, contents -----------------------------------------------------------------------------------------


def test_names_and_counts_of_a_new_runner(tmp_path):
    for kind, name in (('epoch', 'epoch_1.pth'), ('iter', 'iter_1.pth')):
        runner = tiny_runner(kind, work_dir=tmp_path, max_iters=1)
        assert runner.save_checkpoint(str(tmp_path)) == str(tmp_path / name)
        assert (tmp_path / 'latest.pth').resolve() == (tmp_path / name).resolve()
        meta = torch.load(tmp_path / name)['meta']
        assert (meta['epoch'], meta['iter']) == (0, 0)
    runner.save_checkpoint(
        str(tmp_path / 'other'), filename_tmpl='x_{epoch}_{iter}.pth', create_symlink=False, save_optimizer=False
    )
    assert [path.name for path in (tmp_path / 'other').iterdir()] == ['x_0_0.pth']
    assert 'optimizer' not in torch.load(tmp_path / 'other' / 'x_0_0.pth')


def test_meta_is_merged_and_not_changed(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.meta['seed'] = 3
    given = {'more': 1}
    runner.save_checkpoint(str(tmp_path), meta=given)
    meta = torch.load(tmp_path / 'epoch_1.pth')['meta']
    assert (meta['seed'], meta['more']) == (3, 1)
    assert given == {'more': 1}
    with pytest.raises(TypeError, match='meta should be a dict or None'):
        runner.save_checkpoint(str(tmp_path), meta=3)


def test_checkpoints_hold_nothing_that_would_run(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_iters=4)
    runner.register_hook(Counts())
    runner.register_hook(EvalHook(loader(6), save_best='loss', by_epoch=False, interval=2))
    runner.register_checkpoint_hook({'interval': 2, 'by_epoch': False})
    runner.run([loader()], [('train', 1)])
    loaded = torch.load(tmp_path / 'iter_4.pth', weights_only=True)
    assert loaded['runnerkit']['ranks'][0]['hooks']['Counts#0'] == {'n': 4}
    assert loaded['runnerkit']['conditions']['optimizer'] == {'': 'SGD'}


def test_the_fused_implementation_is_recorded(tmp_path):
    runner = tiny_runner(
        work_dir=tmp_path, optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.1, fused=True), max_epochs=1
    )
    runner.save_checkpoint(str(tmp_path))
    assert torch.load(tmp_path / 'epoch_1.pth')['runnerkit']['conditions']['optimizer'] == {'': 'SGD (fused)'}


# --- other people's files --------------------------------------------------------------------------------------------


def mmcv_file(tmp_path, runner, **meta):
    path = tmp_path / 'old.pth'
    checkpoint = {'meta': meta, 'state_dict': runner.model.state_dict(), 'optimizer': runner.optimizer.state_dict()}
    torch.save(checkpoint, path)
    return str(path)


def test_mmcvs_iteration_files_count_one_short(tmp_path):
    runner = tiny_runner('iter', max_iters=8)
    runner.resume(mmcv_file(tmp_path, runner, epoch=1, iter=3))
    assert runner.iter == 4
    runner = tiny_runner('epoch', max_epochs=8)
    runner.resume(mmcv_file(tmp_path, runner, epoch=1, iter=5))
    assert (runner.epoch, runner.iter) == (1, 5)
    runner.run([loader(20)], [('train', 1)])
    assert runner.epoch == 8


def test_mmcvs_iteration_number_is_rescaled_with_the_number_of_gpus(tmp_path):
    runner = tiny_runner(max_epochs=8)
    runner.resume(mmcv_file(tmp_path, runner, epoch=2, iter=10, config='a = 1\ngpu_ids = range(0, 4)\n'))
    assert runner.iter == 40


def test_history_messages_are_taken_over(tmp_path):
    runner = tiny_runner(max_epochs=8)
    runner.resume(mmcv_file(tmp_path, runner, epoch=1, iter=5, hook_msgs={'best_score': np.float64(0.5)}))
    assert runner.meta['hook_msgs'] == {'best_score': 0.5}
    other = tiny_runner(max_epochs=8)
    other.meta['hook_msgs'] = {'best_score': 0.1, 'mine': 'stays'}
    other.resume(mmcv_file(tmp_path, other, epoch=1, iter=5, hook_msgs={'best_score': np.float64(0.5)}))
    assert other.meta['hook_msgs'] == {'best_score': 0.5, 'mine': 'stays'}


def test_resume_refuses_what_does_not_fit(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    torch.save(runner.model.state_dict(), tmp_path / 'weights.pth')
    with pytest.raises(ValueError, match='it holds no training state .*To start from its weights: --load-from'):
        runner.resume(str(tmp_path / 'weights.pth'))
    for meta in (None, {}, {'epoch': 1}):
        torch.save({'meta': meta, 'state_dict': runner.model.state_dict()}, tmp_path / 'weights.pth')
        with pytest.raises(ValueError, match='cannot be resumed: '):
            runner.resume(str(tmp_path / 'weights.pth'))

    class Other(Tiny):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1, bias=False)

    path = runner.save_checkpoint(str(tmp_path))
    with pytest.raises(ValueError, match=r'is a checkpoint of another model and cannot be resumed[\s\S]*head.bias'):
        tiny_runner(model=Other(), max_epochs=1).resume(path)
    split = tiny_runner(max_epochs=1, optimizer=two_optimizers)
    with pytest.raises(ValueError, match="the optimizer 'body' in .* does not fit this run"):
        split.resume(path)
    one_group_more = tiny_runner(
        max_epochs=1,
        optimizer=lambda m: torch.optim.SGD([{'params': m.body.parameters()}, {'params': m.head.parameters()}], lr=0.1),
    )
    with pytest.raises(ValueError, match='the optimizer in .* does not fit this run'):
        one_group_more.resume(path)
    one_group_more.resume(path, resume_optimizer=False)


def test_a_resume_checks_and_unpickles_its_file_once(tmp_path, monkeypatch):
    path = tiny_runner(work_dir=tmp_path, max_epochs=1).save_checkpoint(str(tmp_path))
    loads, checks = [], []
    load, check = torch.load, integrity.check_records
    monkeypatch.setattr(torch, 'load', lambda *args, **options: loads.append(args) or load(*args, **options))
    monkeypatch.setattr(integrity, 'check_records', lambda file: checks.append(file) or check(file))
    tiny_runner(max_epochs=1).resume(path)
    assert (len(loads), len(checks)) == (1, 1)


def test_a_resume_refuses_every_damaged_record_and_every_cut(tmp_path):
    path = Path(tiny_runner(work_dir=tmp_path, max_epochs=1).save_checkpoint(str(tmp_path)))
    whole, runner = path.read_bytes(), tiny_runner(max_epochs=1)
    with zipfile.ZipFile(path) as archive:
        records = [record for record in archive.infolist() if record.file_size]
    assert len(records) > 10
    for record in records:
        lengths = struct.unpack_from('<HH', whole, record.header_offset + 26)
        damaged = bytearray(whole)
        damaged[record.header_offset + 30 + sum(lengths) + record.file_size // 2] ^= 1 << 5
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"is damaged: the checksum of its record '{record.filename}' is wrong"):
            runner.resume(str(path))
    for length in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match='is damaged: it'):
            runner.resume(str(path))


def test_load_checkpoint_takes_only_the_weights(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.run([loader(20)], [('train', 1)])
    path = runner.save_checkpoint(str(tmp_path))
    other = tiny_runner(seed=3, max_epochs=1)
    other.load_checkpoint(path)
    assert torch.equal(weights(other.model), weights(runner.model))
    assert other.iter == 0


def test_a_checkpoint_without_the_rest_can_still_be_resumed(tmp_path):
    runner = tiny_runner(max_epochs=2)
    save_checkpoint(runner.model, str(tmp_path / 'a.pth'), runner.optimizer, meta={'epoch': 1, 'iter': 5})
    runner.resume(str(tmp_path / 'a.pth'))
    runner.run([loader(20)], [('train', 1)])
    assert (runner.epoch, runner.iter) == (2, 10)


# --- several ranks ---------------------------------------------------------------------------------------------------


def resumes_on_rank(rank, folder):
    from runnerkit.parallel import MMDistributedDataParallel

    def start(work_dir, seed):
        # The statistics of each rank's batch norm are its own.
        model = MMDistributedDataParallel(tiny_runner(seed=seed, max_iters=1).model, broadcast_buffers=False)
        runner = tiny_runner(model=model, work_dir=f'{folder}/{work_dir}', seed=seed + rank, max_iters=7)
        runner.register_training_hooks(
            {'policy': 'fixed'},
            {'cumulative_iters': 2},
            {'interval': 1, 'by_epoch': False},
            custom_hooks_config=[Draws()],
        )
        return runner

    def go(runner):
        runner.run([loader(40, dist=True)], [('train', 1)])
        return weights(runner.model), runner.model.module.losses

    runner = start('whole', 0)
    runner.model.losses = runner.model.module.losses
    whole = go(runner)
    runner = start('part', 9)
    runner.model.losses = runner.model.module.losses
    runner.resume(f'{folder}/whole/iter_3.pth')
    part = go(runner)
    return torch.equal(whole[0], part[0]), whole[1][-len(part[1]) :] == part[1], len(part[1])


def test_every_rank_goes_on_exactly(on_ranks, tmp_path):
    assert on_ranks(__file__, 'resumes_on_rank', tmp_path) == [(True, True, 8)] * 2
    ranks = torch.load(tmp_path / 'whole' / 'iter_3.pth')['runnerkit']['ranks']
    assert [rank['updates']['']['accumulated'] for rank in ranks] == [1, 1]
    assert not torch.equal(ranks[0]['rng']['torch'], ranks[1]['rng']['torch'])


def cycle(accumulated, *grads):
    return {'accumulated': accumulated, 'grads': [None if each is None else torch.tensor(each) for each in grads]}


def test_the_gradients_of_an_unfinished_cycle_are_averaged_over_ranks():
    found = mean_gradients([cycle(2, [1.0, 8.0], None), cycle(2, [3.0, 4.0], None)])
    assert found[0].tolist() == [2.0, 6.0]
    assert found[1] is None
    with pytest.raises(ValueError, match='the ranks are at different places'):
        mean_gradients([cycle(1, [1.0]), cycle(2, [1.0])])


def test_another_number_of_ranks_takes_the_mean_and_the_same_number_its_own(tmp_path):
    class Looks(Hook):
        def before_train_iter(self, runner):
            if self.grads is None:
                self.grads = [each.grad.clone() for each in runner.model.parameters()]

        grads = None

    def start(folder, looks):
        runner = tiny_runner(work_dir=tmp_path / folder, max_iters=4)
        runner.register_training_hooks({'policy': 'fixed'}, {'cumulative_iters': 2}, custom_hooks_config=[looks])
        return runner

    runner = start('whole', SavesOnce('after_train_iter', after=3))
    runner.run([loader(20)], [('train', 1)])
    (path,) = (tmp_path / 'whole' / 'odd').glob('epoch_*.pth')
    state = torch.load(path)
    (own,) = state['runnerkit']['ranks']
    for gone, factor in ((0, 1.0), (1, 2.0)):
        others = [copy.deepcopy(own) for _ in range(gone)]
        for other in others:
            other['updates']['']['grads'] = [3 * each for each in own['updates']['']['grads']]
        state['runnerkit'].update(ranks=[own, *others], world_size=1 + gone)
        torch.save(state, tmp_path / 'changed.pth')
        looks = Looks()
        runner = start(f'resumed_{gone}', looks)
        runner.resume(str(tmp_path / 'changed.pth'))
        runner.run([loader(20)], [('train', 1)])
        expected = [factor * each for each in own['updates']['']['grads']]
        assert all(map(torch.equal, looks.grads, expected))


# --- saved at any point, by anybody ----------------------------------------------------------------------------------

POINTS_OF_SAVING = [
    'before_run',
    'before_train_epoch',
    'before_train_iter',
    'after_train_iter',
    'after_train_epoch',
    'after_val_iter',
    'after_val_epoch',
    'after_run',
]


class SavesOnce(Hook):
    """Saves at the first time that a point comes after some iterations, and may stop the run there."""

    def __init__(self, point, after, stop=False):
        self.path, self.after, self.stop = None, after, stop
        setattr(self, point, self.save)

    def save(self, runner):
        if runner.completed_iters >= self.after and self.path is None:
            self.path = runner.save_checkpoint(f'{runner.work_dir}/odd')
            if self.stop:
                runner.stop('saved')


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@thinned(own_loader=[False, True], point=POINTS_OF_SAVING)
def test_a_checkpoint_from_any_point_goes_on_exactly(kind, point, own_loader, tmp_path):
    if kind == 'iter' and point in ('before_train_epoch', 'after_train_epoch', 'after_val_epoch'):
        pytest.skip('the iteration runner has no such point')
    if own_loader and point == 'before_train_iter':
        pytest.skip("the waiting batch was made from the run's own generators, which have moved on")

    def start(folder, seed=0):
        runner = tiny_runner(kind, work_dir=tmp_path / folder, seed=seed, max_iters=12)
        runner.register_training_hooks({'policy': 'fixed'}, {'cumulative_iters': 2}, custom_hooks_config=[Draws()])
        return runner

    def go(runner):
        if own_loader:
            generator = torch.Generator().manual_seed(3)
            train = DataLoader(Noisy(20), batch_size=4, shuffle=True, generator=generator)
        else:
            train = loader(20)
        runner.run([train, loader(8)], [('train', 2), ('val', 1)])
        return weights(runner.model), runner.model.losses

    whole = go(start('whole'))
    saver = SavesOnce(point, after=0 if point == 'before_run' else 4)
    runner = start('part')
    runner.register_hook(saver, 'LOWEST')
    if point == 'after_run':

        class Stop(Hook):
            def after_train_iter(self, runner):
                if runner.iter == 6:
                    runner.stop('here')

        runner.register_hook(Stop())
    go(runner)
    assert saver.path is not None
    resumed = start('resumed', seed=9)
    resumed.resume(saver.path)
    part = go(resumed)
    assert part[1] == whole[1][len(whole[1]) - len(part[1]) :]
    assert torch.equal(part[0], whole[0])


def test_a_resumed_run_saved_before_it_enters_its_epoch_is_not_moved(tmp_path):
    def start(seed, *hooks):
        runner = tiny_runner(work_dir=tmp_path, seed=seed, max_iters=12)
        runner.register_training_hooks({'policy': 'fixed'}, {}, {'interval': 1, 'by_epoch': False})
        for hook in hooks:
            runner.register_hook(hook)
        return runner

    whole = start(0)
    whole.run([loader(20)], [('train', 1)])
    saver = SavesOnce('before_train_epoch', after=0)
    between = start(7, saver)
    between.resume(str(tmp_path / 'iter_7.pth'))
    between.run([loader(20)], [('train', 1)])
    resumed = start(8)
    resumed.resume(saver.path)
    resumed.run([loader(20)], [('train', 1)])
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_another_number_of_batches_does_not_cut_epochs(tmp_path):
    """Resumed with a loader of another length, epochs are still whole: nothing counts on the old one's."""
    ends = []

    class Ends(Hook):
        def after_train_epoch(self, runner):
            ends.append((runner.epoch, runner.inner_iter + 1))

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_checkpoint_hook({'interval': 1})
    runner.run([loader(16)], [('train', 1)])
    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.register_hook(Ends())
    runner.resume(str(tmp_path / 'epoch_1.pth'))
    runner.run([loader(12)], [('train', 1)])
    assert ends == [(1, 3), (2, 3), (3, 3)]


def test_an_update_by_the_optimizer_itself_is_saved_under_its_name(tmp_path):
    runner = tiny_runner(optimizer=two_optimizers, max_epochs=1)
    runner.configure_update(cumulative_iters=2)
    runner.update(runner.model(torch.rand(8, 4)).sum(), runner.optimizer['body'])
    path = runner.save_checkpoint(str(tmp_path))
    assert torch.load(path)['runnerkit']['ranks'][0]['updates']['body']['accumulated'] == 1
    resumed = tiny_runner(optimizer=two_optimizers, max_epochs=1, seed=3)
    resumed.configure_update(cumulative_iters=2)
    resumed.resume(path)
    resumed.snapshots.restore()
    before = resumed.model.body[0].weight.clone()
    resumed._iter = 1
    resumed.update(resumed.model(torch.rand(8, 4)).sum(), resumed.optimizer['body'])
    assert not torch.equal(before, resumed.model.body[0].weight)


def test_what_cannot_be_loaded_is_refused_when_it_is_saved(tmp_path):
    class Extra(Tiny):
        def get_extra_state(self):
            return {'what': object()}

        def set_extra_state(self, state): ...

    with pytest.raises(TypeError, match='which a checkpoint cannot hold'):
        tiny_runner(model=Extra(), max_epochs=1).save_checkpoint(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_modules_that_rename_old_keys_see_them(tmp_path):
    class Renamed(Tiny):
        def _load_from_state_dict(self, state, prefix, *args):
            if 'old.weight' in state:
                state['head.weight'], state['head.bias'] = state.pop('old.weight'), state.pop('old.bias')
            super()._load_from_state_dict(state, prefix, *args)

    runner = tiny_runner(max_epochs=1)
    state = {name.replace('head.', 'old.'): value for name, value in runner.model.state_dict().items()}
    torch.save({'meta': {'epoch': 0, 'iter': 0}, 'state_dict': state}, tmp_path / 'old.pth')
    other = tiny_runner(model=Renamed(), max_epochs=1)
    other.resume(str(tmp_path / 'old.pth'))
    assert torch.equal(weights(other.model), weights(runner.model))


class Stateful:
    """A loader that keeps its own place, as torchdata's does, and cannot be asked for an epoch's beginning."""

    def __init__(self):
        self.batches = [(torch.full((4, 4), float(i)), torch.ones(4, 1)) for i in range(5)]
        self.at = 0
        self.given = []

    def __len__(self):
        return 5

    def __iter__(self):
        while self.at < 5:
            self.at += 1
            self.given.append(self.at - 1)
            yield self.batches[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_loaders_with_a_state_of_their_own_are_asked(kind, tmp_path):
    runner = tiny_runner(kind, work_dir=tmp_path, max_iters=3)
    runner.register_checkpoint_hook({'interval': 3, 'by_epoch': False})
    runner.run([Stateful()], [('train', 1)])
    resumed = tiny_runner(kind, work_dir=tmp_path, max_iters=7)
    resumed.resume(str(tmp_path / 'iter_3.pth'))
    given = Stateful()
    resumed.run([given], [('train', 1)])
    assert given.given == [3, 4, 0, 1]


def test_scores_are_remembered_by_a_resumed_run_and_by_one_that_went_back(tmp_path):
    class Looks(Hook):
        def __init__(self):
            self.seen = []

        def before_train_epoch(self, runner):
            self.seen.append(dict(runner.scores))

        def after_train_epoch(self, runner):
            if runner.epoch == 1 and len(self.seen) == 2:
                assert runner.scores != self.seen[1]
                runner.roll_back(str(tmp_path / 'epoch_1.pth'))

    def start(**options):
        runner = tiny_runner(work_dir=tmp_path, max_epochs=2, **options)
        looks = Looks()
        for hook, priority in ((EvalHook(loader(6)), 'LOW'), (CheckpointHook(1), 'NORMAL'), (looks, 'LOWEST')):
            runner.register_hook(hook, priority)
        return runner, looks

    runner, looks = start()
    runner.run([loader(8)], [('train', 1)])
    assert looks.seen == [{}, {'loss': Score(looks.seen[1]['loss'].value, 2)}, looks.seen[1]]
    resumed, found = start(seed=5)
    resumed.resume(str(tmp_path / 'epoch_1.pth'))
    resumed.run([loader(8)], [('train', 1)])
    assert found.seen == looks.seen[1:2]
    assert resumed.scores == runner.scores


# --- runners with loops of their own, as downstream projects have them -----------------------------------------------


def downstream_epoch_runner():
    from runnerkit.runner import EpochBasedRunner

    class Video(EpochBasedRunner):
        def train(self, data_loader, **kwargs):
            self.model.train()
            self.mode = 'train'
            self.data_loader = data_loader
            self._max_iters = self._max_epochs * len(self.data_loader)
            self.call_hook('before_train_epoch')
            for i, data_batch in enumerate(self.data_loader):
                self.data_batch = data_batch
                self._inner_iter = i
                self.call_hook('before_train_iter')
                self.run_iter(data_batch, train_mode=True, **kwargs)
                self.call_hook('after_train_iter')
                del self.data_batch
                self._iter += 1
            self.call_hook('after_train_epoch')
            self._epoch += 1

    return Video


def test_an_epoch_loop_of_ones_own_counts_shuffles_saves_and_resumes(tmp_path):
    def start(folder, seed=0):
        model = tiny_runner(seed=seed).model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = downstream_epoch_runner()(model, optimizer=optimizer, work_dir=str(tmp_path / folder), max_epochs=3)
        runner.register_training_hooks({'policy': 'step', 'step': [2]}, {}, {'interval': 1})
        runner.register_hook(EvalHook(loader(6)), 'LOW')
        return runner

    whole = start('whole')
    whole.run([loader(20)], [('train', 1)])
    assert [torch.load(tmp_path / 'whole' / f'epoch_{n}.pth')['meta']['epoch'] for n in (1, 2, 3)] == [1, 2, 3]
    plain = tiny_runner(max_epochs=3, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    plain.register_training_hooks({'policy': 'step', 'step': [2]}, {})
    plain.run([loader(20)], [('train', 1)])
    assert torch.equal(weights(whole.model), weights(plain.model))
    resumed = start('resumed', seed=5)
    resumed.resume(str(tmp_path / 'whole' / 'epoch_1.pth'))
    resumed.run([loader(20)], [('train', 1)])
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_an_iteration_run_of_ones_own_restores_what_was_resumed(tmp_path):
    from runnerkit.runner import IterBasedRunner, IterLoader

    class Dynamic(IterBasedRunner):
        def run(self, data_loaders, workflow, max_iters=None, **kwargs):
            iter_loaders = [IterLoader(each) for each in data_loaders]
            self.call_hook('before_run')
            self.call_hook('before_epoch')
            while self.iter < self._max_iters:
                for i, (mode, n) in enumerate(workflow):
                    self._inner_iter = 0
                    for _ in range(n):
                        if mode == 'train' and self.iter >= self._max_iters:
                            break
                        getattr(self, mode)(iter_loaders[i], **kwargs)
            self.call_hook('after_epoch')
            self.call_hook('after_run')

    def start(folder, seed=0):
        model = tiny_runner(seed=seed).model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = Dynamic(model, optimizer=optimizer, work_dir=str(tmp_path / folder), max_iters=9)
        runner.register_training_hooks({'policy': 'fixed'}, {}, {'interval': 1})
        return runner

    whole = start('whole')
    whole.run([loader(20)], [('train', 1)])
    resumed = start('resumed', seed=5)
    resumed.resume(str(tmp_path / 'whole' / 'iter_3.pth'))
    resumed.run([loader(20)], [('train', 1)])
    assert torch.equal(weights(resumed.model), weights(whole.model))
    start('val').run([loader(20), loader(8)], [('train', 2), ('val', 1)])


def test_a_folder_stands_for_its_latest_checkpoint_and_the_best_one_moves_along(tmp_path):
    """Not for its best one, whose weights `load_checkpoint` takes."""
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=2)
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader()], [('train', 1)])
    (tmp_path / 'run' / 'epoch_1.pth').rename(tmp_path / 'run' / 'best_loss_epoch_1.pth')
    checkpoint = torch.load(tmp_path / 'run' / 'epoch_2.pth')
    gone = {'best_ckpt': '/gone/best_loss_epoch_1.pth', 'last_ckpt': '/gone/epoch_7.pth'}
    checkpoint['meta']['hook_msgs'] = gone
    torch.save(checkpoint, tmp_path / 'run' / 'epoch_2.pth')
    resumed = tiny_runner(work_dir=tmp_path / 'other', max_epochs=3)
    resumed.resume(tmp_path / 'run')
    assert resumed.epoch == 2
    best = str(tmp_path / 'run' / 'best_loss_epoch_1.pth')
    assert resumed.meta['hook_msgs'] == {'best_ckpt': best}


@pytest.mark.parametrize('named, stays', [
    ('{}/old/best.pth', False),
    ('{}/kept/best.pth', True),  # where this run saves
    ('{}/new/best.pth', True),
    ('file://{}/new/best.pth', True),
    ('{}/new/../precious.pth', False),
    ('{}/new/..', False),
    ('{}/new/', False),
    ('{}/new/\0', False),
    ('/dev/zero', False),
    ('file://{}/precious.pth', False),
    ('http://127.0.0.1:9/best.pth', False),
    ('tcp://127.0.0.1:9', False),
    ('memory://{}/new/best.pth', False),
    (3, False),
])  # fmt: skip
def test_a_checkpoint_names_no_path_elsewhere(named, stays, tmp_path):
    """Hooks open, upload and return to what it names, and the file may be anybody's."""
    runner = tiny_runner(work_dir=tmp_path / 'kept')
    runner.register_hook(CheckpointHook(interval=1))
    named = named.format(tmp_path) if isinstance(named, str) else named
    messages = {'best_score': 0.5, 'last_ckpt': named}
    (tmp_path / 'new').mkdir()
    runner.resume(mmcv_file(tmp_path / 'new', runner, epoch=1, iter=5, hook_msgs=messages))
    assert runner.meta['hook_msgs'] == ({**messages} if stays else {'best_score': 0.5})


def test_what_lies_beside_takes_the_place_of_a_path_elsewhere(tmp_path):
    messages = {'best_ckpt': 's3://bucket/run/best.pth', 'last_ckpt': 's3://bucket/run/last.pth'}
    (tmp_path / 'last.pth').touch()
    assert own_messages(messages, str(tmp_path / 'epoch_1.pth'), []) == {'last_ckpt': str(tmp_path / 'last.pth')}
    assert own_messages(messages, 's3://bucket/run/epoch_1.pth', []) == messages


def test_a_best_checkpoint_below_an_out_dir_moves_along(tmp_path):
    """As with evaluation=dict(out_dir='best') in a project whose folder has moved."""
    place, best = tmp_path / 'best' / 'run', {'best_ckpt': '/before/best/run/best_acc_epoch_1.pth'}
    place.mkdir(parents=True)
    assert own_messages(best, str(tmp_path / 'epoch_1.pth'), ['s3://bucket/run', str(place)]) == {}
    (place / 'best_acc_epoch_1.pth').touch()
    found = own_messages(best, str(tmp_path / 'epoch_1.pth'), ['s3://bucket/run', str(place)])
    assert found == {'best_ckpt': str(place / 'best_acc_epoch_1.pth')}


def test_a_file_without_random_states_is_resumed_with_a_warning(tmp_path, caplog):
    model = Tiny()
    torch.save({'meta': {'epoch': 1, 'iter': 2}, 'state_dict': model.state_dict()}, tmp_path / 'a.pth')
    runner = tiny_runner(max_epochs=2)
    with caplog.at_level('WARNING', 'runnerkit'):
        runner.resume(str(tmp_path / 'a.pth'))
    assert 'a.pth holds no random states' in caplog.text
    assert torch.equal(weights(runner.model), weights(model))
