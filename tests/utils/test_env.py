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
    code = 'import sys; from runnerkit.utils.env import collect_env; e = collect_env(); print("cv2" in sys.modules, "OpenCV" in e)'
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout == 'False False\n'


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_gpus_of_one_kind_stand_together():
    env = collect_env()
    numbers = ','.join(str(i) for i in range(torch.cuda.device_count()))
    assert env[f'GPU {numbers}'] == torch.cuda.get_device_name(0)
