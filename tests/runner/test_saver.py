"""How a runner saves: together with all ranks, and in the background."""

import gc
import os
import shutil
import signal
import threading
import time
import weakref
from contextlib import contextmanager

import pytest
import torch
from forks import Fork
from support import Noisy, Tiny, loader, thinned, tiny_runner, weights

from runnerkit.checkpoint import NotSavedError, Store, find_latest_checkpoint, save_checkpoint, why_damaged
from runnerkit.checkpoint.async_writer import AsyncWriter
from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook
from runnerkit.runner import EpochBasedRunner
from runnerkit.runner.saver import Saver


@pytest.fixture
def slow(monkeypatch):
    """Writing takes a while, before the file and after it; where it happens is noted."""
    threads, write = [], Store.write

    def write_slowly(*args):
        threads.append(threading.current_thread())
        time.sleep(0.02)
        write(*args)
        time.sleep(0.02)

    monkeypatch.setattr(Store, 'write', write_slowly)
    return threads


@pytest.fixture
def full(monkeypatch):
    """The disk is full for those saves whose numbers, from 0, are put into the list that this gives."""
    bad, count, write = [], [], Store.write

    def write_if_there_is_room(*args):
        count.append(1)
        if len(count) - 1 in bad:
            raise NotSavedError(28, 'No space left on device', 'disk')
        write(*args)

    monkeypatch.setattr(Store, 'write', write_if_there_is_room)
    return bad


class Hears(Hook):
    """Notes when it hears of a checkpoint, in which thread, and whether the file is there."""

    def __init__(self):
        self.heard = []

    def after_save(self, runner):
        there = os.path.isfile(runner.meta['hook_msgs']['last_ckpt'])
        self.heard.append((runner.iter, there, threading.current_thread() is threading.main_thread()))


def two_optimizers(model):
    return {
        'body': torch.optim.Adam(model.body.parameters(), lr=0.01),
        'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9),
    }


def build(work_dir, hook, kind='epoch', hooks=(), update=None, optimizer=None, iters=12, seed=0):
    runner = tiny_runner(kind, work_dir=work_dir, seed=seed, optimizer=optimizer, max_iters=iters)
    runner.register_training_hooks(
        {'policy': 'fixed'}, update or {}, timer_config=None, custom_hooks_config=list(hooks)
    )
    runner.register_hook(hook)
    return runner


def asynchronous(interval=3, **options):
    return CheckpointHook(interval=interval, by_epoch=False, async_save=True, **options)


def go(runner):
    runner.run([loader(20)], [('train', 1)])
    return runner


def assert_equal(left, right, where=''):
    assert type(left) is type(right), where
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert list(left) == list(right), where
        for key in left:
            if key not in ('time', 'data_time', 'last_ckpt', 'async_save'):  # clocks, folders, and how it was saved
                assert_equal(left[key], right[key], f'{where}.{key}')
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for i, (a, b) in enumerate(zip(left, right)):
            assert_equal(a, b, f'{where}[{i}]')
    else:
        assert left == right, where


CELLS = {
    'plain': {},
    'averages': {'hooks': lambda: [EMAHook(momentum=0.1, warm_up=1)]},
    'two optimizers': {'optimizer': two_optimizers},
    'accumulation': {'update': {'cumulative_iters': 3}},
    'fp16': {'update': {'amp': 'fp16'}},
}


