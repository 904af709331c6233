"""A trial as a run: the command that repeats it, and how it can end."""

import json
import os
import re
import resource
import shlex
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from forks import Fork
from plans import BY_ITER, CONFIG
from studies import config_file

import runnerkit
from runnerkit.checkpoint.loader import load_tensors
from runnerkit.cli.train import main
from runnerkit.hooks.hook import Outcome
from runnerkit.search.job import Job, as_option, command_of, overrides_of, run_job, same


def job(folder, **changes):
    path = config_file(folder)
    given = {'optimizer.lr': 0.05, **changes.pop('overrides', {})}
    return Job(0, str(path), given, str(folder / 'run'), 7, {'error': 'min'}, **changes)


def test_a_run_and_its_reports(tmp_path):
    said = []
    result = run_job(job(tmp_path), lambda step, scores: said.append((step, scores)) or False)
    assert result.status == 'completed'
    assert [step for step, _ in said] == [1, 2, 3]
    assert result.scores in [scores for _, scores in said]
    assert result.step == 3


def scored(path):
    """The completed iterations of a checkpoint, and the error of its own weights, measured anew."""
    error = runnerkit.test(Path(path).parent, 'val', checkpoint=path, device='cpu')['error']
    return load_tensors(path)['meta']['iter'], error


BEST, LAST = 'best error', 'last evaluation'
NONE = {'evaluation.save_best': None}
ERROR = {'error': 'min'}


@pytest.mark.parametrize(
    ('changes', 'objectives', 'moment', 'name'),
    [
        ({}, ERROR, BEST, 'best_error_epoch_1.pth'),
        ({'evaluation.save_best': 'auto'}, {**ERROR, 'loss': 'min'}, BEST, 'best_error_epoch_1.pth'),
        # Another score keeps the best, or none does, or it is kept in the other direction.
        ({'evaluation.save_best': 'loss'}, ERROR, LAST, 'epoch_3.pth'),
        ({**NONE, 'checkpoint_config.async_save': True}, ERROR, LAST, 'epoch_3.pth'),
        ({}, {'error': 'max'}, LAST, 'epoch_3.pth'),
        # The run ends early, or in iterations, or its end is not evaluated.
        ({**NONE, 'custom_hooks': [{'type': 'StopAfterHook', 'number': 2}]}, ERROR, LAST, 'epoch_2.pth'),
        ({'evaluation.by_epoch': False, 'evaluation.interval': 4}, ERROR, BEST, 'best_error_iter_4.pth'),
        ({**NONE, 'evaluation.interval': 2}, ERROR, LAST, 'epoch_2.pth'),
        ({**NONE, 'evaluation.interval': 2, 'checkpoint_config.max_keep_ckpts': 1}, ERROR, LAST, None),
        ({**NONE, 'checkpoint_config': None}, ERROR, LAST, None),
    ],
)
def test_scores_and_weights_are_of_one_moment(tmp_path, changes, objectives, moment, name):
    # The error rises after the first epoch, so that the best and the last moment differ.
    path = config_file(tmp_path, lr_config=None)
    overrides = {'optimizer.lr': 0.15, 'log_config': None, **changes}
    result = run_job(Job(0, str(path), overrides, str(tmp_path / 'run'), 7, objectives), lambda step, scores: False)
    assert (result.status, result.moment) == ('completed', moment)
    assert (result.weights_file and Path(result.weights_file).name) == name
    if name is not None:
        assert scored(result.weights_file) == (result.iter, pytest.approx(result.scores['error'], rel=1e-6))
        assert result.message == ''
    else:
        saves = 'checkpoint_config' not in changes
        assert ('it has no checkpoint of iteration 10, at which it was scored' in result.message) == saves


def test_of_an_iteration_runner_too(tmp_path):
    path = config_file(tmp_path, **BY_ITER)
    result = run_job(Job(0, str(path), NONE, str(tmp_path / 'run'), 7, ERROR), lambda step, scores: False)
    assert (result.moment, result.iter, Path(result.weights_file).name) == (LAST, 15, 'iter_15.pth')


def test_scores_of_another_moment_are_left_out(tmp_path):
    """A second evaluation, on other data, comes between the epochs."""
    path = config_file(tmp_path, lr_config=None, custom_hooks=[{'type': f'{write_second(tmp_path)}:Second'}])
    overrides = {'optimizer.lr': 0.15}
    result = run_job(Job(0, str(path), overrides, str(tmp_path / 'run'), 7, ERROR), lambda step, scores: False)
    assert (result.moment, result.iter) == (BEST, 5)
    assert sorted(result.scores) == ['counted', 'error', 'loss']  # counted once, at the end, by no evaluation


