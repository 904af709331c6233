"""The iteration runner and its endless loader."""

from contextlib import contextmanager

import pytest
import torch
from support import Measured, Noisy, Recorder, Tiny, loader, tiny_runner
from torch.utils.data import DataLoader

from runnerkit.hooks import Hook
from runnerkit.runner import IterLoader


def run(runner, workflow=(('train', 1),), loaders=None, **kwargs):
    recorder = Recorder()
    runner.register_hook(recorder)
    runner.run(loaders or [loader(8) for _ in workflow], list(workflow), **kwargs)
    return recorder


def test_epoch_points_do_not_fire_but_the_generic_ones_once():
    calls = []

    class Generic(Hook):
        def before_epoch(self, runner):
            calls.append('before')

        def after_epoch(self, runner):
            calls.append('after')

    runner = tiny_runner('iter', max_iters=5)
    runner.register_hook(Generic())
    recorder = run(runner)
    assert calls == ['before', 'after']
    assert set(recorder.names()) == {
        'before_run',
        'before_train_iter',
        'after_forward',
        'after_train_iter',
        'after_run',
    }


def test_counters():
    runner = tiny_runner('iter', max_iters=5)
    recorder = run(runner, [('train', 2), ('val', 1)])
    train = [counts for name, *counts in recorder.heard if name == 'after_train_iter']
    val = [counts for name, *counts in recorder.heard if name == 'after_val_iter']
    assert train == [[0, 0, 0], [0, 1, 1], [1, 2, 0], [1, 3, 1], [2, 4, 0]]
    assert val == [[0, 2, 0], [1, 4, 0], [2, 5, 0]]


def test_max_epochs_counts_passes():
    runner = tiny_runner('iter', max_epochs=3)
    run(runner, loaders=[loader(20)])
    assert (runner.iter, runner.max_iters) == (15, 15)


def test_validation_averages_its_entry_in_a_log_of_its_own():
    outputs = []

    class Look(Hook):
        def after_val_iter(self, runner):
            outputs.append((runner.mode, runner.log_buffer.ready, dict(runner.log_buffer.output)))

        def after_train_iter(self, runner):
            assert list(runner.log_buffer.val_history) == ['loss']

    runner = tiny_runner('iter', max_iters=2)
    runner.register_hook(Look())
    run(runner, [('train', 1), ('val', 2)])
    assert [(mode, ready) for mode, ready, _ in outputs] == [('val', False), ('val', True)] * 2
    assert outputs[1][2]['loss'] > 0
    assert len(runner.log_buffer.val_history['loss']) == 2


def test_the_model_trains_after_validation():
    flags = []

    class Look(Hook):
        def before_train_iter(self, runner):
            flags.append(runner.model.training)

        def before_val_iter(self, runner):
            flags.append(runner.model.training)

    runner = tiny_runner('iter', max_iters=2)
    runner.register_hook(Look())
    run(runner, [('train', 1), ('val', 1)])
    assert flags == [True, False, True, False]


def test_iter_loader_goes_on_for_ever_and_tells_samplers_the_epoch():
    class Sampler(torch.utils.data.SequentialSampler):
        epochs = []

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

    data = Noisy(6)
    endless = IterLoader(DataLoader(data, batch_size=4, sampler=Sampler(data)))
    assert len(endless) == 2
    epochs = []
    for _ in range(5):
        next(endless)
        epochs.append(endless.epoch)
    assert epochs == [0, 0, 1, 1, 2]
    assert Sampler.epochs == [0, 1, 2]
    assert endless.state_dict()['batches'] == 1


def test_an_empty_loader_is_an_error_not_an_endless_loop():
    with pytest.raises(ValueError, match='gives no batches'):
        next(IterLoader([]))


def test_custom_modes():
    from support import Tiny

    class Gan(Tiny):
        steps = ''

        def dis_step(self, data, optimizer):
            self.steps += 'd'
            return self.train_step(data, optimizer)

        def gen_step(self, data, optimizer):
            self.steps += 'g'
            return self.train_step(data, optimizer)

    runner = tiny_runner('iter', model=Gan(), max_iters=7)
    run(runner, [('dis', 2), ('gen', 1)])
    assert runner.model.steps == 'ddgddgd'


