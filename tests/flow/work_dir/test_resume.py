"""Paths that are checked before data and model are built; and which job has begun a run."""

import json
import os
import socket

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Options
from runnerkit.flow.work_dir import resume
from runnerkit.flow.work_dir.record import write_record
from runnerkit.flow.work_dir.resume import (
    agent,
    check_out_dir,
    check_start,
    is_in,
    is_restarted,
    jobs,
    jobs_of_all_ranks,
    out_dirs,
    resumes,
)


@pytest.fixture
def used(tmp_path):
    """A folder with the work dir of a run, ``run``, the one of the run before it, and a checkpoint of another one."""
    for name in ('run', 'other', 'run.1', 'run/inner'):
        (tmp_path / name).mkdir(parents=True)
        torch.save({}, tmp_path / name / 'epoch_1.pth')
    return tmp_path


def check(used, work_dir='run', cfg=(), **options):
    for name in ('resume_from', 'load_from'):
        if name in options:
            options[name] = str(used / options[name])
    check_start(Context(Config(dict(cfg)), Options(**options), jobs=jobs(), work_dir=used / work_dir))


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'if_used': 'aside'},
        {'if_used': 'resume', 'load_from': 'run/nothere.pth'},
        {'auto_resume': True, 'load_from': 'run/epoch_1.pth'},
        {'if_used': 'refuse', 'work_dir': 'new'},
        {'if_used': 'refuse', 'resume_from': 'run/epoch_1.pth'},
        {'resume_from': 'run'},
        {'resume_from': 'run/epoch_1.pth', 'load_from': 'run/epoch_1.pth'},
        {'resume_from': 'run.1', 'if_used': 'aside'},
        {'load_from': 'run.1/epoch_1.pth'},
        {'load_from': 'other'},
        {'cfg': {'load_from': 'torchvision://resnet50'}},
    ],
)
def test_what_may_start(used, options):
    check(used, **options)


@pytest.mark.parametrize(
    'options, error, text',
    [
        ({'resume_from': 'run/epoch_11.pth'}, FileNotFoundError, "cannot be found; did you mean 'epoch_1.pth'"),
        ({'load_from': 'othr/epoch_1.pth'}, FileNotFoundError, 'othr/epoch_1.pth cannot be found'),
        ({'auto_resume': True, 'load_from': 'nowhere.pth', 'work_dir': 'new'}, FileNotFoundError, 'nowhere.pth'),
        ({'load_from': 'run/epoch_1.pth'}, FileExistsError, 'load_from=.*, whose folder this run would rename: choose'),
        ({'load_from': 'run'}, FileExistsError, 'belongs to the earlier run in'),
        ({'resume_from': 'run', 'if_used': 'aside'}, FileExistsError, 'resume_from=.* belongs to the earlier run'),
        ({'load_from': 'run/inner/epoch_1.pth'}, FileExistsError, 'belongs to the earlier run in'),
        ({'resume_from': 'run/inner'}, FileExistsError, 'belongs to the earlier run in'),
        ({'if_used': 'refuse'}, FileExistsError, r'holds the files of an earlier run \(epoch_1.pth …\)'),
        ({'if_used': 'refuse', 'resume_from': 'other'}, FileExistsError, '--if-used refuse is given'),
        ({'if_used': 'move'}, ValueError, "if_used must be one of resume, aside, refuse, but got 'move'"),
        ({'cfg': {'evaluation': {'out_dir': 5}}}, TypeError, 'out_dir of evaluation must be a folder or a URL'),
    ],
)
def test_what_is_refused(used, options, error, text):
    with pytest.raises(error, match=text):
        check(used, **options)


def test_checkpoints_in_an_out_dir_are_of_the_run_too(used):
    (used / 'kept').mkdir()
    (used / 'run').rename(used / 'kept' / 'run')
    (used / 'run').mkdir()
    (used / 'run' / '20260101_000000.log.json').write_text('')
    cfg = {'checkpoint_config': {'out_dir': str(used / 'kept')}}
    check(used, cfg=cfg, if_used='refuse', resume_from='kept/run/epoch_1.pth')
    with pytest.raises(FileExistsError, match='resume_from=.* belongs to the earlier run'):
        check(used, cfg=cfg, if_used='aside', resume_from='kept/run')
    with pytest.raises(FileExistsError, match='load_from=.* belongs to the earlier run'):
        check(used, cfg=cfg, load_from='kept/run')


