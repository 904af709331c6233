from pathlib import Path

import pytest
import torch

from runnerkit.nn import LOSSES, build_model

FILE = str(Path(__file__).parents[3] / 'configs/segmentation/networks.py')


def test_logits_have_the_image_size():
    net = build_model(dict(type=f'{FILE}:UNet', width=2))
    assert net(torch.randn(2, 1, 12, 20)).shape == (2, 12, 20)
    with pytest.raises(ValueError, match=r'multiples of 4, but the image has \(12, 18\)'):
        net(torch.randn(2, 1, 12, 18))


def test_every_parameter_is_used():
    net = build_model(dict(type=f'{FILE}:UNet', width=2))
    net(torch.randn(1, 1, 16, 16)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def test_the_loss_is_small_where_mask_and_logits_agree():
    loss = LOSSES.build(dict(type=f'{FILE}:MaskLoss', dice_weight=0.5))
    mask = torch.tensor([[0, 1], [1, 0]])
    good, bad = loss(40.0 * (2 * mask - 1), mask), loss(-40.0 * (2 * mask - 1), mask)
    assert {name: round(term.item(), 4) for name, term in good.items()} == {'loss_bce': 0, 'loss_dice': 0}
    assert {name: round(term.item(), 4) for name, term in bad.items()} == {'loss_bce': 40, 'loss_dice': 0.5}
    empty = loss(torch.full((2, 2), -40.0), torch.zeros(2, 2, dtype=torch.long))
    assert torch.isfinite(empty['loss_dice'])
