import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchmetrics
from torch import nn

from runnerkit.nn import LOSSES, METRICS, MODELS, Supervised, build_model

ROOT = Path(__file__).parents[2]


def test_every_torch_loss_is_known_by_name():
    losses = [name for name in dir(nn) if name.endswith('Loss')]
    assert 'BCEWithLogitsLoss' in losses
    assert set(losses) <= set(LOSSES.names())
    for name in losses:
        assert LOSSES.get(name) is getattr(nn, name)
    assert LOSSES.get('Linear') is None


def test_losses_by_name_take_their_arguments():
    loss = LOSSES.build(dict(type='CrossEntropyLoss', label_smoothing=0.1))
    assert isinstance(loss, nn.CrossEntropyLoss)
    assert loss.label_smoothing == 0.1


def test_class_weights_may_be_lists():
    cfg = dict(type='CrossEntropyLoss', weight=[1, 3.5])
    loss = LOSSES.build(cfg)
    assert torch.equal(loss.weight, torch.tensor([1.0, 3.5]))
    assert cfg == dict(type='CrossEntropyLoss', weight=[1, 3.5])
    loss(torch.randn(4, 2), torch.tensor([0, 1, 1, 0])).item()


@pytest.mark.parametrize('cfg', [3, [dict(type='MSELoss')]])
def test_a_loss_config_of_the_wrong_kind(cfg):
    with pytest.raises(TypeError, match='cfg must be a dict'):
        LOSSES.build(cfg)


def test_metrics_are_known_wherever_torchmetrics_keeps_them():
    assert METRICS.get('Accuracy') is torchmetrics.Accuracy
    assert METRICS.get('MulticlassAccuracy') is torchmetrics.classification.MulticlassAccuracy
    assert METRICS.get('BinaryJaccardIndex') is torchmetrics.classification.BinaryJaccardIndex
    assert METRICS.get('MeanSquaredError') is torchmetrics.MeanSquaredError
    assert METRICS.get('MinMaxMetric') is torchmetrics.wrappers.MinMaxMetric
    assert METRICS.get('nothing') is None
    assert {'MulticlassAccuracy', 'BinaryJaccardIndex', 'MeanSquaredError'} <= set(METRICS.names())
    metric = METRICS.build(dict(type='Accuracy', task='multiclass', num_classes=3))
    assert metric(torch.eye(3), torch.arange(3)) == 1
    assert metric.higher_is_better


@pytest.mark.parametrize(
    ('registry', 'name', 'meant'),
    [
        (MODELS, 'Conv2D', 'Conv2d'),
        (LOSSES, 'CrossEntropy', 'CrossEntropyLoss'),
        (METRICS, 'MulticlasAccuracy', 'MulticlassAccuracy'),
    ],
)
def test_misspelt_names(registry, name, meant):
    with pytest.raises(KeyError, match=f"{name} is not in the {registry.name} registry.*'{meant}'"):
        registry.build(dict(type=name))


def test_torchmetrics_is_missed_with_a_hint(monkeypatch):
    """That it is imported when a metric is asked for, and not before, is in tests/test_house.py."""
    monkeypatch.setitem(sys.modules, 'torchmetrics', None)
    with pytest.raises(ImportError, match="pip install 'torchmetrics"):
        METRICS.build(dict(type='MulticlassAccuracy', num_classes=3))


SCIPY = """
import sys
from runnerkit.nn import METRICS
METRICS.get('MulticlassAccuracy')
print('scipy.signal' in sys.modules)
import scipy.signal
print(callable(scipy.signal.butter), hasattr(scipy.signal, 'hamming'))
"""


def test_metrics_do_not_load_what_only_gammatone_needs(tmp_path):
    """It takes a second, half of torchmetrics."""
    pytest.importorskip('scipy')

    def said():
        return subprocess.check_output([sys.executable, '-c', SCIPY], cwd=tmp_path, text=True).split()

    assert said() == ['False', 'True', 'False']
    (tmp_path / 'gammatone.py').touch()
    assert said() == ['True', 'True', 'True']


def test_models_from_torch_from_a_path_and_as_a_sequence():
    net = build_model(
        [dict(type='Flatten'), dict(type='Linear', in_features=6, out_features=2), dict(type='torch.nn.ReLU')]
    )
    assert [type(layer) for layer in net] == [nn.Flatten, nn.Linear, nn.ReLU]
    assert net(torch.zeros(3, 2, 3)).shape == (3, 2)
    assert build_model(dict(type='Linear', in_features=2), dict(out_features=5)).out_features == 5
    assert MODELS.get('Supervised') is Supervised


def test_registered_models_go_before_those_of_torch():
    @MODELS.register_module(name='Linear')
    class Mine(nn.Module):
        pass

    try:
        assert isinstance(build_model(dict(type='Linear')), Mine)
    finally:
        del MODELS.module_dict['Linear']


def test_a_model_must_be_a_module():
    with pytest.raises(TypeError, match=r'gives a Fraction, but a torch\.nn\.Module is needed'):
        build_model(dict(type='fractions.Fraction', numerator=1))
    with pytest.raises(TypeError, match='cfg must be a dict'):
        build_model('Linear')
