"""What wrappers do in two processes, which `conftest.py` starts once; the tests beside it look at the results."""

import pytest
import torch
from torch import nn

from runnerkit.distributed import allreduce_grads
from runnerkit.parallel import DataContainer, MMDistributedDataParallel, is_module_wrapper
from runnerkit.parallel.distributed_deprecated import MMDistributedDataParallel as DeprecatedWrapper


class Net(nn.Module):
    """Steps that train through the model's own call, as detectors do."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 1)
        self.calls = []

    def forward(self, x, return_loss=True):
        self.calls.append('forward')
        return self.head(self.norm(self.body(x))).mean()

    def train_step(self, data, optimizer, scale=1.0):
        self.calls.append('train_step')
        loss = self(data['x']) * scale
        return {'loss': loss, 'log_vars': {'loss': loss.detach()}, 'num_samples': len(data['x'])}

    def val_step(self, data, optimizer=None):
        self.calls.append('val_step')
        return {'loss': self(data['x'])}

    def dis_step(self, data, optimizer):
        self.calls.append('dis_step')
        return {'loss': self.head(data['x'][:, :1].expand(-1, 3)).mean()}

    def broken_step(self, data, optimizer):
        raise ArithmeticError('in the step')


def batch(rank, step=0):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return {'x': torch.randn(4, 2, generator=generator), 'name': 'a batch'}


def build(**options):
    torch.manual_seed(0)
    return MMDistributedDataParallel(Net(), **options)


def grads(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def everything(rank):
    return {
        'train_step': train_step(rank),
        'forward': forward(rank),
        'no_sync': no_sync(rank),
        'trained': trained(rank),
        'val_step': uneven_validation(rank),
        'other_modes': other_modes(rank),
        'errors': errors(rank),
        'hooks': hooks(rank),
        'containers': containers(rank),
        'deprecated': deprecated(rank),
        'each_backward': each_backward(rank),
    }


def train_step(rank):
    model = build()
    outputs = model.train_step(batch(rank), None, scale=2.0)
    outputs['loss'].backward()
    return {
        'grads': grads(model),
        'keys': sorted(outputs),
        'calls': model.module.calls,
        'left_behind': {'module', 'forward'} & {*vars(model), *vars(model.module)},
    }


def forward(rank):
    model = build()
    model(batch(rank)['x']).backward()
    return grads(model)


def no_sync(rank):
    model = build()
    with model.no_sync():
        model.train_step(batch(rank), None)['loss'].backward()
    return grads(model)


def trained(rank):
    model = build(find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        (model.dis_step if step % 2 else model.train_step)(batch(rank, step), optimizer)['loss'].backward()
        optimizer.step()
    return parameters(model)


def uneven_validation(rank):
    # DDP's own forward sends rank 0's buffers to all others, and they wait for it.
    model = build(broadcast_buffers=True)
    model.eval()
    mean = model.module.norm.running_mean
    mean.fill_(1.0 + rank)
    seen = []
    with torch.no_grad():
        for step in range(1 + 2 * rank):
            seen.append(model.val_step(batch(rank, step))['loss'].item())
            seen.append(model(batch(rank, step)['x'], return_loss=False).item())
            seen.append(model.train_step(batch(rank, step), None)['loss'].item())
    return {'seen': seen, 'mean': mean.tolist()}


def other_modes(rank):
    model = build(find_unused_parameters=True)
    model.dis_step(batch(rank), None)['loss'].backward()
    return {'grads': grads(model.module.head), 'has': hasattr(model, 'gen_step'), 'state': list(model.state_dict())[:2]}


def errors(rank):
    model = build()
    try:
        model.broken_step(batch(rank), None)
    except ArithmeticError as error:
        found = str(error)
    own = isinstance(model.module, Net)
    interrupt = model.register_forward_pre_hook(lambda *_: 1 / 0)
    try:
        model.train_step(batch(rank), None)
    except ZeroDivisionError:
        own = own and isinstance(model.module, Net)
    interrupt.remove()
    return found, own, model.train_step(batch(rank), None)['loss'].requires_grad


def hooks(rank):
    """What forward hooks on the model and on the wrapper get to see of a step, and of a call."""
    model = build()
    seen = []

    def see(name):
        def hook(module, given, *result):
            seen.append((name, type(module).__name__, type(given[0]).__name__))
            assert type(model.module) is Net

        return hook

    model.module.register_forward_pre_hook(see('before'))
    model.module.register_forward_hook(see('after'))
    model.register_forward_hook(see('around'))
    model.train_step(batch(rank), None)
    step = list(seen)
    seen.clear()
    model(batch(rank)['x'])
    return step, seen


def containers(rank):
    model = build()
    x = batch(rank)['x']
    model.train_step({'x': DataContainer([x], stack=True), 'meta': DataContainer([['m']], cpu_only=True)}, None)[
        'loss'
    ].backward()
    inputs, kwargs = model.to_kwargs((DataContainer([x]),), {'a': DataContainer([[1]], cpu_only=True)}, -1)
    with torch.no_grad():
        val = model.val_step({'x': DataContainer([x])})['loss'].item()
        plain = model.val_step({'x': x})['loss'].item()
    return grads(model), inputs[0][0] is x, kwargs, val == plain


def deprecated(rank):
    torch.manual_seed(rank)
    net = Net()
    net.norm.running_mean.fill_(rank)
    kept = DeprecatedWrapper(net, broadcast_buffers=False).module.norm.running_mean.tolist()
    model = DeprecatedWrapper(net)
    given = net.norm.running_mean.tolist()
    model.train_step({'x': DataContainer([batch(rank)['x']])}, None)['loss'].backward()
    own = grads(model)
    allreduce_grads(model.parameters())
    return {
        'parameters': parameters(model),
        'own': own,
        'mean': grads(model),
        'buffers': (kept, given),
        'called': model(batch(0)['x']).item(),
        'known': is_module_wrapper(model),
    }


# --- averages of each backward pass -----------------------------------------------------------------------------------


class Parts(nn.Module):
    """Two parts, of which a call uses those that it is told, and a table with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 1), nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.table = nn.Embedding(4, 2, sparse=True)

    def forward(self, x, parts):
        return sum(getattr(self, part)(x).sum() for part in parts)

    def some_step(self, data, optimizer):
        return {'loss': self(*data)}


