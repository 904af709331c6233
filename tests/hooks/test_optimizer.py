"""The hook that configures and calls the runner's update."""

import logging
from contextlib import contextmanager

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights

from runnerkit.hooks import Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner


def trained(hook, model=None, optimizer=None, extra=(), **limits):
    runner = tiny_runner(model=model, optimizer=optimizer, **(limits or {'max_epochs': 1}))
    runner.register_hook(hook, 'ABOVE_NORMAL')
    for each in extra:
        runner.register_hook(each, 'LOW')
    runner.run([loader(20)], [('train', 1)])
    return runner


def test_gradients_are_readable_after_the_update():
    norms = []

    class Look(Hook):
        def after_train_iter(self, runner):
            norms.append(runner.model.head.weight.grad.norm().item())

    trained(OptimizerHook(), extra=[Look()])
    assert len(norms) == 5
    assert all(norm > 0 for norm in norms)


def test_clipping_logs_the_norm():
    runner = trained(OptimizerHook(grad_clip={'max_norm': 0.01}))
    assert len(runner.log_buffer.val_history['grad_norm']) == 5


def test_a_loss_for_each_optimizer():
    class Two(Tiny):
        def train_step(self, data, optimizer):
            out = super().train_step(data, optimizer)
            return {**out, 'loss': {'body': out['loss'], 'head': self.head(self.body(data[0]).detach()).mean()}}

    def two(model):
        return {
            'body': torch.optim.SGD(model.body.parameters(), lr=0.1),
            'head': torch.optim.SGD(model.head.parameters(), lr=0.1),
        }

    model = Two()
    before = weights(model)
    trained(OptimizerHook(), model=model, optimizer=two)
    assert not torch.equal(weights(model), before)


def test_a_step_that_updates_by_itself_is_left_alone():
    class Gan(Tiny):
        def train_step(self, data, optimizer):
            out = super().train_step(data, optimizer)
            optimizer['head'].zero_grad()
            out.pop('loss').backward()
            optimizer['head'].step()
            return out

    def head_only(model):
        return {'head': torch.optim.SGD(model.head.parameters(), lr=0.1)}

    runner = trained(OptimizerHook(), model=Gan(), optimizer=head_only)
    assert runner.iter == 5


def test_a_step_that_calls_the_runners_update_is_left_alone():
    steps = []

    class Mine(EpochBasedRunner):
        def run_iter(self, data_batch, train_mode, **kwargs):
            super().run_iter(data_batch, train_mode)
            self.update(self.outputs['loss'])

    class Count(Hook):
        def after_step(self, runner):
            steps.append(runner.iter)

    model = Tiny()
    runner = Mine(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), max_epochs=1)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Count())
    runner.run([loader(20)], [('train', 1)])
    assert steps == [0, 1, 2, 3, 4]


@pytest.mark.parametrize('amp, dtype', [('bf16', torch.bfloat16), ('fp16', torch.float16)])
def test_amp_runs_the_models_steps_under_autocast(amp, dtype):
    seen = {}

    class Look(Tiny):
        def forward(self, x):
            out = super().forward(x)
            seen['train' if self.training else 'val'] = out.dtype
            return out

    runner = tiny_runner(model=Look(), max_epochs=1)
    runner.register_hook(OptimizerHook(amp=amp))
    runner.run([loader(20), loader(4)], [('train', 1), ('val', 1)])
    assert seen == {'train': dtype, 'val': dtype}


def test_only_the_last_iteration_of_a_cycle_synchronises():
    log = []

    class Synchronised(Tiny):
        @contextmanager
        def no_sync(self):
            log.append('no_sync')
            yield

        def train_step(self, data, optimizer):
            log.append('step')
            return super().train_step(data, optimizer)

    trained(OptimizerHook(cumulative_iters=2), model=Synchronised())
    assert log == ['no_sync', 'step', 'step', 'no_sync', 'step', 'step', 'step']


def test_anomalous_parameters_are_logged(caplog):
    class Unused(Tiny):
        def __init__(self):
            super().__init__()
            self.idle = torch.nn.Linear(1, 1)

    with caplog.at_level(logging.ERROR, 'runnerkit'):
        trained(OptimizerHook(detect_anomalous_params=True), model=Unused())
    assert 'idle.weight does not contribute to the loss' in caplog.text


def test_no_optimizer_is_said_at_the_start():
    runner = EpochBasedRunner(Tiny(), max_epochs=1)
    runner.register_hook(OptimizerHook())
    with pytest.raises(RuntimeError, match='the runner has no optimizer'):
        runner.run([loader(4)], [('train', 1)])


def test_clip_grads_for_hooks_that_update_by_themselves():
    parameter = torch.nn.Parameter(torch.ones(4))
    hook = OptimizerHook(grad_clip={'max_norm': 1.0})
    assert hook.clip_grads([parameter]) is None
    parameter.grad = torch.ones(4)
    assert hook.clip_grads([parameter]).item() == pytest.approx(2.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0, abs=1e-4)


def test_subclasses_without_super():
    """Downstream code has hooks that write an __init__ or a before_run of their own."""

    class OwnInit(OptimizerHook):
        def __init__(self, grad_clip=None, coalesce=True):
            self.grad_clip = grad_clip
            self.coalesce = coalesce

    class OwnBeforeRun(OptimizerHook):
        def before_run(self, runner):
            self.seen = True

    trained_weights = [weights(trained(hook).model) for hook in (OptimizerHook(), OwnInit(), OwnBeforeRun())]
    assert torch.equal(trained_weights[0], trained_weights[1])
    assert torch.equal(trained_weights[0], trained_weights[2])


def test_an_update_by_name_in_the_step_is_seen_while_gradients_accumulate():
    class Mine(EpochBasedRunner):
        def run_iter(self, data_batch, train_mode, **kwargs):
            super().run_iter(data_batch, train_mode)
            self.update(self.outputs['loss'], 'all')

    model = Tiny()
    runner = Mine(model, optimizer={'all': torch.optim.SGD(model.parameters(), lr=0.1)}, max_epochs=1)
    runner.register_hook(OptimizerHook(cumulative_iters=2))
    runner.run([loader(20)], [('train', 1)])
    assert runner.iter == 5


def test_a_grad_clip_that_is_no_dict():
    with pytest.raises(TypeError, match=r'grad_clip must be a dict such as dict\(max_norm=35\), or None, but got 35'):
        trained(OptimizerHook(grad_clip=35))
