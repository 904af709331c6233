"""The wrapper around the model, by the config's ``model_wrapper``: DDP, FSDP2, or one of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch import nn
from torch.optim import Optimizer

from runnerkit.config.known_keys import DDP
from runnerkit.distributed import from_first_rank, get_dist_info
from runnerkit.optim.fused import drop_missing_fused
from runnerkit.parallel import MODULE_WRAPPERS
from runnerkit.parallel.steps import Steps
from runnerkit.registry import build_from_cfg, placed_errors
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lazy import loaded_class

if TYPE_CHECKING:
    from runnerkit.parallel.fsdp import FSDP2

#: MMCV's top-level keys that are arguments of the wrapper.
OLD_KEYS = ('find_unused_parameters', 'broadcast_buffers')


def wrapper_of(cfg: Any) -> str | Any:
    """The ``type`` of the config's ``model_wrapper``: ``'DDP'`` where it says nothing, or uses one of its names."""
    section = cfg.get('model_wrapper')
    named = section.get('type', 'DDP') if isinstance(section, Mapping) else 'DDP'
    return 'DDP' if named in DDP else named


def wrapper_options(cfg: Any) -> dict[str, Any]:
    """The arguments of the wrapper that the config gives, MMCV's top-level keys among them.

    Raises:
        TypeError: ``model_wrapper`` is no dict.
    """
    section = cfg.get('model_wrapper')
    if section is not None and not isinstance(section, Mapping):
        raise WrongType(f"model_wrapper must be a dict such as dict(type='FSDP2'), but got {section!r}")
    options = {key: value for key, value in (section or {}).items() if key != 'type'}
    if wrapper_of(cfg) in ('DDP', 'FSDP2'):
        options = {**{key: bool(cfg[key]) for key in OLD_KEYS if cfg.get(key) is not None}, **options}
    return options


def placed(model: nn.Module, cfg: Any, device: torch.device) -> nn.Module:
    """``model`` on ``device``; FSDP2 brings one part of it after another there by itself."""
    return model if wrapper_of(cfg) == 'FSDP2' and dist.is_initialized() else model.to(device)


def wrapped(model: nn.Module, cfg: Any, device: torch.device, logger: Any) -> nn.Module:
    """``model`` in the wrapper that the config names.

    Without ``model_wrapper``, that is DDP for several processes, and MMDataParallel for one with a GPU. A single
    process that no launcher has started does without DDP and FSDP2.

    Args:
        model: where `placed` has brought it.
        cfg: the config.
        device: of this process.
        logger: for what does not take place.
    """
    named, options = wrapper_of(cfg), wrapper_options(cfg)
    world_size = get_dist_info()[1]
    with placed_errors(cfg, 'model_wrapper'):
        if named == 'FSDP2':
            if dist.is_initialized():
                from runnerkit.parallel.fsdp import FSDP2, check_fsdp_arguments

                from_first_rank(partial(check_fsdp_arguments, model, **options))  # so that one rank reports it
                return FSDP2(_with_synced_norms(model, cfg, device), device=device, **options)
            _as_far_as_one_process_can(model, options, logger)
            named, options = 'DDP', {}
    model = _with_synced_norms(model, cfg, device)
    device_ids = [device.index] if device.type == 'cuda' else None
    if not dist.is_initialized() and _is_for_several(named):
        logger.info('model_wrapper: this single process trains without %s', named)
        named = 'DDP'
    if named != 'DDP':
        with placed_errors(cfg, 'model_wrapper'):
            built = build_from_cfg({'type': named, **options}, MODULE_WRAPPERS, default_args={'module': model})
        _check_steps(built, model)
        return built
    if world_size > 1:
        from runnerkit.parallel.same_weights import IGNORED_BY_DDP, local_tensors

        local = local_tensors(model)
        if local:
            setattr(model, IGNORED_BY_DDP, sorted(local))
        with placed_errors(cfg, 'model_wrapper'):
            from runnerkit.parallel import MMDistributedDataParallel

            return MMDistributedDataParallel(model, device_ids=device_ids, **options)
    if device_ids is None:
        return model
    from runnerkit.parallel import MMDataParallel

    return MMDataParallel(model, device_ids=device_ids)


def _is_for_several(named: Any) -> bool:
    """Whether this is a class that needs a process group."""
    found = MODULE_WRAPPERS.get(named) if isinstance(named, str) and named not in DDP else named
    return isinstance(found, type) and issubclass(
        found, (nn.parallel.DistributedDataParallel, loaded_class('runnerkit.parallel.fsdp:FSDP2'))
    )


def _with_synced_norms(model: nn.Module, cfg: Any, device: torch.device) -> nn.Module:
    if not cfg.get('sync_batchnorm') or get_dist_info()[1] == 1:
        return model
    if device.type == 'cpu':
        raise WrongValue(
            'sync_batchnorm: torch synchronises batch norms only on GPUs, and this run is on the CPU: leave it out'
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def _as_far_as_one_process_can(model: nn.Module, options: Mapping[str, Any], logger: Any) -> None:
    """Do what FSDP2 does besides sharding, for a single process; it still looks up the names."""
    from runnerkit.parallel.fsdp import mixed_precision, to_checkpoint
    from runnerkit.parallel.sharding import recompute_activations, units

    parts = units(model, options.get('module_classes'), options.get('min_num_params'))
    recompute_activations(to_checkpoint(model, parts, options.get('activation_checkpointing', False)))
    left_out = [key for key in ('mp_policy', 'cpu_offload') if options.get(key)]
    if left_out:
        logger.warning(
            'model_wrapper: this single process trains without FSDP2, so %s has no effect: start it with torchrun and '
            "--launcher pytorch, or use amp='bf16'",
            ' and '.join(left_out),
        )
    else:
        logger.info('model_wrapper: this single process trains without FSDP2')
    mixed_precision(options.get('mp_policy'))


def moves_batches(model: Any) -> bool:
    """Whether a wrapper around the model moves batches to its device; otherwise the runner has to."""
    return isinstance(model, Steps)


def hand_over(optimizers: Iterable[Optimizer], before: Mapping[str, nn.Parameter], wrapper: FSDP2) -> None:
    """Let optimizers that were built over a model's whole parameters update its sharded ones.

    Args:
        optimizers: of the model's parameters, and perhaps of others.
        before: the model's parameters by name, before it was wrapped.
        wrapper: around the model.
    """
    from torch.distributed.tensor import distribute_tensor

    after = dict(wrapper.module.named_parameters())
    sharded: dict[int, Any] = {id(each): after[name] for name, each in before.items()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['params'] = [sharded.get(id(each), each) for each in group['params']]
        for old in [each for each in optimizer.state if id(each) in sharded]:  # of Adagrad, for example
            new = sharded[id(old)]
            optimizer.state[new] = {
                key: distribute_tensor(value, new.device_mesh, new.placements)
                if isinstance(value, torch.Tensor) and value.shape == old.shape and value.dim()
                else value
                for key, value in optimizer.state.pop(old).items()
            }
    drop_missing_fused(optimizers)


def _check_steps(wrapper: nn.Module, model: nn.Module) -> None:
    """Whether the user's own wrapper has the steps that the model has.

    Raises:
        TypeError: it lacks one.
    """
    lacking = [name for name in dir(type(model)) if name.endswith('_step') and not hasattr(wrapper, name)]
    if lacking:
        raise WrongType(
            f'model_wrapper: {type(wrapper).__name__} has no {lacking[0]}, which {type(model).__name__} has: let it '
            "inherit from runnerkit.parallel.steps.Steps as well, or name one of runnerkit's: 'DDP', 'FSDP2'"
        )