def write_second(folder):
    path = folder / 'second.py'
    path.write_text(SECOND)
    return path


SECOND = """
from runnerkit.hooks import Hook
from runnerkit.hooks.hook import Score

class Second(Hook):
    def after_train_iter(self, runner):
        if runner.completed_iters == 17:
            with runner.around_val() as found:
                found.update(noisy=0.5)

    def after_run(self, runner):
        runner.scores['counted'] = Score(3.0, runner.completed_iters)
"""


DIVERGING = """
import torch
from runnerkit.nn import Supervised

class Model(Supervised):
    def __init__(self, *args, weights=None, trained=None, scored=None, value='nan', **kwargs):
        super().__init__(*args, **kwargs)
        self.weights, self.trained, self.scored, self.value = weights, trained, scored, float(value)
        self.register_buffer('mask', torch.tensor([0.0, -torch.inf]))  # infinite on purpose
        self.steps = self.evaluations = 0

    def train_step(self, data, optimizer):
        self.steps += 1
        if self.steps == self.weights:
            with torch.no_grad():
                next(self.parameters()).view(-1)[0] = self.value
        found = super().train_step(data, optimizer)
        if self.steps == self.trained:
            found['log_vars']['loss'] = self.value
        return found

    def val_step(self, data, optimizer=None):
        found = super().val_step(data, optimizer)
        self.evaluations += 1
        name, number = self.scored or ('other', 0)
        found['log_vars'][name] = self.value if self.evaluations == number else 0.5
        return found
"""


@pytest.mark.parametrize(
    ('model', 'why'),
    [
        ({}, None),
        ({'weights': 11}, 'model.0.weight is not finite'),
        ({'weights': 11, 'value': 'inf'}, 'model.0.weight is not finite'),
        ({'trained': 14}, 'loss is nan in the last training log'),
        ({'scored': ['aux_loss', 6], 'value': 'inf'}, 'aux_loss is inf in the last evaluation'),
        # A class without samples; and what was not finite for a while only.
        ({'scored': ['recall_of_cats', 6]}, None),
        ({'trained': 4}, None),
        ({'scored': ['aux_loss', 2]}, None),
    ],
)
def test_a_trial_that_has_diverged_is_not_completed(tmp_path, model, why):
    """The best epoch, the first one, was finite in each of them; so is the objective, which is a constant."""
    (tmp_path / 'model.py').write_text(DIVERGING)
    config = dict(CONFIG['model'], type=f'{tmp_path}/model.py:Model', **model)
    path = config_file(tmp_path, model=config, evaluation={'interval': 1}, custom_hooks=[constant_score(tmp_path)])
    result = run_job(Job(0, str(path), {}, str(tmp_path / 'run'), 7, {'constant': 'max'}), lambda step, scores: False)
    assert result.scores['constant'] == 0.8
    assert (result.status, result.message) == (
        ('completed', '') if why is None else ('failed', f'it has diverged: {why}')
    )


def constant_score(folder):
    path = folder / 'constant.py'
    path.write_text(CONSTANT)
    return {'type': f'{path}:Constant'}


CONSTANT = """
from contextlib import contextmanager
from runnerkit.hooks import Hook

class Constant(Hook):
    @contextmanager
    def around_val(self, runner):
        yield
        runner.log_buffer.output['constant'] = 0.8
"""


def run_limited(folder, kind, soft):
    """Run a job where the system refuses more than ``soft`` of a resource; write down how it has ended."""
    found = job(folder, overrides={'log_config': None})
    with open(folder / 'result.json', 'w') as file:  # open already, and small
        if kind == resource.RLIMIT_NOFILE:
            soft += os.open(os.devnull, os.O_RDONLY)  # the lowest number that was free
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
        result = run_job(found, lambda step, scores: False)
        json.dump([result.status, result.is_of_machine, result.message[:1000]], file)


