"""Many kinds of training, each cut off in the middle and resumed: the result is that of an undisturbed run.

The cells are those of benchmarks/faults.py, which kills processes; here an exception ends the run, and each value of a
dimension is in at least one cell.
"""

import itertools
import shutil
from pathlib import Path

import pytest
import torch
from mmcv_record import benchmark
from support import Measured, loader, thinned, tiny_runner, weights

from runnerkit.hooks import CheckpointHook, EvalHook, Hook

attempts, cells = benchmark('kills.attempts'), benchmark('kills.cells')
#: Every value of each dimension; after the first five, in which all numbers of workers are, what takes no time.
FEW = [
    cell if i < 5 else {**cell, 'workers': '0', 'tensorboard': 'no'} for i, cell in enumerate(cells.cells(strength=1))
]


class Dies(Hook):
    """Ends a run by an exception, as if it were killed in the beginning of an iteration."""

    def __init__(self, after):
        self.after = after

    def before_train_iter(self, runner):
        if runner.completed_iters == self.after:
            raise KeyboardInterrupt


def test_every_pair_of_values_is_in_a_cell():
    found = cells.cells()
    assert len(found) <= 100
    for cell in found:
        assert list(cell) == list(cells.DIMENSIONS)
        assert all(cell[name] in values for name, values in cells.DIMENSIONS.items())
        assert cells.possible(cell)
    covered = {frozenset(pair) for cell in found for pair in itertools.combinations(cell.items(), 2)}
    for (one, values), (other, others) in itertools.combinations(cells.DIMENSIONS.items(), 2):
        for left, right in itertools.product(values, others):
            if cells.possible({one: left, other: right}):
                assert frozenset([(one, left), (other, right)]) in covered, (one, left, other, right)


def test_every_value_is_in_one_of_the_few():
    for name, values in cells.DIMENSIONS.items():
        assert {cell[name] for cell in FEW} == set(values)


def test_only_warm_ups_of_torchs_schedulers_are_left_out():
    pairs = itertools.product(cells.DIMENSIONS['schedule'], cells.DIMENSIONS['warmup'])
    left_out = {
        (schedule, warmup) for schedule, warmup in pairs if not cells.possible({'schedule': schedule, 'warmup': warmup})
    }
    assert left_out == set(itertools.product(cells.OF_TORCH, ['constant', 'linear', 'exp']))


@pytest.mark.parametrize('number, cell', list(enumerate(FEW)))
def test_a_run_that_was_cut_off_ends_like_an_undisturbed_one(number, cell, tmp_path):
    whole = cells.train(cell, cells.build(cell, tmp_path / 'whole'))
    runner = cells.build(cell, tmp_path / 'cut')
    runner.register_hook(Dies(after=5 + number % 7))
    with pytest.raises(KeyboardInterrupt):
        cells.train(cell, runner)
    resumed = cells.resumed_by_itself(cell, tmp_path / 'cut')
    assert resumed.iter > 0
    found = cells.train(cell, resumed)
    assert attempts.differences(whole, found) == []


def test_the_comparison_notices_one_bit():
    """Teeth."""
    value = {'a': [torch.zeros(3), 1.0]}
    before = attempts.digest(value)
    value['a'][0][1] = 2.0**-149
    assert attempts.digest(value) != before
    assert attempts.digest([1.0]) != attempts.digest([1.0 + 2**-52])
    assert attempts.differences({'weights': 1, 'log': 2}, {'weights': 1, 'log': 3}) == ['log']


class Plays(Hook):
    """Draws from the run's generators at the beginning of each epoch and validation, and logs what it draws."""

    def __init__(self):
        self.drawn = []

    def before_train_epoch(self, runner):
        self.drawn.append(torch.rand(1).item())

    def before_val_epoch(self, runner):
        self.drawn.append(torch.rand(1).item())

    def after_train_iter(self, runner):
        if runner.iter % 3 == 0:
            runner.log_buffer.update({'drawn': torch.rand(1)}, 1)


@thinned(
    saved=['epoch_1.pth', 'epoch_2.pth', 'iter_3.pth', 'iter_5.pth', 'iter_7.pth'],
    workflow=[[('train', 1)], [('train', 1), ('val', 1)], [('train', 2), ('val', 1)]],
)
def test_what_hooks_draw_and_log_at_an_epochs_beginning_is_done_once(workflow, saved, tmp_path):
    """An epoch that had not begun when the checkpoint was written begins as it would have without an interruption:
    with an empty log buffer, and after what hooks and a validation have drawn."""

    def start(folder, seed):
        runner = tiny_runner(work_dir=tmp_path / folder, seed=seed, max_epochs=3)
        plays = Plays()
        runner.register_training_hooks(
            {'policy': 'fixed'},
            {},
            None,
            {'interval': 4, 'hooks': [{'type': 'TextLoggerHook'}]},
            custom_hooks_config=[plays],
        )
        runner.register_hook(CheckpointHook(interval=1))
        runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
        return runner, plays

    def go(runner):
        runner.run([loader(20), loader(4)][: len(workflow)], workflow)
        return weights(runner.model), attempts.log_of(runner.work_dir)

    runner, plays = start('whole', 0)
    whole, log = go(runner)
    resumed, again = start('resumed', 9)
    resumed.resume(str(tmp_path / 'whole' / saved))
    found, rest = go(resumed)
    assert torch.equal(found, whole)
    assert again.drawn[-1:] == plays.drawn[-1:]
    assert rest == log[len(log) - len(rest) :]


@thinned(
    kind=['epoch', 'iter'],
    every=[2, 3, None],
    number=[1, 2, 3],
)
def test_a_run_resumed_from_a_best_checkpoint_logs_what_the_undisturbed_one_does(number, every, kind, tmp_path):
    """A best checkpoint is saved before the line with its scores is logged."""

    def run(folder, seed=0, resumed=None):
        runner = tiny_runner(
            kind, Measured(), folder, seed, **({'max_epochs': 3} if kind == 'epoch' else {'max_iters': 12})
        )
        evaluation = {'interval': every or (1 if kind == 'epoch' else 4), 'by_epoch': kind == 'epoch' and every is None}
        runner.register_training_hooks(
            {'policy': 'fixed'}, {}, None, {'interval': 2, 'hooks': [{'type': 'TextLoggerHook'}], 'fingerprint': True}
        )
        runner.register_hook(EvalHook(loader(8), **evaluation, save_best='error', rule='less'), 'LOW')
        runner.register_hook(Keeps())
        if resumed is not None:
            runner.resume(str(resumed))
        runner.run([loader(16)], [('train', 1)])
        return attempts.log_of(folder)

    whole = run(tmp_path / 'whole')
    best = sorted((tmp_path / 'whole' / 'kept').iterdir(), key=lambda path: path.stat().st_mtime_ns)
    found = run(tmp_path / 'resumed', 9, best[min(number, len(best)) - 1])
    assert found
    assert found == whole[-len(found) :]
    assert found[0]['mode'] == 'val'


class Keeps(Hook):
    """Copies each best checkpoint."""

    def after_save(self, runner):
        for path in Path(runner.work_dir).glob('best_*.pth'):
            folder = Path(runner.work_dir) / 'kept'
            folder.mkdir(exist_ok=True)
            if not (folder / path.name).exists():
                shutil.copy(path, folder)
