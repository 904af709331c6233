"""The wrapper around the model, by the config's ``model_wrapper``: DDP, FSDP2, or one of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from runnerkit.distributed import from_first_rank, get_dist_info
from runnerkit.flow.stages.defaults import wrapper_of
from runnerkit.parallel import MODULE_WRAPPERS
from runnerkit.registry import build_from_cfg, placed_errors
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lazy import loaded_class

#: MMCV's top-level keys that are arguments of the wrapper.
OLD_KEYS = ('find_unused_parameters', 'broadcast_buffers')


def placed(model: nn.Module, cfg: Any, device: torch.device) -> nn.Module:
    """``model`` on ``device``; FSDP2 brings one part of it after another there by itself."""
    return model if wrapper_of(cfg) == 'FSDP2' and dist.is_initialized() else model.to(device)


def wrapped(model: nn.Module, cfg: Any, device: torch.device, logger: Any) -> nn.Module:
    """``model``, which `placed` has brought to ``device``, in the wrapper that the config names.

    Without ``model_wrapper``, that is DDP for several processes, and MMDataParallel for one with a GPU. A single
    process that no launcher has started does without DDP and FSDP2, which is logged.
    """
    section, kind, world_size = cfg.get('model_wrapper'), wrapper_of(cfg), get_dist_info()[1]
    if section is not None and not isinstance(section, Mapping):
        raise WrongType(f"model_wrapper must be a dict such as dict(type='FSDP2'), but got {section!r}")
    options = {key: value for key, value in (section or {}).items() if key != 'type'}
    if kind in ('DDP', 'FSDP2'):
        options = {**{key: bool(cfg[key]) for key in OLD_KEYS if cfg.get(key) is not None}, **options}
    if cfg.get('sync_batchnorm') and world_size > 1:
        if device.type == 'cpu':
            raise WrongValue(
                'sync_batchnorm: torch synchronises batch norms only on GPUs, and this run is on the CPU: leave it out'
            )
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    with placed_errors(cfg, 'model_wrapper'):
        if kind == 'FSDP2':
            from runnerkit.parallel import fsdp

            if dist.is_initialized():
                # So that one rank reports what is wrong.
                from_first_rank(partial(fsdp.check_fsdp_arguments, model, **options))
                return fsdp.FSDP2(model, device=device, **options)
            fsdp.prepare_for_one_process(model, options, logger)
            options = {}
        elif kind != 'DDP':
            made = MODULE_WRAPPERS.get(kind) if isinstance(kind, str) else kind
            for_several = (nn.parallel.DistributedDataParallel, loaded_class('runnerkit.parallel.fsdp:FSDP2'))
            if dist.is_initialized() or not (isinstance(made, type) and issubclass(made, for_several)):
                wrapper = build_from_cfg({'type': kind, **options}, MODULE_WRAPPERS, default_args={'module': model})
                return _with_all_steps(wrapper, model)
            logger.info('model_wrapper: this single process trains without %s', kind)
        if world_size > 1:
            from runnerkit.parallel import MMDistributedDataParallel
            from runnerkit.parallel.same_weights import IGNORED_BY_DDP, local_tensors

            if local := local_tensors(model):
                setattr(model, IGNORED_BY_DDP, sorted(local))
            device_ids = [device.index] if device.type == 'cuda' else None
            return MMDistributedDataParallel(model, device_ids=device_ids, **options)
    if device.type != 'cuda':
        return model
    from runnerkit.parallel import MMDataParallel

    return MMDataParallel(model, device_ids=[device.index])


def _with_all_steps(wrapper: nn.Module, model: nn.Module) -> nn.Module:
    """The user's own wrapper, if it has the steps that the model has."""
    for name in dir(type(model)):
        if name.endswith('_step') and not hasattr(wrapper, name):
            raise WrongType(
                f'model_wrapper: {type(wrapper).__name__} has no {name}, which {type(model).__name__} has: let it '
                "inherit from runnerkit.parallel.steps.Steps as well, or name one of runnerkit's: 'DDP', 'FSDP2'"
            )
    return wrapper
