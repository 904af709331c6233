"""What `FSDP2` does in two processes; run by `test_fsdp.py`, which looks at the results."""

import copy
from types import SimpleNamespace

import torch
from torch import nn

from runnerkit.hooks import NonFiniteHook
from runnerkit.parallel import FSDP2, DataContainer, is_module_wrapper, unwrap


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()


class Net(nn.Module):
    """Blocks, and a head that the step uses once more after its call of the model."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(2, 6)
        self.blocks = nn.ModuleList(Block(6) for _ in range(3))
        self.head = nn.Linear(6, 1)
        self.register_buffer('steps', torch.zeros(()), persistent=False)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def train_step(self, data, optimizer, scale=1.0):
        self.steps += 1
        loss = (self(data['x']) - data['y']).pow(2).mean() * scale + self.head.bias.pow(2).sum()
        return {'loss': loss, 'log_vars': {'loss': loss.detach()}, 'num_samples': len(data['x'])}

    def val_step(self, data, optimizer=None):
        loss = (self(data['x']) - data['y']).pow(2).mean()
        return {'loss': loss, 'log_vars': {'error': loss.detach()}, 'num_samples': len(data['x'])}

    def stem_step(self, data, optimizer):
        return {'loss': self.stem(data['x']).pow(2).mean()}

    def own_step(self, data, optimizer):
        """Steps inside, as GANs of MMCV do."""
        loss = self.val_step(data)['loss']
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {'loss': loss.detach()}

    def broken_step(self, data, optimizer):
        self(data['x'])
        raise ArithmeticError('in the step')

    def encode(self, x):
        return self.stem(x)


def build(seed=0):
    torch.manual_seed(seed)
    return Net()


def sharded(**options):
    return FSDP2(build(), **{'module_classes': ['Block'], **options})


def batch(rank=None, step=0, world_size=2):
    """The whole batch of a step, or a rank's part of it."""
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 2, generator=generator), torch.randn(8, 1, generator=generator)
    if rank is not None:
        x, y = (each.chunk(world_size)[rank] for each in (x, y))
    return {'x': x, 'y': y}


def full(tensors):
    return [each.full_tensor().detach().clone() for each in tensors]


def train(model, rank, steps=4, name='train_step', optimizer=torch.optim.SGD, accumulate=1, **options):
    """Train; ``rank`` None means the whole batch in one process."""
    made = optimizer(model.parameters(), **{'lr': 0.1, **options})
    losses = []
    for step in range(steps):
        if step % accumulate == 0:
            made.zero_grad()
        is_last = step % accumulate == accumulate - 1
        if rank is not None and not is_last:
            with model.no_sync():
                loss = getattr(model, name)(batch(rank, step), made)['loss']
                (loss / accumulate).backward()
        else:
            loss = getattr(model, name)(batch(rank, step), made)['loss']
            (loss / accumulate).backward()
        if is_last:
            made.step()
        losses.append(loss.item())
    return losses


def everything(rank):
    found = {}
    for case in (start, replaced_buffers, trained, gathered, steps, errors, batches, lower_precision, guarded, wrong):
        found[case.__name__] = case(rank)
    return found


def start(rank):
    """The weights and buffers with which the ranks begin, whatever each of them has built."""
    given = build(seed=rank)
    given.register_buffer('kept', torch.full((2,), float(rank)))
    model = FSDP2(given, min_num_params=40)
    meta = sharded_from_meta(rank)
    return {
        'weights': full(model.parameters()),
        'buffers': [each.clone() for each in model.buffers()],
        'meta': full(meta.parameters()),
        'meta buffers': [each.clone() for each in meta.buffers()],
        'local': sum(each.to_local().numel() for each in model.parameters()),
        'units': len(model._units),
        'is wrapper': is_module_wrapper(model) and isinstance(unwrap(model), Net),
        'names': [name for name, _ in unwrap(model).named_parameters()],
    }


def replaced_buffers(rank):
    """A buffer in whose place each step puts another tensor, at the beginning of a third step; one of a hook."""

    class Replacing(Net):
        def train_step(self, data, optimizer, scale=1.0):
            self.seen = float(self.steps)
            self.steps = self.steps + 1 + rank
            return super().train_step(data, optimizer, scale)

    model = FSDP2(Replacing(), min_num_params=40)
    model.module.register_buffer('of_a_hook', torch.tensor(float(rank)))
    seen = []
    for _ in range(3):
        model.train_step({'x': torch.ones(1, 2), 'y': torch.ones(1, 1)}, None)['loss'].backward()
        seen.append(model.module.seen)
    return seen, float(model.module.of_a_hook)


def sharded_from_meta(rank):
    if rank == 0:
        return sharded()
    with torch.device('meta'):
        model = Net()
    return FSDP2(model, module_classes=['Block'])


def trained(rank):
    found = {}
    for name, options, settings in (
        ('plain', {}, {}),
        ('again', {}, {}),
        ('by size', {'module_classes': None, 'min_num_params': 40}, {}),
        ('one unit', {'module_classes': None}, {}),
        ('kept', {'reshard_after_forward': False}, {}),
        ('offloaded', {'cpu_offload': True}, {}),
        ('recomputed', {'activation_checkpointing': True}, {}),
        ('recomputed classes', {'activation_checkpointing': ['Linear']}, {}),
        ('accumulated', {}, {'accumulate': 2}),
        ('adam', {}, {'optimizer': torch.optim.AdamW, 'fused': True}),
    ):
        model = sharded(**options)
        losses = train(model, rank, **settings)
        found[name] = full(model.parameters()), losses
    return found


