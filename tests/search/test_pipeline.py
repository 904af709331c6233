"""Pipelines: steps whose records pass on, and that go on after any kill."""

import json
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import sections, small_pipeline  # noqa: E402
from studies import kills_on_the_way, outcome  # noqa: E402

from runnerkit.search.pipe_step import PipeStep  # noqa: E402
from runnerkit.search.pipeline import Pipeline  # noqa: E402
from runnerkit.search.record import Record  # noqa: E402
from runnerkit.search.search_pipe_step import SearchPipeStep  # noqa: E402


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The pipeline that nobody disturbs."""
    folder, began = tmp_path_factory.mktemp('whole'), time.monotonic()
    report = small_pipeline(folder).run()
    return folder, report, time.monotonic() - began


def measured(report):
    """What two runs must agree on: all but the latency."""
    return [
        (step, number, status, hps, {key: value for key, value in scores.items() if key != 'latency'}, epoch)
        for (number, status, hps, scores, epoch, _), step in zip(
            outcome(report), [each.step for each in report.all_records], strict=True
        )
    ]


def test_records_pass_from_step_to_step(whole):
    folder, report, _ = whole
    best = report.pareto_front('nas')
    assert [each.source for each in report.of('fullytrain')] == [each.uid for each in best for _ in range(2)]
    assert [each.hps for each in report.of('fullytrain')] == [each.hps for each in best for _ in range(2)]
    assert {each.epoch for each in report.of('nas')} == {3}
    assert {each.epoch for each in report.of('fullytrain')} == {4}
    assert [each.source for each in report.of('benchmark')] == [each.uid for each in report.of('fullytrain')]
    assert {each.status for each in report.all_records} == {'completed'}
    for name in ('nas', 'fullytrain', 'benchmark'):
        assert (folder / 'work' / name / 'step.json').exists()
    content = json.loads((folder / 'work' / 'reports.json').read_text())
    assert [(each['step'], each['number']) for each in content] == [
        (each.step, each.number) for each in report.all_records
    ]
    assert {each['step'] for each in json.loads((folder / 'work' / 'nas' / 'reports.json').read_text())} == {'nas'}


def test_steps_that_are_done_are_not_repeated(whole, monkeypatch):
    folder, report, _ = whole
    for kind in (type(step) for step in small_pipeline(folder).steps.values()):
        monkeypatch.setattr(kind, 'do', lambda self: pytest.fail(f'{self.name} is repeated'))
    assert measured(small_pipeline(folder).run()) == measured(report)


def test_records_of_a_pipeline_that_was_made_elsewhere_name_nothing_there(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob('work/*/step.json'):
        state = json.loads(file.read_text())
        state['records'][0].update(weights_file='http://127.0.0.1:9/x.pth', work_dir='/')
        file.write_text(json.dumps(state))
    report = Pipeline(sections(whole[0]), tmp_path / 'work').run()
    assert [len(report.of(name)) for name in ('nas', 'fullytrain')] == [4, len(whole[1].of('fullytrain'))]
    for record in report.all_records:
        assert (record.weights_file is None) == (record.number == 0)
        assert not record.weights_file or Path(record.weights_file).is_relative_to(tmp_path)


@pytest.mark.thorough  # test_a_config_that_has_changed_begins_anew
def test_a_step_that_has_changed_goes_on(tmp_path):
    small_pipeline(tmp_path, fullytrain=None, benchmark=None).run()
    more = small_pipeline(
        tmp_path, nas=dict(search_algorithm=dict(type='NSGA2', trials=5)), fullytrain=None, benchmark=None
    )
    starts = [each.start for each in more.report.all_records]
    assert not starts
    report = more.run()
    assert [each.number for each in report.of('nas')] == [0, 1, 2, 3, 4]
    # How many run at once does not matter.
    again = small_pipeline(
        tmp_path,
        nas=dict(search_algorithm=dict(type='NSGA2', trials=5), executor=dict(type='Local', workers=1)),
        fullytrain=None,
        benchmark=None,
    )
    assert measured(again.run()) == measured(report)
    assert not again.current


@pytest.mark.thorough  # test_a_config_that_has_changed_begins_anew
def test_models_are_trained_anew_where_their_settings_or_the_front_have_changed(tmp_path):
    def trained(epochs, trials=1):
        nas = dict(objectives=dict(error='min'), search_algorithm=dict(type='GridSearch', points=trials),
                   search_space={'optimizer.lr': dict(type='Float', low=1e-3, high=0.1)})  # fmt: skip
        fullytrain = dict(overrides={'runner.max_epochs': epochs}, repeats=1)
        pipeline = small_pipeline(tmp_path, nas=nas, fullytrain=fullytrain, benchmark=None)
        return pipeline.run().of('fullytrain')

    (first,) = trained(1)
    assert first.epoch == 1
    (second,) = trained(2)
    assert (second.epoch, second.hps) == (2, first.hps)
    assert second.start > first.end
    (third,) = trained(2, trials=3)  # a better one is found
    assert third.hps != first.hps
    assert len(list((tmp_path / 'work').glob('fullytrain.*'))) == 2


@pytest.mark.parametrize('moment', ['between two steps', 'before the first trial'])
def test_stopped_when_no_study_runs_it_goes_on(moment, tmp_path, monkeypatch):
    pipeline = small_pipeline(tmp_path, benchmark=None, fullytrain=None)
    step = pipeline.steps['nas']
    if moment == 'between two steps':
        pipeline.stop(signal.SIGTERM)
    else:
        executor = type(step).executor
        monkeypatch.setattr(step, 'executor', lambda: pipeline.stop(signal.SIGTERM) or executor(step))
    assert pipeline.run().all_records == []
    assert not (tmp_path / 'work' / 'nas' / 'step.json').exists()


def test_a_config_that_has_changed_begins_anew(tmp_path, caplog):
    def made(**changes):
        pipeline = small_pipeline(tmp_path, fullytrain=None, benchmark=None)
        path = tmp_path / 'config.py'
        path.write_text(f'{path.read_text()}\n# a remark\noptimizer.update({changes})\n')
        return pipeline

    first = made().run()
    assert measured(made().run()) == measured(first)
    assert 'Step nas is done already' in caplog.text
    other = made(momentum=0.8).run()
    assert 'nas starts over, since config has changed' in caplog.text
    assert [each.hps for each in other.of('nas')][:1] == [each.hps for each in first.of('nas')][:1]
    assert measured(other) != measured(first)


def run_pipeline(folder):
    small_pipeline(folder).run()


@pytest.mark.thorough  # tests/search/test_study.py kills between any two writes
def test_killed_at_any_moment_it_goes_on(whole, tmp_path):
    kills = kills_on_the_way(__file__, 'run_pipeline', tmp_path, *whole[::2], random.Random(1), times=5)
    assert kills >= 2
    assert measured(small_pipeline(tmp_path).run()) == measured(whole[1])


class Halve(PipeStep):
    """A user's own step: the better half of what the step before has found."""

    def __init__(self, share=0.5):
        self.share = share

    def do(self):
        records = sorted(self.report.of(self.source().name), key=lambda each: each.performance['error'])
        for number, record in enumerate(records[: int(self.share * len(records))]):
            scores, objectives = record.performance, {'error': 'min'}
            self.report.update(
                Record(self.name, number, record.hps, None, objectives, scores, 'completed', source=record.uid)
            )
        (self.work_dir / 'note').write_text('done')


