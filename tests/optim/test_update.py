"""The update primitive against the same steps written by hand."""

import logging
import math

import pytest
import torch
from torch import nn

from runnerkit.hooks import OptimizerHook
from runnerkit.optim.update import Update, largest, log_anomalous_params


def make(seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, Update([optimizer], **options)


def losses(model, n=6):
    torch.manual_seed(1)
    return [model(torch.randn(5, 4)).pow(2).sum() for _ in range(n)]


def batches(n=6):
    torch.manual_seed(1)
    return [torch.randn(5, 4) for _ in range(n)]


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_plain_steps_are_those_of_torch():
    model, _, update = make()
    twin, optimizer, _ = make()
    for batch in batches():
        update.backward(model(batch).pow(2).sum())
        assert update.step() is None
        optimizer.zero_grad()
        twin(batch).pow(2).sum().backward()
        optimizer.step()
    assert torch.equal(weights(model), weights(twin))


def test_clip_returns_the_norm_before():
    model, _, update = make(grad_clip={'max_norm': 0.5})
    update.backward(model(batches(1)[0]).pow(2).sum())
    raw = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    norm = update.step()
    assert torch.allclose(norm, raw)
    assert torch.allclose(
        torch.cat([p.grad.flatten() for p in model.parameters()]).norm(), torch.tensor(0.5), atol=1e-4
    )


@pytest.mark.parametrize('max_iters, lengths', [(6, [4, 4, 4, 4, 2, 2]), (8, [4] * 6), (None, [4] * 6)])
def test_cycles_average_their_losses_and_the_last_one_may_be_short(max_iters, lengths):
    model, _, update = make(cumulative_iters=4)
    twin, optimizer, _ = make()
    stepped = []
    for i, batch in enumerate(batches()):
        update.backward(model(batch).pow(2).sum(), i, max_iters)
        if i % 4 == 0:
            optimizer.zero_grad()
        (twin(batch).pow(2).sum() / lengths[i]).backward()
        assert torch.equal(model.weight.grad, twin.weight.grad)
        if update.is_due(i, max_iters):
            stepped.append(i)
            update.step()
            optimizer.step()
    assert stepped == ([3, 5] if max_iters == 6 else [3])
    assert torch.equal(weights(model), weights(twin))


def test_an_optimizer_that_misses_its_cycles_last_iteration_steps_when_it_has_enough():
    model, _, update = make(cumulative_iters=2)
    due = []
    for i in (0, 2, 4):  # only even iterations: never (i + 1) % 2 == 0
        update.backward(model(batches(1)[0]).sum(), i)
        due.append(update.is_due(i, None))
        if due[-1]:
            update.step()
    assert due == [False, True, False]


def test_whether_it_is_due_can_be_asked_before_its_loss_has_come():
    model, _, update = make(cumulative_iters=2)
    asked = []
    for i in (0, 2):
        asked.append(update.is_due(i, None, ahead=1))
        update.backward(model(batches(1)[0]).sum(), i)
        assert update.is_due(i, None) == asked[-1]
    assert asked == [False, True]


def test_an_unfinished_cycle_survives_a_checkpoint():
    model, _, update = make(cumulative_iters=3)
    other, _, resumed = make(cumulative_iters=3)
    data = batches(3)
    for i in range(2):
        update.backward(model(data[i]).pow(2).sum(), i)
    resumed.load_state_dict(update.state_dict())
    for each, net in ((update, model), (resumed, other)):
        each.backward(net(data[2]).pow(2).sum(), 2)
        each.step()
    assert torch.equal(weights(model), weights(other))
    assert 'grads' not in update.state_dict()


def test_several_optimizers_step_together():
    a, b = nn.Linear(2, 1), nn.Linear(1, 1)
    update = Update([torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.Adam(b.parameters(), lr=0.1)])
    before = weights(a), weights(b)
    update.backward(b(a(torch.ones(1, 2))).sum())
    update.step()
    assert not torch.equal(weights(a), before[0])
    assert not torch.equal(weights(b), before[1])


def test_fp16_scales_the_loss_and_skips_a_step_that_overflowed():
    model, _, update = make(amp='fp16', loss_scale={'init_scale': 1024.0})
    before = weights(model)
    update.backward(model(batches(1)[0]).sum() * float('inf'))
    update.step()
    assert torch.equal(weights(model), before)
    assert update.scaler.get_scale() == 512.0
    update.backward(model(batches(1)[0]).sum())
    update.step()
    assert not torch.equal(weights(model), before)
    state = update.state_dict()
    fresh = make(amp='fp16', loss_scale={'init_scale': 1024.0})[2]
    fresh.load_state_dict(state)
    assert fresh.scaler.get_scale() == update.scaler.get_scale() == 512.0


@pytest.mark.parametrize('now, scale, interval', [
    ({'init_scale': 1024.0, 'growth_interval': 7}, 512.0, 7),
    ({'init_scale': 64.0}, 64.0, 2000),
    (128.0, 128.0, 2000),
])  # fmt: skip
def test_a_changed_setting_of_the_loss_scale_holds_against_a_saved_state(now, scale, interval):
    model, _, update = make(amp='fp16', loss_scale={'init_scale': 1024.0})
    update.backward(model(batches(1)[0]).sum() * float('inf'))
    update.step()
    other = make(amp='fp16', loss_scale=now)[2]
    other.load_state_dict(update.state_dict())
    assert (other.scaler.get_scale(), other.scaler.get_growth_interval()) == (scale, interval)


def test_gradients_of_a_cycle_of_another_length_are_dropped():
    model, _, update = make(cumulative_iters=3)
    update.backward(model(batches(1)[0]).sum(), iteration=0)
    for length, kept in ((3, 1), (2, 0)):
        twin, _, other = make(cumulative_iters=length)
        other.load_state_dict(update.state_dict())
        assert other.accumulated == kept
        assert all((parameter.grad is not None) == bool(kept) for parameter in twin.parameters())


def test_fp16_gradients_are_unscaled_before_clipping():
    model, _, update = make(amp='fp16', loss_scale=64.0, grad_clip={'max_norm': 1e9})
    twin, _, plain = make(grad_clip={'max_norm': 1e9})
    batch = batches(1)[0]
    update.backward(model(batch).pow(2).sum())
    plain.backward(twin(batch).pow(2).sum())
    assert torch.allclose(update.step(), plain.step())


def test_autocast_covers_the_forward_and_not_the_backward_pass():
    seen = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(torch.is_autocast_enabled('cpu'))
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(torch.is_autocast_enabled('cpu'))
            return grad

    model, _, update = make(amp='bf16')
    with update.autocast():
        out = model(batches(1)[0])
        update.backward(Probe.apply(out).sum())
    assert out.dtype == torch.bfloat16
    assert seen == [True, False]


def test_steps_are_counted_whoever_makes_them():
    model, optimizer, update = make()
    assert update.steps == 0
    model(batches(1)[0]).sum().backward()
    optimizer.step()
    assert update.steps == 1


def test_an_update_that_is_replaced_counts_no_more_steps():
    _, optimizer, update = make()
    other = Update([optimizer])
    update.retire()
    optimizer.step()
    assert (update.steps, other.steps) == (0, 1)


def test_anomalous_parameters_are_named(caplog):
    model = nn.ModuleDict({'used': nn.Linear(2, 1), 'idle': nn.Linear(2, 1)})
    model['idle'].bias.requires_grad_(False)
    with caplog.at_level(logging.ERROR, 'runnerkit'):
        assert log_anomalous_params(model['used'](torch.ones(1, 2)).sum(), model) == ['idle.weight']
    assert 'idle.weight (shape (1, 2)) does not contribute to the loss' in caplog.text


@pytest.mark.parametrize(
    'options, problem',
    [
        ({'cumulative_iters': 0}, 'cumulative_iters must be a whole number of at least 1, but got 0'),
        ({'cumulative_iters': 1.5}, 'cumulative_iters must be'),
        ({'amp': 'fp8'}, "amp must be 'bf16', 'fp16' or None, but got 'fp8'"),
        ({'amp': 'fp16', 'loss_scale': 0}, 'loss_scale must be a number above 0, .*, but got 0'),
        ({'amp': 'fp16', 'loss_scale': 'big'}, "loss_scale must be a number above 0, 'dynamic' or a dict"),
        (
            {'amp': 'fp16', 'loss_scale': {'init_scale': 0}},
            'loss_scale: init_scale must be a number above 0, but got 0',
        ),
        ({'amp': 'fp16', 'loss_scale': {'growth_factor': 0.5}}, 'growth_factor must be a number above 1, but got 0.5'),
        ({'amp': 'fp16', 'loss_scale': {'backoff_factor': 2}}, 'backoff_factor must be a number between 0 and 1, but'),
        ({'amp': 'fp16', 'loss_scale': {'growth_interval': 0}}, 'growth_interval must be a number of at least 1, but'),
        ({'amp': 'fp16', 'loss_scale': {'growth_factor': '2'}}, "growth_factor must be a number above 1, but got '2'"),
        ({'fused': True}, "fused must be 'auto' or None, but got True; to require it, use optimizer="),
        ({'grad_clip': 35}, r'grad_clip must be a dict such as dict\(max_norm=35\), or None, but got 35'),
    ],
)
def test_wrong_options_are_refused(options, problem):
    """Also by the hook, when it is built."""
    for build in (make, OptimizerHook):
        with pytest.raises((TypeError, ValueError), match=problem):
            build(**options)


def test_a_fixed_scale_stays_what_it_is_also_after_an_overflow():
    model, _, update = make(amp='fp16', loss_scale=64.0)
    update.backward(model.weight.sum() * float('inf'))
    update.step()
    assert update.scaler.get_scale() == 64.0


def test_gradients_are_cleared_by_hand_but_by_an_optimizer_that_does_it_its_own_way():
    class Own(torch.optim.SGD):
        cleared = 0

        def zero_grad(self, set_to_none=True):
            self.cleared += 1
            super().zero_grad(set_to_none)

    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    for optimizer in (torch.optim.SGD([weight], lr=0.1), Own([weight], lr=0.1)):
        update = Update([optimizer])
        for _ in range(2):
            update.backward(weight.sum())
            assert torch.equal(weight.grad, torch.ones(2))
            update.step()
        optimizer.add_param_group({'params': [other]})
        other.grad = torch.ones(2)
        update.backward(weight.sum())
        assert other.grad is None
    assert optimizer.cleared == 3
    patched = torch.optim.SGD([weight], lr=0.1)
    asked = []
    patched.zero_grad = lambda: asked.append(1)
    Update([patched]).backward(weight.sum())
    assert asked == [1]


def test_the_gradient_of_the_loss_is_one_whatever_the_loss_and_its_hooks_are():
    weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
    update = Update([torch.optim.SGD([weight], lr=0.1)])

    def doubled(grad):
        return grad.mul_(2)  # writes to what it is given

    def grads(loss):
        update.accumulated = 0
        update.backward(loss)
        return weight.grad.tolist()

    assert grads(weight.sum()) == [1, 1]
    spoilt = weight.sum()
    spoilt.register_hook(doubled)
    assert grads(spoilt) == [2, 2]
    assert grads(weight.sum()) == [1, 1]
    assert grads(weight.float().sum()) == [1, 1]
    assert grads(weight[:1]) == [1, 0]
    update = Update([torch.optim.SGD([weight], lr=0.1)])
    assert grads(weight[:1]) == [1, 0]  # the first one has a dimension
    assert grads(weight.sum()) == [1, 1]
    with pytest.raises(RuntimeError, match='scalar outputs'):
        grads(weight * 2)


def two_networks(**options):
    """Two layers, one behind the other, and the update of each."""
    torch.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    updates = [
        Update([torch.optim.SGD(part.parameters(), lr=1.0)], is_one_of_several=True, **options)
        for part in (first, second)
    ]
    return first, second, updates


def test_one_of_several_gets_the_gradients_of_its_own_loss_only():
    first, second, (one, other) = two_networks()
    x = torch.ones(3, 2)
    hidden = first(x)
    one.backward(second(hidden).mean(), retain_graph=True)
    assert all(parameter.grad is None for parameter in second.parameters())
    own = [parameter.grad.clone() for parameter in first.parameters()]
    other.backward(second(hidden).pow(2).mean())
    assert all(torch.equal(a, b.grad) for a, b in zip(own, first.parameters(), strict=True))
    (expected,) = torch.autograd.grad(second(first(x)).pow(2).mean(), [second.weight])
    assert torch.equal(second.weight.grad, expected)


def test_one_of_several_counts_its_cycles_in_its_own_losses():
    first, second, (one, _) = two_networks(cumulative_iters=3)
    losses = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 0.0], [1.0, 1.0]])
    steps = []
    for iteration, x in zip((5, 8, 9, 11), losses, strict=True):  # 5, 8 and 11 would end a cycle of iterations
        one.backward(second(first(x)).sum(), iteration, 12)
        steps.append(one.is_due(iteration, 12))
        if steps[-1]:
            grad, length = first.weight.grad.clone(), 3 if iteration == 9 else 1
            before = first.weight.clone()
            one.step()
            xs = losses[:3] if iteration == 9 else losses[3:]
            torch.testing.assert_close(before - first.weight, second.weight.T @ xs.sum(0)[None] / length)
            assert grad is not None
    assert steps == [False, False, True, True]  # the last one is the run's last iteration


