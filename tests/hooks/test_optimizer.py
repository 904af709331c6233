"""The hook that configures and calls the runner's update."""

import logging
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch import nn
from two_networks import NAMES, Gan, Points, flat, gan, plain_modes, sgd

from runnerkit.data import build_dataloader
from runnerkit.hooks import (
    CheckpointHook,
    Fp16OptimizerHook,
    GradientCumulativeFp16OptimizerHook,
    GradientCumulativeOptimizerHook,
    Hook,
    OptimizerHook,
)
from runnerkit.nn import auto_fp16
from runnerkit.runner import EpochBasedRunner, IterBasedRunner


def trained(hook, model=None, optimizer=None, extra=(), before=(), **limits):
    runner = tiny_runner(model=model, optimizer=optimizer, **(limits or {'max_epochs': 1}))
    for each in before:
        runner.register_hook(each, 'HIGH')
    runner.register_hook(hook, 'ABOVE_NORMAL')
    for each in extra:
        runner.register_hook(each, 'LOW')
    runner.run([loader(20)], [('train', 1)])
    return runner


class Rows(Tiny):
    """`Tiny` on rows of a table with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(10, 4, sparse=True)

    def train_step(self, data, optimizer, **kwargs):
        x, y = data
        return super().train_step((x.detach() + self.rows(torch.arange(len(x))), y), optimizer)


def clips_sparse_gradients():
    """Torch 2.14 has a norm of them."""
    rows = torch.nn.Embedding(3, 2, sparse=True)
    rows(torch.tensor([1])).sum().backward()
    try:
        torch.nn.utils.clip_grad_norm_(rows.parameters(), 1)
    except (NotImplementedError, RuntimeError):
        return False
    return True


@pytest.mark.skipif(clips_sparse_gradients(), reason='this torch clips sparse gradients')
@pytest.mark.parametrize('norm_type', [2.0, float('inf')])
@pytest.mark.parametrize('several', [False, True])
def test_clipping_sparse_gradients_names_the_embedding(several, norm_type):
    def sparse_and_dense(model):
        dense = [*model.body.parameters(), *model.head.parameters()]
        optimizers = {'rows': torch.optim.SparseAdam(model.rows.parameters()), 'dense': torch.optim.SGD(dense, lr=0.1)}
        return optimizers if several else torch.optim.SGD(model.parameters(), lr=0.1)

    told = r'grad_clip=.*max_norm.* sparse gradient of rows.weight \(10, 4\).*sparse=False.*grad_clip=None'
    with pytest.raises(ValueError, match=told):
        trained(OptimizerHook(grad_clip={'max_norm': 1, 'norm_type': norm_type}), Rows(), sparse_and_dense)
    trained(OptimizerHook(), Rows(), sparse_and_dense)


def test_one_of_several_optimizers_clips_beside_another_with_sparse_gradients():
    class Each(Rows):
        def train_step(self, data, optimizer, **kwargs):
            out = super().train_step(data, optimizer)
            return {**out, 'loss': {'rows': out['loss'], 'dense': out['loss']}}

    def sparse_and_dense(model):
        return {
            'rows': torch.optim.SparseAdam(model.rows.parameters()),
            'dense': torch.optim.SGD([*model.body.parameters(), *model.head.parameters()], lr=0.1),
        }

    runner = tiny_runner(model=Each(), optimizer=sparse_and_dense, max_epochs=1)
    runner.configure_update('dense', grad_clip={'max_norm': 0.01})
    runner.register_hook(OptimizerHook())
    runner.run([loader(8)], [('train', 1)])
    assert set(runner.log_buffer.val_history) & {'grad_norm_rows', 'grad_norm_dense'} == {'grad_norm_dense'}


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


@pytest.mark.parametrize('through', ['the optimizer', 'the runner'])
def test_options_that_a_step_of_its_own_goes_past_are_told(through, caplog):
    class Steps(Tiny):
        def train_step(self, data, optimizer):
            out = super().train_step(data, optimizer)
            if through == 'the runner':
                self.update(out['loss'])
            else:
                optimizer.zero_grad()
                out['loss'].backward()
                optimizer.step()
            return out

    class Gives(Hook):
        def before_run(self, runner):
            runner.model.update = runner.update

    model = Steps()
    trained(OptimizerHook(grad_clip={'max_norm': 1}, cumulative_iters=2), model=model, before=[Gives()])
    told = 'calls optimizer.step() itself, so that grad_clip, cumulative_iters of optimizer_config has no effect'
    assert caplog.text.count(told) == (through == 'the optimizer')
    caplog.clear()
    trained(OptimizerHook(), model=Steps(), before=[Gives()])
    assert 'optimizer.step()' not in caplog.text


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


def test_amp_spans_evaluations_without_iterations():
    """As those of a data set that scores the model's predictions."""
    seen = []

    class Evaluates(Hook):
        def after_train_epoch(self, runner):
            seen.append(torch.is_autocast_enabled('cpu'))
            with runner.around_val():
                seen.append(torch.is_autocast_enabled('cpu'))

    trained(OptimizerHook(amp='bf16'), extra=[Evaluates()])
    assert seen == [False, True]


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


