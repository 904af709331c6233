"""Curves, read back from the event files."""

import errno
import json
import logging
import sys
import time
from collections import Counter

import numpy as np
import pytest
from support import Measured, Tiny, loader, thinned, tiny_runner
from torch.utils.tensorboard import SummaryWriter

from runnerkit import report_image
from runnerkit.hooks import CheckpointHook, EvalHook, Hook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.logger.tensorboard import _wait_for_a_later_name
from runnerkit.hooks.logger.trackers import TrackerHook

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

    return EventAccumulator(str(folder), {'images': 0}).Reload()  # 0: all


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


def checkpointed(work_dir, epochs, resume=None, interval=2):
    runner = tiny_runner(model=Known(), work_dir=work_dir, max_epochs=epochs)
    for each in (CheckpointHook(interval=1), TensorboardLoggerHook(interval=interval)):
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


def test_a_validation_after_a_checkpoint_that_knows_of_no_point_is_drawn_once(tmp_path):
    """Of which the training has drawn nothing before."""
    checkpointed(tmp_path, 1, interval=50)
    older(tmp_path / 'tf_logs')
    checkpointed(tmp_path, 2, 'epoch_1.pth', interval=50)
    assert steps(events(tmp_path / 'tf_logs'), 'val/loss') == [4, 8]


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


@pytest.mark.parametrize('interval', [2, 50])
def test_a_resumed_run_keeps_the_pictures_of_its_checkpoint(tmp_path, interval):
    class Draws(Hook):
        def after_train_iter(self, runner):
            report_image('weights', np.zeros((2, 3)))

    for epochs, resume in ((1, None), (2, tmp_path / 'epoch_1.pth')):
        runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=epochs)
        for hook in (Draws(), CheckpointHook(interval=1), TensorboardLoggerHook(interval=interval)):
            runner.register_hook(hook)
        if resume:
            runner.resume(str(resume))
        runner.run([loader(16), loader(4)], [('train', 1), ('val', 1)])
        read = events(tmp_path / 'tf_logs')
        older(tmp_path / 'tf_logs')
    assert [each.step for each in read.Images('weights')] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert steps(read, 'val/loss') == [4, 4, 8]  # at the step of a picture
    assert interval == 50 or steps(read, 'train/loss') == [2, 4, 6, 8]


class Diary(TrackerHook):
    """A tracker with MMCV's steps."""

    def _open(self, runner):
        self.sent = []

    def _send(self, tags, runner):
        self.sent += [(self.get_iter(runner), name, value) for name, value in tags.items()]


def several():
    return {'a': loader(4), 'b': loader(8)}


def by_iter(n, data=None, **options):
    return lambda: EvalHook(data() if data else loader(8), by_epoch=False, interval=n, **options)


def by_epoch(data=None, **options):
    return lambda: EvalHook(data() if data else loader(8), **options)


TRAIN = [('train', 1)]
#: Epochs of 5 iterations: the runner, its workflow and hooks, and whether a score has several values at one step.
AT_ONE_STEP = {
    'a line and an evaluation': ('epoch', TRAIN, [by_iter(2)], False),
    'two evaluations': ('epoch', TRAIN, [by_epoch(), by_epoch()], False),
    'two units': ('epoch', TRAIN, [by_iter(5), by_epoch()], False),
    'other data': ('epoch', TRAIN, [by_iter(5, lambda: loader(4)), by_epoch()], True),
    'several sets': ('epoch', TRAIN, [by_epoch(several)], False),
    'several sets and one': ('epoch', TRAIN, [by_iter(5, several), by_epoch()], False),
    'before the training': ('epoch', [('val', 1), ('train', 1)], [by_epoch(start=0)], True),
    'inside an epoch': ('epoch', TRAIN, [by_iter(2, hooks=[TextLoggerHook()])], False),
    'a validation': ('epoch', [('train', 1), ('val', 1)], [], False),
    'two validations': ('epoch', [('train', 1), ('val', 2)], [], False),
    'a validation and an evaluation': ('epoch', [('train', 1), ('val', 1)], [by_epoch(lambda: loader(4))], True),
    'iteration: a line and an evaluation': ('iter', TRAIN, [by_iter(5), by_iter(2)], False),
    'iteration: several sets': ('iter', TRAIN, [by_iter(5, several)], False),
    'iteration: before the training': ('iter', [('val', 1), ('train', 5)], [by_iter(5, start=0)], True),
    'iteration: a validation': ('iter', [('train', 5), ('val', 2)], [by_iter(2)], True),
    'iteration: two and an evaluation': ('iter', [('train', 5), ('val', 2), ('val', 1)], [by_iter(5)], True),
}


@thinned(name=AT_ONE_STEP, interval=[1, 2])
def test_one_value_a_step(name, interval, tmp_path, caplog):
    """Whatever logs at one step: a curve has one point there, rates are those of that iteration, and lines name one
    epoch."""
    kind, workflow, hooks, differs = AT_ONE_STEP[name]
    limits = {'max_epochs': 2} if kind == 'epoch' else {'max_iters': 10}
    logger = logging.getLogger(f'one value {name} {interval}')
    runner = tiny_runner(kind, Measured(), tmp_path, **limits)
    runner.logger = logger
    runner.register_lr_hook({'policy': 'poly', 'by_epoch': False})
    runner.register_optimizer_hook({})
    for make in hooks:
        runner.register_hook(make(), 'LOW')
    options = {'interval': interval, 'by_epoch': kind == 'epoch'}
    diary = Diary(**options)
    for hook in (TextLoggerHook(**options), TensorboardLoggerHook(**options), diary):
        runner.register_hook(hook, 'VERY_LOW')
    runner.run([loader(20 if mode == 'train' else 8) for mode, _ in workflow], workflow)

    rates = {step: pytest.approx(0.1 * (1 - (step - 1) / 10)) for step in range(1, 11)}
    read = events(tmp_path / 'tf_logs')
    curves = {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()['scalars']}
    for points in [*curves.values(), [(each[:2], 0) for each in diary.sent]]:
        assert max(Counter(step for step, _ in points).values()) == 1
    assert all(value == rates[step] for step, value in curves['learning_rate'] if step)
    own = {step for step, tag, _ in diary.sent if tag == 'train/loss'}
    assert own <= {step for step, tag, _ in diary.sent if tag == 'learning_rate'}
    for step, tag, value in diary.sent:
        if tag == 'learning_rate' and step in own:  # others may be of a validation before that iteration
            assert value == rates[step]

    (file,) = tmp_path.glob('*.log.json')
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if 'mode' in line]
    assert {line['mode'] for line in lines} == {'train', 'val'}
    for line in lines:
        assert line['epoch'] == -(-line['step'] // 5)
        assert line['lr'] == (rates[line['step']] if line['step'] else 0.1)
    told = [text for text in caplog.messages if 'several values at step' in text]
    assert bool(told) == differs
    assert len(told) <= 4  # two scores, two trackers