def test_a_restarted_job_goes_on_whatever_the_command_says(used, monkeypatch):
    monkeypatch.setenv('SLURM_JOB_ID', '7')
    monkeypatch.setenv('SLURM_RESTART_COUNT', '1')
    with pytest.raises(FileExistsError):
        check(used, if_used='refuse')
    (used / 'run' / '.flow.json').write_text('{"jobs": ["slurm 7"]}')
    check(used, if_used='refuse')
    check(used, resume_from='gone.pth')


@pytest.mark.parametrize(
    'options, cfg, expected',
    [
        ({}, {}, False),
        ({}, {'auto_resume': True}, True),
        ({'auto_resume': True}, {}, True),
        ({'if_used': 'resume'}, {}, True),
        ({'if_used': 'aside'}, {'auto_resume': True}, False),
    ],
)
def test_when_the_run_in_the_work_dir_is_resumed(options, cfg, expected):
    assert resumes(Context(Config(cfg), Options(**options))) == expected


def test_where_a_checkpoint_lies(used):
    (used / 'link').symlink_to(used / 'run')
    for path in ('run', 'run/epoch_1.pth', 'link/epoch_1.pth', 'link', 'run/../run/gone.pth'):
        assert is_in(str(used / path), used / 'run')
        assert is_in(f'file://{used / path}', used / 'run')
    for path in ('other', 'other/epoch_1.pth', 'run/earlier/20260101_000000', '.'):
        assert not is_in(str(used / path), used / 'run')
    assert is_in('s3://b/run/epoch_1.pth', 's3://b/run')
    assert is_in('s3://b/run/', 's3://b/run')
    assert not is_in('s3://b/run2', 's3://b/run')


def test_folders_to_write_to(tmp_path):
    (tmp_path / 'runs').mkdir()
    (tmp_path / 'run').write_text('a file')
    check_out_dir('evaluation', tmp_path / 'runs' / 'new' / 'deep')
    check_out_dir('evaluation', 'memory://bucket/exp')
    with pytest.raises(OSError, match=r"of checkpoint_config cannot be used: .*/run is a file; did you mean 'runs'\?"):
        check_out_dir('checkpoint_config', tmp_path / 'run' / 'exp')
    with pytest.raises(ValueError, match=r"out_dir='s4://bucket' of evaluation cannot be used: prefix s4 is not supp"):
        check_out_dir('evaluation', 's4://bucket')
    found = out_dirs(
        Config(
            {
                'checkpoint_config': {'interval': 1},
                'evaluation': {'out_dir': 'a', 'file_client_args': {'backend': 'disk'}},
                'log_config': {'hooks': [{'type': 'TextLoggerHook'}, {'type': 'TextLoggerHook', 'out_dir': 'b'}]},
            }
        )
    )
    assert list(found) == [('evaluation', 'a', {'backend': 'disk'}), ('log_config.hooks[1]', 'b', None)]
    assert list(out_dirs(Config({'log_config': None, 'evaluation': None}))) == []


def test_a_folder_without_the_right_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr('os.access', lambda *args: False)  # a test that is root may write everywhere
    with pytest.raises(OSError, match=f'{tmp_path} is not writable$'):
        check_out_dir('evaluation', tmp_path / 'exp')


# --- restarts --------------------------------------------------------------------------------------------------------

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
        monkeypatch.setattr(resume, 'agent', lambda name: f'torchrun process {name} {variables.get("its process")}')
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
    monkeypatch.setattr(resume, 'all_gather_objects', lambda own: ranks)
    merged = jobs_of_all_ranks()
    assert merged == {'torchrun a': True, 'torchrun process a of new 9 1': False, 'slurm 7': False}
    write_record(tmp_path, jobs=['torchrun a'], process=1)
    assert is_restarted(tmp_path, merged)
    assert not is_restarted(tmp_path, ranks[0])


def test_what_has_started_this_process():
    assert agent('7').startswith(f'torchrun process 7 of {socket.gethostname()} {os.getppid()}')
    assert agent('7') == agent('7')
