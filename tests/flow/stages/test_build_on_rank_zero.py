"""What a model that is built without weights lacks, and gets from the first rank; runs on ranks are in
`test_wrapping`."""

import torch
from torch import nn
from torchmetrics import MeanMetric

from runnerkit.config import Config
from runnerkit.flow.stages.build_on_rank_zero import build_on_rank_zero, on_meta, packed, unpack


class Holder:
    """An object with a tensor and a module of the model."""

    def __init__(self, layer):
        self.tensor, self.layer = torch.arange(3.0), layer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer('counts', torch.zeros(2))
        self.layers = [self.layer]
        self.holder = Holder(self.layer)
        self.metrics = {'mean': MeanMetric()}
        self.function = lambda x: x
        self.part = nn.Module()
        self.part.scale = torch.full((), 3.0)


def on_meta_device():
    with torch.device('meta'):
        return Net()


def test_attributes_with_tensors_are_found_wherever_they_are():
    assert set(on_meta(on_meta_device())) == {('', 'holder'), ('', 'metrics'), ('part', 'scale')}
    assert list(on_meta(Net())) == []


def test_they_take_the_first_ranks_values_and_refer_to_the_own_modules():
    whole, empty = Net(), on_meta_device()
    whole.metrics['mean'].update(5.0)
    problem, values = packed(whole, sorted(on_meta(empty)))
    assert problem == ''
    unpack(empty, values)
    assert list(on_meta(empty)) == []
    assert empty.holder.tensor.tolist() == [0.0, 1.0, 2.0]
    assert empty.holder.layer is empty.layer
    assert empty.metrics['mean'].compute() == 5.0
    assert empty.part.scale == 3.0
    assert empty.layer.weight.is_meta


def test_what_cannot_be_sent_is_told():
    model = Net()
    problem, values = packed(model, [('', 'function')])
    assert problem.startswith('function cannot be sent to other ranks')
    assert values == {}


def test_in_one_process_the_model_is_built_as_it_is():
    initialised = []
    model = build_on_rank_zero(Net, initialised.append, Config({'model_wrapper': {'type': 'FSDP2'}}), None)
    assert initialised == [model]
    assert not model.layer.weight.is_meta
