"""The runner's update, whole or by name."""

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights

from runnerkit.hooks import Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner


def test_update_points_fire_inside_the_update():
    seen = []

    class Look(Hook):
        def after_forward(self, runner):
            seen.append(('forward', runner.outputs['loss'].item() > 0, runner.model.head.weight.grad is None))

        def after_backward(self, runner):
            seen.append(('backward', runner.model.head.weight.grad is not None, weights(runner.model)))

        def after_step(self, runner):
            seen.append(('step', weights(runner.model)))

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Look())
    runner.register_hook(OptimizerHook())
    runner.run([loader(4)], [('train', 1)])
    assert [name for name, *_ in seen] == ['forward', 'backward', 'step']
    assert seen[0][1:] == (True, True)
    assert not torch.equal(seen[1][2], seen[2][1])


def test_update_by_name_object_or_together():
    model = Tiny()
    body, head = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.body, model.head))
    runner = EpochBasedRunner(model, optimizer={'body': body, 'head': head}, max_epochs=1)

    def changed(*args):
        before = model.body[0].weight.clone(), model.head.weight.clone()
        runner.update(model(torch.rand(8, 4)).pow(2).sum(), *args)
        return not torch.equal(before[0], model.body[0].weight), not torch.equal(before[1], model.head.weight)

    assert changed('body') == (True, False)
    assert changed(head) == (False, True)
    assert changed() == (True, True)
    with pytest.raises(KeyError, match=r"there is no optimizer 'neck'; there are \['body', 'head'\]"):
        changed('neck')


def test_update_without_optimizer_is_a_clear_error():
    runner = EpochBasedRunner(Tiny(), max_epochs=1)
    with pytest.raises(RuntimeError, match='the runner has no optimizer'):
        runner.update(torch.ones(1, requires_grad=True))


def test_current_lr_and_momentum():
    model = Tiny()
    sgd = torch.optim.SGD(
        [{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 0.5}], lr=0.1, momentum=0.9
    )
    adam = torch.optim.Adam(model.head.parameters(), betas=(0.8, 0.99))
    rms = torch.optim.Adagrad(model.parameters(), lr=0.3)
    runner = EpochBasedRunner(model, optimizer=sgd, max_epochs=1)
    assert (runner.current_lr(), runner.current_momentum()) == ([0.1, 0.5], [0.9, 0.9])
    runner = EpochBasedRunner(model, optimizer={'a': adam, 'b': rms}, max_epochs=1)
    assert runner.current_lr() == {'a': [1e-3], 'b': [0.3]}
    assert runner.current_momentum() == {'a': [0.8], 'b': [0]}
