"""Fused optimizers, switched on where torch has them."""

import pytest
import torch
from support import loader, tiny_runner, weights
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

import runnerkit
from runnerkit.hooks import OptimizerHook
from runnerkit.optim.builder import can_be_fused, use_fused
from runnerkit.optim.update import Update


def parameters(dtype=torch.float32):
    return [nn.Parameter(torch.ones(3, dtype=dtype)), nn.Parameter(torch.ones(2, dtype=dtype))]


@pytest.mark.parametrize(
    ('kind', 'expected'), [(SGD, True), (Adam, True), (AdamW, True), (Adagrad, True), (RMSprop, False)]
)
def test_which_classes_have_one(kind, expected):
    optimizer = kind(parameters(), lr=0.1)
    assert can_be_fused(optimizer) is expected
    assert use_fused(optimizer) is expected
    assert [bool(group.get('fused')) for group in optimizer.param_groups] == [expected]


def test_what_it_cannot_do_is_left_alone():
    class Own(SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)

    for optimizer in (
        Adam(parameters(torch.complex64), lr=0.1),
        SGD(parameters(), lr=0.1, differentiable=True),
        Own(parameters(), lr=0.1),
    ):
        assert not use_fused(optimizer)
        assert not optimizer.param_groups[0]['fused']


def test_sgd_of_distributed_tensors_has_none():
    sharded = parameters()
    sharded[0].device_mesh = 'as DTensor has it'
    assert not can_be_fused(SGD(sharded, lr=0.1))
    assert can_be_fused(Adam(sharded, lr=0.1))


def test_one_that_has_begun_goes_on():
    (first, second), both = parameters(), []
    for switch in (False, True):
        torch.manual_seed(0)
        first, second = parameters()
        optimizer = Adam([first, second], lr=0.1)
        for step in range(4):
            first.grad, second.grad = torch.rand(3), torch.rand(2)
            if switch and step == 2:
                assert use_fused(optimizer)
            optimizer.step()
        both.append(torch.cat([first, second]).detach())
        assert optimizer.state[first]['step'] == 4
    torch.testing.assert_close(both[0], both[1])


def run(hook, optimizer=lambda model: AdamW(model.parameters(), lr=0.01), **options):
    runner = tiny_runner(optimizer=optimizer, **options)
    runner.register_hook(hook)
    runner.run([loader(12)], [('train', 1)])
    return runner


def test_auto_takes_it_and_the_checkpoint_says_so(tmp_path, caplog):
    caplog.set_level('INFO')
    runner = run(OptimizerHook(fused='auto'), max_epochs=2, work_dir=tmp_path)
    assert runner.optimizer.param_groups[0]['fused'] is True
    assert 'fused: AdamW yes' in caplog.text
    runner.save_checkpoint(str(tmp_path))
    assert torch.load(tmp_path / 'epoch_2.pth')['optimizer']['param_groups'][0]['fused'] is True
    by_hand = run(OptimizerHook(), lambda model: AdamW(model.parameters(), lr=0.01, fused=True), max_epochs=2)
    assert torch.equal(weights(runner.model), weights(by_hand.model))
    run(OptimizerHook(fused='auto'), lambda model: RMSprop(model.parameters()), max_epochs=1)
    assert 'fused: RMSprop no' in caplog.text


def test_a_resumed_run_goes_on_with_it(tmp_path):
    whole = run(OptimizerHook(fused='auto'), max_epochs=2)
    half = run(OptimizerHook(fused='auto'), max_epochs=1, work_dir=tmp_path)
    half.save_checkpoint(str(tmp_path))
    rest = tiny_runner(max_epochs=2, optimizer=lambda model: AdamW(model.parameters(), lr=0.01))
    rest.register_hook(OptimizerHook())  # what the file says is taken, not what the hook would choose
    rest.resume(str(tmp_path / 'epoch_1.pth'))
    rest.run([loader(12)], [('train', 1)])
    assert torch.equal(weights(rest.model), weights(whole.model))


