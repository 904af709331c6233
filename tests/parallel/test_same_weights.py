"""All ranks begin with the same weights, but for what is each rank's own."""

import logging
import tempfile
from pathlib import Path

import pytest
import torch
from support import Logged, Noisy, Tiny, tiny_runner
from torch import distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from runnerkit.config import Config
from runnerkit.flow import Flow, Options, StartupBase
from runnerkit.hooks import HOOKS, Hook
from runnerkit.parallel import MODULE_WRAPPERS, MMDistributedDataParallel, unwrap
from runnerkit.parallel.bits import _BLOCK
from runnerkit.parallel.same_weights import check_same_weights, checksum, local_tensors
from runnerkit.parallel.steps import Steps

PAGE = Path(__file__).parents[2] / 'docs' / 'flow.md'


@pytest.mark.parametrize(
    ('one', 'other'),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.tensor([1.0, -2.0]), torch.tensor([-1.0, 2.0])),
        (torch.tensor([True, False]), torch.tensor([False, True])),
        (torch.tensor([3, 5]), torch.tensor([5, 3])),
        (torch.tensor([1 + 2j]), torch.tensor([2 + 1j])),
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor(1.5).bfloat16(), torch.tensor(1.25).bfloat16()),
        (torch.eye(1025), torch.eye(1025).roll(1, 0)),
        # Two blocks of words in exchanged places.
        (torch.arange(2 * _BLOCK).int(), torch.arange(2 * _BLOCK).int().roll(_BLOCK)),
    ],
)
def test_a_checksum_sees_bits_and_places(one, other):
    assert checksum(one) != checksum(other)
    assert checksum(one) == checksum(one.clone())
    assert checksum(torch.stack([one, other], -1)[..., 0]) == checksum(one)  # whatever the strides


class Own(nn.Module):
    local_to_rank = ('seen', 'expert')

    def __init__(self):
        super().__init__()
        self.register_buffer('seen', torch.zeros(2))
        self.expert, self.other = nn.Linear(1, 1), nn.Linear(1, 1)


def test_a_module_names_what_is_a_ranks_own():
    model = nn.Sequential(Own(), nn.Linear(1, 1))
    own = {'0.seen', '0.expert.weight', '0.expert.bias'}
    assert local_tensors(model) == own
    model[1].local_to_rank = 'bias'
    model._ddp_params_and_buffers_to_ignore = ['1.weight']
    assert local_tensors(model) == {*own, '1.bias', '1.weight'}
    model[1].local_to_rank = 'bi'  # the beginning of a name names nothing
    assert local_tensors(model) == {*own, '1.weight'}
    assert local_tensors(Tiny()) == set()


class WithOwn(Tiny):
    def __init__(self):
        super().__init__()
        self.own = Own()

    def forward(self, x):
        return super().forward(x) + 0 * self.own.other(x[:, :1]) + 0 * self.own.expert(x[:, :1])


class Shifts(StartupBase):
    """Draws the head on each rank for itself."""

    def startup(self, context):
        unwrap(context.model).head.reset_parameters()


class ShiftsBuffers(StartupBase):
    def startup(self, context):
        unwrap(context.model).body[1].running_mean.add_(context.rank)


class Ranks(StartupBase):
    def startup(self, context):
        with torch.no_grad():
            own = unwrap(context.model).own
            own.seen.fill_(context.rank)
            own.expert.weight.fill_(context.rank)


@HOOKS.register_module(force=True)
class ShiftsInTest(Hook):
    def before_run(self, runner):
        with torch.no_grad():
            unwrap(runner.model).head.bias.add_(runner.rank)


@MODULE_WRAPPERS.register_module(force=True)
class SpreadsInTest(Steps, nn.Module):
    """A user's wrapper, of whose plain tensors each rank may have others."""

    forward_is_collective = False

    def __init__(self, module):
        super().__init__()
        self.module = module

    def _step(self, name, *inputs, **kwargs):
        return getattr(self.module, name)(*inputs, **kwargs)

    def _model_device(self):
        return None


def weights_of(model):
    return {name: value.clone() for name, value in unwrap(model).state_dict().items() if not hasattr(value, 'to_local')}


