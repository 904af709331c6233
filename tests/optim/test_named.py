"""Optimizers by name."""

import pytest
import torch

from runnerkit.optim.named import named_optimizers, other_rates

OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize(
    'given, named', [(None, {}), (OPTIMIZER, {'': OPTIMIZER}), ({'a': OPTIMIZER}, {'a': OPTIMIZER})]
)
def test_one_several_or_none(given, named):
    assert named_optimizers(given) == named


def groups(*rates, **names):
    groups = [{'params': [torch.zeros(1, requires_grad=True)], 'lr': rate} for rate in rates]
    for index, name in names.items():
        groups[int(index[1:])]['name'] = name
    return torch.optim.SGD(groups, lr=0.1)


def test_rates_that_differ_have_names_that_last():
    assert other_rates(None) == other_rates(OPTIMIZER) == other_rates(groups(0.1, 0.1)) == {}
    one = groups(0.1, 0.01, 0.1, 0.01, 0.2)
    assert other_rates(one) == {'x0.1': 0.01, 'x2': 0.2}
    scheduler = torch.optim.lr_scheduler.StepLR(one, 1, gamma=0.5)
    one.step()
    scheduler.step()
    assert other_rates(one) == {'x0.1': 0.005, 'x2': 0.1}
    one.param_groups[3]['lr'] = 0.7
    one.param_groups[2]['lr'] = 0.8
    assert other_rates(one) == {'x0.1': 0.005, 'x2': 0.1, 'group2': 0.8, 'group3': 0.7}
    assert other_rates({'G': groups(0.1, 0.2), 'D': groups(0.1)}) == {'G_x2': 0.2}
    assert other_rates(groups(0.0, 0.2)) == {'group1': 0.2}
    assert other_rates(groups(0.1, 0.2, _1='head')) == {'head': 0.2}
