import math

import pytest

from runnerkit.optim import schedules


@pytest.mark.parametrize('anneal', schedules.ANNEALINGS.values())
def test_annealing_goes_from_start_to_end(anneal):
    assert anneal(3.0, 1.0, 0) == 3.0
    assert anneal(3.0, 1.0, 1) == 1.0
    assert anneal(3.0, 1.0, 0.5) == pytest.approx(2.0)


def test_annealing_cos_with_a_weight_starts_lower():
    assert schedules.annealing_cos(3.0, 1.0, 0, weight=0.5) == 2.0
    assert schedules.annealing_cos(3.0, 1.0, 1, weight=0.5) == 1.0
    assert schedules.annealing_cos(1.0, 0.0, 0.25) == pytest.approx((1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize(
    ('kind', 'expected'), [('constant', [0.1, 0.1]), ('linear', [0.1, 0.55]), ('exp', [0.1, math.sqrt(0.1)])]
)
def test_warmup_factor(kind, expected):
    assert [schedules.warmup_factor(kind, progress, 10, 0.1) for progress in (0, 5)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ('steps', 'expected'), [(2, [1, 1, 0.5, 0.5, 0.25]), ([1, 3], [1, 0.5, 0.5, 0.25, 0.25]), ([], [1] * 5)]
)
def test_step(steps, expected):
    assert [schedules.step(1.0, progress, steps, 0.5) for progress in range(5)] == expected


def test_step_stops_at_the_minimum():
    assert schedules.step(1.0, 100, 1, 0.5, minimum=0.1) == 0.1


def test_monotonous_policies():
    assert schedules.exponential(2.0, 3, 0.5) == 0.25
    assert schedules.poly(1.1, 3, 4, 2.0, 0.1) == pytest.approx(0.1 + 1.0 / 16)
    assert schedules.inverse(1.0, 3, 1.0, 2.0) == 1 / 16


def test_target():
    assert schedules.target(2.0, 0.5, None) == 0.5
    assert schedules.target(2.0, None, 0.5) == 1.0
    assert schedules.target(2.0, None, 0.0) == 0.0


def test_flat_cosine():
    values = [schedules.flat_cosine(1.0, 0.0, progress, 8, 0.5) for progress in range(9)]
    assert values[:5] == [1.0] * 5
    assert values[6] == pytest.approx(0.5)
    assert values[8] == 0


def test_positions_in_periods():
    assert [schedules.get_position_from_periods(i, [2, 5]) for i in range(5)] == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match=r'5 lies behind the last period, which ends at 5'):
        schedules.get_position_from_periods(5, [2, 5])


def test_cosine_restart():
    values = [schedules.cosine_restart(1.0, 0.0, progress, [2, 4], [1, 0.5]) for progress in range(6)]
    assert values[0] == 1.0
    assert values[1] == pytest.approx(0.5)
    assert values[2] == 0.5
    assert values[4] == pytest.approx(0.25)


def cyclic(progress, **kwargs):
    settings = dict(total=20, times=2, share_up=0.4, ratios=(3, 0.5), gamma=0.5, anneal=schedules.annealing_linear)
    return schedules.cyclic(1.0, progress, **dict(settings, **kwargs))


def test_cyclic():
    assert cyclic(0) == 1.0
    assert cyclic(2) == pytest.approx(2.0)
    assert cyclic(4) == 3.0
    assert cyclic(7) == pytest.approx(1.75)
    assert cyclic(10) == 1.0
    assert cyclic(14) == 2.0  # half as high over 1 as the first peak
    assert cyclic(0, share_up=0) == 3.0


def test_cycles_have_to_fit():
    with pytest.raises(ValueError, match='21 cycles do not fit into 20 iterations; let cyclic_times be 20 at most'):
        cyclic(0, times=21)


def one_cycle(progress, corners, pct_start=0.4):
    return schedules.one_cycle(corners, progress, 10, pct_start, schedules.annealing_linear)


def test_one_cycle_in_two_phases():
    corners = (1.0, 4.0, 0.5)
    assert [one_cycle(progress, corners) for progress in (0, 1, 3, 9)] == pytest.approx([1, 2, 4, 0.5])
    assert one_cycle(99, corners) == 0.5


def test_one_cycle_in_three_phases():
    corners = (1.0, 4.0, 1.0, 0.5)
    assert [one_cycle(progress, corners) for progress in (0, 3, 6, 9)] == pytest.approx([1, 4, 1, 0.5])


def test_one_cycle_without_a_way_up():
    assert one_cycle(0, (1.0, 4.0, 0.5), pct_start=0.1) == 4.0
