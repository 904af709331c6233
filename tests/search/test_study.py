"""Studies: trials that can be repeated by hand, and that go on after any kill."""

import gzip
import json
import os
import random
import shlex
import shutil
import time
from pathlib import Path

import numpy as np
import old_studies
import pytest
from odd_trials import MODEL
from studies import AtOnce, config_file, kills_on_the_way, outcome, small_study
from support import ROOT

from runnerkit.checkpoint.loader import load_tensors
from runnerkit.cli.train import main as train_command
from runnerkit.search import Float
from runnerkit.search.algorithm import SEARCH_ALGORITHMS, Proposal, SearchAlgorithm
from runnerkit.search.executors import Ended
from runnerkit.search.job import Result
from runnerkit.search.journal import Journal
from runnerkit.search.record import Record
from runnerkit.search.study import NotATrialsFault, Study, local_folder, replayed, settle_paths


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The study that nobody disturbs."""
    folder, began = tmp_path_factory.mktemp('whole'), time.monotonic()
    report = small_study(folder).run()
    return folder, report, time.monotonic() - began


def test_a_study_finds_something(whole):
    folder, report, _ = whole
    statuses = [each.status for each in report.all_records]
    assert len(statuses) == 5
    assert set(statuses) == {'completed', 'pruned'}
    best = report.best()
    assert best.performance['error'] == min(
        each.performance['error'] for each in report.all_records if each.status == 'completed'
    )
    files = json.loads((folder / 'study' / 'reports.json').read_text())
    assert [each['number'] for each in files] == [0, 1, 2, 3, 4]
    assert (folder / 'study' / 'output.csv').read_text().splitlines()[0].startswith('step,number,status,optimizer.lr')
    assert len({each.seed for each in report.all_records}) == 5


def scores_of(checkpoint):
    """The iterations of a checkpoint, and the scores that it has of that moment."""
    content = load_tensors(checkpoint)
    done = content['meta']['iter']
    return done, {name: value for name, (value, at) in content['runnerkit']['scores'].items() if at == done}


def test_the_recorded_command_gives_the_recorded_score(whole):
    for record in whole[1].all_records:
        program, command, *words = shlex.split(record.command)
        assert (program, command) == ('runnerkit', 'train')
        assert train_command(words) == 0
        assert record.moment == 'best error'
        again = Path(f'{record.work_dir}_again') / Path(record.weights_file).name
        assert scores_of(again) == scores_of(record.weights_file) == (record.iter, record.performance)
        # A pruned trial stops where it was pruned, with the schedule of the whole run.
        assert ('--stop-after' in words) == (record.status == 'pruned')


def run_study(folder):
    small_study(folder).run()


@pytest.mark.thorough  # the test below; test_pipeline.py kills at any moment, too
def test_killed_at_any_moment_it_goes_on(whole, tmp_path):
    kills = kills_on_the_way(__file__, 'run_study', tmp_path, *whole[::2], random.Random(0), times=12)
    assert kills >= 2
    report = small_study(tmp_path).run()
    assert outcome(report) == outcome(whole[1])


def die_at(number):
    """Kill this process at a moment around a change of a file: before, in the middle, or after."""
    moments = [0]

    def moment(before=lambda: None):
        moments[0] += 1
        if moments[0] == number:
            before()
            os._exit(9)

    def around(call):
        def called(*args, **kwargs):
            moment()
            found = call(*args, **kwargs)
            moment()
            return found

        return called

    class File:
        """Writes half of it, then all of it."""

        def __init__(self, file):
            self.file = file

        def write(self, data):
            moment(lambda: self.file.write(bytes(data)[: len(data) // 2]))
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    def opened(self, path):
        made(self, path)
        self._file = File(self._file)

    made, Journal.__init__ = Journal.__init__, opened
    Journal.append_logs = around(Journal.append_logs)
    os.replace, os.mkdir = around(os.replace), around(os.mkdir)


@pytest.mark.parametrize(
    'algorithm',
    [{'type': 'QMC', 'pruner': None, 'trials': 3}, {'pruner': {'type': 'ASHA', 'min_resource': 1}, 'trials': 3}],
)
@pytest.mark.parametrize('step', [13, pytest.param(2, marks=pytest.mark.thorough)])  # 13: a sample, of both kinds
def test_killed_between_any_two_writes_it_goes_on(algorithm, step, tmp_path, monkeypatch):
    monkeypatch.setattr(os, 'fsync', lambda file: None)  # it is not the power that fails
    wanted = outcome(small_study(tmp_path / 'whole', algorithm, executor=AtOnce()).run())
    number, code = -1, 9
    while code == 9:
        number += step
        folder, pid = tmp_path / str(number), os.fork()
        if pid == 0:
            code = 1
            try:
                die_at(number)
                small_study(folder, algorithm, executor=AtOnce()).run()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert outcome(small_study(folder, algorithm, executor=AtOnce()).run()) == wanted, f'killed at moment {number}'
    assert code == 0
    assert number > 40


@pytest.mark.parametrize(
    'changes',
    [
        {'objectives': {'error': 'max'}},
        {'objectives': {'error': 'min', 'loss': 'min'}},
        {'space': {'optimizer.lr': [0.1, 0.2, 0.3]}},
        {'overrides': {'runner.max_epochs': 2}},
        {'seed': 1},
        {'algorithm': {'type': 'RandomSearch', 'trials': 3}},
        {'algorithm': {'type': 'GridSearch', 'points': 2}},
    ],
)
def test_a_search_for_something_else_begins_anew(changes, tmp_path):
    def study(folder, **changes):
        arguments = {
            'space': {'optimizer.lr': Float(1e-3, 1e-1, log=True)},
            'objectives': {'error': 'min'},
            'algorithm': {'type': 'TPE', 'trials': 3},
            'executor': AtOnce(),
        }
        return Study(config_file(tmp_path), work_dir=tmp_path / folder, **{**arguments, **changes})

    before = outcome(study('study').run())
    assert outcome(study('study').run()) == before
    assert not (tmp_path / 'study.1').exists()
    assert outcome(study('study', **changes).run()) == outcome(study('fresh', **changes).run())
    earlier = tmp_path / 'study.1'
    assert [each['hps'] for each in json.loads((earlier / 'reports.json').read_text())] == [each[2] for each in before]
    assert (earlier / 'trials' / '0000' / 'record.json').exists()


def test_other_settings_of_the_same_search_go_on(tmp_path):
    small_study(tmp_path, {'trials': 2}, executor=AtOnce()).run()
    more = small_study(tmp_path, {'trials': 4, 'pruner': None, 'n_startup_trials': 2}, executor=AtOnce(), threads=2)
    assert len(more.run().all_records) == 4
    assert not more.work_dir.with_name(f'{more.work_dir.name}.1').exists()


@pytest.mark.parametrize(
    ('lost', 'words'),
    [
        ('optuna.journal', 'has 0 trials, but the work dir has records of 3'),
        ('trials', 'has 3 trials, but the work dir has records of 0'),
        ('trials/0001', 'has the trials 0, 2, but the search has learnt from others'),
    ],
)
def test_files_that_are_missing_are_told(lost, words, tmp_path):
    study = small_study(tmp_path, {'trials': 3}, executor=AtOnce())
    study.run()
    (study.work_dir / lost).rename(tmp_path / 'lost')
    with pytest.raises(ValueError, match=words):
        small_study(tmp_path, {'trials': 5}, executor=AtOnce()).run()


@pytest.mark.parametrize('name', old_studies.STUDIES)
def test_studies_of_former_versions_go_on(name, tmp_path):
    began = json.loads(gzip.decompress((ROOT / 'tests/data/old/studies.json.gz').read_bytes()))[name]
    for place, text in began['files'].items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    found = outcome(old_studies.study(name, tmp_path).run())
    assert json.loads(json.dumps(found)) == began['outcome']
    assert not (tmp_path / 'study.1').exists()


def test_errors_of_the_study_are_not_those_of_a_trial(tmp_path):
    full = OSError(28, 'No space left on device')

    def fail(report):
        if report.all_records[0].epoch == 2:
            raise full

    study = small_study(tmp_path, {'trials': 2}, on_change=fail)
    with pytest.raises(OSError, match='No space left') as caught:
        study.run()
    assert caught.value is full
    report = small_study(tmp_path, {'trials': 2}).run()  # the lock is released, and the trial goes on
    assert [each.status for each in report.all_records] == ['completed', 'completed']


class Scripted(AtOnce):
    """Trials that fail as often as ``failures`` says: a list of results for each number of a trial."""

    def __init__(self, failures):
        super().__init__()
        self.failures, self.started = failures, []

    def start(self, job, report):
        self.started.append((job.number, job.again))
        if self.failures.get(job.number):
            result = self.failures[job.number].pop(0)
            if result.has_begun:
                report(1, {'a score of another moment': 0.5})
            self._ended.append(Ended(job, result))
        else:
            super().start(job, report)


def failed(message='it failed', **more):
    return Result('failed', message=message, **more)


def test_what_the_machine_refuses_is_no_trials_failure(tmp_path):
    wanted = outcome(small_study(tmp_path / 'whole', {'trials': 3}, executor=AtOnce()).run())
    refusing = Scripted({1: [failed('No space left on device', is_of_machine=True)]})
    study = small_study(tmp_path, {'trials': 3}, executor=refusing)
    with pytest.raises(NotATrialsFault, match='trial 1 could not run on this machine: No space left on device'):
        study.run()
    assert refusing.started == [(0, False), (1, False)]
    kept = json.loads((study.work_dir / 'trials' / '0001' / 'record.json').read_text())
    assert kept['status'] == 'running'
    again = Scripted({})
    assert outcome(small_study(tmp_path, {'trials': 3}, executor=again).run()) == wanted
    assert again.started[0] == (1, True)


def test_the_others_are_stopped_and_go_on_too(tmp_path):
    class Two(Scripted):
        """The second trial is refused while the first one runs, which is asked to stop then."""

        slots, shares_signals = 2, False

        @property
        def running(self):
            return len(self._ended) + bool(self.open)

        open = None

        def start(self, job, report):
            self.started.append((job.number, job.again))
            if self.open is None:
                self.open = job
            else:
                self._ended.append(Ended(job, failed('Too many open files', is_of_machine=True)))

        def stop(self):
            self._ended.append(Ended(self.open, Result('stopped', signal=15)))
            self.open = None

    executor = Two({})
    study = small_study(tmp_path, {'trials': 4}, executor=executor)
    with pytest.raises(NotATrialsFault, match='Too many open files'):
        study.run()
    assert (executor.started, study.stop_signal) == ([(0, False), (1, False)], None)
    report = small_study(tmp_path, {'trials': 4}, executor=AtOnce()).run()
    assert {each.status for each in report.all_records} <= {'completed', 'pruned'}


FULL = """
from support import Tiny
import os

