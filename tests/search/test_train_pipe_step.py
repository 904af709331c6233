import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import small_pipeline  # noqa: E402

from runnerkit.checkpoint.loader import load_tensors  # noqa: E402


@pytest.fixture(scope='module')
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp('searched')
    return folder, small_pipeline(folder, fullytrain=None, benchmark=None).run()


def after(searched, **section):
    """The records of a training after a search that is done."""
    folder = searched[0]
    name = f'train_{len(list((folder / "work").iterdir()))}'
    step = dict(pipe_step=dict(type='TrainPipeStep'), **section)
    pipeline = small_pipeline(folder, fullytrain=None, benchmark=None, **{name: step})
    return pipeline.run().of(name)


def test_nums_and_repeats(searched):
    found = after(searched, nums=1, repeats=2, overrides={'runner.max_epochs': 1})
    assert [each.source for each in found] == [searched[1].pareto_front('nas')[0].uid] * 2
    assert found[0].seed != found[1].seed
    assert found[0].performance['error'] != found[1].performance['error']
    assert {each.epoch for each in found} == {1}
    # What was counted is still known.
    assert {each.performance['params'] for each in found} == {49.0}


def test_the_weights_of_the_search_can_be_loaded(searched):
    found = after(searched, nums=1, load_weights=True, overrides={'optimizer.lr': 0.0, 'runner.max_epochs': 1})[0]
    source = searched[1].pareto_front('nas')[0]
    assert found.parent == source.weights_file
    assert f'load_from={source.weights_file}' in found.command
    weights = [load_tensors(each.weights_file)['state_dict'] for each in (found, source)]
    # Values of a trial come after the overrides of its step.
    assert found.hps == source.hps
    assert set(weights[0]) == set(weights[1])


def test_given_values_are_trained(searched):
    config = str(searched[0] / 'config.py')
    objectives = {'error': 'min'}
    values = [{'optimizer.lr': 0.03}, {}]
    found = after(searched, hps=values, config=config, objectives=objectives, overrides={'runner.max_epochs': 1})
    assert [each.hps for each in found] == values
    assert found[0].objectives == objectives
    assert found[0].source is None
