"""Tensors that are spread over processes (`torch.distributed.tensor.DTensor`), as in models under FSDP2."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.parallel.wrappers import held_by_optimizer


def is_dtensor(value: Any) -> bool:
    """Whether ``value`` is a tensor of which this process has a part (`torch.distributed.tensor.DTensor`)."""
    # Without the module there are none, and importing it takes a second or two.
    module = sys.modules.get('torch.distributed.tensor')
    return module is not None and isinstance(value, module.DTensor)


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters of ``model`` are spread over processes, as `torch.distributed.fsdp.fully_shard` does it.

    Also at moments at which each process has gathered all of them.
    """
    if not isinstance(model, nn.Module):
        return False  # a wrapper of the user's that only passes calls on
    fsdp = getattr(sys.modules.get('torch.distributed.fsdp'), 'FSDPModule', ())
    return any(map(is_dtensor, model.parameters())) or any(isinstance(part, fsdp) for part in model.modules())


def local_part(tensor: Tensor) -> Tensor:
    """The part of ``tensor`` that this process has; all of an ordinary tensor. It shares its memory."""
    local: Tensor = tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]
    return local.detach()


def all_of(tensor: Any) -> Tensor:
    """``tensor`` itself; of one that is spread over processes, all of it, for which every rank calls this."""
    found: Tensor = tensor.full_tensor() if is_dtensor(tensor) else tensor
    return found


def stacked(value: Tensor, like: Any) -> Any:
    """A `DTensor` in which each rank of the mesh of ``like`` has its ``value``, with a dimension more, the first."""
    from torch.distributed.tensor import DTensor, Shard

    return DTensor.from_local(value.detach()[None], like.device_mesh, [Shard(0)], run_check=False)


def own_of_stacked(value: Tensor, rank: int, world_size: int) -> Tensor:
    """What the rank ``rank`` has put into ``value`` (see `stacked`); the mean if there were not ``world_size`` ranks.

    If this process has only a part of ``value``, all ranks call it.
    """
    if value.shape[0] != world_size:
        return all_of(value).mean(0)
    return value.to_local()[0] if is_dtensor(value) else value[rank]  # type: ignore[attr-defined]


def laid_out_like(value: Tensor, target: Any) -> Tensor:
    """``value`` spread over the processes as ``target`` is, if that is a `DTensor` and ``value`` is not.

    No process talks to another one: each keeps its part of what it has.
    """
    if not is_dtensor(target) or is_dtensor(value) or value.shape != target.shape:
        return value
    from torch.distributed.tensor import DTensor, Replicate

    mesh = target.device_mesh
    whole = value.to(target.device, target.dtype if value.is_floating_point() else value.dtype)
    replicated = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    spread = replicated.redistribute(placements=target.placements)
    # A part may be a view of the whole: without a copy, each process would keep all of it.
    return DTensor.from_local(
        spread.to_local().clone(),
        mesh,
        target.placements,
        run_check=False,
        shape=target.shape,
        stride=target.stride(),
    )


def optimizer_state_like(state: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """The ``state`` of an optimizer (its `state_dict`), laid out over the processes as its parameters are."""
    parameters = held_by_optimizer(optimizer)
    if not any(map(is_dtensor, parameters)):
        return dict(state)
    moved = {
        index: {
            name: laid_out_like(value, parameters[index]) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        if isinstance(index, int) and index < len(parameters)
        else values
        for index, values in state['state'].items()
    }
    return {**state, 'state': moved}