@thinned(name=CELLS, kind=['epoch', 'iter'])
def test_the_files_are_those_of_a_synchronous_run(kind, name, tmp_path, slow):
    """All that they hold, although training goes on while they are written; and runs go on from them exactly."""
    cell = {**CELLS[name], 'kind': kind}
    make = cell.pop('hooks', list)
    whole = go(build(tmp_path / 'sync', CheckpointHook(interval=2, by_epoch=False), hooks=make(), **cell))
    assert {thread is threading.main_thread() for thread in slow} == {True}
    slow.clear()
    beside = go(build(tmp_path / 'async', asynchronous(2), hooks=make(), **cell))
    assert {thread is threading.main_thread() for thread in slow} == {False}
    assert torch.equal(weights(whole.model), weights(beside.model))
    for done in range(2, 13, 2):
        files = [torch.load(tmp_path / folder / f'iter_{done}.pth') for folder in ('sync', 'async')]
        assert_equal(*files)
    resumed = build(tmp_path / 'resumed', asynchronous(2), hooks=make(), seed=9, **cell)
    resumed.resume(str(tmp_path / 'async' / 'iter_6.pth'))
    assert torch.equal(weights(go(resumed).model), weights(whole.model))


def test_training_goes_on_meanwhile(tmp_path, monkeypatch):
    """The file is written only when training is two iterations further, and holds what was."""
    further, write = threading.Event(), Store.write

    def write_later(*args):
        assert further.wait(20)
        write(*args)

    class Goes(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 5:
                further.set()

    monkeypatch.setattr(Store, 'write', write_later)
    hears = Hears()
    go(build(tmp_path, asynchronous(4, save_last=False), hooks=[Goes(), hears], iters=7))
    assert torch.load(tmp_path / 'iter_4.pth')['meta']['iter'] == 4
    assert hears.heard[0][0] >= 6


def test_hooks_hear_of_a_file_that_is_there(tmp_path, slow):
    hears = Hears()
    go(build(tmp_path, asynchronous(2), hooks=[hears], iters=8))
    assert [(there, main) for _, there, main in hears.heard] == [(True, True)] * 4
    assert [(4, 6, 8).count(iteration + 1) for iteration, *_ in hears.heard]
    assert hears.heard[-1][0] == 8  # the last one when the run ends


def test_old_ones_are_deleted_when_the_new_one_is_there(tmp_path, slow):
    seen = []

    class Looks(Hook):
        def before_train_iter(self, runner):
            names = sorted(path.name for path in tmp_path.glob('iter_*.pth'))
            seen.append(len(names))
            if (tmp_path / 'latest.pth').is_symlink():
                assert (tmp_path / 'latest.pth').resolve().is_file()

        def after_train_iter(self, runner):
            time.sleep(0.01)

    go(build(tmp_path, asynchronous(2, max_keep_ckpts=2), hooks=[Looks()], iters=14))
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['iter_12.pth', 'iter_14.pth', 'latest.pth']
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_14.pth'
    assert max(seen) <= 3
    assert min(seen[7:]) >= 2


def test_the_best_one_and_the_regular_ones(tmp_path, slow):
    evaluation = EvalHook(loader(8), interval=2, by_epoch=False, save_best='loss')
    runner = go(build(tmp_path, asynchronous(2, max_keep_ckpts=1), hooks=[evaluation], iters=10))
    messages = runner.meta['hook_msgs']
    assert messages['last_ckpt'] == str(tmp_path / 'iter_10.pth')
    names = sorted(path.name for path in tmp_path.glob('*.pth'))
    assert names == sorted([os.path.basename(messages['best_ckpt']), 'iter_10.pth', 'latest.pth'])
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_10.pth'
    assert all(why_damaged(path) is None for path in tmp_path.glob('*.pth'))


def test_by_epoch(tmp_path, slow):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=3)
    runner.register_hook(CheckpointHook(interval=1, async_save=True, max_keep_ckpts=2))
    go(runner)
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['epoch_2.pth', 'epoch_3.pth', 'latest.pth']


