"""Names in a model: none of a wrapper, and on request all of a shared part."""

import pytest
import torch
from torch import nn

from runnerkit.hooks import CaptureHook
from runnerkit.nn.compiled import compile_model
from runnerkit.optim import build_optimizer
from runnerkit.optim.default_constructor import chosen_parameters
from runnerkit.parallel import named_buffers, named_modules, named_parameters
from runnerkit.parallel.same_weights import local_tensors
from runnerkit.parallel.wrappers import name_cleaner, without_compile


class Twice(nn.Module):
    """A block under two names, a layer of which has a third one."""

    def __init__(self, wrap=lambda part: part):
        super().__init__()
        block = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False))
        block[0] = wrap(block[0])
        self.first = wrap(block)
        self.second = self.first
        self.third = block[0]


WRAPPERS = {
    'none': lambda part: part,
    'compiled': torch.compile,
    'parallel': nn.DataParallel,
    'both': lambda part: torch.compile(nn.DataParallel(part)),
}


@pytest.fixture(params=WRAPPERS)
def wrap(request):
    return WRAPPERS[request.param]


@pytest.mark.parametrize('around', WRAPPERS)
def test_names_are_those_of_the_plain_model_with_and_without_duplicates(wrap, around):
    model, plain = WRAPPERS[around](Twice(wrap)), Twice()
    for all_of, torchs in (
        (named_modules, nn.Module.named_modules),
        (named_parameters, nn.Module.named_parameters),
        (named_buffers, nn.Module.named_buffers),
    ):
        for options in ({}, {'remove_duplicate': False}):
            assert list(all_of(model, **options)) == list(dict(torchs(plain, **options)))
    assert {type(part) for part in named_modules(model).values()} == {type(part) for part in plain.modules()}
    every = named_parameters(model, remove_duplicate=False)
    assert len({id(each) for each in every.values()}) == 1
    assert list(every) == ['first.0.weight', 'second.0.weight', 'third.weight']


def test_a_wrapper_around_the_model_adds_nothing_either():
    model = nn.DataParallel(nn.Sequential(nn.DataParallel(nn.Linear(1, 1))))
    assert [name_cleaner(model)(name) for name in ('module.0.module.weight', 'module', 'module.0', 'other')] == [
        '0.weight',
        '',
        '0',
        'other',
    ]
    assert name_cleaner(model.module, 'net.')('net.0.module.weight') == 'net.0.weight'
    assert without_compile('a._orig_mod.b._orig_module.c') == 'a.b._orig_module.c'


def test_parts_are_found_by_each_of_their_names(wrap):
    model = Twice(wrap)
    (weight,) = model.parameters()
    found = CaptureHook(['first.0', 'second.0', 'third']).find_modules(model)
    assert all(part.weight is weight for part in found.values())
    assert list(chosen_parameters(['third.*'], model)) == ['first.0.weight']
    for name in ('first.0', 'second', 'third'):
        optimizers = build_optimizer(model, {name: dict(type='SGD', lr=0.1)})
        assert optimizers[name].param_groups[0]['params'] == [weight]
    compile_model(model, modules=['second.0'], backend='eager')


def test_what_is_a_ranks_own_is_so_under_all_names(wrap):
    model = Twice(wrap)
    model.local_to_rank = ('second.0',)
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert local_tensors(model) == own  # DDP compares with the names that torch gives
    assert len(own) == 3
