from runnerkit.search.record import Record
from runnerkit.search.study_step import failures


def test_failed_trials_are_named():
    records = [Record('nas', number, status='failed') for number in range(7)] + [Record('train', 0, status='failed')]
    assert failures(records) == 'nas 0, 1, 2, 3, 4 … (7 in all); train 0'
    assert failures([Record('nas', 0, status='completed')]) == ''
