"""The look for processes that outlive the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import left_by

pytestmark = pytest.mark.skipif(not Path('/proc/self/stat').exists(), reason='needs /proc')

FORK = """
import os, sys
pid = os.fork()
if pid:
    print(pid, flush=True)
    os._exit(0)
os.close(1)
os.read(0, 1)
"""


def test_a_process_whose_own_parent_has_ended_is_found_until_it_ends(monkeypatch):
    monkeypatch.setenv('PYTEST_CURRENT_TEST', 'its test')
    there = set(left_by(os.getpid(), within=0))
    started = subprocess.Popen([sys.executable, '-c', FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(started.stdout.read())
    started.wait()
    (line,) = set(left_by(os.getpid(), within=0)) - there
    assert line.startswith(f'process {pid}: {sys.executable} -c')
    assert line.endswith(', begun in its test')
    started.stdin.close()
    os.waitpid(pid, 0)  # this process has become its parent
    assert set(left_by(os.getpid(), within=0)) - there == set()


def test_the_helpers_of_multiprocessing_do_not_count_and_their_forks_do(tmp_path):
    code = """
import multiprocessing, os, sys, time
from processes import family, left_by
if __name__ == '__main__':
    context = multiprocessing.get_context('forkserver')
    ready, go = context.Event(), context.Event()
    process = context.Process(target=go.wait)
    process.start()
    print(len(left_by(os.getpid(), within=0)), len(family(os.getpid())) > 2)
    go.set()
    process.join()
    print(left_by(os.getpid()), len(family(os.getpid())))
"""
    (tmp_path / 'script.py').write_text(code)
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, tmp_path / 'script.py'], env=env, capture_output=True, text=True)
    assert done.stdout == '1 True\n[] 2\n', done.stderr
