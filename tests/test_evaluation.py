"""Evaluation without a run around it."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from support import Tiny
from torch import nn
from torch.utils.data import DataLoader, Dataset

from runnerkit.data import build_dataloader
from runnerkit.evaluation import (
    Scores,
    check_score_exists,
    declared_rule,
    evaluation_mode,
    multi_gpu_test,
    numbers_of,
    rule_by_name,
    score_dataset,
    single_gpu_test,
)


class Numbers(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return {'x': torch.tensor([float(i)])}

    def evaluate(self, results, logger=None, power=1):
        return {'sum': sum(results) ** power}


class Doubles(nn.Linear):
    def __init__(self):
        super().__init__(1, 1)

    def forward(self, x, return_loss=True):
        assert not return_loss
        assert not self.training
        assert not torch.is_grad_enabled()
        return [2 * value.item() for value in x]


@pytest.mark.parametrize('test', [single_gpu_test, multi_gpu_test])
def test_predictions_come_in_order_and_the_model_goes_on_training(test):
    model = Doubles()
    assert test(model, DataLoader(Numbers(), batch_size=2)) == [0, 2, 4, 6, 8]
    assert model.training


class Own:
    """Predictions in a class of the project's own."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return f'box {self.x[i].item():.0f}'


#: What MMCV's loop takes of a model, of a batch ``x`` of one column: anything that can be iterated over.
KINDS = {
    'list': (lambda x: [value.item() for value in x], [0, 1, 2, 3, 4]),
    'tuple': (lambda x: tuple(value.item() for value in x), [0, 1, 2, 3, 4]),
    'tensor': (lambda x: x[:, 0], [torch.tensor(float(i)) for i in range(5)]),
    'rows of a tensor': (lambda x: x, [torch.tensor([float(i)]) for i in range(5)]),
    'array': (lambda x: x[:, 0].numpy(), [0, 1, 2, 3, 4]),
    'rows of an array': (lambda x: x.numpy(), [np.array([float(i)]) for i in range(5)]),
    'array of objects': (lambda x: np.array([None] * len(x), dtype=object), [None] * 5),
    'dict': (lambda x: {f'img {value.item():.0f}': 1 for value in x}, [f'img {i}' for i in range(5)]),
    'text': (lambda x: ''.join(f'{value.item():.0f}' for value in x), list('01234')),
    'own': (Own, [f'box {i}' for i in range(5)]),
    'zeros': (lambda x: np.zeros(len(x)), [0, 0, 0, 0, 0]),
    'set of one': (lambda x: {len(x)}, [2, 2, 1]),
    'no predictions': (lambda x: [], []),
    'an empty array': (lambda x: np.zeros((0, 4)), []),
    'iterator': (lambda x: iter(x[:, 0].tolist()), [0, 1, 2, 3, 4]),  # which MMCV refuses
}


@pytest.mark.parametrize('result', [None, 3, torch.tensor(1.0)])
def test_a_model_that_returns_no_sequence_is_an_error(result):
    model = nn.Linear(1, 1)
    model.forward = lambda x, return_loss: result
    text = r'Linear.forward\(return_loss=False, …\) returned None' if result is None else 'iter'
    with pytest.raises(TypeError, match=text):
        single_gpu_test(model, DataLoader(Numbers(), batch_size=2))


def test_the_data_set_scores_predictions():
    loader = DataLoader(Numbers(), batch_size=2)
    assert score_dataset(Doubles(), loader, power=2) == {'sum': 400.0}
    assert score_dataset(Doubles(), loader, lambda model, loader: [1, 2]) == {'sum': 3}
    assert score_dataset(Doubles(), loader, lambda model, loader: None) == {}
    with pytest.raises(AttributeError, match=r'list has no evaluate\(results, logger=…\)'):
        score_dataset(Doubles(), type('Loader', (), {'dataset': [1]})(), lambda model, loader: [1])


@pytest.mark.parametrize('returned', [None, 0.5, [('acc', 1.0)], 'acc', torch.tensor(1.0), ({'acc': 1.0}, None)])
def test_a_data_set_that_returns_no_dict_is_named(returned):
    data = Numbers()
    data.evaluate = lambda results, logger: returned
    words = re.escape(f"Numbers.evaluate must return a dict of scores, such as {{'acc': 0.9}}, but got {returned!r}")
    with pytest.raises(TypeError, match=words):
        score_dataset(Doubles(), DataLoader(data, batch_size=2))


