"""The runner's update, whole or by name."""

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch.utils.data import DataLoader
from two_networks import Points, flat, gan, plain_losses, sgd

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
    with pytest.raises(KeyError, match=r"unknown optimizer 'neck'; available: \['body', 'head'\]"):
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


def gan_runner(**options):
    model = gan()
    return EpochBasedRunner(model, optimizer=sgd(model), max_epochs=1, **options)


def batch():
    return next(iter(DataLoader(Points(), 6)))


def test_several_losses_are_all_backward_passes_and_then_all_steps():
    heard = []

    class Look(Hook):
        def after_backward(self, runner):
            heard.append(
                ('backward', [each.grad is not None for each in runner.model.parameters()], flat(runner.model))
            )

        def after_step(self, runner):
            heard.append(('step', [], flat(runner.model)))

    runner = gan_runner()
    runner.register_hook(Look())
    before = flat(runner.model)
    runner.update(runner.model.train_step(batch(), None)['loss'])
    plain = gan()
    plain_losses(plain, sgd(plain), [batch()])
    assert [name for name, *_ in heard] == ['backward', 'step']
    assert all(heard[0][1])
    assert torch.equal(heard[0][2], before)
    assert torch.equal(heard[1][2], flat(plain))
    assert runner.losses_by_optimizer == {'gen': 1, 'dis': 1}


def test_a_shared_part_may_have_an_optimizer_and_a_loss_of_its_own():
    runner = gan_runner()
    runner.optimizer = {'a': runner.optimizer['gen'], 'shared': runner.optimizer['dis']}
    loss = runner.model.gen_step(batch(), None)['loss']
    runner.update({'a': loss, 'shared': loss})
    plain = gan()
    optimizers = sgd(plain)
    plain.gen_step(batch(), None)['loss'].backward()
    for optimizer in optimizers.values():
        optimizer.step()
    torch.testing.assert_close(flat(runner.model), flat(plain), rtol=0, atol=0)


def test_wrong_losses_by_optimizer_are_named():
    runner = gan_runner()
    loss = runner.model.gen_step(batch(), None)['loss']
    for losses, error, words in (
        ({'gen': loss, 'diss': loss}, KeyError, "unknown optimizer 'diss'; available: .*did you mean 'dis'"),
        ({'gen': loss, 'dis': 3.0}, TypeError, r"the loss\['dis'\] of Gan's step must be a tensor"),
        ({'gen': loss.detach(), 'dis': loss}, ValueError, r"the loss\['gen'\] of Gan's step has no gradient"),
    ):
        with pytest.raises(error, match=words):
            runner.update(losses)


def test_norms_are_logged_by_optimizer():
    runner = gan_runner()
    runner.configure_update(grad_clip=dict(max_norm=1.0))
    runner.update(runner.model.train_step(batch(), None)['loss'])
    assert set(runner.log_buffer.val_history) == {'grad_norm_gen', 'grad_norm_dis'}
    runner.update(runner.model.gen_step(batch(), None)['loss'])  # both together
    assert 'grad_norm' in runner.log_buffer.val_history


def test_an_update_that_is_configured_in_the_same_words_is_the_same():
    runner = tiny_runner(max_epochs=1)
    first = runner.configure_update(cumulative_iters=2)
    assert runner.configure_update(cumulative_iters=2) is first
    assert runner.configure_update(cumulative_iters=3) is not first


def test_after_step_is_called_where_a_step_was_made():
    class Look(Hook):
        def after_step(self, runner):
            seen.append(runner.iter)

    seen, runner = [], tiny_runner(max_epochs=1)
    runner.register_hook(Look())
    runner.register_hook(OptimizerHook(cumulative_iters=2))
    runner.run([loader(20)], [('train', 1)])
    assert seen == [1, 3, 4]
