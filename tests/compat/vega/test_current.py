"""What the running step and the running training say. tests/test_seed_vega.py has the classes that ask them."""

import pytest

from runnerkit.compat.vega import ClassFactory, ClassType, General, Metrics, PipeStep, SearchSpace
from runnerkit.compat.vega.current import config_of_training, running_section
from runnerkit.search.pipeline import Pipeline

SPACE = {'modules': ['backbone'], 'backbone': {'type': 'Linear'}}


def test_nothing_runs():
    for ask in (lambda: General.step_name, SearchSpace, Metrics, lambda: ClassFactory.get_cls(ClassType.DATASET)()):
        with pytest.raises(RuntimeError, match='no pipeline is running here'):
            ask()
    assert config_of_training() is None


def test_a_step_has_what_it_leaves_out_from_the_step_before(tmp_path):
    found = {}

    class Notes(PipeStep):
        def do(self):
            found[General.step_name] = running_section()

    first = {'search_space': SPACE, 'search_algorithm': {'type': 'PruneEA'}, 'rounds': 3}
    first['trainer'] = {'metric': 'accuracy'}
    second = {'trainer': {'metric': [{'type': 'accuracy', 'topk': [5]}]}}
    sections = {name: {'pipe_step': {'type': Notes}, **own} for name, own in (('nas', first), ('tune', second))}
    Pipeline({'pipeline': [*sections], **sections}, tmp_path).run()
    assert set(found['nas']) == {'pipe_step', 'search_space', 'search_algorithm', 'trainer'}  # its own keys apart
    assert set(found['tune']) == {'pipe_step', 'search_space', 'trainer'}
    assert found['tune']['search_space'] == SPACE
    assert found['tune']['trainer'] == second['trainer']


def test_two_pipelines_have_a_step_each(tmp_path):
    """One that runs inside another one's step; then the outer one's step is the running one again."""
    names = []

    class Inner(PipeStep):
        def do(self):
            names.append(General.step_name)

    class Outer(PipeStep):
        def do(self):
            Pipeline({'pipeline': ['inner'], 'inner': {'pipe_step': {'type': Inner}}}, tmp_path / 'inner').run()
            names.append(General.step_name)

    Pipeline({'pipeline': ['outer'], 'outer': {'pipe_step': {'type': Outer}}}, tmp_path).run()
    assert names == ['inner', 'outer']
