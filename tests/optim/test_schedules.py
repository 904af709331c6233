import math

import pytest

from runnerkit.optim import schedules


@pytest.mark.parametrize(
    ('kind', 'expected'),
    [(None, [1, 1]), ('constant', [0.1, 0.1]), ('linear', [0.1, 0.55]), ('exp', [0.1, math.sqrt(0.1)])],
)
def test_warmup_factor(kind, expected):
    assert [schedules.warmup_factor(kind, progress, 10, 0.1) for progress in (0, 5)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ('steps', 'expected'), [(2, [1, 1, 0.5, 0.5, 0.25]), ([1, 3], [1, 0.5, 0.5, 0.25, 0.25]), ([], [1] * 5)]
)
def test_step(steps, expected):
    policy = schedules.Step(steps, 0.5)
    assert [policy.value(1.0, progress, None) for progress in range(5)] == expected


def test_step_stops_at_the_minimum():
    assert schedules.Step(1, 0.5, minimum=0.1).value(1.0, 100, None) == 0.1


def test_flat_cosine():
    policy = schedules.FlatCosineAnnealing(0.5, 0.0)
    values = [policy.value(1.0, progress, 8) for progress in range(9)]
    assert values[:5] == [1.0] * 5
    assert values[6] == pytest.approx(0.5)
    assert values[8] == 0


def test_positions_in_periods():
    assert [schedules.get_position_from_periods(i, [2, 5]) for i in range(5)] == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match=r'5 is after the last period, which ends at 5'):
        schedules.get_position_from_periods(5, [2, 5])


def test_cosine_restart():
    policy = schedules.CosineRestart([2, 4], [1, 0.5], 0.0)
    values = [policy.value(1.0, progress, None) for progress in range(6)]
    assert values[0] == 1.0
    assert values[1] == pytest.approx(0.5)
    assert values[2] == 0.5
    assert values[4] == pytest.approx(0.25)


def cyclic(progress, step_ratio_up=0.4, times=2):
    return schedules.Cyclic((3, 0.5), times, step_ratio_up, 'linear', 0.5).value(1.0, progress, 20)


def test_cyclic():
    assert cyclic(0) == 1.0
    assert cyclic(2) == pytest.approx(2.0)
    assert cyclic(4) == 3.0
    assert cyclic(7) == pytest.approx(1.75)
    assert cyclic(10) == 1.0
    assert cyclic(14) == 2.0  # half as high over 1 as the first peak
    assert cyclic(0, step_ratio_up=0) == 3.0


def test_cycles_have_to_fit():
    with pytest.raises(ValueError, match='21 cycles do not fit into 20 iterations; let cyclic_times be 20 at most'):
        cyclic(0, times=21)


def one_cycle(progress, pct_start=0.4, three_phase=False):
    return schedules.OneCycle(pct_start, 'linear', three_phase).value((1.0, 4.0, 0.5), progress, 10)


def test_one_cycle_in_two_phases():
    assert [one_cycle(progress) for progress in (0, 1, 3, 6, 9)] == pytest.approx([1, 2, 4, 2.25, 0.5])
    assert one_cycle(99) == 0.5


def test_a_policy_without_a_formula():
    with pytest.raises(NotImplementedError, match='Policy has no formula: override value'):
        schedules.Policy().value(1.0, 0, 1)


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
    schedules.check_warmup('exp', 1, 1)
    with pytest.raises(ValueError, match=message):
        schedules.check_warmup(*arguments)


@pytest.mark.parametrize(
    ('steps', 'error', 'message'),
    [
        ('a', TypeError, "is an integer, or a list of them such as .*got 'a'"),
        (True, TypeError, 'got True'),
        (0, ValueError, 'positive integers .*, but got 0'),
        ([3, -1], ValueError, r'positive integers .*, but got \[3, -1\]'),
        ([3.5], ValueError, r'positive integers .*, but got \[3.5\]'),
        ([3, 2], ValueError, r'ascending order, but got \[3, 2\]; write \[2, 3\]'),
    ],
)
def test_steps(steps, error, message):
    for right in (1, [], [1, 2, 2], (3, 4)):
        schedules.check_steps(right)
    with pytest.raises(error, match=message):
        schedules.check_steps(steps)


@pytest.mark.parametrize('value', [0, -1, True, 1.0, '1', None])
def test_positive(value):
    schedules.check_positive('n', 1)
    with pytest.raises(ValueError, match=f'n must be a positive integer, but got {value!r}'):
        schedules.check_positive('n', value)


@pytest.mark.parametrize('value', [-0.1, 1.1, True, 'a', float('nan')])
def test_share(value):
    schedules.check_share('part', 0)
    schedules.check_share('part', 1.0)
    with pytest.raises(ValueError, match=r'"part" is a share in \[0, 1\), got 1'):
        schedules.check_share('part', 1, closed=False)
    with pytest.raises(ValueError, match=f'"part" is a share in .0, 1., got {value!r}'):
        schedules.check_share('part', value)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ((2, 0, 0.5, 'cos', 1), 'cyclic_times'),
        ((2, 1, 1.0, 'cos', 1), 'step_ratio_up'),
        ((2, 1, 0.5, 'cosine', 1), 'anneal_strategy'),
        ((2, 1, 0.5, 'cos', 0), '"gamma"'),
        ((2, 1, 0.5, 'cos', 2), '"gamma"'),
    ],
)
def test_wrong_cycles(arguments, message):
    schedules.Cyclic(2, 1, 0, 'cos', 1)
    with pytest.raises(ValueError, match=message):
        schedules.Cyclic(*arguments)


def test_cycle_ratios():
    assert schedules.cycle_ratios(3.0) == (3.0, 3.0 / 1e5)
    assert schedules.cycle_ratios([3, 4]) == (3, 4)
    for wrong in ('ab', (1, 2, 3), None):
        with pytest.raises(ValueError, match='target_ratio is a number, or two of them'):
            schedules.cycle_ratios(wrong)


def test_annealing():
    assert schedules.find_annealing('cos') is schedules.ANNEALINGS['cos']
    with pytest.raises(ValueError, match="no anneal_strategy 'cosine'; choose one of cos, linear"):
        schedules.find_annealing('cosine')
