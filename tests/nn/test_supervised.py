import collections
import copy

import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

from runnerkit.config import Config
from runnerkit.nn import Supervised, build_model

LINEAR = dict(type='Linear', in_features=4, out_features=3)
CROSS_ENTROPY = dict(type='CrossEntropyLoss')
DRAWN = torch.Generator().manual_seed(1)
IMAGE, LABEL = torch.randn(5, 4, generator=DRAWN), torch.tensor([0, 1, 2, 1, 0])
MASK = torch.rand(5, 4, generator=DRAWN)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, mask):
        logits = self.linear(x * mask)
        return dict(logits=logits, doubled=2 * logits)


def two_input_logits(model):
    return model.model.linear(IMAGE * MASK)


def expected_loss(model):
    return nn.functional.cross_entropy(model.model(IMAGE), LABEL)


@pytest.mark.parametrize(
    'batch',
    [
        (IMAGE, LABEL),
        [IMAGE, LABEL],
        dict(image=IMAGE, label=LABEL),
        (IMAGE, MASK, LABEL),
        collections.namedtuple('Batch', ['image', 'label'])(IMAGE, LABEL),
    ],
    ids=['tuple', 'list', 'dict', 'three fields', 'namedtuple'],
)
def test_by_default_the_first_field_goes_in_and_the_last_is_the_target(batch):
    model = Supervised(LINEAR, CROSS_ENTROPY)
    step = model.train_step(batch, None)
    assert set(step) == {'loss', 'log_vars', 'num_samples'}
    assert torch.equal(step['loss'], expected_loss(model))
    assert step['num_samples'] == 5
    assert step['loss'].requires_grad
    assert isinstance(step['log_vars']['loss'], torch.Tensor)
    assert not step['log_vars']['loss'].requires_grad


@pytest.mark.parametrize(
    ('inputs', 'targets', 'outputs'),
    [
        (['image', 'mask'], 'label', 'logits'),
        (dict(mask='mask', x='image'), ['label'], ['logits']),
        (dict(mask=1, x=0), dict(target='label'), dict(input='logits')),
        ((0, 1), -1, 0),
    ],
)
def test_fields_are_mapped_by_name_and_position(inputs, targets, outputs):
    model = Supervised(TwoInputs(), CROSS_ENTROPY, inputs=inputs, targets=targets, outputs=outputs)
    step = model.val_step(dict(image=IMAGE, mask=MASK, label=LABEL))
    logits = two_input_logits(model)
    assert torch.equal(step['loss'], nn.functional.cross_entropy(logits, LABEL))
    assert torch.equal(step['preds'], logits)
    assert torch.equal(step['target'], LABEL)
    assert not step['preds'].requires_grad


@pytest.mark.parametrize(
    ('result', 'total', 'logged'),
    [
        (dict(loss_a=1.0, loss_b=2.0, accuracy=7.0), 3.0, dict(loss_a=1.0, loss_b=2.0, accuracy=7.0, loss=3.0)),
        (dict(bce=1.0, dice=2.0), 3.0, dict(bce=1.0, dice=2.0, loss=3.0)),
        (dict(loss=5.0, loss_a=1.0), 5.0, dict(loss=5.0, loss_a=1.0)),
        (dict(loss_a=[1.0, 3.0]), 2.0, dict(loss_a=2.0, loss=2.0)),
        ([1.0, 3.0], 2.0, dict(loss=2.0)),
        (dict(loss=1.0, hits=[True, False], counts=[1, 2]), 1.0, dict(loss=1.0, hits=0.5, counts=1.5)),
    ],
)
def test_what_a_loss_may_return(result, total, logged):
    def tensors(value):
        found = {k: torch.tensor(v) for k, v in value.items()}
        return {k: v.requires_grad_() if v.is_floating_point() else v for k, v in found.items()}

    def loss(output, target):
        return tensors(result) if isinstance(result, dict) else torch.tensor(result, requires_grad=True)

    step = Supervised(LINEAR, loss).train_step((IMAGE, LABEL))
    assert step['loss'].item() == total
    assert step['loss'].requires_grad
    assert {name: value.item() for name, value in step['log_vars'].items()} == logged
    assert not any(value.requires_grad for value in step['log_vars'].values())


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int32])
def test_counts_of_any_type_are_logged_by_their_mean(dtype):
    def loss(output, target):
        return {'loss': output.sum(), 'counts': torch.tensor([1, 2], dtype=dtype)}

    assert Supervised(LINEAR, loss).train_step((IMAGE, LABEL))['log_vars']['counts'].item() == 1.5


