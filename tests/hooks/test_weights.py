"""A run that trains nothing says so; one that trains, however it does that, does not."""

import math
from copy import copy

import pytest
import torch
from support import Tiny, loader, tiny_runner
from torch import nn
from torch.utils.data import DataLoader
from two_networks import Points, gan
from two_networks import sgd as sgd_of_each

from runnerkit.hooks import Hook, OptimizerHook, weights
from runnerkit.hooks.weights import FIRST_LOOK, checksums, describe_counts, find_non_finite, trainable
from runnerkit.parallel import MMDataParallel
from runnerkit.parallel.bits import bit_words

ALARM = 'THE WEIGHTS HAVE NOT CHANGED'


class Call(Hook):
    """Calls ``function(runner)`` at ``point``."""

    def __init__(self, point, function):
        setattr(self, point, function)


def frozen(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def sgd(lr):
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr)


class Line(nn.Linear):
    """A model without a weight that is 0."""

    def __init__(self):
        super().__init__(4, 1)

    def train_step(self, data, optimizer):
        return {'loss': self(data[0]).square().mean()}


def run(*hooks, kind='epoch', times=1, length=20, **options):
    """Run a tiny runner with ``hooks``; returns it."""
    options = options or {'max_epochs': 2}
    runner = tiny_runner(kind, **options)
    for hook in hooks:
        runner.register_hook(hook)
    for _ in range(times):
        runner.run([loader(length)], [('train', 1)])
    return runner


class NoLoss(Tiny):
    """A model whose step needs no gradients."""

    def train_step(self, data, optimizer):
        return {'log_vars': {}, 'num_samples': 1}


# --- what is told, and when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_a_run_without_a_step_says_so_when_it_ends_and_how_to_mend_it(kind, caplog):
    run(kind=kind, max_iters=10)
    assert ALARM in caplog.records[-1].message
    assert caplog.records[-1].levelname == 'ERROR'
    assert 'in 10 iterations' in caplog.text
    assert 'optimizer_config=dict()' in caplog.text


def test_the_end_of_the_first_epoch_is_early_enough(caplog):
    seen = []
    run(Call('before_train_epoch', lambda runner: seen.append(ALARM in caplog.text)))
    assert seen == [False, True]
    assert caplog.text.count(ALARM) == 2  # when it is found, and in the last lines


def test_a_hook_may_change_the_weights_at_the_end_of_the_epoch(caplog):
    run(Call('after_train_epoch', lambda runner: next(runner.model.parameters()).data.add_(1)))
    assert ALARM not in caplog.text


def test_in_a_long_epoch_it_is_told_after_two_hundred_iterations(caplog):
    seen = []
    run(
        Call('after_train_iter', lambda runner: seen.append(ALARM in caplog.text)),
        length=4 * FIRST_LOOK + 20,
        max_epochs=1,
    )
    assert seen.index(True) == FIRST_LOOK


def test_the_iteration_runner_looks_then_as_well(caplog):
    seen = []
    run(
        Call('after_train_iter', lambda runner: seen.append(ALARM in caplog.text)),
        kind='iter',
        max_iters=FIRST_LOOK + 3,
    )
    assert seen.index(True) == FIRST_LOOK


def test_a_longer_accumulation_cycle_is_waited_for(caplog):
    seen = []
    hook = Call('after_train_iter', lambda runner: seen.append(ALARM in caplog.text))
    hook.cumulative_iters = FIRST_LOOK + 20
    run(hook, kind='iter', max_iters=FIRST_LOOK + 40)
    assert seen.index(True) == FIRST_LOOK + 20


def test_weights_that_are_frozen_for_a_while_are_looked_at_later(caplog):
    def frozen_in_the_first_epoch(runner):
        runner.model.requires_grad_(runner.epoch > 0)

    run(Call('before_train_iter', frozen_in_the_first_epoch), model=NoLoss(), max_epochs=3)
    assert caplog.text.count(ALARM) == 2
    assert 'in 10 iterations' in caplog.text


def test_of_several_ranks_the_first_one_says_it(caplog):
    runner = tiny_runner(max_epochs=2)
    runner._rank = 1
    runner.run([loader(20)], [('train', 1)])
    assert ALARM not in caplog.text


def test_weights_that_change_later_are_not_in_the_last_lines(caplog):
    def from_the_second_epoch_on(runner):
        if runner.epoch:
            runner.update(runner.outputs['loss'])

    run(Call('after_train_iter', from_the_second_epoch_on))
    assert caplog.text.count(ALARM) == 1
    assert ALARM not in caplog.records[-1].message