def test_a_step_of_ones_own(tmp_path):
    own = dict(pipe_step=dict(type=Halve, share=0.25))
    config = sections(tmp_path, fullytrain=None, benchmark=None, halve=own)
    config['after'] = dict(
        pipe_step=dict(type='TrainPipeStep'), config=config['nas']['config'], overrides={'runner.max_epochs': 1}
    )
    config['pipeline'] = ['nas', 'halve', 'after']
    report = Pipeline(config, tmp_path / 'work').run()
    assert (tmp_path / 'work' / 'halve' / 'note').exists()
    best = min(report.of('nas'), key=lambda each: each.performance['error'])
    assert [(each.hps, each.source) for each in report.of('halve')] == [(best.hps, best.uid)]
    assert [(each.hps, each.source) for each in report.of('after')] == [(best.hps, 'halve_0')]
    # Its records are there when it is not done again.
    assert measured(Pipeline(config, tmp_path / 'work').run()) == measured(report)


def test_stopped_between_two_trials_it_goes_on(tmp_path):
    pipeline = small_pipeline(tmp_path, benchmark=None)

    def stop_at_second(changed):
        if len(changed.report.all_records) == 2 and changed.stop_signal is None:
            changed.stop(signal.SIGTERM)

    pipeline.on_change = stop_at_second
    report = pipeline.run()
    assert pipeline.stop_signal == signal.SIGTERM
    assert len(report.all_records) == 2
    assert not (tmp_path / 'work' / 'nas' / 'step.json').exists()
    report = small_pipeline(tmp_path, benchmark=None).run()
    assert len(report.of('nas')) == 4
    assert len(report.of('fullytrain')) > 0


