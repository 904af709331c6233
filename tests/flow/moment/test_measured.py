"""One iteration in numbers."""

import math

import pytest
import torch
from moments import weights_of

from runnerkit import replay
from runnerkit.flow.moment.measured import measured_step, names_by_part


def total(tensors):
    return math.sqrt(sum(float(each.double().pow(2).sum()) for each in tensors))


def test_gradients_and_updates_of_each_part_are_measured(trained):
    work_dir, seen = trained('epochs')
    with replay(work_dir, 5) as moment:
        before = weights_of(moment.model)
        found = measured_step(moment)
        after = weights_of(moment.model)
    assert (found.number, found.epoch) == (5, 1)
    assert found.values == {'lr': pytest.approx(0.0455, abs=1e-3), 'loss': seen[5]['loss'][''].item()}
    assert [part.name for part in found.parts] == ['model', 'body', 'head']
    for part in found.parts:
        names = [name for name in seen[5]['gradients'] if part.name in ('model', name.split('.')[0])]
        gradients = [seen[5]['gradients'][name] for name in names]
        assert part.gradient == pytest.approx(total(gradients))
        assert part.largest == pytest.approx(max(float(each.abs().max()) for each in gradients))
        assert part.non_finite == 0
        change = total([after[name] - before[name] for name in names]) / total([before[name] for name in names])
        assert part.update == pytest.approx(change)


def test_gradients_are_those_before_clipping_and_an_iteration_may_change_nothing(trained):
    """The first of three accumulated iterations."""
    work_dir, seen = trained('accumulation')
    with replay(work_dir, 3) as moment:
        found = measured_step(moment)
        assert found.parts[0].update == 0
        assert found.parts[0].gradient == pytest.approx(total(seen[3]['gradients'].values()))
        measured_step(moment)
        found = measured_step(moment)
    assert found.parts[0].update > 0
    assert found.parts[0].gradient > total(seen[5]['gradients'].values()) == pytest.approx(0.5, abs=1e-3)


def test_several_optimizers_and_the_share_of_values_that_are_not_finite(trained):
    with replay(trained('optimizers')[0], 2) as moment:
        moment.run.hooks.listen('after_train_iter', lambda runner: spoil(moment.model.head), is_last=True)
        found = measured_step(moment)
    assert found.values.keys() == {'lr body', 'lr head', 'loss body', 'loss head', 'loss'}
    assert found.parts[-1].non_finite == pytest.approx(1 / 9)


def spoil(head):
    head.weight.grad[0, 0] = math.nan


def test_parts_are_the_first_pieces_of_names_that_differ():
    assert names_by_part(['a.b.0.w', 'a.b.0.b', 'a.c.w']) == {'a.b': ['a.b.0.w', 'a.b.0.b'], 'a.c': ['a.c.w']}
    assert names_by_part(['model.0.w', 'model.1.w']) == {'model.0': ['model.0.w'], 'model.1': ['model.1.w']}
    assert names_by_part(['w']) == {'w': ['w']}
    assert names_by_part(['scale', 'net.w']) == {'scale': ['scale'], 'net': ['net.w']}


def test_a_step_that_fails_leaves_nothing_behind(trained):
    with pytest.raises(RuntimeError, match='mine'):
        with replay(trained('epochs')[0], 2) as moment:
            listeners = dict(moment.run.hooks.first)
            moment.model.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError('mine')))
            moment.model.body.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError('mine')))
            try:
                measured_step(moment)
            finally:
                assert not listeners.get('after_backward')
                assert not moment.run.hooks.first.get('after_backward')
    assert torch.is_grad_enabled()
