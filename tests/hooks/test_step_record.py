"""The typed record of a step: when it can be read, what is in it, and what it costs."""

from contextlib import suppress

import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import EvalHook, Hook, OptimizerHook, StepRecord
from runnerkit.hooks.hook import STAGES, UPDATE_POINTS
from runnerkit.hooks.step_record import record_of
from runnerkit.runner import EpochBasedRunner, IterBasedRunner


class Reads(Hook):
    """Reads the record at every point: ``{point: [record or None]}``."""

    def __init__(self):
        self.found = {}


def _reading(point):
    def read(self, runner):
        record = None
        with suppress(RuntimeError):
            record = runner.step_record()
        self.found.setdefault(point, []).append(record)

    return read


for _point in (*STAGES, *UPDATE_POINTS):
    setattr(Reads, _point, _reading(_point))

INSIDE = {'after_forward', 'after_backward', 'after_step', 'after_train_iter', 'after_val_iter'}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_it_can_be_read_from_the_forward_pass_to_the_end_of_its_iteration(kind):
    runner, reads = tiny_runner(kind, max_iters=4), Reads()
    with pytest.raises(RuntimeError, match='from after_forward to after_train_iter'):
        runner.step_record()
    runner.register_hook(OptimizerHook(), 40)
    runner.register_hook(reads)
    workflow = [('train', 1), ('val', 1)] if kind == 'epoch' else [('train', 2), ('val', 2)]
    runner.run([loader(8), loader(8)], workflow)
    for point, records in reads.found.items():
        expected = StepRecord if point in INSIDE else type(None)
        assert {type(record) for record in records} == {expected}, point
    assert INSIDE <= set(reads.found)
    assert pytest.raises(RuntimeError, runner.step_record)
    records = reads.found['after_train_iter']
    assert [(each.mode, each.iter, each.num_samples) for each in records] == [('train', i, 4) for i in range(4)]
    assert [each.epoch for each in records] == [0, 0, 1, 1]
    # The losses of each step itself, also in a record that was kept.
    assert [float(each.loss) for each in records] == pytest.approx(runner.model.losses)
    assert [float(each.log_vars['loss']) for each in records] == pytest.approx(runner.model.losses)
    assert not any(each.loss.requires_grad or each.log_vars['loss'].requires_grad for each in records)
    assert {each.mode for each in reads.found['after_val_iter']} == {'val'}
    with pytest.raises(AttributeError):
        records[0].iter = 3


def test_an_evaluation_inside_an_iteration_gives_the_trainings_step_back():
    runner, early, late = tiny_runner('iter', max_iters=2), Reads(), Reads()
    inner = Reads()
    runner.register_hook(early, 'HIGH')
    runner.register_hook(EvalHook(loader(8), interval=1, by_epoch=False, hooks=[inner]))
    runner.register_hook(late, 'LOW')
    runner.run([loader(8)], [('train', 1)])
    assert [each.mode for each in inner.found['after_val_iter']] == ['val'] * 4
    assert inner.found['before_val_iter'] == inner.found['after_val_epoch'] * 2 == [None] * 4
    for before, after in zip(early.found['after_train_iter'], late.found['after_train_iter'], strict=True):
        assert (before.mode, before.iter, float(before.loss)) == (after.mode, after.iter, float(after.loss))


def test_a_failed_step_leaves_nothing_for_the_next_run():
    class Fails(Hook):
        def after_forward(self, runner):
            if runner.iter == 1 and not self.failed:
                self.failed = True
                raise ValueError('once')

        failed = False

    runner, reads = tiny_runner(max_iters=2), Reads()
    runner.register_hook(Fails())
    runner.register_hook(reads)
    with pytest.raises(ValueError, match='once'):
        runner.run([loader(8)], [('train', 1)])
    assert reads.found['after_run'][0].iter == 1  # what failed can be looked at
    reads.found.clear()
    runner.run([loader(8)], [('train', 1)])
    assert reads.found['before_train_iter'] == [None]


def test_what_the_step_did_not_return_is_named():
    class Adversarial(Tiny):
        def train_step(self, data, optimizer):
            return {'num_samples': 3}

    class Silent(Tiny):
        def train_step(self, data, optimizer):
            return {'loss': {'g': torch.ones(()), 'd': torch.full((), 2.0)}}

    reads, other = Reads(), Reads()
    for model, hook in ((Adversarial(), reads), (Silent(), other)):
        runner = tiny_runner(model=model, max_iters=1)
        runner.register_hook(hook)
        runner.run([loader(4)], [('train', 1)])
    record, silent = reads.found['after_train_iter'][0], other.found['after_train_iter'][0]
    assert (record.num_samples, record.log_vars) == (3, {})
    with pytest.raises(KeyError, match="Adversarial's step returned no 'loss'.*'num_samples'"):
        record.loss  # noqa: B018
    with pytest.raises(KeyError, match="Silent's step returned no 'num_samples'"):
        silent.num_samples  # noqa: B018
    assert {name: float(loss) for name, loss in silent.losses.items()} == {'g': 1, 'd': 2}
    assert float(silent.loss) == 3


def test_a_loss_is_a_tensor_whatever_the_step_returns():
    record = record_of({'loss': 0.5}, 'Model', 0, 0, 'val')
    assert torch.equal(record.loss, torch.tensor(0.5))
    assert list(record.losses) == ['']


@pytest.mark.parametrize('base', [EpochBasedRunner, IterBasedRunner])
def test_loops_of_ones_own_have_it_too(base):
    """MMCV's shape: counters by hand, and in the second one a step without ``run_iter``."""

    class Own(base):
        def train(self, data_loader, **kwargs):
            self.model.train()
            self.mode, self.data_loader = 'train', data_loader
            for self._inner_iter, self.data_batch in enumerate(data_loader if self.by_epoch else [next(data_loader)]):
                self.call_hook('before_train_iter')
                if self.by_epoch:
                    self.run_iter(self.data_batch, train_mode=True)
                else:
                    self.outputs = self.model.train_step(self.data_batch, self.optimizer)
                self.call_hook('after_train_iter')
                self._iter += 1
            self._epoch += self.by_epoch

    torch.manual_seed(0)
    model, reads = Tiny(), Reads()
    limit = {'max_epochs': 1} if base.by_epoch else {'max_iters': 2}
    runner = Own(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **limit)
    runner.register_hook(reads)
    runner.run([loader(8)], [('train', 1)])
    assert [each.iter for each in reads.found['after_train_iter']] == [0, 1]
    assert reads.found['before_train_iter'] == [None, None]
