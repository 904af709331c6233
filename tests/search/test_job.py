"""A trial as a run: the command that repeats it, and how it can end."""

import shlex
import sys

import pytest
from studies import config_file

from runnerkit.cli.train import parser
from runnerkit.search.job import Job, as_option, command_of, flattened, overrides_of, run_job, same


def job(folder, **changes):
    path = config_file(folder)
    given = {'optimizer.lr': 0.05, **changes.pop('overrides', {})}
    return Job(0, str(path), given, str(folder / 'run'), 7, ('error',), **changes)


def test_a_run_and_its_reports(tmp_path):
    said = []
    result = run_job(job(tmp_path), lambda step, scores: said.append((step, scores)) or False)
    assert result.status == 'completed'
    assert [step for step, _ in said] == [1, 2, 3]
    assert result.scores == said[-1][1]
    assert result.step == 3
    assert result.weights_file.endswith('.pth')


def test_a_pruned_run(tmp_path):
    result = run_job(job(tmp_path), lambda step, scores: step == 2)
    assert (result.status, result.step) == ('pruned', 2)


def test_a_run_that_fails(tmp_path):
    result = run_job(job(tmp_path, overrides={'optimizer.type': 'SDG'}), lambda step, scores: False)
    assert result.status == 'failed'
    assert 'SDG' in result.message
    assert 'SGD' in result.message


def test_a_run_that_wants_to_end_the_program_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr('support.Noisy.__getitem__', lambda self, index: sys.exit(0))
    result = run_job(job(tmp_path), lambda step, scores: False)
    assert (result.status, result.message) == ('failed', 'SystemExit: 0')


def test_errors_of_the_report_are_raised(tmp_path):
    with pytest.raises(ZeroDivisionError):
        run_job(job(tmp_path), lambda step, scores: 1 / 0)


def test_the_command_has_all_of_it(tmp_path):
    found = job(tmp_path, device='cpu', threads=2, parent='a folder/x.pth', overrides={'widths': [16, 32]})
    words = shlex.split(command_of(found, 'again', stop_after=3))
    args = parser().parse_args(words[2:])
    assert (args.seed, args.work_dir, args.device, args.stop_after) == (7, 'again', 'cpu', 3)
    assert args.cfg_options == {
        'optimizer.lr': 0.05,
        'widths': [16, 32],
        'num_threads': 2,
        'load_from': 'a folder/x.pth',
    }


@pytest.mark.parametrize(
    'value', [3, 0.1 + 0.2, 1e-7, True, None, 'SGD', [1, 2], (1, 2), [[0.5, 1], 'a'], [], 'a b', -0.0]
)
def test_values_survive_the_command_line(value):
    words = shlex.split(shlex.join(['--cfg-options', f'key={as_option("key", value)}']))
    read = parser().parse_args(['config.py', *words]).cfg_options['key']
    assert same(read, value)


@pytest.mark.parametrize('value', ['3', 'true', {'a': 1}, ' a', 'a,b', float('nan'), object()])
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
    assert flattened('a', 3) == {'a': 3}