@pytest.mark.parametrize('how', ['stop', 'error'])
def test_the_end_waits_for_the_file(how, tmp_path, slow):
    class Ends(Hook):
        def before_train_iter(self, runner):
            if runner.iter == 4 and how == 'error':
                raise RuntimeError('broken')

        def after_train_iter(self, runner):
            if runner.iter == 4:
                runner.stop('enough')

    runner = build(tmp_path, asynchronous(4), hooks=[Ends()])
    if how == 'error':
        with pytest.raises(RuntimeError, match='broken'):
            go(runner)
    else:
        go(runner)
        assert (tmp_path / 'iter_5.pth').is_file()
    assert why_damaged(tmp_path / 'iter_4.pth') is None


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_training_goes_on(tmp_path, full, caplog):
    full += [1]
    hears = Hears()
    runner = go(build(tmp_path, asynchronous(3), hooks=[hears]))
    assert sorted(path.name for path in tmp_path.glob('iter*')) == ['iter_12.pth', 'iter_3.pth', 'iter_9.pth']
    assert 'iter_6.pth could not be saved: No space left on device' in caplog.text
    assert len(hears.heard) == 3
    assert runner.meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'iter_12.pth')
    assert torch.load(tmp_path / 'iter_12.pth')['runnerkit']['ranks'][0]['hooks']['CheckpointHook#0'] == {
        'missed': [6],
        'stops': [],
    }


def test_a_run_whose_last_checkpoint_is_missing_fails(tmp_path, full):
    full += [3]
    runner = build(tmp_path, asynchronous(3))
    with pytest.raises(NotSavedError, match='the run is over, but its last checkpoint is missing'):
        go(runner)
    assert runner.meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'iter_9.pth')


def test_a_run_may_stop_there(tmp_path, full):
    full += [1]
    runner = build(tmp_path, asynchronous(3, on_error='stop'))
    with pytest.raises(NotSavedError, match='iter_6.pth could not be saved'):
        go(runner)
    assert 6 <= runner.iter <= 9
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_3.pth'


@pytest.fixture
def late(monkeypatch):
    """A run hears of what was written beside it only when it saves again."""
    monkeypatch.setattr(Saver, 'poll', lambda saver, runner: None)


def test_its_error_is_not_taken_for_that_of_another_hook(tmp_path, full, late):
    full.append(0)
    runner = build(tmp_path, asynchronous(2, on_error='stop', filename_tmpl='beside_{}.pth'), 'iter')
    runner.register_hook(CheckpointHook(interval=2, by_epoch=False, filename_tmpl='at_once_{}.pth'))
    with pytest.raises(NotSavedError, match='beside_2.pth could not be saved: No space'):
        go(runner)
    assert runner.completed_iters == 2
    assert runner.outcome.kind == 'failed'


def test_its_error_is_not_taken_for_that_of_the_best_one(tmp_path, full, late):
    full.append(0)
    best = EvalHook(loader(8, shuffle=False), interval=3, by_epoch=False, save_best='loss')
    runner = build(tmp_path, asynchronous(2, on_error='stop'), 'iter', hooks=[best])
    with pytest.raises(NotSavedError, match='iter_2.pth could not be saved: No space'):
        go(runner)
    assert runner.completed_iters == 3


def test_thread_and_memory_go_with_the_run(tmp_path):
    before = set(threading.enumerate())
    runner = build(tmp_path, asynchronous(), 'iter')
    go(runner)
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith('checkpoint')]
    for thread in left:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in left)


def test_another_error_ends_the_run_at_the_next_iteration(tmp_path, monkeypatch):
    def fail(*args):
        raise TypeError('a bug')

    class Waits(Hook):
        def after_iter(self, runner):
            time.sleep(0.01)

    monkeypatch.setattr(Store, 'write', fail)
    runner = build(tmp_path, asynchronous(9), hooks=[Waits()], iters=20)
    runner.register_hook(hears := Hears())
    with pytest.raises(TypeError, match='a bug'):
        go(runner)
    assert 9 <= runner.iter < 17  # before the next save
    assert not hears.heard


