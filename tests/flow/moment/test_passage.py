"""A flow that waits in a thread of its own."""

import logging
import threading

import pytest
import torch
from moments import write_project

from runnerkit import replay
from runnerkit.config import Config
from runnerkit.flow import Flow, Options
from runnerkit.flow.moment.passage import Passage
from runnerkit.hooks import Hook


@pytest.fixture
def passage(tmp_path):
    """Of a run of 24 iterations that has not begun."""
    options = Options(work_dir=str(tmp_path / 'run'))
    found = Passage(lambda guard: Flow(Config.fromfile(write_project(tmp_path)), options, guard=guard))
    yield found
    found.leave()


def threads():
    return [each for each in threading.enumerate() if each.name == 'runnerkit-replay']


def test_it_waits_before_the_iterations_that_are_named(passage):
    assert passage.advance(3)
    assert (passage.runner.completed_iters, passage.is_waiting, len(threads())) == (3, True, 1)
    assert passage.advance(4)
    assert passage.runner.completed_iters == 4
    assert not passage.advance(None)
    assert (passage.runner.completed_iters, passage.is_waiting, threads()) == (24, False, [])
    assert passage.runner.outcome.kind == 'completed'


def test_what_is_left_trains_no_further_and_saves_nothing(passage, tmp_path):
    passage.advance(5)
    passage.leave()
    passage.leave()
    assert passage.runner.completed_iters == 5
    assert threads() == []
    assert not [*(tmp_path / 'run').glob('*.pth')]


def test_a_run_that_has_not_begun_can_be_left(passage):
    passage.leave()
    assert not passage.is_waiting


def test_calls_are_made_in_the_thread_of_the_run_with_its_random_states(passage):
    passage.advance(2)
    first = passage.call(lambda runner: (threading.current_thread().name, torch.rand(1).item()))
    torch.rand(5)
    assert passage.call(lambda runner: (threading.current_thread().name, torch.rand(1).item())) == first
    assert first[0] == 'runnerkit-replay'
    with pytest.raises(ZeroDivisionError):
        passage.call(lambda runner: 1 / 0)
    assert passage.advance(3)


def test_after_the_end_calls_are_made_at_once(passage):
    assert not passage.advance(None)
    assert passage.call(lambda runner: (runner.completed_iters, threading.current_thread().name)) == (24, 'MainThread')


class Fails(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 1:
            raise RuntimeError('no more')


def test_an_error_of_the_run_is_raised_where_it_is_waited_for(trained):
    with pytest.raises(RuntimeError, match='no more'):
        with replay(trained('epochs')[0], 5, hooks=[Fails()]):
            pass
    assert threads() == []


def test_an_error_of_the_caller_ends_the_run(trained):
    with pytest.raises(KeyError):
        with replay(trained('epochs')[0], 1):
            raise KeyError('mine')
    assert threads() == []


def test_the_console_shows_nothing_of_it(passage, capsys):
    passage.advance(4)
    logging.getLogger('runnerkit').warning('of the caller')
    passage.leave()
    said = capsys.readouterr().err
    assert 'of the caller' in said
    assert 'Epoch' not in said
    assert '_Left' not in said
