"""Each way to end a run, at each place: exit code, outcome, log and checkpoints agree, as the page's table says."""

import importlib
import os
import re
import resource
import subprocess
import sys
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path

import pytest
from endings import BEFORE, CHECKPOINTS, HOWS, UNREADABLE, make
from forks import Fork
from support import thinned
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

import runnerkit
from runnerkit.cli.train import main
from runnerkit.flow.report.record import read_run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / 'docs/reference/commands.md'


def outcome_of(row):
    """What the page's table says about a row that begins so."""
    return re.search(rf'^\| {row}.* \| (\w+) \| .* \|$', PAGE.read_text(), flags=re.MULTILINE)[1]


def last_line(run):
    """The last word of the run's log on how it ended."""
    lines = [line for log in sorted(run.glob('*.log')) for line in log.read_text().splitlines()]
    return [line.split(' - ')[3] for line in lines if ' - Run ' in line][-1:]


@pytest.fixture
def end(tmp_path, monkeypatch, capsys):
    """Train with an end: the exit code, the last line of stderr, and the work dir."""

    def run(place, how, *lines):
        run, words = tmp_path / 'run', []
        config = str(make(tmp_path, place, *lines))
        monkeypatch.setenv('PLACE', '')
        if place == 'load_state_dict':
            os.environ['HOW'] = ''
            cut = ['--cfg-options', 'runner.max_iters=2', 'runner.max_epochs=None']
            assert main([config, '--work-dir', str(run), *cut]) == 0
            words = ['--auto-resume']
            for log in run.glob('*.log'):
                log.unlink()
        monkeypatch.setenv('PLACE', place)
        monkeypatch.setenv('HOW', how)
        code = main([config, '--work-dir', str(run), *words])
        return code, capsys.readouterr().err.splitlines()[-1], run

    return run


@thinned(place=CHECKPOINTS, how=HOWS)
def test_each_place_and_each_way(place, how, end):
    row, expected = HOWS[how]
    code, last, run = end(place, how)
    assert code == (2 if place == 'config' and how in UNREADABLE else expected)
    assert last == 'interrupted' if code == 130 else last.startswith('error: ')
    has_begun = place not in BEFORE
    assert (run / 'run.json').exists() == has_begun
    if has_begun:
        assert read_run(run).outcome == outcome_of(row)
        (text,) = last_line(run)
        assert text.startswith(f'Run {outcome_of(row)}')
    leaves_at_once = row == 'KeyboardInterrupt' and place in ('after_train_epoch', 'around_val', 'after_evaluate')
    assert sorted(path.name for path in run.glob('*.pth')) == ([] if leaves_at_once else CHECKPOINTS[place])


@pytest.mark.parametrize(
    'how, code',
    [
        ('sys.exit(0)', 0),
        ('raise KeyboardInterrupt', 0),
        # Thorough, as they do the same.
        *(pytest.param(how, 0, marks=pytest.mark.thorough) for how in ('sys.exit()', 'sys.exit(256)', 'os._exit(0)')),
        *(pytest.param(how, 3, marks=pytest.mark.thorough) for how in ('sys.exit(3)', 'os._exit(3)')),
        *(pytest.param(how, 1, marks=pytest.mark.thorough) for how in ('raise GeneratorExit', 'raise Own("mine")')),
    ],
)
@pytest.mark.parametrize('place', ['train sample', pytest.param('val sample', marks=pytest.mark.thorough)])
def test_a_worker_of_a_loader(place, how, code, end, monkeypatch):
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, '__defaults__', (0.2,))
    exit_code, last, run = end(place, how, "data['workers_per_gpu'] = 1")
    assert exit_code == 1
    ours = f'error: a worker of this loader ended with code {code}: that of the data set Points. '
    assert last.startswith(ours) or (code and re.match(r'error: DataLoader worker \(pid.* exited unexpectedly', last))
    assert read_run(run).outcome == 'failed'
    assert sorted(path.name for path in run.glob('*.pth')) == CHECKPOINTS[place]


def test_a_worker_that_ends_with_its_stream_is_no_failure(end):
    """As torch's loaders read streams: each worker comes to its end, with code 0."""
    code, _, run = end('', '', 'data.update(workers_per_gpu=2, train=dict(type=here + "Stream"))')
    assert (code, read_run(run).outcome) == (0, 'completed')


@contextmanager
def small_files(size):
    """A process that can write no file of more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_last_save_that_fails(end):
    """The size of files is limited: the large model's checkpoint cannot be written, run.json can."""
    with small_files(100_000):
        code, last, run = end('', '', "model['large'] = True")
    assert code == 1
    assert 'its last checkpoint is missing' in last
    assert read_run(run).outcome == 'failed'
    assert read_run(run).reason.startswith('NotSavedError: ')
    assert last_line(run)[0].startswith('Run failed: NotSavedError')
    assert [*run.glob('*.pth')] == []


