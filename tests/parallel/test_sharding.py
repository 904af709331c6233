"""Which modules are sharded one by one, and which compute their activations again."""

import pytest
import torch
from torch import nn

from runnerkit.parallel.sharding import MIN_NUM_PARAMS, of_classes, recompute_activations, units


class Block(nn.Sequential):
    """A linear layer of 20 parameters."""

    def __init__(self):
        super().__init__(nn.Linear(4, 4))


class Deep(Block):
    """A block by another name."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Deep(), nn.Sequential(Block(), nn.ReLU())])
        self.attention = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, 2)


def names(model, found):
    return [next(name for name, each in model.named_modules() if each is part) for part in found]


def test_units_by_class_are_found_with_their_subclasses_inner_ones_first():
    model = Net()
    assert names(model, units(model, ['Block'])) == ['blocks.2.0', 'blocks.1', 'blocks.0']
    assert names(model, units(model, ['Deep'])) == ['blocks.1']
    assert names(model, units(model, ['Sequential', 'Linear']))[:3] == ['head', 'attention.out_proj', 'blocks.2.0.0']
    assert names(model, units(model, ['ReLU', 'Deep'])) == ['blocks.1']  # without parameters there is nothing to shard


def test_units_by_size_are_the_smallest_modules_that_are_large_enough():
    model = Net()
    # Not the list, which has no forward, and nothing in the attention, which reads its children's weights.
    assert names(model, units(model, min_num_params=20)) == ['blocks.0.0', 'blocks.1.0', 'blocks.2.0.0', 'attention']
    assert names(model, units(model, min_num_params=81)) == []
    assert names(model, units(model, min_num_params=80)) == ['attention']
    assert units(model) == []
    large = nn.Sequential(nn.Linear(1000, MIN_NUM_PARAMS // 1000), nn.Linear(1000, 999, bias=False))
    assert names(large, units(large)) == ['0']


def test_what_two_modules_share_stays_with_one_that_contains_both():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    inner[1].weight = inner[0].weight
    model = nn.Sequential(inner, nn.Linear(4, 4))
    assert names(model, units(model, min_num_params=16)) == ['0', '1']
    with pytest.raises(ValueError, match=r'0\.1 \(Linear\) .* its parameter weight is .*tied weights'):
        units(model, ['Linear'])
    twice = nn.Linear(4, 4)
    model = nn.Sequential(twice, nn.ReLU(), twice)
    assert names(model, units(model, ['Linear'])) == ['0']


@pytest.mark.parametrize(
    ('options', 'told'),
    [
        ({'module_classes': ['Blok']}, "module_classes: Net has no module of a class 'Blok'; did you mean 'Block'?"),
        ({'module_classes': ['Xyzzy']}, 'it has Block, Deep, Linear'),
        ({'module_classes': ['ModuleList']}, 'has no forward'),
        ({'module_classes': ['Block'], 'min_num_params': 3}, 'give one of them'),
    ],
)
def test_wrong_names(options, told):
    with pytest.raises(ValueError, match=told.replace('(', r'\(').replace('?', r'\?')):
        units(Net(), **options)


def test_activations_are_computed_again_with_the_same_random_numbers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    calls, results = [], []
    model[1].register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(3, 4)
    for again in (False, True):
        if again:
            recompute_activations([model])
        calls.clear()
        torch.manual_seed(1)
        model.zero_grad()
        model(x).sum().backward()
        results.append((len(calls), model[0].weight.grad.clone()))
    (once, plain), (twice, recomputed) = results
    assert (once, twice) == (1, 2)
    assert torch.equal(plain, recomputed)
    assert of_classes(model, ['Linear'], 'key') == [model[2], model[0]]