@pytest.mark.parametrize('nesterov', [False, True])
def test_a_first_gradient_may_come_late(nesterov):
    """Where one parameter has momentum and another has not, torch's fused SGD fails."""
    ended = []
    for fused in (False, True):
        early, late = parameters()
        optimizer = SGD([early, late], lr=0.1, momentum=0.9, nesterov=nesterov)
        assert not fused or use_fused(optimizer)
        for step in range(4):
            early.grad = torch.full((3,), 0.5)
            late.grad = torch.full((2,), 0.25) if step >= 2 else None
            optimizer.step()
        ended.append(torch.cat([early, late]).detach())
    torch.testing.assert_close(*ended)


def test_sparse_gradients_are_left_alone(caplog):
    caplog.set_level('INFO')

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(4, 1, sparse=True)

        def train_step(self, data, optimizer):
            return {'loss': self.embedding(torch.tensor([1, 2])).sum()}

    runner = run(
        OptimizerHook(fused='auto'), lambda model: SGD(model.parameters(), lr=0.1), model=Words(), max_epochs=1
    )
    assert not runner.optimizer.param_groups[0]['fused']
    assert 'fused: SGD no' in caplog.text


def test_fp16_with_a_fused_optimizer_asks_the_device_nothing():
    reads = []

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            reads.extend([func] if func is torch.ops.aten._local_scalar_dense.default else [])
            return func(*args, **(kwargs or {}))

    for fused, expected in (('auto', 0), (None, 1)):
        weight = nn.Parameter(torch.ones(3))
        update = Update([SGD([weight], lr=0.1)], amp='fp16', loss_scale=2.0, fused=fused)
        reads.clear()
        with Counts():
            update.backward(weight.sum())
            update.step()
        assert len(reads) == expected


# --- in a run by config -----------------------------------------------------------------------------------------------


def fitted(work_dir, optimizer, epochs=1, **options):
    """The `fused` of an optimizer that `runnerkit.fit` has built, or was given; and its network."""
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimizer = optimizer(net.parameters()) if callable(optimizer) else optimizer
    x = torch.linspace(-1, 1, 8).reshape(4, 2)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    options = {'loss': 'MSELoss', 'optimizer': optimizer, 'epochs': epochs, 'device': 'cpu', 'seed': 0, **options}
    runnerkit.fit(net, data, work_dir=work_dir, batch_size=2, report=False, **options)
    return torch.load(work_dir / 'latest.pth')['optimizer']['param_groups'][0].get('fused'), weights(net)


@pytest.mark.parametrize(
    ('optimizer', 'options', 'expected'),
    [
        ('Adam', {}, True),
        ({'type': 'SGD', 'lr': 0.1}, {}, True),
        ({'type': 'SGD', 'lr': 0.1}, {'optimizer_config': {'fused': None}}, None),
        ({'type': 'SGD', 'lr': 0.1, 'fused': False}, {}, False),
        ({'type': 'SGD', 'lr': 0.1, 'foreach': True}, {}, None),
        ('RMSprop', {}, None),
        (lambda parameters: SGD(parameters, lr=0.1), {}, None),
    ],
)
def test_a_run_by_config_takes_it_unless_the_optimizer_is_given_or_says_how(tmp_path, optimizer, options, expected):
    assert fitted(tmp_path, optimizer, **options)[0] is expected


@pytest.mark.parametrize('was', ['auto', None])
def test_a_resumed_run_by_config_keeps_its_implementation(tmp_path, was):
    given = {'type': 'Adam', 'lr': 0.01}
    whole = fitted(tmp_path / 'whole', given, 2, optimizer_config={'fused': was})
    fitted(tmp_path / 'half', given, 1, optimizer_config={'fused': was})
    fused, ended = fitted(tmp_path / 'half', given, 2, resume=True)  # which takes 'auto'
    assert bool(fused) is bool(whole[0]) is (was == 'auto')
    assert torch.equal(ended, whole[1])
