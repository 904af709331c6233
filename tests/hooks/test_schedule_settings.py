import pytest
import torch

from runnerkit.hooks import schedule_settings as settings
from runnerkit.hooks.hook import Hook
from runnerkit.optim.schedules import ANNEALINGS


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('foo', 1, 0.5), '"foo" is not a supported type of warm-up; choose one of constant, linear, exp'),
        (('linear', 0, 0.5), '"warmup_iters" must be at least 1, got 0'),
        (('linear', 1, 0.0), 'above 0 and at most 1, got 0.0'),
        (('linear', 1, 1.1), 'above 0 and at most 1, got 1.1'),
    ],
)
def test_warmup(arguments, message):
    settings.check_warmup('exp', 1, 1)
    with pytest.raises(ValueError, match=message):
        settings.check_warmup(*arguments)


@pytest.mark.parametrize(('minimum', 'ratio'), [(None, None), (0.0, 0.0)])
def test_target(minimum, ratio):
    settings.check_target('lr', 0.0, None)
    settings.check_target('lr', None, 0.0)
    with pytest.raises(ValueError, match=f'exactly one of min_lr and min_lr_ratio.*min_lr={minimum}'):
        settings.check_target('lr', minimum, ratio)


@pytest.mark.parametrize(
    ('steps', 'error', 'message'),
    [
        ('a', TypeError, "is an integer, or a list of them such as .*got 'a'"),
        (True, TypeError, 'got True'),
        (0, ValueError, 'positive integers, got 0'),
        ([3, -1], ValueError, r'positive integers, got \[3, -1\]'),
        ([3.5], ValueError, r'positive integers, got \[3.5\]'),
        ([3, 2], ValueError, r'rising order, got \[3, 2\]; write \[2, 3\]'),
    ],
)
def test_steps(steps, error, message):
    for right in (1, [], [1, 2, 2], (3, 4)):
        settings.check_steps(right)
    with pytest.raises(error, match=message):
        settings.check_steps(steps)


def test_by_iteration():
    settings.check_by_iteration(Hook(), False)
    with pytest.raises(ValueError, match='Hook counts iterations and supports only by_epoch=False'):
        settings.check_by_iteration(Hook(), True)


@pytest.mark.parametrize('value', [0, -1, True, 1.0, '1', None])
def test_positive(value):
    settings.check_positive('n', 1)
    with pytest.raises(ValueError, match=f'n counts, in positive integers, got {value!r}'):
        settings.check_positive('n', value)


@pytest.mark.parametrize('value', [-0.1, 1.1, True, 'a', float('nan')])
def test_share(value):
    settings.check_share('part', 0)
    settings.check_share('part', 1.0)
    with pytest.raises(ValueError, match=f'"part" is a share in .0, 1., got {value!r}'):
        settings.check_share('part', value)


def test_share_below_one():
    with pytest.raises(ValueError, match=r'"part" is a share in \[0, 1\), got 1'):
        settings.check_share('part', 1, closed=False)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [((0, 0.5, 1), 'cyclic_times'), ((1, 1.0, 1), 'step_ratio_up'), ((1, 0.5, 0), '"gamma"'), ((1, 0.5, 2), '"gamma"')],
)
def test_cycles(arguments, message):
    settings.check_cycles(1, 0, 1)
    with pytest.raises(ValueError, match=message):
        settings.check_cycles(*arguments)


def test_cycle_ratios():
    assert settings.cycle_ratios(3.0) == (3.0, 3.0 / 1e5)
    assert settings.cycle_ratios([3, 4]) == (3, 4)
    for wrong in ('ab', (1, 2, 3), None):
        with pytest.raises(ValueError, match='target_ratio is a number, or two of them'):
            settings.cycle_ratios(wrong)


def test_annealing():
    assert settings.find_annealing('cos') is ANNEALINGS['cos']
    with pytest.raises(ValueError, match="no anneal_strategy 'cosine'; choose one of cos, linear"):
        settings.find_annealing('cosine')


def test_format_param():
    optimizer = torch.optim.SGD([{'params': torch.zeros(1)}, {'params': torch.zeros(1)}], lr=0.1)
    assert settings.format_param('a', optimizer, 3) == [3, 3]
    assert settings.format_param('a', optimizer, [1, 2]) == [1, 2]
    assert settings.format_param('a', optimizer, dict(a=3, b=4)) == [3, 3]
    assert settings.format_param('a', optimizer, dict(a=(1, 2))) == (1, 2)
    with pytest.raises(ValueError, match='a has 2 parameter groups, but 1 values are given'):
        settings.format_param('a', optimizer, [1])
    with pytest.raises(KeyError, match='c has no value among those for a, b'):
        settings.format_param('c', optimizer, dict(a=3, b=4))


@pytest.mark.parametrize('value', ['1', True, None])
def test_per_group(value):
    for right in (1, 0.5, [1], (1,), {'a': 1}):
        settings.check_per_group('max_lr', right)
    with pytest.raises(ValueError, match=f'max_lr is a number, a list .* got {value!r}'):
        settings.check_per_group('max_lr', value)
