"""What is measured of trained models."""

import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import DATA, sections, small_pipeline  # noqa: E402
from studies import config_file  # noqa: E402

import runnerkit  # noqa: E402
from runnerkit.config import Config  # noqa: E402
from runnerkit.search.benchmark import called, latencies  # noqa: E402
from runnerkit.search.pipe_step import NothingUsable  # noqa: E402
from runnerkit.search.pipeline import Pipeline  # noqa: E402
from runnerkit.search.quota import counted  # noqa: E402

FEW = dict(search_algorithm=dict(type='RandomSearch', trials=2), overrides={'runner.max_epochs': 1})


@pytest.fixture(scope='module')
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp('searched')
    small_pipeline(folder, nas=FEW, fullytrain=None, benchmark=None).run()
    return folder


def measured(searched, name='measure', **section):
    pipeline = small_pipeline(
        searched, nas=FEW, fullytrain=None, benchmark=None,
        **{name: dict(pipe_step=dict(type='BenchmarkPipeStep'), latency=dict(rounds=3), **section)},
    )  # fmt: skip
    return pipeline.run().of(name), pipeline.report.of('nas')


def test_a_model_is_measured(searched):
    found, sources = measured(searched)
    assert [each.source for each in found] == ['nas_0', 'nas_1']
    for each, source in zip(found, sources, strict=True):
        expected = runnerkit.test(source.work_dir, 'test', checkpoint=source.weights_file)
        assert {name: each.performance[name] for name in expected} == expected
        assert each.performance['params'] == 4 * 8 + 8 + 8 + 1
        assert each.performance['flops'] == 2 * (4 * 8 + 8)
        assert 0 < each.performance['latency'] < 1000
        assert (each.status, each.objectives) == ('completed', source.objectives)


def test_the_split_and_the_objectives_can_be_chosen(searched):
    objectives = {'latency': 'min', 'error': 'min'}
    found, sources = measured(searched, 'on_val', split='val', objectives=objectives, nums=1)
    assert len(found) == 1
    source = next(each for each in sources if each.uid == found[0].source)
    expected = runnerkit.test(source.work_dir, 'val', checkpoint=source.weights_file)
    assert found[0].performance['error'] == expected['error'] == pytest.approx(source.performance['error'])
    assert (found[0].moment, found[0].iter) == (source.moment, source.iter) == ('best error', source.iter)
    assert found[0].objectives == objectives


def test_what_cannot_be_measured_is_told(searched):
    with pytest.raises(KeyError, match=r"split is 'tset', but the config of the step nas has no data.tset; did you"):
        measured(searched, 'wrong_split', split='tset')
    found, _ = measured(searched, 'wrong_score', objectives={'error': 'min', 'latency': 'min'})
    assert {each.status for each in found} == {'completed'}
    with pytest.raises(RuntimeError, match='the run gave no score accuracy; it gave '):
        measured(searched, 'no_score', objectives={'accuracy': 'max'})


def test_a_score_that_is_not_finite_is_no_measurement(searched, monkeypatch):
    monkeypatch.setattr('runnerkit.search.benchmark.test', lambda *args, **options: {'error': float('nan')})
    with pytest.raises(NothingUsable, match='none of 2 models could be measured. a score is no finite number'):
        measured(searched, 'not_finite')


def test_without_weights_of_that_moment_there_is_nothing_to_measure_or_to_load(tmp_path):
    unsaved = {'checkpoint_config': None, 'evaluation.save_best': None, 'runner.max_epochs': 1}
    nas = dict(FEW, search_algorithm=dict(type='RandomSearch', trials=1), overrides=unsaved)
    with pytest.raises(NothingUsable, match=r'no config with a checkpoint of .* \(last evaluation, iteration \d+\)'):
        small_pipeline(tmp_path, nas=nas, fullytrain=None).run()
    with pytest.raises(NothingUsable, match='load_weights begins with the weights of the trials, but nas_0 have no'):
        small_pipeline(tmp_path, nas=nas, fullytrain=dict(load_weights=True), benchmark=None).run()


def test_one_broken_model_does_not_stop_the_others(searched):
    source = measured(searched)[1][0]
    kept = Path(source.weights_file).read_bytes()
    Path(source.weights_file).write_bytes(b'')
    try:
        found, _ = measured(searched, 'with_broken')
    finally:
        Path(source.weights_file).write_bytes(kept)
    assert [each.status for each in found] == ['failed', 'completed']
    assert found[0].message


def test_trials_that_were_not_made_here_are_measured_only_if_they_are_trusted(searched, monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
    with pytest.raises(RuntimeError, match=r'none of 2 models could be measured.*none of your runs.*--trust'):
        measured(searched, 'foreign')
    section = dict(pipe_step=dict(type='BenchmarkPipeStep'), latency=False)
    steps = sections(searched, nas=FEW, fullytrain=None, benchmark=None, trusted=section)
    found = Pipeline(steps, searched / 'work', trust=True).run().of('trusted')
    assert {each.status for each in found} == {'completed'}


def test_models_are_called_in_turn():
    order = []

    class Slow(nn.Module):
        def __init__(self, number, seconds):
            super().__init__()
            self.number, self.seconds = number, seconds

        def forward(self, x):
            order.append(self.number)
            time.sleep(self.seconds)
            return x

    batch = (torch.zeros(1),)
    found = latencies({0: (Slow(0, 0.0), batch), 1: (Slow(1, 0.02), batch)}, rounds=3, warmup=1)
    assert order == [0, 1] * 4
    assert found[1] >= 20 > 0
    assert found[0] < found[1]


def test_how_a_model_is_called():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    one = torch.ones(1)
    assert called(Two(), (one, one)) == 2
    assert called(Two(), {'x': one, 'y': one}) == 2
    assert called(nn.Identity(), one) == 1


def test_what_is_counted_changes_no_random_numbers(tmp_path):
    cfg = Config.fromfile(str(config_file(tmp_path, data=DATA)))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert counted(cfg) == {'params': 49.0, 'flops': 80.0}
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    'latency, error, told',
    [
        (3, TypeError, 'latency must be a dict'),
        ({'rouds': 3}, KeyError, "did you mean 'rounds'"),
        ({'rounds': 0}, ValueError, 'latency.rounds must be a whole number of at least 1'),
    ],
)
def test_wrong_settings(tmp_path, latency, error, told):
    with pytest.raises(error, match=told):
        Pipeline(sections(tmp_path, benchmark=dict(latency=latency)), tmp_path)