class Full(Tiny):
    def train_step(self, data, optimizer, **kwargs):
        self.steps = getattr(self, 'steps', 0) + 1
        if self.steps == 7 and os.path.exists(os.path.join(os.path.dirname(__file__), 'is_full')):
            with open('/dev/full', 'w') as file:
                file.write('x')
        return super().train_step(data, optimizer)
"""


def test_room_is_made_and_the_study_ends_as_if_there_had_been_room(tmp_path):
    def study(folder):
        space, algorithm = {'optimizer.lr': [0.1, 0.05]}, {'type': 'GridSearch'}
        return Study(tmp_path / 'config.py', space, {'loss': 'min'}, tmp_path / folder, algorithm)

    (tmp_path / 'full.py').write_text(FULL)
    config_file(tmp_path, model={'type': f'{tmp_path}/full.py:Full'}, evaluation={'interval': 1})
    wanted = outcome(study('whole').run())
    (tmp_path / 'is_full').touch()
    with pytest.raises(
        NotATrialsFault, match=r'\[Errno 28\] No space left.*Make room.*run the same command again to repeat it'
    ):
        study('study').run()
    (tmp_path / 'is_full').unlink()
    assert outcome(study('study').run()) == wanted


def early(message='KeyError: no folder of data'):
    return failed(message, has_begun=False)


def test_an_error_that_the_first_trials_share_ends_the_study(tmp_path):
    executor = Scripted({number: [early()] for number in range(9)})
    with pytest.raises(NotATrialsFault, match='first 3 trials .* error: KeyError: no folder of data. M'):
        small_study(tmp_path, {'trials': 9}, executor=executor).run()
    assert [number for number, _ in executor.started] == [0, 1, 2]


@pytest.mark.parametrize(
    'results',
    [[early(), early(), early('ValueError')], [early(), early(), failed(early().message), early()]],
)
def test_other_failures_are_those_of_single_trials(results, tmp_path):
    executor = Scripted({number: [each] for number, each in enumerate(results)})
    report = small_study(tmp_path, {'trials': 6, 'pruner': None}, executor=executor).run()
    bad = len(results)
    assert [each.status for each in report.all_records] == [*['failed'] * bad, *['completed'] * (6 - bad)]


def test_a_resumed_study_whose_trials_have_begun_does_not_end_early(tmp_path):
    small_study(tmp_path, {'trials': 1}, executor=AtOnce()).run()
    executor = Scripted({number: [early()] for number in range(1, 5)})
    report = small_study(tmp_path, {'trials': 5}, executor=executor).run()
    assert [each.status for each in report.all_records] == ['completed', *['failed'] * 4]


@pytest.mark.parametrize(
    ('file', 'text', 'words'),
    [
        ('trials/0001/record.json', '', r'trials/0001/record.json is damaged: Expecting value'),
        ('trials/0001/record.json', '{"step": "sea', r'trials/0001/record.json is damaged: Unterminated string'),
        ('trials/0001/record.json', '[' * 100000, r'record.json is damaged: .*recursion'),
        ('trials/0001/record.json', '[1]', r'record.json is damaged: it is no record of a trial'),
        ('trials/0001/record.json', '{"step": "search"}', r"record.json is damaged: .*missing .* 'number'"),
        ('trials/0001/record.json', ('"status": "', '"status": "in'), 'status must be one of running, .* but got .in'),
        ('trials/0001/record.json', ('"number": 1', '"number": "1"'), "number must be of the type int, but got '1'"),
        ('study.json', '{', r'study.json is damaged: .*If the search is the same as before, remove this file'),
        ('optuna.journal', ('{"op_code"', '{op_code'), r'optuna.journal is damaged: '),
    ],
)
def test_a_damaged_study_names_the_file(file, text, words, tmp_path):
    study = small_study(tmp_path, {'trials': 3}, executor=AtOnce())
    study.run()
    path = study.work_dir / file
    path.write_text(text if isinstance(text, str) else path.read_text().replace(*text))
    with pytest.raises(ValueError, match=words):
        small_study(tmp_path, {'trials': 3}, executor=AtOnce()).run()


def test_an_endless_error_is_shortened_everywhere(tmp_path):
    message = 'ValueError: ' + 'x' * 10_000_000 + ' the end'
    study = small_study(tmp_path, {'trials': 2}, executor=Scripted({0: [failed(message)]}))
    told = study.run().get('search', 0).message
    assert told.startswith('ValueError: xxx')
    assert told.endswith('xxx the end')
    assert '(10000020 characters)' in told
    assert max(path.stat().st_size for path in study.work_dir.rglob('*') if path.is_file()) < 50_000


@pytest.mark.usefixtures('warm')
def test_a_trial_whose_process_is_stopped_by_somebody_else_has_failed(tmp_path):
    (tmp_path / 'odd.py').write_text(
        MODEL.replace('if self.steps == 3:', 'if self.steps == 3:\n            os.kill(os.getpid(), signal.SIGTERM)')
    )
    config_file(tmp_path, model={'type': f'{tmp_path}/odd.py:Odd'}, evaluation={'interval': 1})
    study = Study(
        tmp_path / 'config.py',
        {'optimizer.lr': [0.1]},
        {'loss': 'min'},
        tmp_path / 'study',
        {'type': 'GridSearch'},
        {'type': 'Local', 'workers': 1},
    )
    (record,) = study.run().all_records
    assert record.status == 'failed'
    assert 'its process was stopped, but not by the study' in record.message
    assert study.stop_signal is None


def test_a_trial_that_fails_is_recorded_and_the_study_goes_on(tmp_path):
    algorithm = {'type': 'GridSearch', 'pruner': None, 'trials': None}
    report = small_study(tmp_path, algorithm, {'optimizer.lr': [0.1, -1.0]}).run()
    assert sorted(each.status for each in report.all_records) == ['completed', 'failed']
    failed = next(each for each in report.all_records if each.status == 'failed')
    assert 'a negative learning rate raises the loss' in failed.message
    assert report.pareto_front() == [report.best()]


def test_a_trial_without_the_objective_ends_the_search(tmp_path):
    config_file(tmp_path)
    study = Study(
        tmp_path / 'config.py', _One(), {'error_': 'min'}, tmp_path / 'study', {'type': 'RandomSearch', 'trials': 4}
    )
    with pytest.raises(KeyError, match="has 'error_', but a trial gave no such score; did you mean 'error'"):
        study.run()
    (record,) = study.report.all_records
    assert record.status == 'failed'
    assert 'the run gave no score error_; it gave' in record.message
    assert study.report.pareto_front() == []
    assert study.report.best() is None


class _One:
    def draw(self, suggest):
        return {'optimizer.lr': suggest.suggest_float('optimizer.lr', 0.01, 0.1)}


@SEARCH_ALGORITHMS.register_module()
class Halving(SearchAlgorithm):
    """An algorithm of a user's own: halves the learning rate while that helps."""

    def __init__(self, *args, trials=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.trials, self.proposed, self.seen = trials, 0, []

    def search(self):
        self.proposed += 1
        return {'optimizer.lr': float(self.rng.uniform(0.05, 0.1)) / 2 ** len(self.seen)}

    def update(self, record):
        self.seen.append(record.values)

    @property
    def is_completed(self):
        return self.proposed >= self.trials


def test_an_algorithm_of_ones_own_goes_on_by_repeating_its_calls(tmp_path):
    config_file(tmp_path)

    def study(folder, trials=4):
        return Study(
            tmp_path / 'config.py', _One(), {'error': 'min'}, tmp_path / folder, {'type': 'Halving', 'trials': trials}
        )

    expected = outcome(study('whole').run())
    study('cut', 2).run()
    assert outcome(study('cut').run()) == expected


class Numpys(Halving):
    def search(self):
        self.proposed += 1
        return {'optimizer.lr': self.rng.choice([0.1, 0.2]), 'lr_config.step': (np.int64(2), 3)}


def test_an_algorithm_may_propose_numbers_of_numpy_and_tuples(tmp_path):
    def study(trials):
        algorithm = Numpys(None, {'error': 'min'}, trials=trials)
        return Study(config_file(tmp_path), None, {'error': 'min'}, tmp_path / 'study', algorithm, AtOnce())

    (record,) = study(1).run().all_records
    assert record.hps['lr_config.step'] == [2, 3]
    assert type(record.hps['optimizer.lr']) is float
    assert len(study(2).run().all_records) == 2


def test_the_order_of_the_calls_does_not_hang_on_clocks():
    calls = []

    class Listens(Halving):
        def search(self):
            calls.append('search')
            return {'n': len(calls)}

        def update(self, record):
            calls.append(record.number)

    # Two trials were begun; the second one ended, a third one was begun, and the first one ended.
    records = [
        Record('search', 0, {'n': 1}, asked=0, told=1, start=9.0, end=1.0),
        Record('search', 1, {'n': 2}, asked=0, told=0, start=8.0, end=0.0),
        Record('search', 2, {'n': 4}, asked=1, start=7.0),
    ]
    replayed(Listens(None, {'error': 'min'}, trials=9), records)
    assert calls == ['search', 'search', 1, 'search', 0]


def test_an_algorithm_that_proposes_something_else_is_refused(tmp_path):
    config_file(tmp_path)

    class Unseeded(Halving):
        def search(self):
            self.proposed += 1
            return Proposal({'optimizer.lr': random.random() / 10})

    def study(trials):
        algorithm = Unseeded(_One(), {'error': 'min'}, trials=trials)
        return Study(tmp_path / 'config.py', _One(), {'error': 'min'}, tmp_path / 'study', algorithm)

    study(1).run()
    with pytest.raises(ValueError, match='does not propose again what it proposed for trial 0'):
        study(2).run()
    assert replayed(Unseeded(_One(), {'error': 'min'}), []) is None


def test_two_objectives_give_a_front(tmp_path):
    config_file(tmp_path)
    study = Study(
        tmp_path / 'config.py',
        _One(),
        {'error': 'min', 'loss': 'max'},
        tmp_path / 'study',
        {'type': 'NSGA2', 'trials': 4, 'population_size': 2},
    )
    report = study.run()
    front = report.pareto_front('search')
    assert front
    assert report.pareto_front('search', nums=1) == front[:1]
    assert report.pareto_front('another') == []
    for each in front:
        assert not any(
            other.performance['error'] < each.performance['error']
            and other.performance['loss'] > each.performance['loss']
            for other in report.all_records
        )


@pytest.mark.parametrize(
    ('changes', 'error', 'words'),
    [
        ({'objectives': {}}, ValueError, 'at least one score'),
        ({'objectives': {'error': 'down'}}, ValueError, "must be 'max' or 'min'"),
        ({'objectives': ['error']}, TypeError, 'objectives must be a dict'),
        ({'algorithm': 'TPEE'}, KeyError, 'TPE'),
        ({'algorithm': 'BossHpo'}, KeyError, 'BOSS has no implementation'),
        ({'algorithm': {'trials': 3}}, TypeError, "with the key 'type'"),
        ({'algorithm': {'type': 'TPE', 'pruner': 'AHSA'}}, KeyError, "'ASHA'"),
        ({'algorithm': {'type': 'TPE', 'pruner': {'type': 'ASHA', 'eta': 3}}}, TypeError, 'eta'),
        ({'algorithm': {'type': 'TPE', 'candidates': 3}}, TypeError, 'candidates'),
        (
            {'objectives': {'error': 'min', 'loss': 'min'}, 'algorithm': {'type': 'TPE', 'pruner': 'ASHA'}},
            ValueError,
            'a pruner compares one objective',
        ),
        ({'executor': 'Seriall'}, KeyError, 'Serial'),
        ({'seed': -1}, ValueError, 'seed must be a whole number of at least 0'),
        ({'threads': '2'}, TypeError, 'threads must be a whole number of at least 1'),
        ({'algorithm': {'type': 'TPE', 'trials': 0}}, ValueError, 'trials must be a whole number of at least 1'),
        ({'work_dir': 's3://bucket/study'}, ValueError, 'a folder of this machine.*out_dir'),
        ({'space': {'optimzer.lr': [0.1]}}, KeyError, 'optimizer'),
    ],
)
def test_wrong_arguments(changes, error, words, tmp_path):
    config_file(tmp_path)
    arguments = {
        'config': tmp_path / 'config.py',
        'space': _One(),
        'objectives': {'error': 'min'},
        'work_dir': tmp_path / 'study',
    }
    with pytest.raises(error, match=words):
        Study(**{**arguments, **changes}).run()


def test_the_work_dir_is_locked(tmp_path):
    from runnerkit.utils.lock import FolderLock

    study = small_study(tmp_path)
    study.work_dir.mkdir()
    lock = FolderLock(study.work_dir)
    with pytest.raises(BlockingIOError):
        study.run()
    lock.release()


def test_a_stale_lock_of_the_journal(tmp_path):
    study = small_study(tmp_path, {'trials': 1})
    study.run()
    (study.work_dir / 'optuna.journal.lock').write_text('')
    assert len(small_study(tmp_path, {'trials': 2}).run().all_records) == 2


@pytest.mark.parametrize(
    'forged',
    [
        dict(hps={'optimizer.lr': 0.01, 'custom_hooks': [dict(type='os.mkdir', path='made')]}),
        dict(hps={'optimizer.lr': 0.5}),
        dict(desc=dict(type='os.mkdir', path='made')),
        dict(parent='http://127.0.0.1:9/x.pth'),
    ],
)
@pytest.mark.parametrize('status', ['running', 'completed'])
def test_a_record_adds_nothing_to_what_was_drawn(tmp_path, forged, status):
    small_study(tmp_path, dict(trials=2), executor=AtOnce()).run()
    file = tmp_path / 'study' / 'trials' / '0001' / 'record.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), **forged, 'status': status}))
    jobs = Stopping()
    with pytest.raises(ValueError, match='the record of trial 1 is not of what the storage'):
        small_study(tmp_path, dict(trials=3), executor=jobs).run()
    assert not jobs.started


class Stopping(AtOnce):
    """Notes what it is to start; ends the study before it does so."""

    def __init__(self):
        super().__init__()
        self.started = []

    def start(self, job, report):
        self.started.append(job)
        raise InterruptedError


@pytest.mark.parametrize('named, stays', [
    ('OWN/best.pth', True),
    ('file://OWN/best.pth', True),
    ('s3://kept/run_0000/best.pth', True),  # below an out_dir of the config
    ('memory://more/run_0000/best.pth', True),
    ('s3://kept/run_0001/best.pth', False),
    ('s3://kept/run_0000/../x.pth', False),
    ('/moved/from/run_0000/there.pth', 'OWN/there.pth'),
    ('OWN/../other.pth', False),
    ('OWN/..', False),
    ('/dev/zero', False),
    ('file:///dev/zero', False),
    ('http://127.0.0.1:9/x.pth', False),
    ('tcp://127.0.0.1:9', False),
    ('memory://run_0000/x.pth', False),
    ('', False),
    (None, False),
])  # fmt: skip
def test_the_record_of_an_ended_trial_names_no_weights_elsewhere(named, stays, tmp_path):
    """They are opened by what follows the search, and the file may be anybody's."""
    own = tmp_path / 'trials' / '0000' / 'run_0000'
    own.mkdir(parents=True)
    (own / 'there.pth').touch()
    named, stays = (each.replace('OWN', str(own)) if isinstance(each, str) else each for each in (named, stays))
    record = Record('run', 0, status='completed', work_dir='/moved/from/run_0000', weights_file=named)
    path = config_file(tmp_path, evaluation={'interval': 1, 'out_dir': 's3://kept'})
    settle_paths([record], tmp_path, 'run', path, {'checkpoint_config.out_dir': 'memory://more'})
    assert record.weights_file == {True: named, False: None}.get(stays, stays)
    assert record.work_dir == str(own)


def test_a_study_that_was_made_elsewhere_opens_nothing_there(whole, tmp_path):
    study = tmp_path / 'study'
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    for file in study.glob('trials/*/record.json'):
        record = json.loads(file.read_text())
        name = 'http://127.0.0.1:9/x.pth' if record['number'] == 0 else record['weights_file']
        file.write_text(json.dumps({**record, 'weights_file': name}))
    first, *others = small_study(tmp_path).run().all_records
    assert first.weights_file is None
    assert others
    assert all(Path(each.weights_file).is_relative_to(study) for each in others)


def test_a_trial_goes_on_in_the_folder_of_its_study(tmp_path):
    """Whatever its record says, which may be anybody's; or the study has moved."""
    with pytest.raises(InterruptedError):
        small_study(tmp_path, dict(trials=2), executor=Stopping()).run()
    file = tmp_path / 'study' / 'trials' / '0000' / 'record.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), 'work_dir': str(tmp_path / 'elsewhere')}))
    jobs = Stopping()
    with pytest.raises(InterruptedError):
        small_study(tmp_path, dict(trials=2), executor=jobs).run()
    assert jobs.started[0].work_dir == str(tmp_path / 'study' / 'trials' / '0000' / 'search_0000')


def test_the_work_dir_is_a_folder_of_this_machine():
    assert local_folder('some/where') == Path.cwd() / 'some' / 'where'
    with pytest.raises(ValueError, match=r"a folder of this machine, but got 's3://bucket/study'"):
        local_folder('s3://bucket/study')
