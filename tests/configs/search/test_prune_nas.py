"""The search for channels to keep: from the YAML to the front, trained and tested."""

from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.search.pipeline import Pipeline

FILE = Path(__file__).parents[3] / 'configs/search/prune_nas.yml'


def test_the_parts_fit_together(tmp_path):
    steps = Pipeline(FILE, tmp_path, device='cpu').steps
    assert list(steps) == ['nas', 'fullytrain', 'benchmark']
    assert steps['nas'].get('search_algorithm')['type'] == 'PruneEA'
    assert steps['fullytrain'].source() is steps['nas']


@pytest.mark.thorough  # test_the_parts_fit_together; tests/search/test_prune_ea.py, tests/search/test_pipeline.py
def test_a_short_search_and_what_follows(tmp_path):
    cfg = Config.fromfile(FILE)
    quick = {'runner.max_epochs': 1, 'data.train.part': 'val', 'data.train.augment': False}
    for name in ('nas', 'fullytrain'):
        cfg[name]['executor'] = 'Serial'
        cfg[name]['overrides'] = quick
    cfg.nas.search_algorithm.policy = dict(length=80, num_generation=1, num_individual=2, random_samples=2)
    cfg.fullytrain.nums = 2
    cfg.benchmark.latency = False
    report = Pipeline(cfg, tmp_path, device='cpu').run()
    searched, trained, tested = (report.of(name) for name in ('nas', 'fullytrain', 'benchmark'))
    assert [each.status for each in searched] == ['completed'] * 4
    assert len({each.performance['params'] for each in searched}) == 4
    front = report.pareto_front('nas', 2)
    assert [each.desc for each in trained] == [each.desc for each in front]
    assert [each.performance['params'] for each in trained] == [each.performance['params'] for each in front]
    for one, other in zip(trained, tested, strict=True):
        assert other.performance['params'] == one.performance['params']
        assert 0 <= other.performance['accuracy'] <= 1