def test_without_the_hook(tmp_path, slow):
    """Anybody may save beside the training; what goes wrong is raised where the end is heard of."""
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    written = []
    path = runner.save(async_save=True, after_write=lambda: written.append(threading.current_thread()))
    runner.finish_saving()
    assert os.path.isfile(path)
    assert written == slow
    runner.save(async_save=True, after_write=lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.finish_saving()
    runner.finish_saving()
    runner.save_checkpoint(str(tmp_path))
    assert slow[-1] is threading.main_thread()


def test_a_save_at_once_waits_for_the_one_in_flight(tmp_path):
    order = []

    def last():
        time.sleep(0.1)
        order.append('beside')

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.save(tmp_path, 'iter_1.pth', async_save=True, after_write=last)
    runner.save_checkpoint(str(tmp_path), filename_tmpl='iter_2.pth')
    order.append('at once')
    assert order == ['beside', 'at once']
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_2.pth'


# --- together --------------------------------------------------------------------------------------------------------


def test_a_place_and_a_name_of_its_own(tmp_path):
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=1)
    assert runner.save() == str(tmp_path / 'run' / 'epoch_1.pth')
    path = runner.save(tmp_path / 'own', 'x.pth', save_optimizer=False, meta={'more': 1}, create_symlink=False)
    assert [each.name for each in (tmp_path / 'own').iterdir()] == ['x.pth']
    saved = torch.load(path)
    assert 'optimizer' not in saved
    assert saved['meta']['more'] == 1
    with pytest.raises(ValueError, match='nowhere to save to: give save an out_dir, or the runner a work_dir'):
        tiny_runner(max_epochs=1).save()


@pytest.mark.parametrize('async_save', [False, True])
def test_messages_are_in_the_file_and_taken_back_without_it(tmp_path, full, async_save):
    full.append(1)
    runner, told = tiny_runner(work_dir=tmp_path, max_epochs=1), []
    runner.meta['hook_msgs'] = {'a': 1}

    def save(**messages):
        path = runner.save(
            filename_tmpl=f'{len(told)}.pth', messages=messages, async_save=async_save, on_error=told.append
        )
        runner.finish_saving()
        return path

    assert torch.load(save(a=2, b=2))['meta']['hook_msgs'] == {'a': 2, 'b': 2}
    assert (save(b=3, c=3) is None) != async_save
    assert [type(each) for each in told] == [NotSavedError]
    assert runner.meta['hook_msgs'] == {'a': 2, 'b': 2}


def test_without_anybody_to_tell_it_raises(tmp_path, full):
    full.append(0)
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    with pytest.raises(NotSavedError, match='No space left'):
        runner.save(messages={'a': 1})
    assert runner.meta['hook_msgs'] == {}


def test_messages_are_taken_back_after_any_error(tmp_path):
    class Refuses(Hook):
        @contextmanager
        def around_save(self, runner):
            raise ArithmeticError
            yield

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.meta['hook_msgs'] = {'a': 1}
    runner.register_hook(Refuses())
    with pytest.raises(ArithmeticError):
        runner.save(messages={'a': 2, 'b': 2})
    assert runner.meta['hook_msgs'] == {'a': 1}


class OfMmcvsTime(EpochBasedRunner):
    """Writes its checkpoints itself, as runners of projects of that time do: other arguments, and nothing returned."""

    def save_checkpoint(
        self, out_dir, filename_tmpl='epoch_{}.pth', save_optimizer=True, meta=None, create_symlink=True
    ):
        path = os.path.join(out_dir, filename_tmpl.format(self.epoch + 1, epoch=0, iter=self.iter + 1))
        meta = {**(meta or {}), **self.meta, 'epoch': self.epoch + 1, 'iter': self.iter}
        save_checkpoint(self.model, path, optimizer=self.optimizer if save_optimizer else None, meta=meta)


class OfOurs(EpochBasedRunner):
    """Adds to what is saved, in MMCV's signature."""

    def save_checkpoint(
        self, out_dir, filename_tmpl='epoch_{}.pth', save_optimizer=True, meta=None, create_symlink=True
    ):
        meta = {**(meta or {}), 'own': True}
        return super().save_checkpoint(out_dir, filename_tmpl, save_optimizer, meta, create_symlink)