def test_an_iteration_that_fills_up_a_cycle_synchronises_also_if_another_one_was_left_out():
    """The second iteration has an update of its own, so that the third one's loss is the second of the cycle."""
    log = []

    class Synchronised(Tiny):
        @contextmanager
        def no_sync(self):
            log.append('no_sync')
            yield

    class UpdatesByItself(Hook):
        def after_train_iter(self, runner):
            log.append('iter')
            if runner.iter == 1:
                runner.update(runner.outputs['loss'], 'head')

        def after_step(self, runner):
            log.append('step')

    def optimizer(model):
        return {'head': torch.optim.SGD(model.head.parameters(), lr=0.1)}

    trained(OptimizerHook(cumulative_iters=2), Synchronised(), optimizer, max_iters=4, before=[UpdatesByItself()])
    assert log == ['no_sync', 'iter', 'iter', 'step', 'iter', 'step', 'iter', 'step']


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


# --- loops that are no runners of ours -------------------------------------------------------------------------------


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(2, 1)
        self.idle = nn.Linear(2, 1)

    def forward(self, x):
        return self.used(x)


def test_a_stand_in_for_a_runner_will_do():
    stand_in, model = Mock(), Branches()
    stand_in.model = model
    stand_in.outputs = {'loss': model(torch.ones(1, 2)).sum(), 'num_samples': 3}
    OptimizerHook({'max_norm': 1}, detect_anomalous_params=True).after_train_iter(stand_in)
    assert [name for name, *_ in stand_in.optimizer.mock_calls if name != 'register_step_post_hook'] == [
        'zero_grad',
        'step',
    ]
    logged = [call.kwargs for call in stand_in.logger.log.call_args_list]
    assert [entry['level'] for entry in logged] == [logging.ERROR] * 2
    assert ['idle.weight' in logged[0]['msg'], 'idle.bias' in logged[1]['msg']] == [True, True]
    (values, count), _ = stand_in.log_buffer.update.call_args
    assert (values, count) == ({'grad_norm': pytest.approx(3**0.5)}, 3)


@pytest.mark.parametrize('hook', [OptimizerHook(), GradientCumulativeOptimizerHook(cumulative_iters=2)])
def test_a_loop_of_mmcvs_shape(hook):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.0)
    loop = SimpleNamespace(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), logger=Mock(), max_iters=3, meta={}
    )
    path = []
    for loop.iter in range(3):
        loop.outputs = {'loss': model(torch.ones(1, 1)).sum(), 'num_samples': 1}
        hook.after_train_iter(loop)
        path.append(model.weight.item())
    assert path == ([-1.0, -2.0, -3.0] if type(hook) is OptimizerHook else [0.0, -1.0, -2.0])


def test_anomalous_parameters_for_hooks_that_update_by_themselves():
    model, logger = Branches(), Mock()
    loss = model(torch.ones(1, 2)).sum()
    OptimizerHook().detect_anomalous_parameters(loss, SimpleNamespace(model=model, logger=logger))
    assert logger.log.call_count == 2


# --- accumulation ----------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """Without noise, so that batches can be put together."""

    def __init__(self, norm=False):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        nn.init.constant_(self.layer.weight, 1.0)
        nn.init.constant_(self.layer.bias, 1.0)
        self.norm = nn.BatchNorm1d(2) if norm else nn.Identity()
        self.fp16_enabled = False
        self.seen = []

    @auto_fp16()
    def forward(self, x):
        out = self.norm(self.layer(x))
        self.seen.append(out.dtype)
        return out

    def train_step(self, data, optimizer, **kwargs):
        return {'loss': self(data).float().mean(), 'num_samples': len(data)}


def plain_runner(hook, batch, data, kind='epoch', model=None, **limits):
    model = model or Plain()
    runner = tiny_runner(kind, model=model, optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.02), **limits)
    runner.register_hook(hook)
    runner.run([torch.utils.data.DataLoader(data, batch_size=batch)], [('train', 1)])
    return runner


