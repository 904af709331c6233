"""What a run runs on: versions, devices, and which of several processes this is."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

from runnerkit.version import __version__

#: Libraries whose versions are worth noting, by the name of their module and of their package.
_VERSIONS = {
    'NumPy': ('numpy', 'numpy'),
    'TorchVision': ('torchvision', 'torchvision'),
    'OpenCV': ('cv2', 'opencv-python'),
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


def collect_env() -> dict[str, Any]:
    """Platform, devices and versions by name, as a run writes them into its log and checkpoints.

    Libraries beside torch are listed if the program has imported them.
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
    info['PyTorch'] = torch.__version__
    info['PyTorch compiling details'] = torch.__config__.show()
    info['Threads'] = torch.get_num_threads()
    for label, (module, package) in _VERSIONS.items():
        if module in sys.modules:
            info[label] = _version(module, package)
    info['runnerkit'] = __version__
    return info


def _gpus() -> dict[str, str]:
    """Names of GPUs by their numbers, those of one kind together: ``{'GPU 0,1': 'NVIDIA H200'}``."""
    import torch

    kinds: dict[str, list[str]] = {}
    for i in range(torch.cuda.device_count()):
        kinds.setdefault(torch.cuda.get_device_name(i), []).append(str(i))
    return {f'GPU {",".join(numbers)}': name for name, numbers in kinds.items()}


def _version(module: str, package: str) -> str:
    said = getattr(sys.modules[module], '__version__', None)
    if said is not None:
        return str(said)
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return 'unknown'