@pytest.mark.parametrize(
    ('options', 'hooks', 'words'),
    [
        (dict(optimizer=lambda model: None), [], 'no optimizer'),
        (dict(optimizer=lambda model: sgd(0.1)(Tiny())), [OptimizerHook()], "none of the model's trainable parameters"),
        (dict(optimizer=sgd(0.0)), [OptimizerHook()], 'all learning rates are 0'),
        (dict(model=Line(), optimizer=sgd(1e-30)), [OptimizerHook()], 'too small'),
        (dict(), [Call('after_train_iter', lambda runner: runner.outputs['loss'].backward())], 'nothing steps'),
    ],
)
def test_the_reason_is_named_as_far_as_it_can_be_seen(options, hooks, words, caplog):
    run(*hooks, max_epochs=2, **options)
    assert ALARM in caplog.text
    assert words in caplog.records[-1].message


@pytest.mark.parametrize(('factor', 'words'), [(None, 'no parameter has a gradient'), (0.0, 'all gradients are 0')])
def test_a_loss_that_leads_nowhere_is_the_reason(factor, words, caplog):
    class Detached(Tiny):
        def __init__(self):
            super().__init__()
            self.other = torch.ones((), requires_grad=True)

        def train_step(self, data, optimizer):
            step = super().train_step(data, optimizer)
            return {**step, 'loss': self.other * 1.0 if factor is None else step['loss'] * factor}

    run(OptimizerHook(), model=Detached(), max_epochs=1)
    assert words in caplog.records[-1].message


# --- what is no reason to say anything -------------------------------------------------------------------------------


class Swaps(Tiny):
    """Puts new tensors in the place of the old ones, as some optimizers outside torch do."""

    def train_step(self, data, optimizer):
        for parameter in self.parameters():
            parameter.data = parameter.data + 1e-3
        return super().train_step(data, optimizer)


class Replaces(Line):
    """Has new parameters after each step."""

    def train_step(self, data, optimizer):
        self.weight, self.bias = nn.Parameter(self.weight.data * 0.9), nn.Parameter(self.bias.data)
        return super().train_step(data, optimizer)


class Steps(Tiny):
    def train_step(self, data, optimizer):
        step = super().train_step(data, optimizer)
        optimizer.zero_grad()
        step['loss'].backward()
        optimizer.step()
        return step


def step_by_hand(runner):
    runner.optimizer.zero_grad()
    runner.outputs['loss'].backward()
    runner.optimizer.step()


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize(
    ('hooks', 'options'),
    [
        ([OptimizerHook()], {}),
        ([OptimizerHook(cumulative_iters=7)], {}),  # an epoch has five iterations: its end is too early
        ([OptimizerHook(amp='fp16', loss_scale=dict(init_scale=2.0**40))], {}),  # skips its first updates
        ([OptimizerHook(amp='bf16')], {}),
        ([Call('after_train_iter', step_by_hand)], {}),
        ([], dict(model=Steps())),
        ([], dict(model=Swaps())),
        ([], dict(model=Replaces())),
        ([], dict(model=frozen(Tiny()))),
        ([], dict(model=nn.Identity(), optimizer=lambda model: None)),
    ],
    ids=[
        'hook',
        'accumulation',
        'fp16',
        'bf16',
        'own hook',
        'own step',
        'new tensors',
        'new parameters',
        'frozen',
        'no parameters',
    ],
)
def test_no_false_alarm(hooks, options, kind, caplog):
    model = options.get('model')
    if isinstance(model, nn.Identity):
        model.train_step = lambda data, optimizer: {'loss': data[0].sum()}
    run(*map(copy, hooks), kind=kind, max_iters=14, **options)
    assert ALARM not in caplog.text


def test_the_cycle_of_each_optimizer_is_waited_for(caplog):
    """Two epochs of two batches: each network has two of its three losses."""
    runner = tiny_runner(model=gan(), optimizer=sgd_of_each, max_epochs=4)
    runner.register_hook(OptimizerHook(cumulative_iters=3))
    batches = DataLoader(Points(16), batch_size=8)
    runner.run([batches, batches], [('dis', 1), ('gen', 1)])
    assert ALARM not in caplog.text


def test_a_warm_up_from_zero_is_waited_for(caplog):
    def rate(runner):
        runner.optimizer.param_groups[0]['lr'] = 0.1 * (runner.epoch > 0)

    run(Call('before_train_iter', rate), OptimizerHook())
    assert ALARM not in caplog.text


def test_parameters_that_are_released_later_are_waited_for(caplog):
    def release(runner):
        runner.model.requires_grad_(runner.epoch > 0)

    def update(runner):
        if runner.epoch:
            runner.update(runner.outputs['loss'])

    run(Call('before_train_epoch', release), Call('after_train_iter', update))
    assert ALARM not in caplog.text


def test_a_wrapper_hides_nothing(caplog):
    run(OptimizerHook(), model=MMDataParallel(Tiny(), device_ids=[-1]), max_epochs=1)
    assert ALARM not in caplog.text
    run(model=MMDataParallel(Tiny(), device_ids=[-1]), max_epochs=1)
    assert ALARM in caplog.text