@pytest.mark.parametrize('cls', [GradientCumulativeOptimizerHook, OptimizerHook])
def test_cycles_equal_larger_batches_also_the_last_shorter_one(cls):
    data = torch.rand(8, 3)
    small = plain_runner(cls(cumulative_iters=3, grad_clip={'max_norm': 0.2}), 1, data, max_epochs=1)
    large = plain_runner(OptimizerHook({'max_norm': 0.2}), 3, data, max_epochs=1)
    assert (small.model.layer.weight < 1).all()
    torch.testing.assert_close(small.model.layer.weight, large.model.layer.weight)


@pytest.mark.parametrize(
    'start, end, factors, divisible, remainder',
    [(0, 6, [3] * 6, 6, 0), (0, 8, [3] * 6 + [2] * 2, 6, 2), (3, 8, [3, 3, 3, 2, 2], 6, 2), (0, 2, [2, 2], 0, 2)],
)
def test_by_what_losses_are_divided(start, end, factors, divisible, remainder):
    runner = tiny_runner(max_epochs=2)
    runner._iter, runner._max_iters = start, end
    hook = GradientCumulativeOptimizerHook(cumulative_iters=3)
    hook._init(runner)
    found = []
    for runner._iter in range(start, end):
        found.append(hook._get_loss_factor(runner))
    assert (found, hook.divisible_iters, hook.remainder_iters, hook.initialized) == (
        factors,
        divisible,
        remainder,
        True,
    )


def test_batch_norms_and_lost_gradients_are_warned_about(caplog):
    runner = plain_runner(GradientCumulativeOptimizerHook(2), 2, torch.rand(4, 3), model=Plain(norm=True), max_epochs=1)
    assert 'the model has batch norms' in caplog.text
    assert 'are lost' not in caplog.text
    runner._iter = 3
    GradientCumulativeOptimizerHook(2)._init(runner)
    assert 'resumes 1 iterations into a cycle of cumulative_iters=2' in caplog.text


def test_whether_there_is_a_batch_norm():
    hook = GradientCumulativeOptimizerHook()
    for module in (nn.BatchNorm2d(1), nn.Sequential(nn.Sequential(nn.SyncBatchNorm(1)))):
        assert hook.has_batch_norm(module)
    assert not hook.has_batch_norm(nn.Sequential(nn.InstanceNorm2d(1), nn.GroupNorm(1, 1)))


# --- fp16 as in MMCV -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('scale', [8.0, 'dynamic', {'init_scale': 8.0}])
def test_fp16_runs_what_the_model_has_decorated(scale):
    data = torch.rand(6, 3)
    runner = plain_runner(Fp16OptimizerHook({'max_norm': 1.0}, loss_scale=scale), 2, data, max_epochs=2)
    single = plain_runner(OptimizerHook({'max_norm': 1.0}), 2, data, max_epochs=2)
    assert runner.model.fp16_enabled
    assert set(runner.model.seen) == {torch.float16}
    torch.testing.assert_close(runner.model.layer.weight, single.model.layer.weight, rtol=1e-3, atol=1e-4)
    norms = [float(norm) for norm in runner.log_buffer.val_history['grad_norm']]
    assert norms == pytest.approx([float(norm) for norm in single.log_buffer.val_history['grad_norm']], rel=1e-2)


def test_fp16_leaves_a_model_without_decorators_as_it_is():
    seen = set()

    class Bare(Tiny):
        def forward(self, x):
            out = super().forward(x)
            seen.add(out.dtype)
            return out

    trained(Fp16OptimizerHook(), model=Bare())
    assert seen == {torch.float32}


def test_fp16_and_cycles():
    data = torch.rand(8, 3)
    hook = GradientCumulativeFp16OptimizerHook(cumulative_iters=3, loss_scale=8.0, grad_clip={'max_norm': 0.2})
    small = plain_runner(hook, 1, data, max_epochs=1)
    large = plain_runner(Fp16OptimizerHook({'max_norm': 0.2}, loss_scale=8.0), 3, data, max_epochs=1)
    torch.testing.assert_close(small.model.layer.weight, large.model.layer.weight, rtol=1e-3, atol=1e-4)
    assert (hook.cumulative_iters, hook.loss_scaler.get_scale()) == (3, 8.0)


