"""What a model has and what one step takes."""

import pytest
import torch
from support import Tiny, loader, tiny_runner
from torch import nn

from runnerkit.flow import Context, Options
from runnerkit.flow.look.summary import (
    Summarize,
    count,
    forward_summary,
    is_shaped,
    measured,
    parameters_of,
    shape,
    top_level,
)
from runnerkit.nn import Supervised


def summary_of(model, *inputs):
    with measured(model) as summary:
        model(*inputs)
    return summary


def test_numbers_are_those_computed_by_hand():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.Flatten(), nn.Linear(8 * 4 * 4, 5))
    model[0].weight.requires_grad_(False)
    summary = summary_of(model, torch.zeros(2, 3, 6, 6))
    convolution, linear = 2 * (2 * 4 * 4 * 8) * (3 * 9), 2 * 2 * 128 * 5
    assert [(part.name, part.kind, part.flops, part.output) for part in summary.parts] == [
        ('0', 'Conv2d', convolution, '(2, 8, 4, 4)'),
        ('1', 'Flatten', 0, '(2, 128)'),
        ('2', 'Linear', linear, '(2, 5)'),
    ]
    assert [(part.parameters, part.trainable) for part in summary.parts] == [(216, 0), (0, 0), (645, 645)]
    assert (summary.whole.flops, summary.whole.parameters, summary.whole.trainable) == (convolution + linear, 861, 645)
    summary.samples = 2
    first, _, *rows = str(summary).splitlines()
    assert first == (
        'Sequential: 861 parameters, 645 of them trainable; FLOPs of one step: 16.4 k, 8.19 k for each of the 2 samples'
    )
    assert rows[0].split() == ['0', 'Conv2d', '216', '13.8', 'k', '(2,', '8,', '4,', '4)']


def test_modules_that_are_called_often_or_never():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.shared(self.shared(x)[:1])

    rows = str(summary_of(Net(), torch.zeros(3, 4))).splitlines()
    assert rows[2].endswith('(3, 4), 2 calls')
    assert '128' in rows[2]  # 96 for three rows, 32 for one
    assert rows[3].endswith('not called')


def test_the_model_inside_a_wrapper_is_looked_at():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    assert [name for name, _ in top_level(inner)] == ['0', '1']
    wrapped = Supervised(inner, loss=nn.MSELoss())
    assert [name for name, _ in top_level(wrapped)] == ['model.0', 'model.1']
    assert [name for name, _ in top_level(nn.Linear(1, 1))] == ['']
    assert [name for name, _ in top_level(Supervised(nn.Linear(1, 1), loss=nn.MSELoss()))] == ['model', 'loss']


def test_lazy_modules_are_counted_when_they_are_known():
    summary = summary_of(nn.Sequential(nn.LazyLinear(5), nn.ReLU()), torch.zeros(2, 3))
    assert (summary.whole.parameters, summary.parts[0].parameters) == (20, 20)


def test_nothing_stays_at_the_model_also_after_an_error():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with pytest.raises(RuntimeError, match='shapes'):
        summary_of(model, torch.zeros(1, 3))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_shapes_and_counts():
    value = {'boxes': torch.zeros(7, 4), 'more': [torch.zeros(1)] * 5, 'n': 1}
    assert shape(value) == '{boxes: (7, 4), more: [(1,), (1,), (1,), (1,), …], n: int}'
    assert [count(number) for number in (0, 999, 1500, 2e6, 3.14159e9, 5e12)] == [
        '0',
        '999',
        '1.5 k',
        '2 M',
        '3.14 G',
        '5 T',
    ]


def test_the_stage_steps_without_an_update():
    runner = tiny_runner(model=Tiny(), max_epochs=1)
    before = runner.model.head.weight.detach().clone()
    context = Context({}, Options(), runner=runner, loaders=[loader(4), loader(8)], workflow=[('val', 1), ('train', 1)])
    Summarize(context).run(context)
    summary = context['summary']
    assert torch.equal(runner.model.head.weight, before)
    assert (summary.samples, summary.whole.parameters) == (4, 65)
    assert [part.output for part in summary.parts] == ['(4, 8)', '(4, 1)']


def test_a_forward_pass_of_one_sample_changes_nothing():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model[2].eval()
    before, rng = {name: each.clone() for name, each in model.state_dict().items()}, torch.get_rng_state()
    whole = forward_summary(model, torch.randn(1, 4, generator=torch.Generator().manual_seed(0))).whole
    assert (whole.parameters, whole.flops) == (8 + 15, 2 * 4 * 3)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert [module.training for module in model] == [True, True, False]


def test_a_sample_is_what_the_model_takes():
    class Pair(nn.Linear):
        def forward(self, x, y):
            return super().forward(x) + super().forward(y)

    class Detector(nn.Linear):
        def forward(self, img, return_loss=True):
            assert not return_loss
            return super().forward(img)

    one, linear = torch.zeros(1, 4), 2 * 4 * 3
    assert forward_summary(Pair(4, 3), (one, one)).whole.flops == 2 * linear
    assert forward_summary(Pair(4, 3), {'x': one, 'y': one}).whole.flops == 2 * linear
    assert forward_summary(Detector(4, 3), {'img': one}).whole.flops == linear
    supervised = Supervised(nn.Linear(4, 3), loss=nn.CrossEntropyLoss())
    for batch in (one, (one, torch.zeros(1).long())):
        assert forward_summary(supervised, batch).whole.flops == linear


def test_lazy_parameters_have_shapes_after_a_call():
    model = nn.LazyLinear(3)
    assert (is_shaped(model), parameters_of(model)) == (False, 0)
    rng = torch.get_rng_state()
    assert forward_summary(model, torch.zeros(1, 4)).whole.parameters == 15
    assert (is_shaped(model), parameters_of(model)) == (True, 15)
    assert torch.equal(torch.get_rng_state(), rng)
