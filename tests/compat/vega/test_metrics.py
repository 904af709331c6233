import pickle

import pytest
import torch
from support import loader, tiny_runner
from torch import nn

from runnerkit.compat.vega.metrics import Accuracy, FunctionMetric, MetricBase, Metrics, accuracy
from runnerkit.nn import METRICS, Supervised

OUTPUT = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
TARGET = torch.tensor([1, 1, 0])


class Largest(MetricBase):
    """The largest target, which no mean of batches gives."""

    objective = 'MIN'

    def __init__(self):
        self.reset()

    def __call__(self, output, target):
        self.value = max(self.value, target.max().item())

    def summary(self):
        return self.value

    def reset(self):
        self.value = float('-inf')


def test_accuracy():
    assert [value.item() for value in accuracy(OUTPUT, TARGET, (1, 2, 9))] == pytest.approx([1 / 3, 2 / 3, 1])
    assert accuracy(OUTPUT, TARGET)[0].item() == pytest.approx(1 / 3)


def test_the_built_in_accuracy_counts_samples():
    metric = METRICS.build({'type': 'accuracy'})
    assert metric.summary() == 0
    metric((OUTPUT, 'an auxiliary output'), TARGET)
    metric(OUTPUT[:1], TARGET[:1])
    assert metric.summary() == 0.5
    assert metric.result == {'accuracy': 0.5}
    metric.reset()
    assert metric.summary() == 0
    several = Accuracy((1, 2))
    several(OUTPUT, TARGET)
    assert several.result == pytest.approx({'top1_accuracy': 1 / 3, 'top2_accuracy': 2 / 3})


def test_what_an_evaluation_asks_of_a_metric():
    metric = Largest()
    assert (metric.higher_is_better, Accuracy().higher_is_better) == (False, True)
    metric.to(torch.device('cpu'))
    assert metric.device == torch.device('cpu')
    metric.update(None, torch.tensor([1.0, 5.0]))
    assert (metric.compute(), metric.score_names, metric.name) == (5.0, (), 'Largest')
    metric.objective = 'max'
    with pytest.raises(ValueError, match="must be 'MAX' or 'MIN', but got 'max'"):
        metric.higher_is_better


@pytest.mark.parametrize('call', [lambda m: m(1, 2), lambda m: m.summary(), lambda m: m.reset()])
def test_a_metric_must_implement_three_methods(call):
    class Empty(MetricBase):
        pass

    with pytest.raises(NotImplementedError, match='Empty must implement'):
        call(Empty())


def test_a_function_as_a_metric_is_its_mean_over_samples():
    def error(output, target, power):
        return (output - target).abs().pow(power).mean()

    metric = FunctionMetric(error, {'power': 2})
    assert (metric.name, metric.summary()) == ('error', 0.0)
    metric(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0]))
    assert metric(torch.tensor([4.0]), torch.tensor([0.0])).item() == 16
    assert metric.summary() == 6.0


def test_several_scores_of_a_metric_have_its_names():
    class Two(Largest):
        def summary(self):
            return {'mean_two': 1.0, 'max_two': self.value}

    torch.manual_seed(0)
    model = Supervised(nn.Linear(4, 1), nn.MSELoss(), {'two': Two(), 'largest': Largest()})
    runner = tiny_runner(model=model, max_epochs=1)
    scores = runner.evaluate(loader(8, 4))
    assert {name: scores[name] for name in ('mean_two', 'max_two', 'largest')} == {
        'mean_two': 1.0,
        'max_two': 1.0,
        'largest': 1.0,
    }
    assert model.metrics['two'].value == float('-inf')  # reset after the evaluation


def test_metrics_together(monkeypatch):
    monkeypatch.setitem(METRICS.module_dict, 'largest', Largest)
    metrics = Metrics([{'type': 'accuracy', 'params': {'topk': (1, 2)}}, {'name': 'largest'}])
    assert len(metrics(OUTPUT, TARGET)) == 2
    assert metrics.results == pytest.approx({'top1_accuracy': 1 / 3, 'top2_accuracy': 2 / 3, 'Largest': 1})
    assert metrics.objectives == {'accuracy': 'MAX', 'largest': 'MIN'}
    assert metrics.accuracy.samples == 3
    metrics.reset()
    assert metrics.accuracy.samples == 0
    assert pickle.loads(pickle.dumps(Metrics({'type': 'accuracy'}))).accuracy.topk == (1,)
    with pytest.raises(AttributeError, match="no metric 'auc'"):
        metrics.auc
    with pytest.raises(ValueError, match="two metrics 'accuracy'"):
        Metrics([{'type': 'accuracy'}, {'type': 'accuracy'}])
    with pytest.raises(TypeError, match='a metric must be a dict such as .*, but got 3'):
        Metrics([3])


def test_arguments_beside_a_metrics_type_names_alone_and_metrics_of_torchmetrics():
    metrics = Metrics(['MeanSquaredError', {'type': 'accuracy', 'topk': 2}])
    assert metrics.accuracy.topk == (2,)
    assert metrics.objectives == {'MeanSquaredError': 'MIN', 'accuracy': 'MAX'}
    metrics = Metrics('MeanSquaredError')
    metrics(torch.tensor([1.0]), torch.tensor([3.0]))
    assert metrics.results == {'MeanSquaredError': 4}


@pytest.mark.parametrize('topk', [0, (), [1, 0], [1.5], ['1']])
def test_accuracy_of_no_number(topk):
    with pytest.raises((TypeError, ValueError), match='topk must'):
        Accuracy(topk)


def evaluate_on_a_rank(rank):
    torch.manual_seed(0)
    model = Supervised(nn.Linear(4, 1), nn.MSELoss(), {'largest': Largest(), 'mean': FunctionMetric(_mean_target, {})})
    runner = tiny_runner(model=model, max_epochs=1)
    return runner.evaluate(loader(7, 2, shuffle=False, round_up=False)), model.metrics['largest']._batches


def _mean_target(output, target):
    return target.mean()


def test_with_several_processes_each_sample_counts_once(on_ranks):
    (first, kept), (second, _) = on_ranks(__file__, 'evaluate_on_a_rank')
    assert (first['largest'], first['mean']) == (1.0, pytest.approx(3 / 7))
    assert (second['largest'], second['mean'], kept) == (first['largest'], first['mean'], ())