def test_the_scale_is_where_mmcv_looks_for_it_and_resumes_from_there(tmp_path):
    class Old(Hook):
        """Makes of our checkpoints files like MMCV's, which know of no ``runnerkit``."""

        def after_save(self, runner):
            file = torch.load(tmp_path / 'epoch_1.pth')
            del file['runnerkit'], file['meta']['runnerkit_version']
            file['meta']['fp16']['loss_scaler']['scale'] = 32.0
            torch.save(file, tmp_path / 'old.pth')

    runner = tiny_runner(model=Tiny(), work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Fp16OptimizerHook(loss_scale='dynamic'), 'ABOVE_NORMAL')
    for hook in (CheckpointHook(interval=1), Old()):
        runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    kept = torch.load(tmp_path / 'epoch_1.pth')['meta']['fp16']['loss_scaler']
    assert kept['scale'] == 65536.0
    assert runner.meta['fp16']['loss_scaler'] == kept

    hook = Fp16OptimizerHook(loss_scale='dynamic')
    runner = tiny_runner(model=Tiny(), max_epochs=2)
    runner.register_hook(hook)
    runner.resume(str(tmp_path / 'old.pth'))
    runner.run([loader(8)], [('train', 1)])
    assert hook.loss_scaler.get_scale() == 32.0


def test_arguments_of_fp16():
    hook = Fp16OptimizerHook()
    assert (hook.coalesce, hook.bucket_size_mb, hook.distributed, hook.grad_clip) == (True, -1, True, None)
    assert hook.loss_scaler.get_scale() == 512.0
    with pytest.raises(ValueError, match='loss_scale must be a number'):
        Fp16OptimizerHook(loss_scale=None)


def test_copies_between_two_sets_of_weights():
    half, hook = nn.Linear(2, 1).half(), Fp16OptimizerHook()
    single = [nn.Parameter(p.detach().float() + 1) for p in half.parameters()]
    half.weight.grad = torch.ones_like(half.weight)
    hook.copy_grads_to_fp32(half, single)
    assert single[0].grad.dtype == torch.float32
    assert single[0].grad.tolist() == [[1.0, 1.0]]
    assert single[1].grad is None
    hook.copy_params_to_fp16(half, single)
    assert torch.equal(half.weight, single[0].half())


@pytest.mark.parametrize(
    ('loss_scale', 'param'), [(8.0, 8.0), (8, 8.0), ('dynamic', None), ({'init_scale': 4.0}, None)]
)
def test_a_subclass_that_steps_by_itself_as_with_mmcv(loss_scale, param):
    class ByHand(Fp16OptimizerHook):
        def after_train_iter(self, runner):
            self.loss_scaler.scale(runner.outputs['loss'] / 2).backward()
            if self.every_n_iters(runner, 2):
                self.loss_scaler.unscale_(runner.optimizer)
                self.loss_scaler.step(runner.optimizer)
                self.loss_scaler.update(self._scale_update_param)
                runner.optimizer.zero_grad()

    hook = ByHand(loss_scale=loss_scale)
    assert hook._scale_update_param == param
    expected = trained(GradientCumulativeOptimizerHook(cumulative_iters=2), max_iters=4, kind='iter')
    runner = trained(hook, max_iters=4, kind='iter')
    torch.testing.assert_close(weights(runner.model), weights(expected.model), rtol=1e-3, atol=1e-4)


class EveryThird(Tiny):
    """Updates by itself in the first of every three iterations; counts all steps of its optimizer."""

    def __init__(self):
        super().__init__()
        self.calls = self.steps = 0

    def train_step(self, data, optimizer, **kwargs):
        step = super().train_step(data, optimizer)
        if self.calls == 0:
            optimizer.register_step_post_hook(lambda *args: setattr(self, 'steps', self.steps + 1))
        if self.calls % 3 == 0:
            optimizer.zero_grad()
            step['loss'].backward()
            optimizer.step()
        self.calls += 1
        return step


@pytest.mark.parametrize(('gives_way', 'steps'), [(True, 2), (False, 5)])
def test_the_hook_that_nobody_asked_for_leaves_all_updates_to_a_step_that_makes_some(gives_way, steps):
    hook = OptimizerHook()
    hook.gives_way = gives_way
    assert trained(hook, EveryThird()).model.steps == steps


def test_that_it_has_given_way_is_resumed():
    hook, other = OptimizerHook(), OptimizerHook()
    assert hook.state_dict() == {}
    hook.gives_way = other.gives_way = True
    trained(hook, EveryThird())
    other.load_state_dict(hook.state_dict())
    model = EveryThird()
    model.calls = 1
    before = nn.utils.parameters_to_vector(model.parameters())
    trained(other, model, max_iters=2)
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)


# --- several optimizers ----------------------------------------------------------------------------------------------