def gathered(rank):
    """No weights stay gathered outside of a step."""
    model = sharded(reshard_after_forward=False)
    seen = []
    train(model, rank, steps=1)
    with torch.no_grad():
        before = model.val_step(batch(rank))['loss'].item()
        seen.append(all(hasattr(each, 'to_local') for each in model.parameters()))
        for each in model.parameters():
            each.mul_(0.5)
        after = model.val_step(batch(rank))['loss'].item()
    changed = copy.deepcopy(build())
    train(changed, None, steps=1)
    with torch.no_grad():
        for each in changed.parameters():
            each.mul_(0.5)
        expected = changed.val_step(batch(rank))['loss'].item()
    freed = sharded()
    loss = freed.train_step(batch(rank), None)['loss']
    seen.append(all(hasattr(each, 'to_local') for each in freed.parameters()))
    loss.backward()
    return {'sharded': seen, 'losses': (before, after, expected), 'called': freed(batch(rank)['x']).requires_grad}


def steps(rank):
    """Each step, and further methods; a reference of one process beside it."""
    model, plain = sharded(forward_methods=['encode']), build()
    found = {}
    for name in ('train_step', 'val_step', 'stem_step'):
        for part in (model, plain):
            part.zero_grad()
        getattr(model, name)(batch(rank), None)['loss'].backward()
        getattr(plain, name)(batch(), None)['loss'].backward()
        found[name] = [
            (None if own.grad is None else own.grad.full_tensor(), other.grad)
            for own, other in zip(model.parameters(), plain.parameters(), strict=True)
        ]
    found['encode'] = torch.equal(unwrap(model).encode(batch()['x']), plain.encode(batch()['x']))
    unwrap(model).reshard()
    model, plain = sharded(), build()
    for part, data in ((model, batch(rank)), (plain, batch())):
        optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
        part.own_step(data, optimizer)
        part.own_step(data, optimizer)
    found['own'] = full(model.parameters()), [each.detach() for each in plain.parameters()]
    model = sharded()
    loss = model.train_step(batch(rank), None)['loss']
    loss.backward(retain_graph=True)
    once = full(each.grad for each in model.parameters())
    loss.backward()
    found['twice'] = once, full(each.grad for each in model.parameters())
    return found


def errors(rank):
    model, plain = sharded(), build()
    with torch.no_grad():
        expected = plain.val_step(batch(rank))['loss'].item()
    try:
        model.broken_step(batch(rank), None)
    except ArithmeticError as error:
        found = str(error)
    with torch.no_grad():
        return found, model.val_step(batch(rank))['loss'].item(), expected


def batches(rank):
    model = sharded()
    data = batch(rank)
    with torch.no_grad():
        packed = {'x': DataContainer([data['x']], stack=True), 'y': DataContainer([data['y']], stack=True)}
        return model.val_step(packed)['loss'].item() == model.val_step(data)['loss'].item()


def lower_precision(rank):
    model = sharded(mp_policy={'param_dtype': 'bf16', 'reduce_dtype': 'fp32', 'output_dtype': 'fp32'})
    seen = []
    unwrap(model).blocks[0].linear.register_forward_hook(lambda part, given, out: seen.append(out.dtype))
    losses = train(model, rank, steps=2)
    return seen[0], losses, {each.dtype for each in model.parameters()}


def guarded(rank):
    """Whether a step was skipped on this rank, with a gradient that is bad in the first rank's part alone."""
    found = []
    for kind, options in ((torch.optim.SGD, {}), (torch.optim.AdamW, {'fused': True})):
        model = sharded()
        optimizer = kind(model.parameters(), lr=0.1, **options)
        hook = NonFiniteHook('skip')
        hook.before_run(SimpleNamespace(optimizer=optimizer, hooks=[hook]))
        hook._iteration = 1
        before = full(model.parameters())
        model.train_step(batch(rank), optimizer)['loss'].backward()
        if rank == 0:
            next(model.parameters()).grad.to_local()[0] = torch.nan
        optimizer.step()
        unchanged = all(map(torch.equal, before, full(model.parameters())))
        model.zero_grad()
        model.train_step(batch(rank), optimizer)['loss'].backward()
        optimizer.step()
        found.append(
            (unchanged, tuple(hook._skipped.tolist()), all(map(torch.equal, before, full(model.parameters()))))
        )
    return found


def wrong(rank):
    found = {}
    tied = build()
    tied.blocks[1].linear.weight = tied.blocks[0].linear.weight
    for name, model, options in (
        ('class', build(), {'module_classes': ['Blok']}),
        ('container', build(), {'module_classes': ['ModuleList']}),
        ('both', build(), {'module_classes': ['Block'], 'min_num_params': 3}),
        ('tied', tied, {'module_classes': ['Block']}),
        ('recomputed', build(), {'activation_checkpointing': ['Blocks']}),
        ('nothing recomputed', build(), {'activation_checkpointing': True}),
        ('policy', build(), {'mp_policy': {'param_dtyp': 'bf16'}}),
        ('type', build(), {'mp_policy': {'param_dtype': 'bfloat'}}),
        ('method', build(), {'forward_methods': ['encod']}),
        ('differ', nn.Sequential(nn.Linear(2, 2 + rank)), {}),
    ):
        try:
            FSDP2(model, **options)
        except (TypeError, ValueError) as error:
            found[name] = str(error)
    return found


def on_four(rank):
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model.train_step(batch(rank, step, world_size=4), optimizer)['loss'].backward()
        optimizer.step()
    return full(model.parameters())
