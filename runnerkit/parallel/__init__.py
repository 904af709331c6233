"""Model wrappers, and moving batches to devices."""

from runnerkit.parallel.data_parallel import MMDataParallel
from runnerkit.parallel.distributed import MMDistributedDataParallel
from runnerkit.parallel.scatter import to_device
from runnerkit.parallel.wrappers import MODULE_WRAPPERS, is_module_wrapper, unwrap

__all__ = ['MODULE_WRAPPERS', 'MMDataParallel', 'MMDistributedDataParallel', 'is_module_wrapper', 'to_device', 'unwrap']
