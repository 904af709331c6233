"""The tools that look at a model, for a learning rate, and where the time of an iteration goes."""

import os

import pytest

from runnerkit.cli.look import profile_main as main
from runnerkit.cli.main import main as runnerkit

FAILING = """

from runnerkit.hooks import Hook


class FailingHook(Hook):
    def after_train_iter(self, runner):
        raise ZeroDivisionError('a bug of the user')
"""


@pytest.fixture
def profile(project, capsys, monkeypatch, tmp_path_factory):
    """Run the tool in an empty folder: (exit code, what it printed, what it said on stderr)."""
    here = tmp_path_factory.mktemp('here')
    monkeypatch.chdir(here)
    monkeypatch.setenv('TMPDIR', str(tmp_path_factory.mktemp('tmp')))
    monkeypatch.setattr('tempfile.tempdir', None)
    points = project / 'points.py'
    points.write_text(points.read_text() + FAILING)

    def run(*options, more=''):
        cfg = project / 'cfg.py'
        cfg.write_text(cfg.read_text() + more)
        before = sorted(project.iterdir())
        code = main([str(cfg), *map(str, options)])
        assert [path for path in project.iterdir() if path.name != '__pycache__' and path not in before] == []
        assert [name for name in os.listdir(os.environ['TMPDIR']) if 'runnerkit' in name] == [], 'the work dir is gone'
        out, err = capsys.readouterr()
        return code, out, err

    run.here = here
    return run


@pytest.mark.parametrize('more', ['', "runner = dict(type='IterBasedRunner', max_iters=30)\n"])
def test_a_table_is_printed_and_nothing_is_kept(more, profile):
    code, out, err = profile('--iters', 6, '--warmup', 2, '--cfg-options', 'log_config.interval=1', more=more)
    assert code == 0
    assert out.startswith('6 iterations after 2 for warming up\n')
    assert 'ProfilerStep*' in out
    assert 'Run stopped: the profile is complete' in err
    assert os.listdir(profile.here) == []


def test_a_profiler_of_the_config_is_left_out(profile):
    more = "profiler_config = dict(by_epoch=False, profile_iters=2, json_trace_path='theirs.json')\n"
    code, _, err = profile('--iters', 2, '--warmup', 1, more=more)
    assert code == 0
    assert 'left out of the profile: ProfilerHook' in err
    assert os.listdir(profile.here) == []


@pytest.mark.parametrize(
    'options, exits, text',
    [
        (['--warmup', 15], 1, 'the training ends after 15 iterations, within --warmup 15'),
        (['--cfg-options', 'optimizer.lr.x=1'], 2, '--cfg-options does not fit'),
    ],
)
def test_wrong_usage(profile, options, exits, text):
    code, _, err = profile(*options)
    assert code == exits
    assert f'error: {text}' in err
    assert os.listdir(profile.here) == []


def test_a_hook_that_fails_shows_its_own_line(profile):
    code, _, err = profile(more="custom_hooks = [dict(type='{{ fileDirname }}/points.py:FailingHook')]\n")
    assert code == 1
    assert "in after_train_iter\n    raise ZeroDivisionError('a bug of the user')" in err
    assert err.rstrip().splitlines()[-1].startswith('error: ')


def test_it_is_a_command(capsys):
    with pytest.raises(SystemExit) as ended:
        runnerkit(['profile', '--help'])
    assert ended.value.code == 0
    assert '--warmup' in capsys.readouterr().out


def test_a_model_is_shown_and_nothing_is_kept(project, capsys, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp('here'))
    before = sorted(path for path in project.iterdir() if path.name != '__pycache__')
    assert runnerkit(['summary', str(project / 'cfg.py'), '--device', 'cpu']) == 0
    out = capsys.readouterr().out
    assert 'parameters, ' in out.splitlines()[0]
    assert 'for each of the 4 samples' in out.splitlines()[0]
    assert sorted(path for path in project.iterdir() if path.name != '__pycache__') == before
    assert runnerkit(['summary', str(project / 'missing.py')]) == 2


@pytest.mark.parametrize('command', ['summary', 'find-lr'])
def test_several_processes_are_refused(command, project, monkeypatch, capsys):
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert runnerkit([command, str(project / 'cfg.py')]) == 2
    assert f'runnerkit {command} works in one process, but torchrun has started 2' in capsys.readouterr().err
    monkeypatch.setenv('WORLD_SIZE', '1')
    assert runnerkit([command, str(project / 'missing.py')]) == 2
    assert 'missing.py' in capsys.readouterr().err


def test_a_rate_is_found_and_nothing_is_kept(project, capsys, monkeypatch, tmp_path_factory):
    here = tmp_path_factory.mktemp('here')
    monkeypatch.chdir(here)
    before = sorted(path for path in project.iterdir() if path.name != '__pycache__')
    words = ['find-lr', str(project / 'cfg.py'), '--device', 'cpu', '--iters', '12', '--to', '1']
    assert runnerkit(words) == 0
    assert 'Try optimizer.lr=' in capsys.readouterr().out
    assert list(here.iterdir()) == []
    assert sorted(path for path in project.iterdir() if path.name != '__pycache__') == before


@pytest.mark.parametrize(
    'wrong, words',
    [
        (['--from', '1', '--to', '0.1'], '--from 1 must be below --to 0.1\n'),
        (['--from', '-1'], 'a number above 0'),
        (['--iters', '2'], '--iters must be at least 3, but got 2'),
    ],
)
def test_wrong_usage_of_find_lr(wrong, words, project, capsys):
    try:
        code = runnerkit(['find-lr', str(project / 'cfg.py'), *wrong])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert words in capsys.readouterr().err