@pytest.mark.parametrize('async_save', [False, True])
@pytest.mark.parametrize('kind', [OfMmcvsTime, OfOurs])
def test_hooks_go_through_a_save_checkpoint_of_a_subclass(tmp_path, kind, async_save):
    model = Tiny()
    runner = kind(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), work_dir=str(tmp_path), max_epochs=4)
    hears = Hears()
    runner.register_hook(hears)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=2, async_save=async_save))
    runner.register_hook(EvalHook(loader(8), save_best='loss', start=4))
    runner.run([loader(8)], [('train', 1)])
    assert sorted(path.name for path in tmp_path.glob('epoch*')) == ['epoch_3.pth', 'epoch_4.pth']
    assert (tmp_path / 'best_loss_epoch_4.pth').is_file()
    assert len(hears.heard) == 5
    assert all(there for _, there, _ in hears.heard[:3])
    meta = torch.load(tmp_path / 'epoch_4.pth')['meta']
    assert meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'epoch_4.pth')
    assert ('own' in meta) == (kind is OfOurs)
    assert runner.save(filename_tmpl='own.pth') == str(tmp_path / 'own.pth')


class WritesTwice(EpochBasedRunner):
    """Writes each of its checkpoints to a second folder, too."""

    def save_checkpoint(self, out_dir, *args, meta=None, create_symlink=True, **kwargs):
        path = super().save_checkpoint(out_dir, *args, meta=meta, create_symlink=create_symlink, **kwargs)
        super().save_checkpoint(f'{out_dir}/more', *args, meta={'is_copy': True}, create_symlink=False, **kwargs)
        return path


@pytest.mark.parametrize('async_save', [False, True])
def test_a_subclass_may_write_a_checkpoint_twice(tmp_path, async_save, caplog):
    runner = tiny_runner(WritesTwice, work_dir=tmp_path, max_epochs=2)
    hears, written = Hears(), []
    runner.register_hook(hears)
    runner.register_hook(CheckpointHook(interval=1, async_save=async_save))
    runner.run([loader(8)], [('train', 1)])
    assert len(hears.heard) == 2
    assert 'save_checkpoint' not in caplog.text
    runner.save(async_save=async_save, after_write=lambda: written.append(runner.last_finite))
    runner.finish_saving()
    assert written == [str(tmp_path / 'epoch_2.pth')]
    files = [torch.load(tmp_path / folder / 'epoch_2.pth') for folder in ('.', 'more')]
    assert [file['meta'].pop('is_copy', False) for file in files] == [False, True]
    assert_equal(*files)
    assert not (tmp_path / 'more' / 'latest.pth').exists()


def test_the_last_one_that_is_whole(tmp_path, slow):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    assert runner.last_checkpoint() is None
    for name in ('iter_1.pth', 'iter_2.pth'):
        runner.save(tmp_path, name, messages={'last_ckpt': str(tmp_path / name)}, async_save=True)
    assert runner.last_checkpoint() == str(tmp_path / 'iter_2.pth')  # which had to be waited for
    (tmp_path / 'iter_2.pth').write_bytes(b'half')
    assert runner.last_checkpoint() == str(tmp_path / 'iter_1.pth')


def save_on_a_rank(rank, folder):
    """Together in a hook, where the first disk is full, and alone on the first rank, of which nobody else knows."""

    class Saves(Hook):
        def after_train_iter(self, runner):
            self.path = runner.save(messages={'last_ckpt': 'x'})
            if runner.rank == 0:
                runner.save_checkpoint(runner.work_dir, filename_tmpl='alone.pth')

    runner, saves = tiny_runner(work_dir=folder, max_iters=1, seed=rank), Saves()
    runner.register_hook(saves)
    runner.run([loader(4)], [('train', 1)])
    write = Store.write

    def refuse(*args):
        raise NotSavedError(28, 'No space left on device', 'disk')

    Store.write = refuse
    with pytest.raises(NotSavedError, match='No space left') as caught:
        runner.save()
    Store.write = write
    return (saves.path, str(caught.value), runner.meta['hook_msgs']), go_back_to_a_slow_one(folder)


