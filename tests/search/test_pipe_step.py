"""What a step of a pipeline is asked for."""

import pytest

from runnerkit.search.pipe_step import PIPE_STEPS, PipeStep
from runnerkit.search.pipeline import Pipeline


class Plain(PipeStep):
    KEYS = {'size': 3, 'name_of_it': None}
    REQUIRED = ('name_of_it',)


def plain(tmp_path, kind=Plain, **section):
    cfg = {'pipeline': ['one'], 'one': {'pipe_step': {'type': kind}, **section}}
    return Pipeline(cfg, tmp_path).steps['one']


def test_a_section_is_checked(tmp_path):
    step = plain(tmp_path, name_of_it='x')
    assert (step.get('size'), step.get('name_of_it')) == (3, 'x')
    assert (step.name, step.work_dir) == ('one', tmp_path / 'one')
    with pytest.raises(KeyError, match="one has no key 'sise'; did you mean 'size'"):
        plain(tmp_path, name_of_it='x', sise=3)
    with pytest.raises(KeyError, match="one needs the key 'name_of_it'"):
        plain(tmp_path)
    # A step that names no keys takes any.
    assert plain(tmp_path, PipeStep, what='ever').get('what') == 'ever'


def test_do_must_be_overridden(tmp_path):
    with pytest.raises(NotImplementedError, match='Plain must override do'):
        plain(tmp_path, name_of_it='x').pipeline.run()


def test_the_source_is_the_step_before_or_a_named_one(tmp_path):
    class Other(PipeStep):
        pass

    names = ['one', 'two', 'three']
    cfg = {'pipeline': names, **{name: {'pipe_step': {'type': Other}} for name in names}}
    steps = Pipeline(cfg, tmp_path).steps
    assert steps['three'].source() is steps['two']
    cfg['three']['source'] = 'one'
    steps = Pipeline(cfg, tmp_path).steps
    assert steps['three'].source() is steps['one']
    with pytest.raises(KeyError, match='it is the first one'):
        steps['one'].source()
    cfg['two']['source'] = 'three'
    with pytest.raises(KeyError, match="two.source is 'three', which is no step before it"):
        Pipeline(cfg, tmp_path).steps['two'].source()


def test_the_presets_are_registered():
    assert {'SearchPipeStep', 'TrainPipeStep', 'BenchmarkPipeStep'} <= set(PIPE_STEPS.names())
