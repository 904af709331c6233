"""Noticing bad numbers without waiting for a device."""

import math

import pytest
import torch
from torch import nn

from runnerkit.optim.finite import StepGuard, find_non_finite, first_bad, is_fused, largest


def test_the_largest_magnitude():
    sparse = torch.sparse_coo_tensor([[1]], [-7.0], (3,), check_invariants=True)
    [found] = largest([torch.tensor([1.0, -3.0]), torch.empty(0), torch.tensor([9]), sparse, torch.ones(1).bfloat16()])
    assert found == 7
    assert largest([torch.empty(0), torch.ones(2).long()]) == []


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_bad_number_among_others_is_seen(bad):
    [found] = largest([torch.tensor([1.0, bad]), torch.full((5,), math.inf), torch.full((9,), 1e30)])
    assert not torch.isfinite(found)
    assert torch.isnan(found) == math.isnan(bad)


@pytest.mark.parametrize('failed, first', [([], 0), ([5], 5), ([7, 5], 5)])
def test_the_first_check_that_failed(failed, first):
    checks = [(number, torch.tensor(number not in failed)) for number in (4, 5, 5, 7, 9)]
    assert first_bad(checks) == first_bad(checks[::-1]) == first


OPTIMIZERS = {
    'sgd': lambda parts: torch.optim.SGD(parts, lr=0.1, momentum=0.9),
    'adam': lambda parts: torch.optim.Adam(parts, lr=0.1),
    'fused sgd': lambda parts: torch.optim.SGD(parts, lr=0.1, momentum=0.9, fused=True),
    'fused adamw': lambda parts: torch.optim.AdamW(parts, lr=0.1, fused=True),
}


@pytest.mark.parametrize('name', OPTIMIZERS)
def test_a_step_with_bad_gradients_changes_nothing(name):
    def run(gradients, withholds):
        weight = nn.Parameter(torch.ones(3))
        optimizer = OPTIMIZERS[name]([weight])
        guard = StepGuard([optimizer], lambda magnitude: None)
        guard.withholds = withholds
        for gradient in gradients:
            weight.grad = torch.tensor([gradient, 1.0, 1.0])
            optimizer.step()
            assert str(weight.grad[0].item()) == str(gradient)  # can still be read
            assert getattr(optimizer, 'found_inf', None) is None
        return weight.tolist(), optimizer.state_dict()['state'], guard

    weight, state, guard = run([0.5, math.nan, 0.25, math.inf, -math.inf], True)
    expected, expected_state, _ = run([0.5, 0.25], False)
    assert weight == expected
    assert {k: v if v is None else v.tolist() for k, v in state[0].items()} == {
        k: v if v is None else v.tolist() for k, v in expected_state[0].items()
    }
    assert guard.left_out() == (3, 2)
    assert guard.left_out() == (0, 2)
    assert guard.steps == 5
    assert is_fused(OPTIMIZERS[name]([nn.Parameter(torch.ones(1))])) is name.startswith('fused')


def test_what_is_not_withheld_is_shown():
    weight, seen = nn.Parameter(torch.ones(2)), []
    guard = StepGuard([optimizer := torch.optim.SGD([weight], lr=1.0)], lambda magnitude: seen.append(magnitude.item()))
    weight.grad = torch.tensor([1.0, -4.0])
    optimizer.step()
    guard.remove()
    optimizer.step()
    assert seen == [4.0]
    assert guard.left_out() == (0, 0)


@pytest.mark.parametrize('name', OPTIMIZERS)
def test_a_scaler_s_own_bad_steps_are_its_affair(name):
    weight, seen = nn.Parameter(torch.ones(2)), []
    optimizer = OPTIMIZERS[name]([weight])
    StepGuard([optimizer], seen.append)
    scaler = torch.amp.GradScaler('cpu', init_scale=2.0**127)
    scaler.scale((weight * 1e6).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1]
    assert all(torch.isfinite(each) for each in seen)


def test_which_tensors_are_not_finite():
    whole = {
        'fine': torch.ones(3),
        'empty': torch.empty(0),
        'whole numbers': torch.tensor([1]),
        'text': 'nan',
        'meta': torch.empty(2, device='meta'),
        'large': torch.tensor([1e300], dtype=torch.float64),  # finite, though not in 32 bits
        'sparse': torch.tensor([0.0, 1.0]).to_sparse(),
        'half': torch.ones(2, dtype=torch.float16),
        'eight bits': torch.ones(2).to(torch.float8_e4m3fn),
        'lazy': torch.nn.LazyLinear(1).weight,
    }
    assert find_non_finite(whole) == {}
    bad = {
        'nan': torch.tensor([1.0, math.nan, math.inf]),
        'complex': torch.tensor([1 + 1j, complex(math.inf, 0)]),
        'sparse bad': torch.tensor([0.0, math.nan]).to_sparse(),
        'bf16': torch.tensor([-math.inf], dtype=torch.bfloat16),
        'eight bits bad': torch.tensor([math.nan, 1.0]).to(torch.float8_e5m2),
    }
    assert find_non_finite({**whole, **bad}) == {
        'nan': '2 of 3 values',
        'complex': '1 of 2 values',
        'sparse bad': '1 of 1 values',
        'bf16': '1 of 1 values',
        'eight bits bad': '1 of 2 values',
    }
