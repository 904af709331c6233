"""The log lines of a run and of its replay."""

import math

from written_runs import write_log

from runnerkit.flow.moment.logs import compare_logs, is_of_machine


def line(step, mode='train', **values):
    return {
        'mode': mode,
        'step': step,
        'epoch': 1,
        'iter': step,
        'time': step / 7,
        'timestamp': step,
        'memory': 3,
        **values,
    }


def differences(tmp_path, then, now, since=0, done=9):
    again = [{**each, 'time': 9.0, 'data_time_max': 2.0, 'timestamp': 0, 'memory': 5} for each in now]
    return compare_logs(then, [write_log(tmp_path / 'again', again)], since, done)


def test_times_and_memory_do_not_count(tmp_path):
    lines = [line(1, loss=0.5), line(2, loss=math.nan), line(2, 'val', acc=1.0)]
    assert differences(tmp_path, lines, lines) == []
    assert is_of_machine('data_time_max_rank')
    assert not is_of_machine('times')


def test_the_first_value_that_differs_comes_first(tmp_path):
    then = [line(1, loss=0.5), line(2, loss=0.25, acc=1), line(3, loss=0.1)]
    now = [line(1, loss=0.5), line(2, loss=0.2500000001, acc=1), line(3, loss=0.2)]
    first, second = differences(tmp_path, then, now)
    assert str(first) == 'the log line at 2 iterations (train) differs: loss was 0.25 and is 0.2500000001'
    assert second.step == 3


def test_missing_lines_are_differences(tmp_path):
    lines = [line(1, loss=0.5), line(2, loss=0.5), line(3, loss=0.5)]
    assert [str(each) for each in differences(tmp_path, lines, [lines[0], lines[2]])] == [
        'the log line at 2 iterations (train) is missing in the replay'
    ]
    assert [str(each) for each in differences(tmp_path, [lines[0], lines[2]], lines)] == [
        'the log line at 2 iterations (train) is missing in the log'
    ]


def test_lines_outside_of_the_replay_or_behind_the_log_are_not_compared(tmp_path):
    lines = [line(1, loss=0.5), line(2, loss=0.5), line(3, loss=0.5)]
    assert differences(tmp_path, lines, [lines[1]], since=1, done=2) == []
    assert differences(tmp_path, lines[:1], lines) == []  # a truncated log