@pytest.mark.parametrize('stops', ['--stop-after 1', 'runner.stop("enough")'])
def test_what_ends_well_exits_with_0(stops, end, tmp_path, monkeypatch, capsys):
    words = stops.split() if stops.startswith('--') else []
    monkeypatch.setenv('PLACE', '' if words else 'stop')
    monkeypatch.setenv('HOW', '' if words else stops)
    assert main([str(make(tmp_path, '')), '--work-dir', str(tmp_path / 'run'), *words]) == 0
    assert read_run(tmp_path / 'run').outcome == outcome_of('`runner.stop`') == 'stopped'


def test_a_command_that_ends_well_inside_a_run_ends_it_with_1(end):
    how = "from runnerkit.cli.main import main; main(['train', '--help'])"
    code, last, run = end('after_train_iter', how)
    assert (code, last) == (1, 'error: SystemExit: 0')
    assert read_run(run).outcome == 'failed'


def test_from_python_the_exception_is_raised_as_it_is(tmp_path, monkeypatch):
    config = make(tmp_path, 'after_run')
    for place, how in (('after_train_iter', 'sys.exit(0)'), ('after_run', 'sys.exit()')):
        monkeypatch.setenv('PLACE', place)
        monkeypatch.setenv('HOW', how)
        with pytest.raises(SystemExit) as caught:
            runnerkit.train(config, tmp_path / place)
        assert caught.value.code in (0, None)
        assert read_run(tmp_path / place).outcome == 'failed'


def on_rank(rank, folder, place, how, ends):
    """In a fork: one of two ranks."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2', PLACE=place, HOW=how, ENDS=ends)
    words = ['--work-dir', str(folder / 'run'), '--launcher', 'pytorch', '--device', 'cpu']
    return main([str(folder / 'cfg.py'), *words])


#: Where and how code ends on which ranks, the exit codes of both, and what the log of rank 0 says.
ON_RANKS = [
    ('after_run', 'sys.exit(0)', '1', [1, 1], "Run failed: PeerFailed('rank 1 has failed: SystemExit(0)')"),
    ('after_train_iter', 'sys.exit(3)', '0', [3, 1], 'Run failed: SystemExit(3)'),
]
#: Places that a rank does not come to in that run.
UNREACHED = [f'{place} of 1' for place in ('around_save', 'after_save', 'log')] + ['val sample of 0']
UNREACHED += [f'{place} of {rank}' for place in ('load_state_dict', 'sampler') for rank in '01']
MORE_ON_RANKS = [
    (place, how, rank, [HOWS[how][1] if rank == each else 1 for each in '01'], 'Run failed: ')
    for (place, how), rank in product(
        zip(CHECKPOINTS, cycle(('sys.exit(0)', 'sys.exit(3)', 'raise Own("mine")', 'raise NonFiniteError("boom")'))),
        '01',
    )
    if f'{place} of {rank}' not in UNREACHED
]


@pytest.mark.parametrize(
    'place, how, rank, codes, says',
    [*ON_RANKS, *(pytest.param(*each, marks=pytest.mark.thorough) for each in MORE_ON_RANKS)],  # ON_RANKS
)
@pytest.mark.distributed
def test_two_ranks(place, how, rank, codes, says, tmp_path):
    importlib.import_module('torch._dynamo')  # once here, rather than in each fork
    lines = ["dist_params = dict(init_method='file://{{ fileDirname }}/meet')", "data['samples_per_gpu'] = 1"]
    make(tmp_path, place, *lines)
    folders = [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    forks = [Fork(on_rank, each, tmp_path, place, how, rank, folder=folders[each]) for each in range(2)]
    assert [fork.code() for fork in forks] == codes, '\n'.join(fork.said() for fork in forks)
    run = tmp_path / 'run'
    assert (run / 'run.json').exists() == (place not in BEFORE)
    if place not in BEFORE:
        assert read_run(run).outcome == 'failed'
        assert last_line(run)[0].startswith(says)


@pytest.mark.parametrize('program', [['tools/train.py'], ['-m', 'runnerkit', 'train']])
def test_the_exit_code_of_the_process(program, tmp_path, warm):
    config = make(tmp_path, 'after_train_iter')
    words = [sys.executable, *program, str(config), '--work-dir', str(tmp_path / 'run')]
    env = {**os.environ, 'PLACE': 'after_train_iter', 'HOW': 'sys.exit(256)'}
    assert subprocess.run(words, env=env, cwd=ROOT, capture_output=True).returncode == 1
    assert read_run(tmp_path / 'run').outcome == 'failed'
