"""The tool as a program of its own: its exit codes, and Ctrl-C once and twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import config_file

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools/search.py'
SEARCH = """
pipeline = ['nas']
nas = dict(
    pipe_step=dict(type='SearchPipeStep'),
    config='{{ fileDirname }}/config.py',
    objectives=dict(error='min'),
    search_space={'optimizer.lr': [0.1, 0.2]},
    search_algorithm='GridSearch',
    executor=dict(type='Local', workers=2),
)
"""


@pytest.fixture
def start(tmp_path):
    """Start the tool on a search of two trials, with options: its process."""
    config_file(tmp_path)
    folder = tmp_path / 'ein Ordner'  # which no shell and no option must split
    folder.mkdir()
    (tmp_path / 'config.py').rename(folder / 'config.py')
    (folder / 'suche.py').write_text(SEARCH)
    path = os.pathsep.join([str(ROOT), str(ROOT / 'tests')])
    processes = []

    def begin(*options):
        processes.append(
            subprocess.Popen(
                [sys.executable, str(TOOL), str(folder / 'suche.py'), '--work-dir', str(folder / 'work'), *options],
                env={**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': '1'},
                cwd=tmp_path,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        return processes[-1], folder / 'work'

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def epochs_in(work, number, process):
    """Wait until that many epochs of the trials are done."""
    while len(list(work.glob('nas/trials/*/*/epoch_*.pth'))) < number:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.mark.thorough  # tests/cli/test_search.py
def test_ctrl_c_stops_it_and_the_same_command_goes_on(start):
    long = ['--cfg-options', 'nas.overrides.runner.max_epochs=300']
    process, work = start(*long)
    epochs_in(work, 2, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGINT, said
    assert said.rstrip().endswith('stopped by SIGINT; to continue, run the same command')
    done = {path.name for path in work.glob('nas/trials/0000/*/epoch_*.pth')}
    # Twice: it does not wait for the trials, and leaves none behind.
    process, _ = start(*long)
    epochs_in(work, 1 + len(list(work.glob('nas/trials/*/*/epoch_*.pth'))), process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGINT, said
    assert done <= {path.name for path in work.glob('nas/trials/0000/*/epoch_*.pth')}


@pytest.mark.thorough  # tests/cli/test_search.py
def test_its_exit_codes(start):
    # In one process: how trials that have processes of their own end is another test's.
    short = ['--cfg-options', 'nas.overrides.runner.max_epochs=1', 'nas.executor=Serial']
    process, work = start(*short)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert 'nas: 2 trials (2 completed); best:' in said
    assert said.rstrip().endswith('Report ein Ordner/work/reports.json')
    process, _ = start('--worker', '3')
    said = process.communicate()[0]
    assert process.returncode == 2
    assert 'tools/search.py' in said