@pytest.mark.usefixtures('warm')
def test_a_trial_that_is_stopped_ends_the_pipeline(tmp_path):
    endless = dict(executor=dict(type='Local', workers=1), overrides={'runner.max_epochs': 10**6})

    def run_until(epoch):
        """Stop while the first trial trains, after that many epochs or more; its record."""
        pipeline = small_pipeline(tmp_path, benchmark=None, nas=endless)

        def stop_while_running(changed):
            records = changed.report.all_records
            first = next(iter(records), None)
            if first and (first.epoch >= epoch or first.status != 'running') and changed.stop_signal is None:
                changed.stop(signal.SIGTERM)

        pipeline.on_change = stop_while_running
        record = pipeline.run().all_records[0]
        assert record.status == 'running', record.message
        return record

    first = run_until(1)
    # It has saved itself, and goes on.
    assert list((tmp_path / 'work' / 'nas' / 'trials' / '0000' / 'nas_0000').glob('epoch_*.pth'))
    again = run_until(first.epoch + 1)
    assert (again.seed, again.hps) == (first.seed, first.hps)
    log = (tmp_path / 'work' / 'nas' / 'trials' / '0000' / 'nas_0000').glob('*.log')
    assert any('resumed from' in path.read_text() for path in log)


@pytest.mark.parametrize(
    'change, error, told',
    [
        (lambda cfg: cfg.pop('pipeline'), KeyError, 'has no pipeline'),
        (lambda cfg: cfg.update(pipeline=[]), TypeError, 'a list of names of steps'),
        (lambda cfg: cfg.update(pipeline=['nas', 'nas']), ValueError, "'nas' twice"),
        (lambda cfg: cfg.update(pipeline=['nsa']), KeyError, "no section 'nsa'.*did you mean 'nas'"),
        (lambda cfg: cfg.update(pipeline=['../nas']), ValueError, 'separators'),
        (lambda cfg: cfg.update(pipeline=['general'], general={}), ValueError, 'the name of another section'),
        (lambda cfg: cfg.update(general_={}), KeyError, "unknown key 'general_'; did you mean 'general'"),
        (lambda cfg: cfg['nas'].pop('pipe_step'), TypeError, "the step 'nas' needs pipe_step"),
        (lambda cfg: cfg['nas'].update(pipe_step=dict(type='SearchStep')), KeyError, "did you mean 'SearchPipeStep'"),
        (lambda cfg: cfg['nas'].update(pipe_step=dict(type='torch.nn.ReLU')), TypeError, 'a subclass of PipeStep'),
        (lambda cfg: cfg.update(pipeline=['fullytrain']), KeyError, 'it is the first one'),
    ],
)
def test_wrong_pipelines(tmp_path, change, error, told):
    config = sections(tmp_path)
    change(config)
    with pytest.raises(error, match=told):
        Pipeline(config, tmp_path / 'work')
    assert not (tmp_path / 'work').exists()


def test_the_config_of_one_training_is_none_of_a_pipeline(tmp_path):
    path = sections(tmp_path)['nas']['config']
    with pytest.raises(KeyError, match='the config of one training: runnerkit train'):
        Pipeline(path)


def test_where_it_works(tmp_path):
    config = sections(tmp_path)
    assert Pipeline(config).work_dir == Path('work_dirs/search').absolute()
    assert Pipeline({**config, 'work_dir': str(tmp_path / 'there')}).work_dir == tmp_path / 'there'
    assert isinstance(Pipeline(config).steps['nas'], SearchPipeStep)