def test_a_frozen_one_of_several_does_nothing():
    first, second, (one, _) = two_networks()
    for parameter in first.parameters():
        parameter.requires_grad_(False)
    before = first.weight.clone()
    one.backward(second(first(torch.ones(1, 2))).sum())
    assert one.accumulated == 1
    one.step()
    assert torch.equal(first.weight, before)


def test_anomalous_parameters_of_other_optimizers_are_not_named(caplog):
    first, second, (one, _) = two_networks(detect_anomalous_params=True)
    one.backward(first(torch.ones(1, 2)).sum(), model=nn.Sequential(first, second))
    assert 'does not contribute' not in caplog.text
    one.backward(second(torch.ones(1, 2)).sum(), model=nn.Sequential(first, second))
    assert caplog.text.count('does not contribute') == 2


def test_the_largest_magnitude():
    sparse = torch.sparse_coo_tensor([[1]], [-7.0], (3,), check_invariants=True)
    [found] = largest([torch.tensor([1.0, -3.0]), torch.empty(0), torch.tensor([9]), sparse, torch.ones(1).bfloat16()])
    assert found == 7
    assert largest([torch.empty(0), torch.ones(2).long()]) == []


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_bad_number_among_others_is_seen(bad):
    [found] = largest([torch.tensor([1.0, bad]), torch.full((5,), math.inf), torch.full((9,), 1e30)])
    assert not torch.isfinite(found)
    assert torch.isnan(found) == math.isnan(bad)
