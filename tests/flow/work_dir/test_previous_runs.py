"""A work dir that an earlier run has used: which files are that run's, and moving them aside."""

import json
import os
import socket

import pytest

from runnerkit.checkpoint.atomic import replace_link
from runnerkit.flow.work_dir import previous_runs
from runnerkit.flow.work_dir.previous_runs import (
    agent,
    earlier_run,
    files_of_a_run,
    free_name,
    is_restarted,
    jobs,
    left_behind,
    move_aside,
    timestamp_of,
)
from runnerkit.flow.work_dir.record import write_record

OWN = [
    '20261121_114345.log',
    '20261121_114345.log.json',
    '20261121_114345.log.json.superseded',
    '20261121_120000_2.log',
    '.epoch_3.pth.4711.tmp',
    '.flow.json',
    '.run.json',
    'best_acc_epoch_2.pth',
    'code',
    'curve.png',
    'epoch_1.pth',
    'epoch_2.pth',
    'latest.pth',
    'lenet.py',
    'net-1-of-3.pth',
    'net-3-of-3.pth',
    'tf_logs',
]
FOREIGN = ['.gitignore', 'configs', 'data.log', 'epochs.pth', 'net.pth', 'notes.txt', 'other.py', 'pretrained.pth']


@pytest.fixture
def used(tmp_path):
    """The work dir of a run, with files of the user's and of a run before it."""
    for name in ('code', 'tf_logs', 'configs', 'earlier/20260101_000000'):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / 'inside').write_text(name)
    for name in [*OWN, *FOREIGN, '.lock']:
        if not (tmp_path / name).exists() and name not in ('latest.pth', '.flow.json'):
            (tmp_path / name).write_text(name)
    replace_link(tmp_path / 'latest.pth', 'net-3-of-3.pth')
    write_record(tmp_path, config='lenet.py', code='code')
    return tmp_path


def test_what_a_run_has_written_and_what_not(used):
    last = ['.flow.json', '.run.json', 'latest.pth', *(name for name in OWN if name.startswith('20261121_114345'))]
    assert files_of_a_run(used) == sorted({*OWN} - {*last}) + last
    assert left_behind(used, OWN) == FOREIGN
    assert timestamp_of(OWN) == '20261121_114345'
    assert timestamp_of(['20261121_114345.log', 'x']) == '20261121_114345'
    assert timestamp_of(['epoch_1.pth']) is None


def test_a_start_that_never_ran_has_not_used_the_work_dir(tmp_path):
    assert files_of_a_run(tmp_path / 'missing') == []
    (tmp_path / '20261121_114345.log').write_text('')
    (tmp_path / 'notes.txt').write_text('')
    assert files_of_a_run(tmp_path) == []
    (tmp_path / 'curve.png').write_text('')
    assert files_of_a_run(tmp_path) == ['curve.png', '20261121_114345.log']


def test_everything_moves_but_what_the_next_run_reads_is_copied(used):
    before = {name: os.stat(used / name, follow_symlinks=False).st_ino for name in OWN}
    folder = move_aside(used, OWN, '20261121_114345', copied={'lenet.py', 'code'})
    assert folder == used / 'earlier' / '20261121_114345'
    assert sorted(path.name for path in folder.iterdir()) == sorted(OWN)
    assert (folder / 'latest.pth').resolve() == folder / 'net-3-of-3.pth'
    assert sorted(path.name for path in used.iterdir()) == sorted([*FOREIGN, '.lock', 'earlier', 'code', 'lenet.py'])
    for name in OWN:
        moved = os.stat(folder / name, follow_symlinks=False).st_ino == before[name]
        assert moved == (name not in ('lenet.py', 'code'))
    assert (folder / 'code' / 'inside').read_text() == 'code'
    assert (used / 'earlier' / '20260101_000000' / 'inside').exists()
    assert free_name(used, '20261121_114345', ['latest.pth']) == '20261121_114345_2'
    assert free_name(used, '20261121_114346', ['latest.pth']) == '20261121_114346'


@pytest.mark.parametrize('at', range(len(OWN)))
def test_a_move_that_was_cut_goes_on_into_the_same_folder(used, at, monkeypatch):
    """The process dies before the n-th rename; the log that names the run is the last one."""

    def start():
        names = files_of_a_run(used)
        move_aside(used, names, free_name(used, timestamp_of(names), names))

    rename, left = os.rename, iter(range(at, -1, -1))

    def rename_or_die(*paths):
        if not next(left):
            raise KeyboardInterrupt
        rename(*paths)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, 'rename', rename_or_die)
        start()
    assert len({*os.listdir(used)} & {*OWN}) == len(OWN) - at
    start()
    assert sorted(os.listdir(used / 'earlier')) == ['20260101_000000', '20261121_114345']
    assert sorted(os.listdir(used / 'earlier' / '20261121_114345')) == sorted(OWN)
    assert {*FOREIGN} < {*os.listdir(used)}


