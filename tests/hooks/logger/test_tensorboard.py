"""Curves, read back from the event files."""

import errno
import sys
import time

import numpy as np
import pytest
from support import Tiny, loader, tiny_runner
from torch.utils.tensorboard import SummaryWriter

from runnerkit import report_image
from runnerkit.hooks import CheckpointHook, Hook, TensorboardLoggerHook
from runnerkit.hooks.logger.tensorboard import _wait_for_a_later_name

pytest.importorskip('tensorboard')


class Known(Tiny):
    def train_step(self, data, optimizer, **kwargs):
        return {'loss': None, 'log_vars': {'loss': 1.5}, 'num_samples': len(data[0])}

    val_step = train_step


class Note(Hook):
    def after_train_epoch(self, runner):
        runner.log_buffer.output['note'] = 'a text'
        runner.log_buffer.ready = True


def run(work_dir, workflow=(('train', 1),), before=(), **options):
    runner = tiny_runner(model=Known(), work_dir=work_dir, max_epochs=2)
    hook = TensorboardLoggerHook(interval=2, **options)
    for each in [Note(), hook]:
        runner.register_hook(each)
    runner._epoch, runner._iter = before or (0, 0)
    runner.run([loader(16) for _ in workflow], list(workflow))
    assert hook.writer is None
    return runner


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def older(folder):
    """Let the files sort first that are there: within one second, names do not tell which is older."""
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.replace('tfevents.', 'tfevents.0')))


def steps(read, tag):
    return [event.step for event in read.Scalars(tag)]


def test_points_lie_at_the_iterations_done(tmp_path):
    run(tmp_path, [('train', 1), ('val', 1)])
    read = events(tmp_path / 'tf_logs')
    assert steps(read, 'train/loss') == [2, 4, 6, 8]
    assert steps(read, 'val/loss') == [4, 8]
    assert [event.value for event in read.Scalars('train/loss')] == [1.5] * 4
    assert {'learning_rate', 'momentum'} < set(read.Tags()['scalars'])
    assert any('note' in tag for tag in read.Tags()['tensors'])


def test_a_resumed_run_hides_what_lies_beyond(tmp_path):
    run(tmp_path, log_dir=str(tmp_path / 'curves'))
    assert steps(events(tmp_path / 'curves'), 'train/loss') == [2, 4, 6, 8]
    older(tmp_path / 'curves')
    run(tmp_path, log_dir=str(tmp_path / 'curves'), before=(1, 4))
    assert steps(events(tmp_path / 'curves'), 'train/loss') == [2, 4, 6, 8]
    assert not (tmp_path / 'tf_logs').exists()


def test_there_must_be_a_place(tmp_path):
    with pytest.raises(ValueError, match='nowhere to write: give it a log_dir, or the runner a work_dir'):
        run(None)


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorboard', None)
    with pytest.raises(ImportError, match='pip install tensorboard'):
        run(tmp_path)


def test_the_event_file_is_opened_when_there_is_something_to_draw(tmp_path):
    opened = []

    class Look(Hook):
        def after_train_iter(self, runner):
            opened.append((tmp_path / 'tf_logs').exists())

    runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=1)
    for each in (TensorboardLoggerHook(interval=2), Look()):
        runner.register_hook(each)
    runner.run([loader(16)], [('train', 1)])
    assert opened == [False, True, True, True]


def checkpointed(work_dir, epochs, resume=None):
    runner = tiny_runner(model=Known(), work_dir=work_dir, max_epochs=epochs)
    for each in (CheckpointHook(interval=1), TensorboardLoggerHook(interval=2)):
        runner.register_hook(each)
    if resume:
        runner.resume(str(work_dir / resume))
    runner.run([loader(16), loader(4)], [('train', 1), ('val', 1)])


def test_a_validation_after_the_checkpoint_is_drawn_once_after_all(tmp_path):
    checkpointed(tmp_path, 2)
    older(tmp_path / 'tf_logs')
    checkpointed(tmp_path, 3, 'epoch_1.pth')
    read = events(tmp_path / 'tf_logs')
    assert steps(read, 'train/loss') == [2, 4, 6, 8, 10, 12]
    assert steps(read, 'val/loss') == [4, 8, 12]


def test_what_a_checkpoint_knows_is_on_the_disk_before_it(tmp_path):
    seen = []

    class Look(Hook):
        def before_train_epoch(self, runner):
            writer = next(hook for hook in runner.hooks if isinstance(hook, TensorboardLoggerHook)).writer
            flush = writer.flush
            writer.flush = lambda: (flush(), seen.append(f'flushed after {runner.completed_iters}'))

        def after_save(self, runner):
            seen.append(steps(events(tmp_path / 'tf_logs'), 'train/loss'))

    runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=1)
    for each in (CheckpointHook(interval=1), TensorboardLoggerHook(interval=2), Look()):
        runner.register_hook(each)
    runner.run([loader(16)], [('train', 1)])
    assert seen[:2] == ['flushed after 4', [2, 4]]


def test_a_run_that_begins_again_hides_what_it_had_drawn(tmp_path):
    run(tmp_path)
    older(tmp_path / 'tf_logs')
    run(tmp_path)
    assert steps(events(tmp_path / 'tf_logs'), 'train/loss') == [2, 4, 6, 8]


def test_a_disk_that_fills_up_ends_the_curves_and_not_the_run(tmp_path):
    class Full(Hook):
        def before_train_epoch(self, runner):
            def fail(*args):
                raise OSError(errno.ENOSPC, 'No space left on device')

            hook = next(hook for hook in runner.hooks if isinstance(hook, TensorboardLoggerHook))
            if hook.writer is not None:
                hook.writer.add_scalar = fail

    runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=2)
    for each in (Full(), TensorboardLoggerHook(interval=2)):
        runner.register_hook(each)
    with pytest.warns(RuntimeWarning, match=r'No space left on device.*; the run continues without it'):
        runner.run([loader(16)], [('train', 1)])
    assert runner.iter == 8


def test_a_new_file_comes_after_the_others_by_name(tmp_path):
    """As TensorBoard reads them; within a second, the tenth writer of a process would come before its ninth."""
    names = []
    for _ in range(2):
        _wait_for_a_later_name(str(tmp_path))
        SummaryWriter(str(tmp_path)).close()
        names += [path.name for path in tmp_path.iterdir() if path.name not in names]
    assert names == sorted(names)
    assert names[0].split('.')[3] < names[1].split('.')[3]
    (tmp_path / 'events.out.tfevents.9999999999.host.1.0').touch()  # a clock that went wrong keeps nobody for long
    before = time.monotonic()
    _wait_for_a_later_name(str(tmp_path))
    assert 0.9 < time.monotonic() - before < 60


def test_reported_pictures_are_drawn(tmp_path):
    class Draws(Hook):
        def after_train_epoch(self, runner):
            report_image('weights', np.zeros((2, 3)))

    runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=2)
    for hook in (Draws(), TensorboardLoggerHook()):
        runner.register_hook(hook)
    runner.run([loader(16)], [('train', 1)])
    found = events(tmp_path / 'tf_logs').Images('weights')
    assert [(each.step, each.width, each.height) for each in found] == [(4, 3, 2), (8, 3, 2)]