def go_back_to_a_slow_one(folder):
    """Go back to a file that the first rank is still writing, and let the second one save alone in the background."""
    write, heard = Store.write, []

    class Saves(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 0:
                self.path = runner.save(filename_tmpl='slow.pth', async_save=True, caller=self)
            if runner.iter == 1 and Store.write is write_slowly:
                Store.write = write
                runner.roll_back(self.path)
            if runner.iter == 2 and runner.rank == 1:
                runner.save(filename_tmpl='of_second.pth', alone=True, async_save=True, caller=self)

        def after_save(self, runner):
            heard.append(runner.iter)

    def write_slowly(*args):
        time.sleep(0.2)
        write(*args)

    Store.write = write_slowly
    runner = tiny_runner('iter', work_dir=folder, max_iters=4)
    runner.register_hook(Saves())
    runner.run([loader(4)], [('train', 1)])
    return runner.outcome.kind, len(heard)


def test_all_ranks_save_and_one_may_do_so_alone(on_ranks, tmp_path):
    (first, gone_back), (second, also) = on_ranks(__file__, 'save_on_a_rank', str(tmp_path))
    assert first == second
    assert (gone_back, also) == (('completed', 1), ('completed', 1))
    assert first[0] == str(tmp_path / 'epoch_1.pth')
    together, alone = (torch.load(tmp_path / name)['runnerkit'] for name in ('epoch_1.pth', 'alone.pth'))
    assert len(together['ranks']) == together['world_size'] == 2
    generators = [each['rng']['torch'] for each in together['ranks']]
    assert not torch.equal(*generators)
    assert (len(alone['ranks']), alone['world_size']) == (1, 2)


def test_an_interrupted_wait_leaves_the_save_in_flight(tmp_path, monkeypatch):
    """A second Ctrl-C: the end of the run still takes back the messages of a file that is not there."""
    runner, write = tiny_runner(work_dir=tmp_path), Store.write

    def fail(*args):
        raise NotSavedError(28, 'No space left on device', 'disk')

    def interrupt(writer):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, 'write', fail)
    runner.save(messages={'last_ckpt': 'x'}, async_save=True)
    with monkeypatch.context() as patch:
        patch.setattr(AsyncWriter, 'wait', interrupt)
        with pytest.raises(KeyboardInterrupt):
            runner.finish_saving()
    with pytest.raises(NotSavedError):
        runner.finish_saving()
    assert 'last_ckpt' not in runner.meta['hook_msgs']
    monkeypatch.setattr(Store, 'write', write)
    assert os.path.isfile(runner.save())


class At(Hook):
    """Does something once, before or after an iteration."""

    def __init__(self, point, number, what):
        self.number = number
        setattr(self, point, lambda runner: self.count(runner, what))

    def count(self, runner, what):
        self.number -= 1
        if self.number == 0:
            what(runner)


def test_after_an_interrupted_end_the_next_run_reports_the_file(tmp_path, monkeypatch, slow):
    """Ctrl-C twice, in a notebook."""

    def interrupt(*args):
        raise KeyboardInterrupt

    def interrupt_twice(runner):
        patch.setattr(AsyncWriter, 'wait', interrupt)
        raise KeyboardInterrupt

    hook, hears = asynchronous(interval=6, save_last=False), Hears()
    runner = build(tmp_path, hook, hooks=[At('before_train_iter', 7, interrupt_twice), hears])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        go(runner)
    hook.async_save = False
    go(runner)
    assert len(hears.heard) == 2
    assert all(is_there for _, is_there, _ in hears.heard)
    assert sorted(each.name for each in tmp_path.glob('*.pth')) == ['iter_12.pth', 'iter_6.pth', 'latest.pth']
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_12.pth'


