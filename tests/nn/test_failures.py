"""What is told of an error of torch in the network, the loss or a metric."""

import pytest
import torch
from torch import nn
from torchmetrics import MeanAbsoluteError

from runnerkit.evaluation import Scores
from runnerkit.nn import Supervised
from runnerkit.nn.failures import describe_value, note_layer, note_loss, note_metric

X = torch.randn(16, 13)
LABELS = torch.arange(16) % 3
CROSS_ENTROPY = nn.CrossEntropyLoss()


class Net(nn.Module):
    """With a layer deep inside, and an input that `forward` rebinds."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(9, 2))

    def forward(self, x):
        x = self.body(x)
        x = x.relu()
        return x.sum(1)


def told(model, batch, method='train_step'):
    """The error of one step, and its note."""
    with pytest.raises(Exception, match='.') as caught:
        getattr(model, method)(batch)
    (note,) = caught.value.__notes__
    return caught.value, note


@pytest.mark.parametrize('method', ['train_step', 'val_step', 'predict'])
def test_the_layer_its_input_and_what_does_not_fit(method):
    error, note = told(Supervised(Net(), CROSS_ENTROPY), (X, LABELS), method)
    assert type(error) is RuntimeError
    assert str(error) == 'mat1 and mat2 shapes cannot be multiplied (16x8 and 9x2)'
    assert note == (
        'while running model.body.2 (Linear), input (16, 8) float32: got 8 features, expects 9: set in_features=8'
    )


@pytest.mark.parametrize(
    'layer, x, words',
    [
        (
            nn.BatchNorm1d(5),
            torch.randn(4, 6),
            'model (BatchNorm1d), input (4, 6) float32: got 6 features, expects 5: set num_features=6',
        ),
        (
            nn.Conv2d(3, 4, 3),
            torch.randn(4, 1, 8, 8),
            '(4, 1, 8, 8) float32: got 1 channels, expects 3: set in_channels=1',
        ),
        (nn.Linear(13, 2), X.double(), '(16, 13) float64: its weights are float32: convert the input to that type'),
        (nn.Linear(13, 2).to('meta'), X, 'its weights are on meta'),
        (nn.Embedding(3, 2), torch.tensor([1, 7]), 'the input has indices 1…7, but num_embeddings=3'),
        (nn.Linear(13, 2), 'text', 'model (Linear), input a str'),
        (nn.Bilinear(2, 2, 2), (X, X), 'model (Bilinear), input a tuple of 2 Tensor'),
    ],
)
def test_layers_of_every_kind(layer, x, words):
    assert words in told(Supervised(layer, CROSS_ENTROPY), (x, LABELS))[1]


@pytest.mark.parametrize(
    'layer, x, is_known',
    [
        (nn.BatchNorm1d(4), torch.ones(1, 4), True),
        (nn.BatchNorm1d(4), torch.ones(1, 4, 1), True),
        (nn.BatchNorm2d(4), torch.ones(1, 4, 1, 1), True),
        (nn.GroupNorm(4, 4), torch.ones(1, 4), False),
        (nn.InstanceNorm1d(4), torch.ones(1, 4, 1), False),
    ],
)
def test_a_batch_norm_says_that_the_batch_has_one_sample(layer, x, is_known):
    note = told(Supervised(layer, CROSS_ENTROPY), (x, LABELS))[1]
    assert ('the batch has one sample' in note and 'drop_last=True' in note) == is_known


@pytest.mark.parametrize(
    'loss, outputs, target, words',
    [
        (CROSS_ENTROPY, 2, LABELS, 'outputs (16, 2) float32, targets (16,) int64 0…2: the network needs 3 outputs'),
        (CROSS_ENTROPY, 3, LABELS - 1, 'int64 -1…1: class indices begin at 0'),
        (CROSS_ENTROPY, 3, LABELS.double(), 'targets (16,) float64 0…2: class indices must be int64: target.long()'),
        (CROSS_ENTROPY, 3, LABELS[:, None], 'class indices have no last dimension: target.squeeze(1)'),
        (CROSS_ENTROPY, 3, ('a', 'b'), 'targets a tuple of 2 str: return the target as a number'),
        (nn.BCEWithLogitsLoss(), 1, torch.rand(16), 'same shape: target.unsqueeze(-1), or squeeze(-1)'),
        (nn.BCELoss(), 1, LABELS[:, None] // 2, 'give targets of float32: target.float()'),
        (nn.MSELoss(), 3, torch.rand(16), 'in the loss MSELoss: outputs (16, 3) float32, targets (16,) float32'),
        (nn.MSELoss(), 1, torch.rand(16), 'same shape: target.unsqueeze(-1), or squeeze(-1) at the end of the network'),
        (nn.MSELoss(), 3, torch.rand(16, 1), 'in the loss MSELoss: outputs (16, 3) float32, targets (16, 1) float32'),
        (nn.functional.l1_loss, 1, torch.rand(16), 'in the loss l1_loss: outputs (16, 1) float32, targets (16,)'),
        (dict(type='torch.nn.functional.huber_loss', delta=2.0), 1, torch.rand(16), 'same shape: target.unsqueeze(-1)'),
    ],
)
def test_what_the_loss_got_and_needs(loss, outputs, target, words):
    network = nn.Sequential(nn.Linear(13, outputs), nn.Sigmoid())
    assert words in told(Supervised(network, loss), (X, target))[1]


def test_a_target_with_one_dimension_more():
    error, note = told(Supervised(nn.Sequential(nn.Linear(13, 1), nn.Flatten(0)), nn.SmoothL1Loss()), (X, X[:, :1]))
    assert str(error) == 'outputs and targets must have the same shape'
    assert 'target.squeeze(-1), or unsqueeze(-1) at the end of the network' in note


@pytest.mark.parametrize('loss', [CROSS_ENTROPY, nn.functional.cross_entropy])
def test_the_cross_entropy_of_one_class(loss):
    """torch computes it, from targets of float32: 0, from which nothing is learned."""
    error, _ = told(Supervised(nn.Sequential(nn.Linear(13, 1)), loss), (X, torch.rand(16, 1)))
    assert str(error).startswith('the cross entropy of a single class is 0, whatever the network gives')


def test_a_metric_gets_the_same_advice():
    error = ValueError('expected the same shape')
    note_metric(error, 'error', MeanAbsoluteError(), torch.rand(4, 1), torch.rand(4))
    assert 'same shape: target.unsqueeze(-1), or squeeze(-1)' in error.__notes__[0]


def test_an_output_that_is_no_tensor():
    note = told(Supervised(nn.LSTM(13, 3), CROSS_ENTROPY), (X, LABELS))[1]
    assert 'outputs a tuple of 2 Tensor, targets (16,) int64 0…2: choose one of the outputs with outputs=…' in note


def test_an_error_that_has_another_cause_gets_no_advice():
    def broken(outputs, target):
        raise ValueError('mine')

    error, note = told(Supervised(nn.Linear(13, 2), broken), (X, LABELS))
    assert str(error) == 'mine'
    assert note == 'in the loss broken: outputs (16, 2) float32, targets (16,) int64 0…2'


def test_after_an_error_of_a_gpu_nothing_is_read(monkeypatch):
    def fail(*args):
        raise AssertionError('a value was asked for')

    monkeypatch.setattr(torch.Tensor, 'aminmax', fail)
    failed = RuntimeError('CUDA error: device-side assert triggered')
    note_loss(failed, CROSS_ENTROPY, torch.zeros(4, 2), torch.arange(4))
    network = nn.Sequential(nn.Linear(2, 2))
    network[0].register_forward_hook(lambda *args: (_ for _ in ()).throw(failed))
    with pytest.raises(RuntimeError) as caught:
        network(torch.zeros(4, 2))
    note_layer(caught.value, network)
    assert [note.count('--device cpu') for note in caught.value.__notes__] == [1, 1]


def test_values_that_cannot_be_read_are_left_out():
    note = told(Supervised(nn.Linear(13, 2), nn.BCELoss()).to('meta'), (X.to('meta'), LABELS.to('meta')))[1]
    assert 'targets (16,) int64 on meta' in note


def test_a_metric_that_does_not_fit():
    accuracy = dict(type='MulticlassAccuracy', num_classes=2)
    model = Supervised(nn.Linear(13, 3), CROSS_ENTROPY, dict(share=accuracy))
    with pytest.raises(ValueError, match='num_classes') as caught:
        Scores(model).update(model.val_step((X, LABELS)))
    assert caught.value.__notes__ == [
        "in the metric 'share', MulticlassAccuracy(num_classes=2): preds (16, 3) float32, target (16,) int64 0…2"
    ]


def test_descriptions():
    assert describe_value({'a': X}) == "a dict of 'a'"
    assert describe_value([]) == 'a list of 0'
    assert describe_value(None) == 'a NoneType'


def test_data_that_do_not_fit_a_trained_network_are_to_be_changed_not_the_network():
    _, note = told(Supervised(nn.Sequential(nn.Linear(5, 2)), CROSS_ENTROPY).eval(), (torch.zeros(3, 4),), 'predict')
    assert note.endswith('got 4 features, expects 5: give data with 5, or set in_features=4 and train')
