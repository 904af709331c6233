"""Hashes of a run's state in its log lines."""

import random

import numpy as np
import pytest
import torch
from support import Noisy, tiny_runner
from torch import nn

from runnerkit.data import build_dataloader
from runnerkit.distributed import reduce_and_find_slowest
from runnerkit.hooks import FingerprintHook, Hook
from runnerkit.hooks.fingerprint import HASHES, _sums_of, fingerprint
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_buffer import LogBuffer
from runnerkit.parallel import FSDP2, unwrap
from runnerkit.parallel.dtensors import laid_out_like


class Net(nn.Module):
    """Rows that two ranks share unequally, more than one dtype, and a buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 5)
        self.last = nn.Linear(5, 1)
        self.register_buffer('count', torch.tensor(3))

    def forward(self, x):
        return self.last(self.first(x).relu())

    def train_step(self, data, optimizer):
        loss = self(data).pow(2).mean()
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data)}


class View:
    """The little that `fingerprint` reads of a runner."""

    def __init__(self, model, optimizer=None, rank=0):
        self.model, self.optimizer, self.rank = model, optimizer, rank


def hashes_of(runner):
    buffer = LogBuffer()
    buffer.hashes = lambda: fingerprint(runner)
    buffer.average()
    return [buffer.output[name] for name in HASHES]


def trained(optimizer, model=None):
    model = Net() if model is None else model
    optimizer = optimizer(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    return View(model, optimizer)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.1)


def test_equal_states_have_equal_hashes():
    torch.manual_seed(3)
    assert hashes_of(trained(adam)) == hashes_of(trained(adam))
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in hashes_of(trained(adam)))


CHANGES = {
    'a bit of a weight': (0, lambda view: flip(view.model.last.weight)),
    'a bit of a buffer': (0, lambda view: flip(view.model.count)),
    'the sign of a zero': (0, lambda view: view.model.last.bias.data.copy_(torch.tensor([-0.0]))),
    'a name': (0, lambda view: rename(view.model)),
    'a shape': (0, lambda view: setattr(view.model.last.weight, 'data', view.model.last.weight.data.view(5, 1))),
    'a dtype': (0, lambda view: setattr(view.model, 'count', view.model.count.view(torch.float64))),
    'a bit of a moment': (1, lambda view: flip(view.optimizer.state[view.model.first.bias]['exp_avg_sq'])),
    'a step count': (1, lambda view: view.optimizer.state[view.model.first.bias]['step'].add_(1)),
    'a plain value': (1, lambda view: view.optimizer.state[view.model.first.bias].update(extra=1.5)),
    'a draw of torch': (2, lambda view: torch.rand(1)),
    'a draw of numpy': (2, lambda view: np.random.rand()),
    'a draw of Python': (2, lambda view: random.random()),
}


def flip(tensor):
    tensor.data.view(-1).view(torch.uint8)[-3] ^= 1


def rename(model):
    model.end = model.last
    del model.last


@pytest.mark.parametrize('change', CHANGES)
def test_one_change_changes_one_hash(change):
    place, do = CHANGES[change]
    view = trained(adam)
    with torch.no_grad():
        view.model.last.bias.zero_()
    before = hashes_of(view)
    do(view)
    after = hashes_of(view)
    assert [i for i in range(3) if before[i] != after[i]] == [place]


def test_no_optimizer_and_parts_whose_bits_cannot_be_read():
    net = Net()
    net.lazy, net.empty = nn.LazyLinear(2), nn.Linear(0, 0)
    net.register_buffer('sparse', torch.eye(2).to_sparse())
    assert len(set(hashes_of(View(net)))) == 3


def test_tensors_inside_of_a_state_have_hashes_whatever_their_type():
    """As those of LBFGS; numpy has no bfloat16."""

    def sums(value):
        return _sums_of({'old of parameter 0': [torch.full((2,), value).bfloat16()]}, 0)

    assert sums(1.0) == sums(1.0) != sums(-1.0)


def test_each_line_has_the_hashes_of_its_moment():
    lines, states = [], []

    class Look(Hook):
        def after_train_iter(self, runner):
            states.append(hashes_of(runner))

    class Keep(LoggerHook):
        def log(self, runner):
            lines.append(dict(runner.log_buffer.output))

    runner = tiny_runner(max_epochs=1)
    runner.register_training_hooks(None, {}, log_config=dict(interval=2, fingerprint=True, hooks=[Keep(2)]))
    runner.register_hook(Look(), 'LOW')
    runner.run([build_dataloader(Noisy(20), 4, 0, seed=0)], [('train', 1)])
    assert [[line[name] for name in HASHES] for line in lines] == states[1::2]
    assert len({line['weights_hash'] for line in lines}) == len(lines)
    assert all(isinstance(line['loss'], float) and 'weights_hash 0' not in line for line in lines)


def test_without_the_key_there_is_no_hook():
    runner = tiny_runner(max_epochs=1)
    runner.register_logger_hooks(dict(interval=2, fingerprint=False, hooks=[]))
    assert not any(isinstance(hook, FingerprintHook) for hook in runner.hooks)
    with pytest.raises(ValueError, match="log_config takes 'interval', 'hooks', 'fingerprint', but got 'fingerprints'"):
        runner.register_logger_hooks(dict(fingerprints=True))


def by_layout(rank):
    """The hashes of the same state: on one rank alone, as a DistributedDataParallel, and sharded."""
    alone = trained(adam)
    wrapped = nn.parallel.DistributedDataParallel(Net())
    sharded = FSDP2(Net(), min_num_params=1)
    found = {}
    for name, model in (('alone', None), ('ddp', wrapped), ('fsdp', sharded)):
        view = alone if model is None else View(model, adam(model), rank)
        if model is not None:
            copy_state(alone, view)
        buffer = LogBuffer()
        buffer.hashes = lambda view=view: fingerprint(view)
        if name == 'alone':
            buffer.average()
        else:
            buffer.update({'loss': torch.tensor(1.5 + rank)})
            buffer.average(reduce=reduce_and_find_slowest)
            assert buffer.output['loss'] == 2.0
        found[name] = [buffer.output[key] for key in HASHES]
    if rank == 1:
        torch.rand(1)
    buffer.average(reduce=reduce_and_find_slowest)
    found['drawn on rank 1'] = [buffer.output[key] for key in HASHES]
    return found


def copy_state(one, other):
    inner = unwrap(other.model)
    with torch.no_grad():
        for mine, theirs in zip(inner.parameters(), one.model.parameters(), strict=True):
            mine.copy_(laid_out_like(theirs.detach(), mine))
            state = one.optimizer.state[theirs]
            other.optimizer.state[mine] = {
                key: value if key == 'step' else laid_out_like(value, mine) for key, value in state.items()
            }


def test_the_hashes_of_all_layouts_are_equal(on_ranks):
    first, second = on_ranks(__file__, 'by_layout')
    assert first['ddp'][:2] == first['fsdp'][:2] == first['alone'][:2] == second['alone'][:2]
    assert first['ddp'] == second['ddp']
    assert first['fsdp'] == second['fsdp']
    assert first['fsdp'][2] != first['drawn on rank 1'][2] == second['drawn on rank 1'][2]
    assert first['fsdp'][:2] == first['drawn on rank 1'][:2]
