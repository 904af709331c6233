"""What is noted about the machine, the rank before torch is there, and other processes."""

import os
import signal
import subprocess
import sys
import time
from importlib import metadata

import numpy as np
import pytest
import torch
import torch.utils.cpp_extension

from runnerkit.utils import env as module
from runnerkit.utils.env import (
    collect_env,
    get_host_info,
    get_time_str,
    git_state,
    is_alive,
    process_rank,
    process_state,
    start_of,
)
from runnerkit.version import __version__


def test_collect_env_names_versions_and_platform():
    env = collect_env()
    assert env['sys.platform'] == sys.platform
    assert env['PyTorch'] == torch.__version__
    assert env['runnerkit'] == __version__
    assert env['NumPy'] == np.__version__
    assert env['CUDA available'] is torch.cuda.is_available()
    assert 'PyTorch built with' in env['PyTorch compiling details']
    assert all('\n' not in env[key] for key in ('Python', 'Platform'))


@pytest.mark.thorough  # tests/test_house.py: what the runner brings in
def test_libraries_that_are_not_imported_are_not_asked():
    code = (
        'import sys; from runnerkit.utils.env import collect_env\n'
        'print([name for name in ("cv2", "torchvision", "mmcv") if name in sys.modules])\n'
        'env = collect_env(); print([name in env for name in ("OpenCV", "TorchVision", "MMCV")])\n'
        'print([name for name in ("cv2", "torchvision", "mmcv") if name in sys.modules])'
    )
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.stdout == '[]\n[True, True, True]\n[]\n'


def test_a_library_that_does_not_say_its_version(monkeypatch):
    from types import ModuleType

    monkeypatch.setitem(sys.modules, 'cv2', ModuleType('cv2'))
    monkeypatch.setattr(metadata, 'version', not_installed)
    assert collect_env()['OpenCV'] == 'unknown'


def not_installed(package):
    raise metadata.PackageNotFoundError(package)


def test_the_mmcv_that_a_program_gets(monkeypatch):
    from types import SimpleNamespace

    monkeypatch.delitem(sys.modules, 'mmcv', raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(metadata, 'version', not_installed)
        assert collect_env()['MMCV'] == 'not installed'
        patch.setattr(metadata, 'version', lambda package: '1.7.2' if package == 'mmcv' else not_installed(package))
        assert collect_env()['MMCV'] == '1.7.2'
    monkeypatch.setitem(sys.modules, 'mmcv', SimpleNamespace(__version__='1.6.0'))
    assert collect_env()['MMCV'] == '1.6.0'


def test_it_has_all_that_mmcvs_has():
    keys = ['sys.platform', 'Python', 'CUDA available', 'GCC', 'PyTorch', 'PyTorch compiling details', 'TorchVision']
    keys += ['OpenCV', 'MMCV', 'MMCV Compiler', 'MMCV CUDA Compiler']
    env = collect_env()
    assert [key for key in env if key in keys] == keys
    assert (env['MMCV Compiler'], env['MMCV CUDA Compiler']) == ('n/a', 'n/a')


def test_compilers(tmp_path, monkeypatch):
    gcc = tmp_path / 'gcc'
    gcc.write_text('#!/bin/sh\necho "gcc (Test) 1.2.3"\necho "Copyright"\n')
    nvcc = tmp_path / 'bin' / 'nvcc'
    nvcc.parent.mkdir()
    nvcc.write_text('#!/bin/sh\necho "nvcc: a compiler"\necho "Cuda compilation tools, release 12.4, V12.4.1"\n')
    for file in (gcc, nvcc):
        file.chmod(0o755)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, 'version', lambda: None)  # a torch for CUDA asks the GPU
    monkeypatch.setattr(torch.utils.cpp_extension, 'CUDA_HOME', str(tmp_path))
    monkeypatch.setattr(torch.version, 'hip', None)
    with monkeypatch.context() as patch:
        patch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
        env = collect_env()
    assert env['GCC'] == 'gcc (Test) 1.2.3'
    assert (env['CUDA_HOME'], env['NVCC']) == (str(tmp_path), 'Cuda compilation tools, release 12.4, V12.4.1')
    monkeypatch.setattr(torch.utils.cpp_extension, 'CUDA_HOME', None)
    monkeypatch.setenv('PATH', str(tmp_path / 'empty'))
    env = collect_env()
    assert (env['GCC'], env['CUDA_HOME'], env['NVCC']) == ('n/a', 'None', 'n/a')


def test_who_and_where_and_when(monkeypatch):
    monkeypatch.setattr(module, 'gethostname', lambda: 'here')
    monkeypatch.setenv('LOGNAME', 'somebody')
    assert get_host_info() == 'somebody@here'

    def nobody():
        raise KeyError('uid not found')

    monkeypatch.setattr('getpass.getuser', nobody)
    assert get_host_info() == '@here'
    before, said, after = time.time(), get_time_str(), time.time()
    # The system's clock for whole seconds may lag behind by a tick.
    assert int(before) - 1 <= time.mktime(time.strptime(said, '%Y%m%d_%H%M%S')) <= after


@pytest.mark.parametrize('value, rank', [('3', 3), ('', 0), ('none', 0)])
def test_the_launchers_variable_says_the_rank(monkeypatch, value, rank):
    monkeypatch.setenv('RANK', value)
    assert process_rank() == rank


def test_alone_the_rank_is_zero(monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    assert process_rank() == 0


def test_gpus_of_one_kind_stand_together(monkeypatch):
    names = ['NVIDIA A', 'NVIDIA B', 'NVIDIA A']
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 3)
    monkeypatch.setattr(torch.cuda, 'get_device_name', names.__getitem__)
    monkeypatch.setattr(torch.backends.cudnn, 'version', lambda: None)  # asks real ones
    env = collect_env()
    assert (env['GPU 0,2'], env['GPU 1']) == ('NVIDIA A', 'NVIDIA B')
    assert env['CUDA'] == torch.version.cuda


def test_the_state_of_git(tmp_path):
    def git(*words):
        subprocess.run(['git', '-c', 'user.name=x', '-c', 'user.email=x@x', *words], cwd=tmp_path, check=True)

    assert git_state(tmp_path) is None
    git('init', '-q')
    (tmp_path / 'a').write_text('1')
    git('add', 'a')
    git('commit', '-qm', 'first')
    found = git_state(tmp_path)
    assert (len(found['commit']), found['dirty']) == (40, False)
    (tmp_path / 'a').write_text('2')
    assert git_state(tmp_path) == {**found, 'dirty': True}
    assert git_state(tmp_path / 'nowhere') is None


def test_whether_a_process_lives():
    assert is_alive(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(pid)  # it has ended, and nobody has asked for its exit code
    os.waitpid(pid, 0)
    assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != 'linux', reason='needs /proc')
def test_whether_a_process_is_stopped_and_when_it_was_started():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    assert (process_state(pid), process_state(os.getpid())) == ('T', 'R')
    assert start_of(pid) == start_of(pid) != start_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (process_state(pid), start_of(pid)) == (None, None)
