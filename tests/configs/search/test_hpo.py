"""The search over the LeNet: its parts fit together, and the test digits are seen by the last step alone."""

from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.search.pipeline import Pipeline

FILE = Path(__file__).parents[3] / 'configs/search/hpo.py'


def test_the_parts_fit_together(tmp_path):
    pipeline = Pipeline(FILE, tmp_path)
    assert pipeline.names == ['search', 'best', 'default', 'guess', 'test']
    steps = pipeline.steps
    # The best and the default meet on the same terms.
    for name in ('search', 'best', 'default', 'guess'):
        assert steps[name].config_file == str(FILE.parents[1] / 'mnist' / 'lenet.py')
        assert steps[name].overrides == {'evaluation.save_best': None}
    for name in ('default', 'guess'):
        assert steps['best'].get('seed') == steps[name].get('seed')
        assert steps['best'].get('repeats') == steps[name].get('repeats') == 3
    assert steps['default'].proposals()[0].hps == {}
    assert steps['guess'].proposals()[0].hps == {'optimizer.lr': 0.01}
    assert [step.name for step in steps['test'].sources()] == ['best', 'default', 'guess']
    # Trials are chosen by the validation's digits.
    assert steps['test'].get('split') == 'test'
    assert {part.get('part') for part in (Config.fromfile(steps['search'].config_file).data.val,)} == {'val'}


@pytest.mark.thorough  # test_the_parts_fit_together, tests/search/test_pipeline.py
def test_two_trials_and_what_follows(tmp_path):
    cfg = Config.fromfile(FILE)
    quick = {'runner.max_epochs': 1, 'data.train.part': 'val', 'evaluation.save_best': None}
    for name in ('search', 'best', 'default', 'guess'):
        cfg.merge_from_dict({f'{name}.executor': 'Serial'})
        cfg[name]['overrides'] = quick
    cfg.search.search_algorithm.trials = 2
    cfg.search.search_space['model.model.channels'] = [[2, 4]]
    cfg.best.repeats = cfg.default.repeats = cfg.guess.repeats = 1
    report = Pipeline(cfg, tmp_path, device='cpu').run()
    assert [(each.step, each.status) for each in report.all_records] == [
        ('search', 'completed'),
        ('search', 'completed'),
        ('best', 'completed'),
        ('default', 'completed'),
        ('guess', 'completed'),
        *[('test', 'completed')] * 3,
    ]
    assert report.of('best')[0].hps == report.best('search').hps
    assert report.of('default')[0].hps == {}
    tested = report.of('test')
    assert [each.source for each in tested] == ['best_0', 'default_0', 'guess_0']
    assert all({'accuracy', 'loss', 'params', 'flops', 'latency'} <= each.performance.keys() for each in tested)
    assert tested[0].performance['params'] < tested[1].performance['params']
