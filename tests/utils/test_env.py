"""What is noted about the machine, and the rank before torch is there."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from runnerkit.utils.env import collect_env, process_rank
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


def test_libraries_that_are_not_imported_are_not_asked():
    code = (
        'import sys; from runnerkit.utils.env import collect_env\n'
        'print("OpenCV" in collect_env(), "cv2" in sys.modules)'
    )
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.stdout == 'False False\n'


def test_a_library_that_does_not_say_its_version(monkeypatch):
    from types import ModuleType

    monkeypatch.setitem(sys.modules, 'cv2', ModuleType('cv2'))
    assert collect_env()['OpenCV'] == 'unknown'


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
    env = collect_env()
    assert (env['GPU 0,2'], env['GPU 1']) == ('NVIDIA A', 'NVIDIA B')
    assert env['CUDA'] == torch.version.cuda
