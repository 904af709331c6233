"""What a run runs on: versions, devices, and which of several processes this is."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from socket import gethostname
from typing import Any

from runnerkit.version import __version__

#: Libraries whose versions are worth noting, by the name of their module, and by those of the packages that have it.
_VERSIONS = {
    'NumPy': ('numpy', ['numpy']),
    'TorchVision': ('torchvision', ['torchvision']),
    'OpenCV': (
        'cv2',
        ['opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless'],
    ),
    'MMCV': ('mmcv', ['mmcv-full', 'mmcv', 'mmcv-lite']),
}


def process_rank() -> int:
    """This process's number among those of a distributed run; 0 where there is only one.

    Before the processes have found each other, the launcher's variable ``RANK`` says it. Does not import torch.
    """
    dist = sys.modules.get('torch.distributed')
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get('RANK', '')
    return int(rank) if rank.isdecimal() else 0


def get_host_info() -> str:
    """Who runs this, and where: ``user@host``. What cannot be found out (a user id without a name) is left empty."""
    from getpass import getuser

    try:
        user = getuser()
    except (OSError, KeyError, ImportError):
        user = ''
    return f'{user}@{gethostname()}'


def get_time_str() -> str:
    """Now, for names of files: ``20240131_235959``."""
    return time.strftime('%Y%m%d_%H%M%S')


def collect_env() -> dict[str, Any]:
    """Platform, devices and versions by name, as a run writes them into its log and checkpoints.

    No library beside torch is imported for that. ``MMCV`` is what the program gets that imports ``mmcv``; its compiled
    operators are no part of runnerkit, so that there is nothing to say about their compilers.
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
        info.update(_gpus())
        info['CUDA'] = torch.version.cuda
        info['cuDNN'] = torch.backends.cudnn.version()
        info.update(_cuda_toolkit())
    info['GCC'] = _first_line('gcc', '--version')
    info['PyTorch'] = torch.__version__
    info['PyTorch compiling details'] = torch.__config__.show()
    info['Threads'] = torch.get_num_threads()
    for label, (module, packages) in _VERSIONS.items():
        info[label] = _version(module, packages)
    info['MMCV Compiler'] = info['MMCV CUDA Compiler'] = 'n/a'
    info['runnerkit'] = __version__
    return info


def _gpus() -> dict[str, str]:
    """Names of GPUs by their numbers, those of one kind together: ``{'GPU 0,1': 'NVIDIA H200'}``."""
    import torch

    kinds: dict[str, list[str]] = {}
    for i in range(torch.cuda.device_count()):
        kinds.setdefault(torch.cuda.get_device_name(i), []).append(str(i))
    return {f'GPU {",".join(numbers)}': name for name, numbers in kinds.items()}


def _cuda_toolkit() -> dict[str, str]:
    """Where the CUDA toolkit is, and which its compiler is: it may be another than torch was built with."""
    home = cuda_home()
    compiler = 'n/a' if home is None else _first_line(os.path.join(home, 'bin', 'nvcc'), '--version', marker='release')
    return {'CUDA_HOME': str(home), 'NVCC': compiler}


def cuda_home() -> str | None:
    """Where the CUDA toolkit is (ROCm's, if torch is built for that); None where there is none."""
    import torch
    from torch.utils import cpp_extension  # imports setuptools, and looks for a compiler

    rocm = torch.version.hip is not None and cpp_extension.ROCM_HOME is not None
    return cpp_extension.ROCM_HOME if rocm else cpp_extension.CUDA_HOME


def _first_line(*command: str, marker: str = '') -> str:
    """The first line, with ``marker`` in it, of what a program says; ``n/a`` if there is none, or no such program."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 'n/a'
    return next((line.strip() for line in said.splitlines() if marker in line), 'n/a')


def _version(module: str, packages: list[str]) -> str:
    """What a module that is imported says, else what is installed."""
    said = getattr(sys.modules.get(module), '__version__', None)
    if said is not None:
        return str(said)
    from importlib import metadata  # brings in email and zipfile

    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return 'unknown' if module in sys.modules else 'not installed'