def test_a_runner_that_goes_logs_the_error_of_its_last_save(tmp_path, full, caplog):
    full.append(0)
    runner = tiny_runner(work_dir=tmp_path)
    runner.save(async_save=True)
    thread, model = runner.snapshots.saver._writer._thread, weakref.ref(runner.model)
    thread.shutdown()  # the write is over
    del runner
    gc.collect()
    assert model() is None
    assert caplog.text.count('a checkpoint could not be written in the background: [Errno 28] No space left') == 1


@pytest.mark.parametrize('async_save', [False, True])
def test_a_folder_that_is_gone_is_told_after_a_save_that_failed(async_save, tmp_path, full, caplog):
    full.append(1)
    hook = CheckpointHook(interval=3, by_epoch=False, async_save=async_save)
    go(build(tmp_path / 'run', hook, hooks=[At('after_train_iter', 8, lambda runner: shutil.rmtree(tmp_path / 'run'))]))
    assert caplog.text.count('is gone, with the checkpoints in it; it is created again') == 1


@pytest.mark.parametrize('async_save', [False, True])
def test_a_save_that_fails_where_the_run_is_stopped_is_tried_again(async_save, tmp_path, full):
    full.append(1)
    hook = CheckpointHook(interval=3, by_epoch=False, async_save=async_save)
    runner = go(build(tmp_path, hook, hooks=[At('after_train_iter', 6, lambda runner: runner.stop('enough'))]))
    assert runner.outcome.kind == 'stopped'
    assert torch.load(tmp_path / 'iter_6.pth')['meta']['iter'] == 6
    assert (tmp_path / 'latest.pth').resolve().name == 'iter_6.pth'


