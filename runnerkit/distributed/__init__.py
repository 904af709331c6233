"""Distributed training: launching, collectives, collecting results."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.distributed.collectives import (
        all_gather_objects,
        allreduce_grads,
        allreduce_params,
        barrier,
        broadcast_buffers,
        broadcast_object,
        collect_results,
        collect_results_cpu,
        collect_results_gpu,
        from_first_rank,
        gather_objects,
        reduce_and_find_slowest,
        reduce_extremes,
        reduce_named_sums,
        reduce_named_sums_and_row,
        reduce_sums,
        run_on_all_ranks,
        same_on_all_ranks,
    )
    from runnerkit.distributed.groups import (
        broadcast_patiently,
        cpu_group,
        get_dist_info,
        is_distributed,
        master_only,
        meet_patiently,
        tell_failure,
    )
    from runnerkit.distributed.launch import init_dist, shutdown
    from runnerkit.distributed.watch import Watch

__all__ = [
    'Watch',
    'all_gather_objects',
    'allreduce_grads',
    'allreduce_params',
    'barrier',
    'broadcast_buffers',
    'broadcast_object',
    'broadcast_patiently',
    'collect_results',
    'collect_results_cpu',
    'collect_results_gpu',
    'cpu_group',
    'from_first_rank',
    'gather_objects',
    'get_dist_info',
    'init_dist',
    'is_distributed',
    'master_only',
    'meet_patiently',
    'reduce_and_find_slowest',
    'reduce_extremes',
    'reduce_named_sums',
    'reduce_named_sums_and_row',
    'reduce_sums',
    'run_on_all_ranks',
    'same_on_all_ranks',
    'shutdown',
    'tell_failure',
]

__getattr__ = lazy_getattr(__name__)