def of_parts(**options):
    torch.manual_seed(0)
    model = MMDistributedDataParallel(Parts(), **options)
    model.averages_each_backward = True
    return model


def pair(rank):
    return torch.tensor([[1.0, 2.0], [3.0, 5.0]]) * (rank + 1)


def grads_of(model):
    return {
        name: None if each.grad is None else each.grad.to_dense().clone()
        for name, each in model.module.named_parameters()
    }


def each_backward(rank):
    found = {}
    model = of_parts()
    model.some_step((pair(rank), ['left']), None)['loss'].backward()
    found['one part'] = grads_of(model)
    model(pair(rank), ['left', 'right']).backward()  # added to the first ones
    found['added'] = grads_of(model)

    model = of_parts()
    with model.no_sync():
        model(pair(rank), ['left']).backward()
    found['no_sync'] = grads_of(model)
    model.averages_each_backward = False
    model(pair(rank), ['left']).backward()  # now DistributedDataParallel waits for the other parts
    found['off'] = grads_of(model)

    model = of_parts(find_unused_parameters=True)
    model(pair(rank), ['left', 'right'] if rank else ['left']).backward()
    found['differ'] = grads_of(model)

    model = of_parts()
    model.module.table(torch.tensor([rank, 3])).sum().backward()  # not through the wrapper
    found['sparse'] = grads_of(model)
    broken = model.module.left(pair(rank)).sum()
    broken.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (broken * model.module.right(pair(rank)).sum()).backward()
    model(pair(rank), ['left', 'norm']).backward()
    found['after an error'] = grads_of(model)['left.weight']

    model = of_parts()
    model.module.norm.running_mean.fill_(rank)
    model(pair(rank), ['left'])
    kept = of_parts(broadcast_buffers=False)
    kept.module.norm.running_mean.fill_(rank)
    kept(pair(rank), ['left'])
    found['buffers'] = [each.module.norm.running_mean[0].item() for each in (model, kept)]
    with torch.no_grad():
        found['without gradients'] = model.some_step((pair(rank), ['left']), None)['loss'].requires_grad
    return found
