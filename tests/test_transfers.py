"""What an iteration must not do: wait for a device, which every value that goes to the host does."""

import gc
import time
from collections import Counter

import pytest
import torch
from support import thinned, tiny_runner
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from runnerkit.hooks import EMAHook

ITERATIONS, INTERVAL = 30, 10

#: Methods of a tensor that bring it to the host. Some of them, such as ``tolist``, call no operator on the CPU.
READS = {'tolist', 'item', 'cpu', 'numpy', '__array__', '__float__', '__int__', '__bool__', '__index__', 'is_nonzero'}

#: Operators that do, from Python and from torch's own code, and the one behind ``tensor.to(device)``.
SCALAR, COPY = '_local_scalar_dense', '_to_copy'


class Operators(TorchDispatchMode):
    """Adds the name of every operator to the last counter of ``steps``."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.steps[-1][function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


class Methods(TorchFunctionMode):
    """Adds 'read' to the last counter of ``steps`` for every method that brings a tensor to the host."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ in READS:
            self.steps[-1]['read'] += 1
        return function(*args, **(kwargs or {}))


class Stepping(nn.Module):
    """A model with a layer, a norm with buffers, and two values to log; every step begins a counter in ``steps``."""

    def __init__(self, steps):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.steps = steps

    def train_step(self, data, optimizer, **kwargs):
        self.steps.append(Counter())
        x, y = data
        out = self.body(x)
        loss = nn.functional.mse_loss(out.float(), y)
        return {'loss': loss, 'log_vars': {'loss': loss, 'mean': out.mean()}, 'num_samples': len(x)}


OPTIMIZERS = {
    'SGD': lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    'Adam': lambda model: torch.optim.Adam(model.parameters(), lr=0.1),
    'AdamW, fused': lambda model: torch.optim.AdamW(model.parameters(), lr=0.1, fused=True),
}

CONFIGS = {
    'default': {},
    'clipped': {'grad_clip': {'max_norm': 1.0}},
    'bf16': {'amp': 'bf16'},
    'accumulating': {'cumulative_iters': 3, 'type': 'GradientCumulativeOptimizerHook'},
    'EMA': {},
}


def batches():
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(4, 4, generator=generator), torch.rand(4, 1, generator=generator)) for _ in range(ITERATIONS)]


def counted(do, steps):
    """What is counted in each of the steps that ``do()`` makes, the last one left out: the run's end is in it."""
    with Operators(steps), Methods(steps):
        do()
    return steps[1:-1]


def plain(optimizer):
    """The steps of the loop written by hand."""
    steps = [Counter()]
    model = Stepping(steps)
    optimizer = OPTIMIZERS[optimizer](model)
    data = batches()

    def loop():
        for batch in data:
            loss = model.train_step(batch, optimizer)['loss']
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return counted(loop, steps)


def run(kind, optimizer, config, work_dir, monkeypatch):
    """The steps of a run with the five default hooks: with those that log, and without."""
    steps = [Counter()]
    limits = {'max_epochs': 1} if kind == 'epoch' else {'max_iters': ITERATIONS}
    runner = tiny_runner(kind, Stepping(steps), work_dir, optimizer=OPTIMIZERS[optimizer], **limits)
    runner.register_training_hooks(
        {'policy': 'poly', 'by_epoch': False, 'warmup': 'linear', 'warmup_iters': 15},
        CONFIGS[config],
        {'interval': 1, 'by_epoch': True},
        {'interval': INTERVAL, 'hooks': [{'type': 'TextLoggerHook'}]},
        custom_hooks_config=[EMAHook(momentum=0.1)] if config == 'EMA' else None,
    )
    assert len(runner.hooks) == 5 + (config == 'EMA')
    for module, name in ((time, 'sleep'), (gc, 'collect'), (torch.cuda, 'synchronize')):
        monkeypatch.setattr(module, name, lambda *args, name=name: steps[-1].update([name]))
    data = batches()
    found = counted(lambda: runner.run([data], [('train', 1)]), steps)
    monkeypatch.undo()
    assert len(found) == ITERATIONS - 1
    logging = found[INTERVAL - 1 :: INTERVAL]
    return logging, [step for i, step in enumerate(found, 1) if i % INTERVAL]


@thinned(kind=['epoch', 'iter'], config=CONFIGS)
def test_an_iteration_that_does_not_log_brings_nothing_to_the_host(kind, config, tmp_path, monkeypatch):
    _, quiet = run(kind, 'SGD', config, tmp_path, monkeypatch)
    casts = sum(step[COPY] for step in quiet)
    assert casts == 0 or config == 'bf16'  # where they are autocast's
    assert [step['read'] + step[SCALAR] for step in quiet] == [0] * len(quiet)


@thinned(kind=['epoch', 'iter'], optimizer=OPTIMIZERS)
def test_an_iteration_brings_no_more_to_the_host_than_the_plain_loop(kind, optimizer, tmp_path, monkeypatch):
    _, quiet = run(kind, optimizer, 'default', tmp_path, monkeypatch)
    by_hand = plain(optimizer)[0]
    for name in (SCALAR, COPY, 'read'):
        assert max(step[name] for step in quiet) <= by_hand[name], name


@thinned(kind=['epoch', 'iter'], config=CONFIGS)
def test_a_log_event_reads_all_values_at_once(kind, config, tmp_path, monkeypatch):
    logging, _ = run(kind, 'SGD', config, tmp_path, monkeypatch)
    assert len(logging) == 2
    assert [(step['read'], step[SCALAR]) for step in logging] == [(1, 0)] * 2


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_an_iteration_sleeps_never_and_collects_no_garbage(kind, tmp_path, monkeypatch):
    logging, quiet = run(kind, 'SGD', 'default', tmp_path, monkeypatch)
    for step in logging + quiet:
        assert not step.keys() & {'sleep', 'collect', 'synchronize'}


def test_what_is_counted_here():
    steps = [Counter()]
    with Operators(steps), Methods(steps):
        value = torch.ones(2)
        value.tolist(), float(value[0]), value[0].item(), bool(value[0]), value.numpy()
        value.to(torch.float64)
    assert steps[0]['read'] == 5
    assert steps[0][SCALAR] == 3
    assert steps[0][COPY] == 1