def test_a_model_that_a_hook_left_in_evaluation_trains_again():
    flags = []

    class Leaves(Hook):
        def before_train_iter(self, runner):
            flags.append(runner.model.training)

        def after_train_iter(self, runner):
            runner.model.eval()

    runner = tiny_runner('iter', max_iters=3)
    runner.register_hook(Leaves())
    run(runner)
    assert flags == [True, True, True]


def test_validation_scores_its_entry():
    outputs = []

    class Look(Hook):
        def after_val_iter(self, runner):
            outputs.append(dict(runner.log_buffer.output))

    runner = tiny_runner('iter', model=Measured(), max_iters=1)
    runner.register_hook(Look())
    run(runner, [('train', 1), ('val', 2)])
    assert outputs[0] == {}
    assert outputs[1]['error'] == pytest.approx(outputs[1]['loss'], rel=1e-5)


def test_a_batch_that_was_fetched_and_not_trained_on_is_fetched_again(tmp_path):
    """Also one of validation, where the run stands between two of its batches."""

    class Batches(Hook):
        def __init__(self):
            self.seen = []

        def before_train_iter(self, runner):
            self.seen.append(('train', runner.data_batch[0].tolist()))

        def before_val_iter(self, runner):
            self.seen.append(('val', runner.data_batch[0].tolist()))

    class Saves(Hook):
        def before_train_iter(self, runner):
            runner.save_checkpoint(str(tmp_path), f'train_{runner.iter}.pth')

        def before_val_iter(self, runner):
            runner.save_checkpoint(str(tmp_path), f'val_{runner.iter}_{runner.inner_iter}.pth')

    def go(*hooks, resume=None):
        batches = Batches()
        runner = tiny_runner('iter', max_iters=6)
        for hook in (batches, *hooks):
            runner.register_hook(hook)
        if resume is not None:
            runner.resume(str(tmp_path / resume))
        runner.run([loader(20), loader(20)], [('train', 2), ('val', 2)])
        return batches.seen

    whole = go(Saves())
    assert len(whole) == 12
    for name, done in (('train_0', 0), ('train_3', 5), ('val_2_0', 2), ('val_4_1', 7)):
        assert go(resume=f'{name}.pth') == whole[done:], name


class ByRank(Tiny):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def val_step(self, data):
        return {'loss': None, 'log_vars': {'loss': 10.0 * (self.rank + 1)}, 'num_samples': self.rank + 1}


def validates_on_rank(rank):
    runner = tiny_runner('iter', model=ByRank(rank), max_iters=1)
    run(runner, [('train', 1), ('val', 2)])
    return runner.scores['loss'].value


def test_ranks_validate_together(on_ranks):
    assert on_ranks(__file__, 'validates_on_rank') == [pytest.approx((10 * 1 + 20 * 2) / 3)] * 2


def test_a_stop_inside_a_validation_does_not_cut_it():
    class Stop(Hook):
        def after_val_iter(self, runner):
            runner.stop('seen enough')
            validated.append(runner.inner_iter)

    validated = []
    runner = tiny_runner('iter', max_iters=8)
    runner.register_hook(Stop())
    runner.run([loader(), loader()], [('train', 4), ('val', 2)])
    assert validated == [0, 1]
    assert (runner.iter, runner.outcome.kind) == (4, 'stopped')


class Rising(Tiny):
    """Its validation losses are 1, 3, 7."""

    def val_step(self, data, **kwargs):
        self.validated = getattr(self, 'validated', 0) * 2 + 1
        return {'loss': None, 'log_vars': {'loss': float(self.validated)}, 'num_samples': 2}


def test_the_batches_of_a_validation_entry_are_one_evaluation():
    seen = []

    class Spans(Hook):
        @contextmanager
        def around_val(self, runner):
            seen.append('in')
            yield
            seen.append('out')

        def after_evaluate(self, runner, scores):
            seen.append(scores)

    runner = tiny_runner('iter', model=Rising(), max_iters=1)
    runner.register_hook(Spans())
    run(runner, [('train', 1), ('val', 3)])
    assert seen == ['in', 'out', {'loss': pytest.approx((1 + 3 + 7) / 3)}]
