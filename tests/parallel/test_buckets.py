"""Sums over three ranks after a resume: to the bit what they are without it."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from runnerkit.checkpoint import get_state_dict, load_state_dict
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.parallel.buckets import GradientOrders, bring_about

#: Small enough for several buckets.
BUCKET_MB = 0.002
#: What is trained, when it is left, and whether sums then depend on what is brought about.
CASES = {
    'ours': ({}, 3, True),
    "torch's": ({'wrapper': DistributedDataParallel}, 3, True),
    'after one step': ({}, 1, True),
    'other order later': ({'fickle': True}, 4, True),
    'gradients are views': ({'gradient_as_bucket_view': True}, 3, True),
    'inside a cycle': ({'cycle': 4}, 6, True),
    'inside a cycle, gradients are views': ({'cycle': 4, 'gradient_as_bucket_view': True}, 6, True),
    'inside the first cycle': ({'cycle': 4}, 2, False),
    'sparse gradients': ({'sparse': True}, 3, True),
    'compressed gradients': ({'comm_hook': fp16_compress_hook}, 3, True),
    'a part was compiled': ({'compiled': 'before'}, 3, True),
    'a part is compiled': ({'compiled': 'after'}, 3, True),
    'unused parameters are looked for': ({'find_unused_parameters': True}, 3, False),
}


class Net(nn.Module):
    """Layers whose gradients become ready in another order than the reverse of their definition."""

    def __init__(self, sparse, fickle):
        super().__init__()
        self.calls, self.fickle = 0, fickle
        self.embed = nn.Embedding(20, 24, sparse=sparse)
        self.late = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.Linear(32, 24))
        self.early = nn.Linear(24, 24)
        self.head = nn.Linear(24, 1)

    def forward(self, i):
        self.calls += 1
        x = self.embed(i)
        x = self.early(self.late(x)) if self.fickle and self.calls % 2 else self.late(self.early(x))
        return self.head(x).square().mean()


def build(
    wrapper=MMDistributedDataParallel, sparse=False, fickle=False, comm_hook=None, cycle=1, compiled=False, **options
):
    torch.manual_seed(0)
    net = Net(sparse, fickle)
    if compiled:
        torch._dynamo.config.optimize_ddp = False  # it refuses such small buckets
        net.late = torch.compile(net.late, backend='eager')
    model = wrapper(net, bucket_cap_mb=BUCKET_MB, **options)
    if comm_hook is not None:
        model.register_comm_hook(None, comm_hook)
    return model


def train(model, rank, iterations, cycle=1):
    for iteration in iterations:
        i = torch.randint(0, 20, (8,), generator=torch.Generator().manual_seed(100 * iteration + rank))
        is_last = (iteration + 1) % cycle == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            model(i).backward()
        if is_last:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad.to_dense(), alpha=0.02)
                    parameter.grad = None


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def exact(rank, settings, left_at):
    """Whether a run of eight steps ends the same if another process goes on with it, without and with the order."""
    cycle, compiled = settings.get('cycle', 1), settings.get('compiled')
    whole = build(**{**settings, 'compiled': compiled == 'before'})
    orders = GradientOrders(whole)
    orders.start({})
    train(whole, rank, range(left_at), cycle)
    saved, state = copy.deepcopy(orders.state_dict()), copy.deepcopy(get_state_dict(whole))
    if compiled == 'before':  # as old files have it
        saved = {name: [each.replace('late.', 'late._orig_mod.') for each in order] for name, order in saved.items()}
    grads = [None if p.grad is None else p.grad.clone() for p in whole.parameters()]
    calls = whole.module.calls
    train(whole, rank, range(left_at, 8), cycle)
    assert weights(whole).isfinite().all()
    assert count_listeners(whole) == 0

    found = []
    for brings_about in (False, True):
        resumed = build(**{**settings, 'compiled': compiled == 'after'})
        load_state_dict(resumed, state, strict=True)
        resumed.module.calls = calls
        if brings_about:
            GradientOrders(resumed).start(saved)
        for parameter, grad in zip(resumed.parameters(), grads, strict=True):
            parameter.grad = None if grad is None else grad.clone()
        train(resumed, rank, range(left_at, 8), cycle)
        found.append(torch.equal(weights(whole), weights(resumed)))
    return found


def on_rank(rank):
    found = {name: exact(rank, settings, left_at) for name, (settings, left_at, _) in CASES.items()}
    return {**found, 'trace': traces(rank), 'wrappers': wrappers(rank)}


def traces(rank):
    """What bringing about leaves behind: nothing."""
    model = build()
    for each in [*model.buffers(), *model.parameters()]:
        each.data.add_(rank)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, rank)
    before = copy.deepcopy([*model.buffers(), *model.parameters()]), torch.get_rng_state()
    bring_about(model, ['early.weight'])
    after = [*model.buffers(), *model.parameters()], torch.get_rng_state()
    return {
        'values': all(map(torch.equal, before[0], after[0])),
        'random': torch.equal(before[1], after[1]),
        'grads': all((p.grad == rank).all() for p in model.parameters()),
        'calls': model.module.calls,
        'syncs': (model.require_forward_param_sync, model.require_backward_grad_sync),
        'module': 'module' in vars(model),
    }


def wrappers(rank):
    """Several in one model; and one that only two ranks share."""
    both = nn.ModuleDict({'a': build(), 'b': build(), 'static': build(static_graph=True)})
    orders = GradientOrders(both)
    orders.start({})
    train(both['a'], rank, range(1))
    first = orders.state_dict()
    listeners = count_listeners(both)
    orders.start({})  # another run of the same model
    same = count_listeners(both) == listeners
    train(both['b'], rank, range(2))
    pair = torch.distributed.new_group([0, 1])
    of_two = GradientOrders(build(process_group=pair)) if rank < 2 else None
    if of_two is not None:
        of_two.start({})
        train(of_two.model, rank, range(2))
    return {
        'first': first,
        'same listeners': same,
        'then': list(orders.state_dict()),
        'doubts': orders.doubts(),
        'of two': {} if of_two is None else of_two.state_dict(),
    }


def count_listeners(model):
    return sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())


@pytest.fixture(scope='module')
def ranks(on_ranks):
    return on_ranks(__file__, 'on_rank', world_size=3)


@pytest.mark.parametrize('name', CASES)
def test_a_resumed_run_is_exact(name, ranks):
    depends = CASES[name][2]
    assert [rank[name] for rank in ranks] == [[not depends, True]] * 3


def test_nothing_is_left_behind(ranks):
    for rank in ranks:
        assert rank['trace'] == {
            'values': True,
            'random': True,
            'grads': True,
            'calls': 0,
            'syncs': (True, True),
            'module': False,
        }


def test_each_wrapper_is_recorded_by_its_name_once_it_has_synchronised(ranks):
    for rank in ranks:
        order = rank['wrappers']['first']['a']
        assert list(rank['wrappers']['first']) == ['a']
        assert sorted(order) == sorted(name for name, _ in Net(False, False).named_parameters())
        assert order.index('early.weight') > order.index('late.0.weight')
        assert rank['wrappers']['then'] == ['a', 'b']
        assert rank['wrappers']['same listeners']


def test_sums_of_two_do_not_depend_on_an_order(ranks):
    assert ranks[0]['wrappers']['of two'] == {}


def test_a_static_graph_is_told(ranks):
    [doubt] = ranks[0]['wrappers']['doubts']
    assert 'MMDistributedDataParallel' in doubt
    assert 'static_graph' in doubt
    assert '3 ranks' in doubt
