"""The environment of a run: versions, devices, the rank of this process, and which other processes live."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from socket import gethostname
from typing import Any

from runnerkit.version import __version__

#: Libraries whose versions are recorded: the module's name, and the packages that may contain it.
_VERSIONS = {
    'NumPy': ('numpy', ['numpy']),
    'TorchVision': ('torchvision', ['torchvision']),
    'OpenCV': (
        'cv2',
        ['opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless'],
    ),
    'MMCV': ('mmcv', ['mmcv-full', 'mmcv', 'mmcv-lite']),
}


def acts_as_mmcv() -> bool:
    """Whether ``mmcv`` in this process is runnerkit (`runnerkit.compat`), so that files have to look like MMCV's."""
    return getattr(sys.modules.get('mmcv'), 'IS_RUNNERKIT', False)


def process_rank() -> int:
    """The rank of this process; 0 if the run is not distributed.

    Before the process group exists, it is read from the launcher's variable ``RANK``. Does not import torch.
    """
    dist = sys.modules.get('torch.distributed')
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get('RANK', '')
    return int(rank) if rank.isdecimal() else 0


def get_host_info() -> str:
    """``user@host``; the user is left out if unknown (a user id without a name)."""
    from getpass import getuser

    try:
        user = getuser()
    except (OSError, KeyError, ImportError):
        user = ''
    return f'{user}@{gethostname()}'


def get_time_str() -> str:
    """The current time for file names: ``20240131_235959``."""
    return time.strftime('%Y%m%d_%H%M%S')


def collect_env() -> dict[str, Any]:
    """Platform, devices and versions, as a run records them in its log and checkpoints.

    No library except torch is imported. ``MMCV`` is the version that ``import mmcv`` would give; its compiler entries
    are ``n/a``, as runnerkit has no compiled operators.
    """
    import torch

    has_cuda = torch.cuda.is_available()
    info: dict[str, Any] = {
        'sys.platform': sys.platform,
        'Platform': platform.platform(),
        'CPUs': os.cpu_count(),
        'Python': sys.version.replace('\n', ''),
        'CUDA available': has_cuda,
    }
    if has_cuda:
        kinds: dict[str, list[str]] = {}
        for index in range(torch.cuda.device_count()):
            kinds.setdefault(torch.cuda.get_device_name(index), []).append(str(index))
        info.update({f'GPU {",".join(numbers)}': name for name, numbers in kinds.items()})
        info['CUDA'] = torch.version.cuda
        info['cuDNN'] = torch.backends.cudnn.version()
        home = cuda_home()  # whose compiler may differ from that with which torch was built
        nvcc = home and _first_line(os.path.join(home, 'bin', 'nvcc'), '--version', marker='release')
        info.update({'CUDA_HOME': str(home), 'NVCC': nvcc or 'n/a'})
    info['GCC'] = _first_line('gcc', '--version')
    info['PyTorch'] = torch.__version__
    info['PyTorch compiling details'] = torch.__config__.show()
    info['Threads'] = torch.get_num_threads()
    for label, (module, packages) in _VERSIONS.items():
        info[label] = _version(module, packages)
    info['MMCV Compiler'] = info['MMCV CUDA Compiler'] = 'n/a'
    info['runnerkit'] = __version__
    return info


def cuda_home() -> str | None:
    """The folder of the CUDA toolkit, or of ROCm's if torch is built for it; None if there is none."""
    import torch
    from torch.utils import cpp_extension  # slow: imports setuptools and searches for a compiler

    rocm = torch.version.hip is not None and cpp_extension.ROCM_HOME is not None
    return cpp_extension.ROCM_HOME if rocm else cpp_extension.CUDA_HOME


def _first_line(*command: str, marker: str = '') -> str:
    """The first line of a program's output that contains ``marker``; ``n/a`` if there is none, or no such program."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 'n/a'
    return next((line.strip() for line in said.splitlines() if marker in line), 'n/a')


def _version(module: str, packages: list[str]) -> str:
    """The version of a module if it is imported, else of an installed package."""
    said = getattr(sys.modules.get(module), '__version__', None)
    if said is not None:
        return str(said)
    from importlib import metadata  # imports email and zipfile

    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return 'unknown' if module in sys.modules else 'not installed'


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that is checked out in ``folder``, and whether tracked files have been changed; None without git."""
    try:
        commit = _git(folder, 'rev-parse', 'HEAD')
        return {'commit': commit, 'dirty': bool(_git(folder, 'status', '--porcelain', '--untracked-files=no'))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    command = ['git', '--no-optional-locks', '-C', str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout.strip()


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and is not yet missed by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process_state(pid) not in ('Z', 'X')


def process_state(pid: int) -> str | None:
    """The letter of a process's state, such as ``'T'`` for one that is stopped; None if this system does not say."""
    fields = _fields(pid)
    return fields[0] if fields else None


def start_of(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of the same number; None if it is not known."""
    fields = _fields(pid)
    return fields[19] if fields else None


def _fields(pid: int) -> list[str]:
    """What Linux says of a process after its number and name."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
            return file.read().rpartition(')')[2].split()
    except OSError:  # no Linux, or gone since
        return []