def test_nothing_that_was_moved_before_is_overwritten(used):
    """A move was cut, and the run that was resumed then has written a checkpoint and a folder of event files again."""
    names = files_of_a_run(used)
    folder = used / 'earlier' / free_name(used, timestamp_of(names), names)
    (folder / 'tf_logs').mkdir(parents=True)
    (folder / 'tf_logs' / 'events').write_text('before')
    (folder / names[0]).write_text('before')
    (used / 'tf_logs').mkdir(exist_ok=True)
    (used / 'tf_logs' / 'events').write_text('after')
    moved = move_aside(used, *earlier_run(used, '20270101_000000'))
    assert moved != folder
    assert (folder / names[0]).read_text() == (folder / 'tf_logs' / 'events').read_text() == 'before'
    assert (moved / 'tf_logs' / 'events').read_text() == 'after'


def test_a_link_moves_also_after_what_it_names(used):
    (used / 'latest.pth').unlink()
    replace_link(used / 'latest.pth', 'epoch_2.pth')
    folder = move_aside(used, ['epoch_2.pth', 'latest.pth'], 'x')
    assert (folder / 'latest.pth').resolve() == folder / 'epoch_2.pth'


def test_what_cannot_be_moved_is_told(used, monkeypatch):
    def busy(source, target):
        raise OSError(16, 'Device or resource busy')

    monkeypatch.setattr(previous_runs.os, 'rename', busy)
    with pytest.raises(OSError, match=r'tf_logs, of an earlier run, cannot be moved to .* \(Device or resource busy\)'):
        move_aside(used, ['tf_logs'], 'x')


TORCHRUN = {'TORCHELASTIC_RESTART_COUNT': '0', 'TORCHELASTIC_RUN_ID': 'a', 'its process': '1'}
AGAIN, OTHER = {'TORCHELASTIC_RESTART_COUNT': '1'}, {'its process': '2'}


@pytest.mark.parametrize(
    'began, now, expected',
    [
        ({}, {}, False),
        (TORCHRUN, {**TORCHRUN, **OTHER}, False),
        (TORCHRUN, {**TORCHRUN, **OTHER, **AGAIN}, True),
        (TORCHRUN, {**OTHER, **AGAIN, 'TORCHELASTIC_RUN_ID': 'b'}, False),
        # The same torchrun, which does not count that machines have come or gone.
        (TORCHRUN, TORCHRUN, True),
        (TORCHRUN, {**TORCHRUN, **AGAIN}, True),
        ({**TORCHRUN, 'TORCHELASTIC_RUN_ID': 'none'}, {**TORCHRUN, 'TORCHELASTIC_RUN_ID': 'none'}, True),
        (TORCHRUN, {}, False),
        ({}, TORCHRUN, False),
        ({'SLURM_JOB_ID': '7'}, {'SLURM_JOB_ID': '7', 'SLURM_RESTART_COUNT': '1'}, True),
        ({'SLURM_JOB_ID': '7'}, {'SLURM_JOB_ID': '7', 'SLURM_RESTART_COUNT': '0'}, False),
        ({'SLURM_JOB_ID': '7'}, {'SLURM_JOB_ID': '8', 'SLURM_RESTART_COUNT': '1'}, False),
        ({}, {'SLURM_JOB_ID': '7', 'SLURM_RESTART_COUNT': '1'}, False),
        # Slurm has started the job again, and with it a torchrun of its own.
        (
            {**TORCHRUN, 'SLURM_JOB_ID': '7'},
            {**TORCHRUN, **OTHER, 'SLURM_JOB_ID': '7', 'SLURM_RESTART_COUNT': '2'},
            True,
        ),
    ],
)
def test_a_restart_is_one_of_the_job_that_began_the_run(tmp_path, monkeypatch, began, now, expected):
    def found(variables):
        monkeypatch.setattr(
            previous_runs, 'agent', lambda name: f'torchrun process {name} {variables.get("its process")}'
        )
        return jobs(variables)

    write_record(tmp_path, jobs=list(found(began)), process=1)
    assert json.loads((tmp_path / '.flow.json').read_text())['jobs'] == list(found(began))
    assert is_restarted(tmp_path, found(now)) == expected


def test_a_process_does_not_restart_itself(tmp_path):
    """Two runs, one after the other, in a process that torchrun has started."""
    write_record(tmp_path, jobs=list(jobs(TORCHRUN)), process=os.getpid())
    assert not is_restarted(tmp_path, jobs(TORCHRUN))
    write_record(tmp_path, process=os.getppid())
    assert is_restarted(tmp_path, jobs(TORCHRUN))


def test_the_jobs_of_all_ranks_count(tmp_path, monkeypatch):
    """Rank 0 may be on a machine that has just come, and whose torchrun has restarted nothing."""
    ranks = [{'torchrun a': False, 'torchrun process a of new 9 1': False}, {'torchrun a': True, 'slurm 7': False}]
    monkeypatch.setattr(previous_runs, 'all_gather_objects', lambda own: ranks)
    merged = previous_runs.jobs_of_all_ranks()
    assert merged == {'torchrun a': True, 'torchrun process a of new 9 1': False, 'slurm 7': False}
    write_record(tmp_path, jobs=['torchrun a'], process=1)
    assert is_restarted(tmp_path, merged)
    assert not is_restarted(tmp_path, ranks[0])


def test_what_has_started_this_process():
    assert agent('7').startswith(f'torchrun process 7 of {socket.gethostname()} {os.getppid()}')
    assert agent('7') == agent('7')