def of_ranks(rank):
    """The weights with which runs end on this rank, and what was told."""
    found = {}
    told = Logged(logging.WARNING)
    told.addFilter(lambda record: 'different weights' in record.getMessage())
    logger = logging.getLogger('runnerkit')
    logger.addHandler(told)
    model, wrapper = {'type': 'support.Tiny'}, {'model_wrapper': {'type': 'FSDP2'}}
    lenet = {'type': f'{__file__}:Paged'}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, 'page.py').write_text(PAGE.read_text().partition('```python\n')[2].partition('```')[0])
        for name, stage, config, options in (
            ('quiet', None, {}, {'diff_seed': True}),
            ('weights', Shifts, {}, {'diff_seed': True}),
            ('buffers', ShiftsBuffers, {}, {}),
            ('hook', None, {'custom_hooks': [{'type': 'ShiftsInTest'}]}, {}),
            ('own', Ranks, {'model': {'type': f'{__file__}:WithOwn'}}, {}),
            ('FSDP2', ShiftsBuffers, wrapper, {}),
            ('their wrapper', Shifts, {'model_wrapper': {'type': 'SpreadsInTest'}}, {'diff_seed': True}),
            ('page', f'{folder}/page.py', {'model': lenet}, {'diff_seed': True}),
        ):
            told.clear()
            cfg = {
                'model': model,
                'data': {
                    'samples_per_gpu': 4,
                    'train': {'type': 'support.Noisy', 'length': 16},
                    'val': {'type': 'support.Noisy', 'length': 8},
                },
                'evaluation': {},
                'checkpoint_config': None,
                'optimizer': {'type': 'SGD', 'lr': 0.1},
                'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
                'seed': 3,
                'dist_params': {'backend': 'gloo'},
                **config,
            }
            if isinstance(stage, str):
                cfg['flow'], stage = {'startup': stage}, None
            stages = None if stage is None else {'startup': stage}
            run = Flow(Config(cfg), Options(work_dir=f'{folder}/{name}', device='cpu', **options), stages=stages)
            found[name] = weights_of(run.run().model), told.texts
        told.clear()
        torch.manual_seed(rank)
        inner = Tiny()
        wrapped = MMDistributedDataParallel(inner)
        with torch.no_grad():
            inner.head.bias.add_(rank)
        for _ in range(2):
            runner = tiny_runner(model=wrapped, max_epochs=1)
            runner.register_optimizer_hook({})
            data = Noisy(16)
            runner.run([DataLoader(data, 4, sampler=DistributedSampler(data))], [('train', 1)])
        found['python'] = weights_of(wrapped), told.texts
        told.clear()
        some = nn.Linear(1, 1).requires_grad_(False)  # trained by a group of some ranks
        some.weight.fill_(rank)
        some.process_group = dist.new_group([0])
        for each in (nn.Linear(1, 1 + rank), some):  # of another shape on each rank
            check_same_weights(each, logger, repairs=True)
        found['no others'] = {}, told.texts
    return found


class Paged(Tiny):
    """With the names that the page has."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.classifier = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))

    def forward(self, x):
        return super().forward(x) + self.model.classifier(x[:, :1])


def test_ranks_that_begin_with_other_weights_take_those_of_rank_0_or_it_is_warned(on_ranks):
    first, second = on_ranks(__file__, 'of_ranks')

    def differing(name):
        return [key for key, value in first[name][0].items() if not torch.equal(value, second[name][0][key])]

    def told(name):
        assert second[name][1] == []
        return ''.join(first[name][1])

    assert (differing('quiet'), told('quiet'), told('no others')) == ([], '', '')
    for name in ('weights', 'buffers', 'hook', 'FSDP2', 'page'):
        assert differing(name) == [], name
        assert 'different weights: all take those of rank 0' in told(name), name

    assert differing('own') == ['own.seen', 'own.expert.weight']
    assert told('own') == ''
    assert (first['own'][0]['own.seen'].tolist(), second['own'][0]['own.seen'].tolist()) == ([0, 0], [1, 1])

    assert 'head.weight' in differing('their wrapper')
    assert 'they stay different' in told('their wrapper')
    assert 'head.bias' in differing('python')
    assert told('python').count('they stay different') == 1