def test_a_resumed_run_compares_with_the_weights_that_it_resumes(tmp_path, caplog):
    first = run(OptimizerHook(), max_epochs=1)
    first.save_checkpoint(str(tmp_path))
    for hooks, is_told in (((OptimizerHook(),), False), ((), True)):
        caplog.clear()
        runner = tiny_runner(max_epochs=2)
        for hook in hooks:
            runner.register_hook(hook)
        runner.resume(str(tmp_path / 'epoch_1.pth'))
        runner.run([loader()], [('train', 1)])
        assert (ALARM in caplog.text) == is_told


def test_a_run_that_stops_inside_its_first_cycle_is_not_judged(caplog):
    run(OptimizerHook(cumulative_iters=4), Call('after_train_iter', lambda runner: runner.stop('enough')))
    assert ALARM not in caplog.text


def test_a_run_that_fails_is_not_judged(caplog):
    def fail(runner):
        raise RuntimeError('broken')

    with pytest.raises(RuntimeError, match='broken'):
        run(Call('after_train_iter', fail))
    assert ALARM not in caplog.text


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_weights_that_have_changed_are_not_looked_at_again(monkeypatch):
    runner = tiny_runner(max_epochs=4)
    runner.register_hook(OptimizerHook())
    looks = []
    monkeypatch.setattr('runnerkit.hooks.weights.checksums', lambda found: looks.append(1) or checksums(found))
    runner.run([loader()], [('train', 1)])
    assert len(looks) == 2  # at the beginning, and at the first epoch's end


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_the_smallest_change_of_one_weight_counts(dtype):
    weight = nn.Parameter(torch.rand(40, 30).to(dtype))
    before = checksums({'a': weight, 'b': torch.tensor(1.0)})
    real = torch.view_as_real(weight.data) if weight.is_complex() else weight.data
    real[7, 7] = torch.nextafter(real[7, 7], torch.full_like(real[7, 7], 2.0))
    now = checksums({'a': weight, 'b': torch.tensor(1.0)})
    assert before['a'] != now['a']
    assert before['b'] == now['b']


def test_parameters_whose_bits_cannot_be_read_are_left_out():
    lazy, plain, empty = nn.LazyLinear(3), nn.Linear(2, 2), nn.Linear(0, 3, bias=False)
    model = nn.ModuleList([lazy, plain, empty, nn.Linear(2, 2, device='meta'), frozen(nn.Linear(2, 2))])
    assert [*trainable(model)] == ['1.weight', '1.bias']


def test_channels_last_weights_are_read_without_a_copy(monkeypatch):
    weight = torch.nn.Parameter(torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last))
    seen = []
    monkeypatch.setattr(weights, 'bit_words', lambda tensor: seen.append(bit_words(tensor)) or seen[-1])
    checksums({'a': weight})
    assert [each.data_ptr() for each in seen] == [weight.data_ptr()]


# --- finite ----------------------------------------------------------------------------------------------------------


def test_which_tensors_are_not_finite():
    whole = {
        'fine': torch.ones(3),
        'empty': torch.empty(0),
        'whole numbers': torch.tensor([1]),
        'text': 'nan',
        'meta': torch.empty(2, device='meta'),
        'large': torch.tensor([1e300], dtype=torch.float64),  # finite, though not in 32 bits
        'sparse': torch.tensor([0.0, 1.0]).to_sparse(),
        'half': torch.ones(2, dtype=torch.float16),
        'eight bits': torch.ones(2).to(torch.float8_e4m3fn),
        'lazy': torch.nn.LazyLinear(1).weight,
    }
    assert find_non_finite(whole) == {}
    bad = {
        'nan': torch.tensor([1.0, math.nan, math.inf]),
        'complex': torch.tensor([1 + 1j, complex(math.inf, 0)]),
        'sparse bad': torch.tensor([0.0, math.nan]).to_sparse(),
        'bf16': torch.tensor([-math.inf], dtype=torch.bfloat16),
        'eight bits bad': torch.tensor([math.nan, 1.0]).to(torch.float8_e5m2),
    }
    assert find_non_finite({**whole, **bad}) == {
        'nan': '2 of 3 values',
        'complex': '1 of 2 values',
        'sparse bad': '1 of 1 values',
        'bf16': '1 of 1 values',
        'eight bits bad': '1 of 2 values',
    }


def test_many_tensors_are_one_line():
    assert describe_counts({'a': '1 of 2 values'}) == 'a (1 of 2 values)'
    assert describe_counts({'a': '1 of 2 values', 'b': ''}) == 'a (1 of 2 values) and 1 other tensor'
    assert describe_counts({'a': '1 of 2 values', 'b': '', 'c': ''}) == 'a (1 of 2 values) and 2 other tensors'
