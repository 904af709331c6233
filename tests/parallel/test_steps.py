"""What both wrappers share."""

import torch
from torch import nn

from runnerkit.parallel.steps import Steps


class Nowhere(Steps, nn.Module):
    """A wrapper that leaves batches where they are."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def _model_device(self):
        return None


class Net(nn.Module):
    def train_step(self, data, optimizer):
        return data, optimizer

    def val_step(self, data):
        return data

    def look(self):
        return 'not a step'


def test_batches_are_the_very_same_where_no_device_is_wanted():
    model = Nowhere(Net())
    batch = [torch.ones(1)]
    assert model.train_step(batch, None)[0][0] is batch[0]
    assert model.val_step(batch)[0] is batch[0]


def test_only_steps_are_handed_on():
    model = Nowhere(Net())
    assert not hasattr(model, 'look')
    assert not hasattr(model, 'gen_step')
    model.module.gen_step = lambda data, optimizer: ('gen', data)
    assert model.gen_step(1, None) == ('gen', 1)
