"""The shorter way to an optimizer's step: taken where nobody can tell, and only there."""

import functools
import subprocess
import sys

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim import optimizer as torch_optimizer

from runnerkit.optim import update as module
from runnerkit.optim.update import step


@pytest.fixture
def optimizer():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    return SGD([parameter], lr=0.5)


@pytest.fixture
def ranges(monkeypatch):
    """What is named for the profiler, which is what the shorter way leaves out."""
    named = []
    real = torch.autograd.profiler.record_function

    def record(name, *args):
        named.append(name)
        return real(name, *args)

    monkeypatch.setattr(torch.autograd.profiler, 'record_function', record)
    return named


def weight(optimizer):
    return optimizer.param_groups[0]['params'][0][0].item()


@pytest.mark.parametrize(
    ('owner', 'name'), [(Optimizer, 'profile_hook_step'), (torch_optimizer, '_use_grad_for_differentiable')]
)
def test_torchs_wrappers_are_those_that_are_known(owner, name):
    """If this fails with a new torch, steps are right but slower: read this function of that torch, let `step` do what
    is new in it, and add its names to `KNOWN`."""
    names = ' '.join(sorted({*getattr(owner, name)(len).__code__.co_names}))
    assert names in module.KNOWN[name], "step() was written for other names in torch's wrapper"


def test_a_step_is_not_named_for_the_profiler(optimizer, ranges):
    step(optimizer)
    assert weight(optimizer) == 0.5
    assert ranges == []
    optimizer.step()
    assert ranges == ['Optimizer.step#SGD.step']


@pytest.mark.parametrize('kind', [SGD, Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
def test_weights_are_those_of_the_ordinary_step(kind, ranges):
    ends = []
    for do in (step, lambda optimizer: optimizer.step()):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = kind([parameter], lr=0.1)
        for _ in range(3):
            parameter.grad = parameter.detach() ** 2
            do(optimizer)
        ends.append(parameter.detach())
    assert ends[0].equal(ends[1])
    assert len(ranges) == 3  # the ordinary ones


def test_hooks_after_the_step_are_called_as_torch_calls_them(optimizer, ranges):
    calls = []
    optimizer.register_step_post_hook(lambda *given: calls.append(given))
    step(optimizer)
    optimizer.step()
    assert calls[0] == calls[1] == (optimizer, (optimizer,), {})
    assert ranges == ['Optimizer.step#SGD.step']


def test_hooks_before_the_step_are_heard(optimizer, ranges):
    calls = []
    handle = optimizer.register_step_pre_hook(lambda *given: calls.append(given))
    step(optimizer)
    assert calls == [(optimizer, (optimizer,), {})]
    handle.remove()
    step(optimizer)
    assert len(calls) == len(ranges) == 1


@pytest.mark.parametrize('when', ['pre', 'post'])
def test_hooks_of_all_optimizers_are_heard(optimizer, ranges, when):
    calls = []
    handle = getattr(torch_optimizer, f'register_optimizer_step_{when}_hook')(lambda *given: calls.append(given))
    try:
        step(optimizer)
    finally:
        handle.remove()
    step(optimizer)
    assert len(calls) == len(ranges) == 1


def test_a_profiler_sees_the_step(optimizer):
    with torch.profiler.profile() as profile:
        step(optimizer)
    assert 'Optimizer.step#SGD.step' in {event.key for event in profile.key_averages()}


def test_a_step_put_on_the_instance_is_the_one_that_is_called(optimizer):
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # counts steps there
    step(optimizer)
    assert optimizer._opt_called
    optimizer.step = lambda: 'mine'
    before = weight(optimizer)
    step(optimizer)
    assert weight(optimizer) == before


def test_a_step_put_on_the_class_is_the_one_that_is_called(optimizer, monkeypatch):
    calls = []
    real = SGD.step

    @functools.wraps(real)  # bears all the marks of torch's
    def counted(self, *args):
        calls.append(self)
        return real(self, *args)

    monkeypatch.setattr(SGD, 'step', counted)
    step(optimizer)
    assert calls == [optimizer]
    assert weight(optimizer) == 0.5


class Delegate:
    """No optimizer of torch's, but something that steps."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()


def test_what_is_no_optimizer_of_torch_only_has_to_step(optimizer):
    step(Delegate(optimizer))
    assert weight(optimizer) == 0.5


def test_a_torch_that_does_more_in_a_step_steps_by_itself(optimizer, ranges, monkeypatch):
    def wrap(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            audit(args)
            return function(*args, **kwargs)

        return wrapper

    audit = print
    for owner, name in ((Optimizer, 'profile_hook_step'), (torch_optimizer, '_use_grad_for_differentiable')):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, wrap)
            assert module.wrapper_code(owner, name) is None
            changed.delattr(owner, name)
            assert module.wrapper_code(owner, name) is None
    monkeypatch.setattr(module, '_WRAPPER', None)
    step(optimizer)
    assert ranges == ['Optimizer.step#SGD.step']
    step(Delegate(optimizer))
    assert weight(optimizer) == 0.0


@pytest.mark.parametrize('torch_has', ['the known wrapper', 'another one'])
def test_gradients_are_recorded_in_a_step_only_where_it_is_differentiable(monkeypatch, torch_has):
    if torch_has == 'another one':
        monkeypatch.setattr(module, '_GRAD_MODE', None)
    for differentiable in (False, True):
        leaf = torch.ones(3, requires_grad=True)
        parameter = leaf * 1
        parameter.grad = torch.ones(3)
        optimizer = SGD([leaf], lr=0.5, differentiable=differentiable)
        optimizer.param_groups[0]['params'] = [parameter]
        with torch.set_grad_enabled(not differentiable):
            step(optimizer)
            assert torch.is_grad_enabled() is not differentiable  # as before
        assert parameter[0].item() == 0.5
        assert (type(parameter.grad_fn).__name__ == 'AddBackward0') is differentiable


WITHOUT_COMPILER = """
import sys
import torch
from runnerkit.optim import build_optimizer
from runnerkit.optim.update import Update

model = torch.nn.Linear(2, 1)
optimizer = build_optimizer(model, {'type': 'AdamW', 'lr': 0.1})
update = Update([optimizer], fused='auto')
for _ in range(2):
    update.backward(model(torch.ones(3, 2)).mean())
    update.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
optimizer.add_param_group({'params': [torch.nn.Parameter(torch.ones(2))]})
print(*{'torch._dynamo', 'sympy'} & {*sys.modules})

assert update._gradient_of(model(torch.ones(3, 2)).mean()) is None
import torch._dynamo

graphs = []
compiled = torch.compile(lambda x: optimizer.zero_grad() or x + 1, backend=lambda graph, _: graphs.append(1) or graph)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
compiled(torch.ones(2))
print(len(graphs), [parameter.grad for parameter in model.parameters()])
print(update._gradient_of(model(torch.ones(3, 2)).mean()))
update.backward(model(torch.ones(3, 2)).mean())
update.step()
"""


def test_an_update_loads_no_compiler_and_leaves_its_work_to_one_that_is_loaded():
    told = subprocess.run([sys.executable, '-c', WITHOUT_COMPILER], check=True, text=True, capture_output=True).stdout
    assert told.splitlines() == ['', '1 [None, None]', 'tensor(1.)']
