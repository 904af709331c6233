"""Records of trials, in memory and in files."""

import math
import os

from runnerkit.search.record import COMPLETED, Record, front, records_in


def record(number, objectives=None, **scores):
    return Record('s', number, objectives=objectives or {'a': 'max', 'b': 'min'}, performance=scores, status=COMPLETED)


def test_values_and_rewards():
    one = record(3, a=0.5, b=2.0, c=9.0)
    assert one.uid == 's_3'
    assert one.values == [0.5, 2.0]
    assert one.rewards == [0.5, -2.0]
    for scores in ({'a': 1.0}, {'a': 1.0, 'b': math.nan}, {'a': math.inf, 'b': 0.0}, {}):
        assert record(0, **scores).values is None
        assert record(0, **scores).rewards is None
    assert Record('s', 0).values is None


def test_a_record_comes_back_from_its_file(tmp_path):
    one = record(11, a=0.1 + 0.2, b=2.0)
    one.hps, one.start, one.end = {'optimizer.lr': 0.1, 'widths': [16, 32]}, 1.0, 3.5
    for number in (11, 2):
        one.number = number
        one.save(tmp_path / f'{number:04d}')
    found = records_in(tmp_path)
    assert [each.number for each in found] == [2, 11]
    one.number = 11
    assert found[1] == one
    assert found[1].runtime == 2.5
    assert Record.from_dict({**one.as_dict(), 'a key of a later version': 1}) == one
    assert records_in(tmp_path / 'nothing') == []


def test_the_front_has_what_nobody_dominates():
    records = [
        record(0, a=1.0, b=1.0),
        record(1, a=2.0, b=2.0),
        record(2, a=1.0, b=2.0),  # worse than both
        record(3, a=1.0, b=1.0),  # as good as the first
        record(4, a=9.0),
    ]
    assert [each.number for each in front(records)] == [0, 1, 3]
    assert front([]) == []


def test_a_file_is_whole_or_not_there(tmp_path):
    one = record(0, a=1.0, b=1.0)
    one.save(tmp_path)
    assert os.listdir(tmp_path) == ['record.json']