def test_the_numbers_among_scores():
    numbers = [
        0.5,
        np.float32(0.5),
        np.array([0.5]),
        np.array(0.5),
        torch.tensor([[0.5]]),
        torch.tensor(0.5).bfloat16(),
    ]
    more = [Decimal('0.5'), Fraction(1, 2), nn.Parameter(torch.tensor(0.5))]
    others = ['0.5', 0.5 + 0j, torch.tensor(1j), np.ones(2), torch.ones(0), [0.5], {'a': 0.5}]
    assert list(numbers_of(dict(enumerate(numbers + more))).values()) == [0.5] * 9
    assert numbers_of(dict(enumerate(others))) == {}
    assert str(numbers_of({'a': None, 'b': np.True_, 'eval_iter_num': 3.0})) == "{'a': nan, 'b': 1.0}"


def test_a_data_set_does_not_score_the_predictions_of_some_samples():
    limited = build_dataloader(Numbers(), 2, 0, shuffle=False, seeded=False, max_batches=2)
    with pytest.raises(ValueError, match='max_batches=2 leaves some out'):
        score_dataset(Doubles(), limited)
    assert score_dataset(Doubles(), build_dataloader(Numbers(), 2, 0, shuffle=False, max_batches=9)) == {'sum': 20}


def test_every_module_gets_its_own_flag_back():
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout())
    model[0].eval()
    with pytest.raises(ValueError, match='boom'), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        raise ValueError('boom')
    assert [module.training for module in model.modules()] == [True, False, True]


class Metric:
    higher_is_better = True
    device = torch.device('cpu')

    def __init__(self, value):
        self.value, self.seen = value, []

    def reset(self):
        self.seen.clear()

    def update(self, preds, target):
        self.seen.append((preds, target))

    def compute(self):
        return self.value


def with_metrics(**metrics):
    model = Tiny()
    model.metrics = metrics
    return model


def test_metrics_of_many_values_get_a_name_for_each():
    model = with_metrics(
        a=Metric(torch.tensor(0.5)),
        b=Metric(torch.tensor([0.1, 0.2])),
        c=Metric({'x': 1, 'y': 2}),
        d=Metric({'map': torch.tensor([3, 4]), 'none': torch.tensor([])}),  # as MeanAveragePrecision has per class
    )
    scores = Scores(model)
    scores.update({'preds': 1, 'target': 2})
    assert {name: float(value) for name, value in scores.compute().items()} == pytest.approx(
        {'a': 0.5, 'b_0': 0.1, 'b_1': 0.2, 'c_x': 1, 'c_y': 2, 'd_map_0': 3, 'd_map_1': 4}
    )
    assert model.metrics['a'].seen == []


def test_what_metrics_need():
    scores = Scores(with_metrics(a=Metric(1)))
    with pytest.raises(
        KeyError,
        match=r"Tiny has metrics, but its val_step returned no 'preds' and no 'target' \(it returned \['loss'\]\)",
    ):
        scores.update({'loss': 1})
    Scores(Tiny()).update({})


def test_directions_are_declared_by_the_metric():
    up, down, silent = Metric(1), Metric(1), Metric(1)
    down.higher_is_better, silent.higher_is_better = False, None
    model = with_metrics(up=up, down=down, silent=silent)
    assert [declared_rule(model, key) for key in ('up', 'down', 'silent', 'other')] == ['greater', 'less', None, None]


@pytest.mark.parametrize(
    'key, rule',
    [
        ('launch_loss', 'less'),  # which has an "auc"
        ('glossary_accuracy', 'greater'),
        ('multiclassaccuracy', 'greater'),  # the middle of a word is looked at last
        ('acc_loss', 'greater'),  # as in MMCV
        *((name, 'greater') for name in ('accuracy_top-1', 'bbox_mAP_50', 'AR@1000', 'mIoU', 'aAcc', 'mAUC')),
        *((name, 'greater') for name in ('acc', 'top_1_acc', 'mAP/50')),
        *((name, 'less') for name in ('loss', 'loss_cls', 'val_loss', 'valLoss')),
        # The name of a data set does not say what is better.
        *(('accidents/loss', 'less'), ('lossless/acc', 'greater'), ('laptops/loss', 'less'), ('acc/3', 'greater')),
    ],
)
def test_which_scores_are_better_is_said_by_words(key, rule):
    assert rule_by_name(key) == rule


class NamesItsScores:
    device, higher_is_better, score_names = torch.device('cpu'), False, ()

    def reset(self):
        pass

    def update(self, preds, target):
        pass

    def compute(self):
        self.score_names = ('near', 'far')
        return {'near': 1.0, 'far': 2.0}


def test_a_metric_may_name_its_scores_itself():
    model = Tiny()
    model.metrics = {'distance': NamesItsScores()}
    check_score_exists(model, 'near', 'save_best')  # what it calls them is not known yet
    assert declared_rule(model, 'near') is None
    assert Scores(model).compute() == {'near': 1.0, 'far': 2.0}
    assert [declared_rule(model, key) for key in ('near', 'distance', 'other')] == ['less', 'less', None]
