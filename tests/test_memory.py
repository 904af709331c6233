"""What a run holds does not grow with its iterations, epochs, log lines, evaluations or checkpoints."""

import gc
import logging
import sys
import tracemalloc

import pytest
import torch
from support import tiny_runner
from torch import nn
from torch.utils.data import TensorDataset

from runnerkit.data import build_dataloader
from runnerkit.hooks import EMAHook, EvalHook, Hook

#: When what is held is looked at, in iterations done; the first look comes after everything was made that is kept.
LOOKS = (300, 800, 1300)

#: Values that the log buffer keeps one by one. All of `LOOKS` find it equally full.
WINDOW = 10

#: Bytes an iteration. A list that grows by one shared object makes 8, one that grows by a number of its own 32.
SLOPE = 4.0


class LoaderState(Hook):
    """Takes a picture of all Python allocations at `LOOKS`."""

    def __init__(self):
        self.pictures = []

    def after_train_iter(self, runner):
        if runner.iter + 1 in LOOKS:
            gc.collect()
            # Python's cache of attributes keeps the names that C code made up, thousands at most and by and by.
            sys._clear_type_cache()
            own = [tracemalloc.Filter(False, tracemalloc.__file__)]
            self.pictures.append(tracemalloc.take_snapshot().filter_traces(own))

    def slope(self):
        """Bytes an iteration in the slower of the two spans: what is made once is in one of them only."""
        assert len(self.pictures) == len(LOOKS)
        spans = zip(self.pictures, self.pictures[1:], strict=False)
        grown = [after.compare_to(before, 'lineno') for before, after in spans]
        print(*grown[1][:5], sep='\n')  # shown where the test fails
        return min(sum(line.size_diff for line in lines) for lines in grown) / (LOOKS[1] - LOOKS[0])


class Empty(nn.Module):
    """A step with nothing in it but one weight, so that there is something to update and to average."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def train_step(self, data, optimizer, **kwargs):
        loss = self.weight * 1.0
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': 1}

    def val_step(self, data, optimizer=None, **kwargs):
        return {'loss': self.weight, 'log_vars': {'loss': self.weight}, 'num_samples': 1}


def slope_of_a_run(kind, data, work_dir, custom_hooks=(), optimizer_config=None, checkpoint_interval=10**6):
    """Bytes an iteration by which a run grows."""
    quiet = logging.Logger('held')  # pytest keeps whatever reaches the root logger
    runner = tiny_runner(kind, Empty(), work_dir, logger=quiet, max_iters=LOOKS[-1])
    runner.register_training_hooks(
        {'policy': 'poly', 'by_epoch': False, 'warmup': 'linear', 'warmup_iters': 700},
        optimizer_config or {},
        {'interval': checkpoint_interval, 'max_keep_ckpts': 2, 'by_epoch': kind == 'epoch'},
        {'interval': 10, 'hooks': [{'type': 'TextLoggerHook'}]},
        custom_hooks_config=list(custom_hooks),
    )
    runner.log_buffer.window = WINDOW
    held = LoaderState()
    runner.register_hook(held, 'LOWEST')
    tracemalloc.start()
    try:
        runner.run([data], [('train', 1)])
        return held.slope()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ('kind', 'length'),
    [
        ('epoch', 20),
        # A long epoch, and a run by iterations, differ from it by the moments at which something is kept.
        pytest.param('iter', LOOKS[-1], marks=pytest.mark.thorough),
        pytest.param('epoch', LOOKS[-1], marks=pytest.mark.thorough),
        pytest.param('iter', 20, marks=pytest.mark.thorough),
    ],
)
def test_a_run_of_empty_steps_holds_its_memory(kind, length, tmp_path):
    assert slope_of_a_run(kind, [torch.zeros(1)] * length, tmp_path) < SLOPE


@pytest.mark.thorough  # test_a_run_of_empty_steps_holds_its_memory
@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_averages_evaluations_checkpoints_and_seeded_samples_hold_theirs(kind, tmp_path):
    def points(length):
        return build_dataloader(TensorDataset(torch.zeros(length, 1)), 4, 0, seed=5)

    by_epoch = kind == 'epoch'
    interval = 1 if by_epoch else 50
    hooks = [EMAHook(momentum=0.1), EvalHook(points(8), interval=interval, by_epoch=by_epoch, save_best='loss')]
    cumulative = {'type': 'GradientCumulativeOptimizerHook', 'cumulative_iters': 3}
    assert slope_of_a_run(kind, points(200), tmp_path, hooks, cumulative, checkpoint_interval=interval) < SLOPE


@pytest.mark.thorough  # that test_a_run_of_empty_steps_holds_its_memory can fail
def test_a_hook_that_grows_is_seen(tmp_path):
    class Grows(Hook):
        def __init__(self):
            self.seen = []

        def after_train_iter(self, runner):
            self.seen.append(None)

    assert slope_of_a_run('iter', [torch.zeros(1)] * 100, tmp_path, [Grows()]) > SLOPE