@pytest.mark.parametrize('result', [{}, None, 3.0, {'loss': 3.0}])
def test_a_loss_that_returns_something_else(result):
    with pytest.raises(TypeError, match='must return a tensor or a dict of tensors'):
        Supervised(LINEAR, lambda output, target: result).train_step((IMAGE, LABEL))


def test_nothing_moves_from_device_to_host():
    # Tensors on the meta device have no values: whatever asks for one of them fails.
    model = Supervised(LINEAR, CROSS_ENTROPY).to('meta')
    batch = IMAGE.to('meta'), LABEL.to('meta')
    assert model.train_step(batch)['loss'].device.type == 'meta'
    assert model.val_step(batch)['num_samples'] == 5


def test_metrics_follow_the_predictions_to_their_device():
    model = Supervised(LINEAR, CROSS_ENTROPY, dict(acc=dict(type='MulticlassAccuracy', num_classes=3))).to('meta')
    model.val_step((IMAGE.to('meta'), LABEL.to('meta')))
    assert model.metrics['acc'].device.type == 'meta'


@pytest.mark.parametrize(
    ('batch', 'inputs', 'size'),
    [
        ((IMAGE, LABEL), 0, 5),
        (([IMAGE, IMAGE, IMAGE], LABEL), 0, 3),
        ((dict(x=IMAGE), LABEL), 0, 5),
        ((torch.tensor(2.0), IMAGE, LABEL), [0, 1], 5),
        ((torch.tensor(2.0), LABEL), 0, 1),
    ],
    ids=['tensor', 'list', 'dict', 'scalar first', 'scalar only'],
)
def test_num_samples(batch, inputs, size):
    class Anything(nn.Module):
        def forward(self, *args):
            return torch.zeros(1, requires_grad=True)

    model = Supervised(Anything(), lambda output, target: output.sum(), inputs=inputs)
    assert model.train_step(batch)['num_samples'] == size


def test_metrics_are_computed_and_are_no_part_of_the_state():
    model = Supervised(LINEAR, CROSS_ENTROPY, dict(accuracy=dict(type='MulticlassAccuracy', num_classes=3)))
    assert set(model.state_dict()) == {'model.weight', 'model.bias'}
    assert not any(isinstance(module, MulticlassAccuracy) for module in model.modules())
    outputs = model.val_step((IMAGE, LABEL), None)
    model.metrics['accuracy'].update(outputs['preds'], outputs['target'])
    wanted = MulticlassAccuracy(num_classes=3)(model(IMAGE), LABEL)
    assert model.metrics['accuracy'].compute() == wanted


@pytest.mark.parametrize(
    ('metrics', 'names'),
    [
        (None, []),
        (dict(type='MulticlassAccuracy', num_classes=3), ['MulticlassAccuracy']),
        (
            [dict(type='MulticlassAccuracy', num_classes=3), dict(type='MeanMetric')],
            ['MulticlassAccuracy', 'MeanMetric'],
        ),
        (MulticlassAccuracy(num_classes=3), ['MulticlassAccuracy']),
        (dict(a=MulticlassAccuracy(num_classes=3), b=dict(type='MeanMetric')), ['a', 'b']),
    ],
)
def test_forms_of_metrics(metrics, names):
    assert list(Supervised(LINEAR, CROSS_ENTROPY, metrics).metrics) == names


