import pytest

from runnerkit.optim import schedules


def test_positions_in_periods():
    assert [schedules.get_position_from_periods(i, [2, 5]) for i in range(5)] == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match=r'5 is after the last period, which ends at 5'):
        schedules.get_position_from_periods(5, [2, 5])


def cyclic(progress, step_ratio_up=0.4, times=2):
    return schedules.Cyclic((3, 0.5), times, step_ratio_up, 'linear', 0.5).value(1.0, progress, 20)


def test_cyclic():
    """The other formulas are compared with MMCV's in `tests/hooks/test_param_schedule.py`."""
    assert [cyclic(progress) for progress in (0, 2, 4, 7, 10)] == pytest.approx([1, 2, 3, 1.75, 1])
    assert cyclic(14) == 2.0  # half as high over 1 as the first peak
    assert cyclic(0, step_ratio_up=0) == 3.0


def test_cycles_have_to_fit():
    with pytest.raises(ValueError, match='21 cycles do not fit into 20 iterations; let cyclic_times be 20 at most'):
        cyclic(0, times=21)


def test_a_policy_without_a_formula():
    with pytest.raises(NotImplementedError, match='Policy has no formula: override value'):
        schedules.Policy().value(1.0, 0, 1)


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


def test_cycle_ratios():
    assert schedules.cycle_ratios(3.0) == (3.0, 3.0 / 1e5)
    assert schedules.cycle_ratios([3, 4]) == (3, 4)
    for wrong in ('ab', (1, 2, 3), None):
        with pytest.raises(ValueError, match='target_ratio is a number, or two of them'):
            schedules.cycle_ratios(wrong)