@pytest.mark.parametrize(
    ('kind', 'soft', 'words'),
    [
        (resource.RLIMIT_NOFILE, 2, 'Too many open files'),
        (resource.RLIMIT_FSIZE, 7000, 'its last checkpoint is missing: .*File too large'),
    ],
)
def test_what_the_machine_refuses_is_told_as_such(tmp_path, kind, soft, words):
    (tmp_path / 'out').mkdir()
    assert Fork(run_limited, tmp_path, kind, soft, folder=tmp_path / 'out').code() == 0
    status, is_of_machine, message = json.loads((tmp_path / 'result.json').read_text())
    assert (status, is_of_machine) == ('failed', True), message
    assert re.search(words, message)


def test_an_outcome_of_another_kind_is_a_failure(tmp_path, monkeypatch):
    from runnerkit.flow import from_python

    real = from_python.train

    def train(*args, **kwargs):
        return replace(real(*args, **kwargs), outcome=Outcome('diverged', 'the weights are not finite'))

    monkeypatch.setattr(from_python, 'train', train)
    result = run_job(job(tmp_path), lambda step, scores: False)
    assert (result.status, result.message) == ('failed', 'diverged: the weights are not finite')


def test_a_signal_counts_more_than_that_the_trial_has_diverged(tmp_path, monkeypatch):
    """The study ends, and so it must hear of the signal."""
    from runnerkit.flow import from_python

    real = from_python.train

    def train(*args, **kwargs):
        return replace(real(*args, **kwargs), outcome=Outcome('diverged', 'SIGTERM'), signal=15)

    monkeypatch.setattr(from_python, 'train', train)
    result = run_job(job(tmp_path), lambda step, scores: False)
    assert (result.status, result.signal) == ('stopped', 15)


def test_a_pruned_run(tmp_path):
    result = run_job(job(tmp_path), lambda step, scores: step == 2)
    assert (result.status, result.step) == ('pruned', 2)


def test_a_run_that_fails(tmp_path):
    result = run_job(job(tmp_path, overrides={'optimizer.type': 'SDG'}), lambda step, scores: False)
    assert result.status == 'failed'
    assert 'SDG' in result.message
    assert 'SGD' in result.message


@pytest.mark.parametrize('error', [SystemExit(0), GeneratorExit('at once')])
def test_a_run_that_wants_to_end_the_program_has_failed(error, tmp_path, monkeypatch):
    monkeypatch.setattr('support.Noisy.__getitem__', Mock(side_effect=error))
    result = run_job(job(tmp_path), lambda step, scores: False)
    assert (result.status, result.message) == ('failed', f'{type(error).__name__}: {error}')


def test_errors_of_the_report_are_raised(tmp_path):
    with pytest.raises(ZeroDivisionError):
        run_job(job(tmp_path), lambda step, scores: 1 / 0)


def test_the_command_has_all_of_it(tmp_path):
    found = job(tmp_path, device='cpu', threads=2, parent='a folder/x.pth', overrides={'widths': [16, 32]})
    words = shlex.split(command_of(found, 'again', stop_after=3))
    args = main.parser().parse_args(words[2:])
    assert (args.seed, args.work_dir, args.device, args.stop_after) == (7, 'again', 'cpu', 3)
    assert args.cfg_options == {
        'optimizer.lr': 0.05,
        'widths': [16, 32],
        'num_threads': 2,
        'load_from': 'a folder/x.pth',
    }


@pytest.mark.parametrize(
    'value',
    [3, 0.1 + 0.2, 1e-7, True, None, 'SGD', [1, 2], (1, 2), [[0.5, 1], 'a'], [], 'a b', -0.0]
    + ['3', 'true', ' a', 'a,b', '[a', '', "it's", ['a, b', 'c'], {'a': 1}, {}, {'a': [{}, 'x y']}],
)
def test_values_survive_the_command_line(value):
    words = shlex.split(shlex.join(['--cfg-options', f'key={as_option("key", value)}']))
    read = main.parser().parse_args(['config.py', *words]).cfg_options['key']
    assert same(read, value)


@pytest.mark.parametrize('value', [float('nan'), object(), 'a\nb, c', {'a': {1}}])
def test_values_that_would_not_are_refused(value):
    with pytest.raises(ValueError, match='cannot be written on a command line'):
        as_option('key', value)


def test_a_network_is_written_under_model():
    desc = {'type': 'Net', 'stages': {'widths': [8, 16]}}
    assert overrides_of({'model.type': 'Other', 'lr': 0.1}, desc) == {
        'model.type': 'Other',
        'model.stages.widths': [8, 16],
        'lr': 0.1,
    }
    assert overrides_of({'lr': 0.1}, None) == {'lr': 0.1}
