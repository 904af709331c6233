"""Curves, read back from the event files."""

import builtins

import pytest
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import Hook, TensorboardLoggerHook

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
    run(tmp_path, log_dir=str(tmp_path / 'curves'), before=(1, 4))
    assert steps(events(tmp_path / 'curves'), 'train/loss') == [2, 4, 6, 8]
    assert not (tmp_path / 'tf_logs').exists()


def test_there_must_be_a_place(tmp_path):
    with pytest.raises(ValueError, match='nowhere to write: give it a log_dir, or the runner a work_dir'):
        run(None)


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith('torch.utils.tensorboard'):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, '__import__', without)
    with pytest.raises(ImportError, match=r"pip install 'runnerkit\[tensorboard\]'"):
        run(tmp_path)


def test_other_ranks_draw_nothing(tmp_path):
    runner = tiny_runner(model=Known(), work_dir=tmp_path, max_epochs=1)
    runner._rank = 1
    hook = TensorboardLoggerHook(interval=2)
    runner.register_hook(hook)
    runner.run([loader(16)], [('train', 1)])
    assert not (tmp_path / 'tf_logs').exists()
