"""Model wrappers; collating batches and moving them to devices."""

from typing import TYPE_CHECKING

from runnerkit.parallel.collate import collate
from runnerkit.parallel.wrappers import MODULE_WRAPPERS, forward_is_collective, is_module_wrapper, unwrap
from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.parallel.data_container import DataContainer
    from runnerkit.parallel.data_parallel import MMDataParallel
    from runnerkit.parallel.distributed import MMDistributedDataParallel
    from runnerkit.parallel.fsdp import FSDP2
    from runnerkit.parallel.scatter_gather import scatter, scatter_kwargs, to_device
    from runnerkit.parallel.wrappers import named_buffers, named_modules, named_parameters, submodule

__all__ = [
    'FSDP2',
    'MODULE_WRAPPERS',
    'DataContainer',
    'MMDataParallel',
    'MMDistributedDataParallel',
    'collate',
    'forward_is_collective',
    'is_module_wrapper',
    'named_buffers',
    'named_modules',
    'named_parameters',
    'scatter',
    'scatter_kwargs',
    'submodule',
    'to_device',
    'unwrap',
]

__getattr__ = lazy_getattr(__name__)
