from pathlib import Path

import pytest
import torch

from runnerkit.nn import build_model

FILE = str(Path(__file__).parents[3] / 'configs/mnist/networks.py')


def test_shapes_follow_the_arguments():
    images = torch.randn(2, 1, 28, 28)
    assert build_model(dict(type=f'{FILE}:LeNet'))(images).shape == (2, 10)
    small = build_model(dict(type=f'{FILE}:LeNet', channels=(2, 3), hidden=5, dropout=0, num_classes=4))
    assert small(images).shape == (2, 4)
    assert small.classifier[1].weight.shape == (5, 3 * 4 * 4)


@pytest.mark.parametrize('dropout', [0, 0.5])
def test_dropout_is_for_training(dropout):
    torch.manual_seed(0)
    net = build_model(dict(type=f'{FILE}:LeNet', dropout=dropout))
    images = torch.randn(4, 1, 28, 28)
    assert torch.equal(net(images), net(images)) == (dropout == 0)
    net.eval()
    assert torch.equal(net(images), net(images))
