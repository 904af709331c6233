"""What a dry run shows."""

import torch

from runnerkit.flow.dry_run import describe, sketch


def test_nested_batches_are_described():
    batch = {'img': torch.zeros(2, 3), 'meta': [('a', torch.ones(1, dtype=torch.int64))], 'n': 3}
    assert describe(batch) == [
        "  batch['img']: (2, 3) float32",
        "  batch['meta'][0][0]: str",
        "  batch['meta'][0][1]: (1,) int64",
        "  batch['n']: int",
    ]


def test_a_falling_rate_is_drawn_falling():
    lines = sketch([1.0, 0.5, 0.0], height=3).splitlines()
    assert [line[12:].rstrip() for line in lines[:3]] == ['*', ' *', '  *']
    assert 'iteration 0 … 2' in lines[-1]


def test_long_and_constant_and_missing_schedules():
    assert max(len(line) for line in sketch([i / 1000 for i in range(1000)]).splitlines()) <= 72
    assert sketch([0.1] * 5).count('*') == 5
    assert sketch([]) == '  (no schedule, or a run of unknown length)'