class Steps(Hook):
    """Notes in which iterations the weights of each network change."""

    def before_run(self, runner):
        self.found, self.before = [], self.weights(runner)

    def after_train_iter(self, runner):
        now = self.weights(runner)
        self.found.append([name for name in NAMES if not torch.equal(now[name], self.before[name])])
        self.before = now

    def weights(self, runner):
        return {name: flat(getattr(runner.model, name)) for name in NAMES}


def gan_steps(model, workflow, hook=None, iters=4, kind=IterBasedRunner):
    runner = kind(model, optimizer=sgd(model), max_iters=iters)
    hook = hook or OptimizerHook()
    steps = Steps()
    runner.register_hook(hook, 'HIGH')
    runner.register_hook(steps)
    data = [build_dataloader(Points(), samples_per_gpu=6, workers_per_gpu=0, seed=0) for _ in workflow]
    runner.run(data, workflow)
    return steps.found, runner


def test_the_running_mode_names_the_optimizer_that_its_loss_updates():
    found, runner = gan_steps(gan(), [('dis', 2), ('gen', 1)])
    assert found == [['dis'], ['dis'], ['gen'], ['dis']]
    found, _ = gan_steps(gan(), [('train', 1)])
    assert found == [['gen', 'dis']] * 4


def test_an_optimizer_that_the_step_has_updated_itself_is_not_updated_again():
    class Half(Gan):
        """Updates the discriminator itself, by both ways in turn."""

        def train_step(self, data, optimizer):
            out = super().train_step(data, optimizer)
            loss = out['loss']['dis']
            if self.runner.iter % 2:
                self.runner.update(loss, 'dis')
            else:
                optimizer['dis'].zero_grad()
                loss.backward(inputs=list(self.dis.parameters()))
                optimizer['dis'].step()
            # Computed anew, since the graph's weights have changed.
            return {**out, 'loss': {'gen': self.gen_loss(self.gen(data[1])), 'dis': self.dis(data[0]).mean()}}

    def run(model, hook=None):
        model.runner = runner = IterBasedRunner(model, optimizer=sgd(model), max_iters=3)
        runner.register_hook(hook or OptimizerHook())
        data = build_dataloader(Points(), samples_per_gpu=6, workers_per_gpu=0, seed=0)
        runner.run([data], [('train', 1)])
        return runner, list(data)

    torch.manual_seed(0)
    runner, data = run(Half())
    plain, optimizers = gan(), None
    optimizers = sgd(plain)
    for real, noise in data[:3]:
        plain_modes(plain, optimizers, [('dis', (real, noise)), ('gen', (real, noise))])
    assert torch.equal(flat(runner.model), flat(plain))


def test_what_is_left_to_the_step_is_remembered_by_name():
    """With the hook of a config that says nothing: the step updates the discriminator, but not in each iteration."""

    class Sometimes(Gan):
        def train_step(self, data, optimizer):
            out = super().train_step(data, optimizer)
            self.calls = getattr(self, 'calls', 0) + 1
            if self.calls % 2:
                optimizer['dis'].zero_grad()
                out['loss']['dis'].backward(inputs=list(self.dis.parameters()), retain_graph=True)
                optimizer['dis'].step()
            real, noise = data
            return {
                **out,
                'loss': {'gen': self.gen_loss(self.gen(noise)), 'dis': self.dis_loss(real, noise @ noise.T[:, :3])},
            }

    hook = OptimizerHook()
    hook.gives_way = True
    found, _ = gan_steps(Sometimes(), [('train', 1)], hook)
    assert found == [['gen', 'dis'], ['gen'], ['gen', 'dis'], ['gen']]
    assert hook.state_dict() == {'has_given_way': True, 'left': ['dis']}
    other = OptimizerHook()
    _, runner = gan_steps(gan(), [('train', 1)], other)
    other.load_state_dict({'has_given_way': True})  # of an earlier version: all of them
    assert other.state_dict()['left'] == ['dis', 'gen']


@pytest.mark.parametrize('amp', ['bf16', 'fp16'])
def test_each_loss_is_scaled_and_accumulated_for_its_own_optimizer(amp):
    hook = OptimizerHook(amp=amp, loss_scale=8.0, cumulative_iters=2, grad_clip=dict(max_norm=1.0))
    found, runner = gan_steps(gan(), [('dis', 2), ('gen', 1)], hook, iters=8)
    assert found == [[], ['dis'], [], [], ['dis'], ['gen'], [], ['dis']]
    scalers = {key: update.scaler for key, update in runner.updater.updates.items()}
    assert (scalers['gen'] is not scalers['dis']) == (amp == 'fp16')
    assert {'grad_norm_dis', 'grad_norm_gen'} <= set(runner.log_buffer.val_history)