@pytest.mark.parametrize('async_save', [False, True])
def test_a_loss_before_a_save_that_fails_counts_in_the_next_one(async_save, tmp_path, full):
    class Breaks(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 1:
                runner.log_buffer.update({'loss_x': float('nan')})

    full.append(0)
    go(build(tmp_path, CheckpointHook(interval=3, by_epoch=False, async_save=async_save), hooks=[Breaks()]))
    found = [torch.load(tmp_path / f'iter_{n}.pth')['meta']['non_finite'] for n in (6, 9)]
    assert [list(each) for each in found] == [['loss'], []]


def test_of_saves_that_wait_each_one_is_told_that_is_not_made(tmp_path, full, caplog):
    class Asks(Hook):
        def before_train_iter(self, runner):
            for name in ('one.pth', 'two.pth') if runner.iter == 2 else ():
                runner.save(filename_tmpl=name)

    full.append(0)
    with pytest.raises(NotSavedError):
        go(build(tmp_path, Asks()))
    assert 'two.pth is not saved: the run failed before the end of the iteration' in caplog.text
    assert 'one.pth is not saved' not in caplog.text


# --- processes -------------------------------------------------------------------------------------------------------


def train_and_write_slowly(folder):
    write, dump = Store.write, torch.save

    def write_slowly(store, name, checkpoint, latest):
        def dump_slowly(what, file):
            dump(what, file)
            if name == 'iter_6.pth':
                print('writing', flush=True)
                while not (folder.parent / 'sent').exists():
                    time.sleep(0.01)

        torch.save = dump_slowly
        write(store, name, checkpoint, latest)

    class Waits(Hook):
        def after_train_iter(self, runner):
            time.sleep(0.05)

    Store.write = write_slowly
    print(go(build(folder, asynchronous(3), hooks=[Waits()], iters=2000)).outcome)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_it_is_written(number, tmp_path):
    process = Fork(train_and_write_slowly, tmp_path / 'run', folder=tmp_path)
    deadline = time.time() + 200
    while process.said('stdout') != 'writing\n':
        assert time.time() < deadline, process.said()
        time.sleep(0.005)
    process.send(number)
    (tmp_path / 'sent').touch()
    code, newest = process.code(), find_latest_checkpoint(tmp_path / 'run')
    if number == signal.SIGKILL:
        assert code == -number
        assert newest.name == 'iter_3.pth'
        assert not (tmp_path / 'run' / 'iter_6.pth').exists()
    else:
        assert code == 0
        assert 'SIGTERM' in process.said('stdout')
        assert why_damaged(tmp_path / 'run' / 'iter_6.pth') is None
        assert torch.load(newest)['meta']['iter'] >= 6  # it may come before the next iteration
        assert not list((tmp_path / 'run').glob('.*.tmp'))


def _train(rank, folder, resume, hook):
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(Tiny())
    runner = tiny_runner('iter', model=Steps(model), work_dir=folder, max_iters=8, seed=rank)
    runner.register_training_hooks({'policy': 'fixed'}, {}, timer_config=None)
    runner.register_hook(hook)
    if resume:
        runner.resume(resume)
    data = build_dataloader(Noisy(24), 4, 0, seed=5, dist=True)
    runner.run([data], [('train', 1)])
    return weights(runner.model)


class Steps(torch.nn.Module):
    """A model inside DDP."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def train_step(self, data, optimizer, **kwargs):
        loss = torch.nn.functional.mse_loss(self.inner(data[0]), data[1])
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}


def train_on_a_rank(rank, folder):
    whole = _train(rank, f'{folder}/sync', None, CheckpointHook(interval=2, by_epoch=False))
    write = Store.write

    def write_slowly(*args):
        time.sleep(0.05)
        write(*args)

    Store.write = write_slowly
    beside = _train(rank, f'{folder}/async', None, asynchronous(2))
    resumed = _train(rank, f'{folder}/resumed', f'{folder}/async/iter_4.pth', asynchronous(2))
    return torch.equal(whole, beside), torch.equal(whole, resumed)


def test_two_ranks(on_ranks, tmp_path):
    """The first one writes, with what both need to go on."""
    assert on_ranks(__file__, 'train_on_a_rank', str(tmp_path)) == [(True, True)] * 2
    for done in (2, 4, 6, 8):
        files = [torch.load(tmp_path / folder / f'iter_{done}.pth') for folder in ('sync', 'async')]
        assert len(files[1]['runnerkit']['ranks']) == 2
        assert_equal(*files)


# --- in the middle of something --------------------------------------------------------------------------------------


def test_a_save_that_waits_is_dropped_when_the_run_goes_back(tmp_path, caplog):
    class Back(Hook):
        done = False

        def before_train_iter(self, runner):
            if runner.iter == 1:
                runner.save(filename_tmpl='start.pth')
            if runner.iter == 3 and not self.done:
                self.done = True
                runner.save(filename_tmpl='asked.pth')
                runner.roll_back(str(tmp_path / 'start.pth'))

    runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
    runner.register_hook(Back())
    runner.run([loader(12)], [('train', 1)])
    assert 'asked.pth is not saved: the run has gone back before that' in caplog.text
    assert not (tmp_path / 'asked.pth').exists()


@pytest.mark.parametrize('name', ['iter_2.pth', 'iter_4.pth'])
def test_an_epoch_runner_of_so_many_iterations_resumes_at_the_end_of_an_epoch(tmp_path, name):
    def run(resume=None):
        runner = tiny_runner(work_dir=tmp_path, max_iters=5)
        runner.register_optimizer_hook(dict())
        runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
        if resume:
            runner.resume(str(tmp_path / resume))
        runner.run([loader(8)], [('train', 1)])  # two batches
        return weights(runner.model)

    wanted = run()
    assert torch.equal(run(name), wanted)