def test_errors_in_metrics_and_loss():
    accuracy = dict(type='MulticlassAccuracy', num_classes=3)
    with pytest.raises(ValueError, match='two metrics are called MulticlassAccuracy'):
        Supervised(LINEAR, CROSS_ENTROPY, [accuracy, accuracy])
    with pytest.raises(TypeError, match='neither a config nor a torchmetrics'):
        Supervised(LINEAR, CROSS_ENTROPY, dict(accuracy=3))
    with pytest.raises(TypeError, match='loss=3 is neither'):
        Supervised(LINEAR, 3)
    with pytest.raises(KeyError, match="CrossEntropy is not in the loss registry.*did you mean 'CrossEntropyLoss'"):
        Supervised(LINEAR, 'CrossEntropy')


def test_a_loss_may_be_a_name():
    assert isinstance(Supervised(LINEAR, 'CrossEntropyLoss').loss, torch.nn.CrossEntropyLoss)
    assert Supervised(LINEAR, 'torch.nn.functional.mse_loss').loss is torch.nn.functional.mse_loss


@pytest.mark.parametrize(
    ('settings', 'batch', 'error', 'message'),
    [
        (
            dict(inputs='imgae'),
            dict(image=IMAGE, label=LABEL),
            LookupError,
            r"inputs='imgae'.*'image', 'label'; did you",
        ),
        (
            dict(targets='x'),
            dict(image=IMAGE, label=LABEL),
            LookupError,
            "targets='x'.*the batch: it has 'image', 'label'",
        ),
        (dict(inputs=2), (IMAGE, LABEL), LookupError, 'inputs=2.*it has 2 of them, by position'),
        (dict(inputs=-3), (IMAGE, LABEL), LookupError, 'inputs=-3.*it has 2 of them, by position'),
        (dict(inputs='image'), (IMAGE, LABEL), LookupError, "inputs='image'.*by position"),
        (dict(outputs='logits'), (IMAGE, LABEL), TypeError, "outputs='logits'.*model's output.*this is a Tensor"),
        (dict(), IMAGE, TypeError, 'inputs=0.*the batch.*this is a Tensor'),
    ],
)
def test_fields_that_do_not_exist(settings, batch, error, message):
    with pytest.raises(error, match=message):
        Supervised(LINEAR, CROSS_ENTROPY, **settings).train_step(batch)


def test_the_error_says_where_the_config_is_written(tmp_path):
    file = tmp_path / 'run.py'
    file.write_text(
        '\n'
        "model = dict(type='Supervised', inputs='imgae',\n"
        "             model=dict(type='Linear', in_features=4, out_features=3),\n"
        "             loss=dict(type='CrossEntropyLoss'))\n"
    )
    cfg = Config.fromfile(str(file))
    before = copy.deepcopy(cfg.model)
    model = build_model(cfg.model)
    assert cfg.model == before
    with pytest.raises(LookupError, match=r'run\.py:\d'):
        model.train_step(dict(image=IMAGE, label=LABEL))


def test_a_network_trains_from_a_config_alone():
    torch.manual_seed(0)
    model = build_model(
        dict(
            type='Supervised',
            model=[
                dict(type='Linear', in_features=4, out_features=8),
                dict(type='ReLU'),
                dict(type='Linear', in_features=8, out_features=3),
            ],
            loss=dict(type='CrossEntropyLoss', weight=[1, 1, 2]),
            init_cfg=dict(type='Xavier', layer='Linear'),
        )
    )
    model.init_weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(50):
        loss = model.train_step((IMAGE, LABEL), optimizer)['loss']
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert 'loss.weight' in model.state_dict()


def test_predictions_need_no_target():
    model = Supervised(LINEAR, CROSS_ENTROPY)
    for batch in (IMAGE, (IMAGE,), [IMAGE, LABEL], dict(image=IMAGE)):
        assert torch.equal(model.predict(batch), model.model(IMAGE))
    fields = dict(inputs=dict(x='image', mask='mask'), targets='label', outputs='doubled')
    two = Supervised(TwoInputs(), CROSS_ENTROPY, **fields)
    assert torch.equal(two.predict(dict(image=IMAGE, mask=MASK)), 2 * two_input_logits(two))
    with pytest.raises(LookupError, match="inputs={'x': 'image', 'mask': 'mask'} of Supervised does not fit the batch"):
        two.predict(dict(image=IMAGE))
    with pytest.raises(TypeError, match='fields can be taken from a tuple, list or dict'):
        two.predict(IMAGE)
