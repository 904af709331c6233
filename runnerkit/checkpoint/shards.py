"""Sharded state: the one place that knows how tensors lie over several processes.

A checkpoint, sharded or not, is the same nested dict. Here its large tensors are taken out of it, so that each process
writes its own part of them, and put back when it is read.

`torch.distributed.checkpoint.state_dict` is not used (torch 2.13). Its getter makes the state of an optimizer that has
none by a step of it, so that Adam continues from step 1 and a save before the first update changes the run; it fails
with LBFGS and with parameters that are not in the model, and its setter refuses an optimizer some of whose parameters
have had no gradient yet. It names an optimizer's parameters, where MMCV's files number them and `convert` needs no
model for that; and of a model it gives what `Module.state_dict` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from runnerkit.checkpoint.plain import plain_checkpoint
from runnerkit.parallel.dtensors import is_dtensor, local_part, stacked
from runnerkit.parallel.wrappers import held_by_optimizer

#: Where a checkpoint says which tensors lie in other files.
PLACES = 'sharded'
#: In a place: the state of each rank.
EACH = '*'

#: What of a checkpoint may be large.
_IN_PARTS = ('state_dict', 'optimizer')

#: Keys from the top of a checkpoint down to a value.
Place = tuple[Any, ...]


class Parts(NamedTuple):
    """What one process writes of a checkpoint; see `runnerkit.checkpoint.folder.write_folder`."""

    tensors: dict[str, Tensor]
    local: dict[str, Tensor]
    rest: dict[str, Any] | None


def taken_apart(checkpoint: Mapping[str, Any], below: Place = ()) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take the tensors out of a checkpoint of which each process writes its own part.

    These are the weights and the optimizers' states, except single numbers, sparse and quantized tensors. Of anything
    else in a checkpoint, such as the states of ranks, it is the `DTensor` in the part that is given with its place.
    """
    tensors: dict[str, Tensor] = {}
    places: dict[str, Place] = {}

    def apart(value: Any, place: Place) -> Any:
        if isinstance(value, Tensor):
            is_small = value.dim() == 0 or place[0] not in _IN_PARTS
            if not is_dtensor(value) and (is_small or value.layout is not torch.strided or value.is_quantized):
                return value
            name = '.'.join(map(str, place))
            while name in tensors:  # another place may read the same: b.c in a, and c in a.b
                name += "'"
            tensors[name], places[name] = value, place
            return None
        if isinstance(value, Mapping):
            items = {key: apart(item, (*place, key)) for key, item in value.items()}
            return _like_mapping(value, items)
        if isinstance(value, list):
            return [apart(item, (*place, i)) for i, item in enumerate(value)]
        return value

    rest = {
        key: apart(value, (*below, key)) if below or key in _IN_PARTS else value for key, value in checkpoint.items()
    }
    return tensors, {**rest, PLACES: places}


def parts_to_write(
    checkpoint: Mapping[str, Any], tensors: Mapping[str, Tensor], places: Mapping[str, Place], is_first: bool
) -> Parts:
    """What this process writes of ``checkpoint``, with further ``tensors`` that belong in its ``places``."""
    large, rest = taken_apart(checkpoint)
    rest = plain_checkpoint(rest) if is_first else rest
    rest[PLACES].update(places)
    large = {**tensors, **large}
    return Parts(large, {key: local_part(tensor) for key, tensor in large.items()}, rest if is_first else None)


def put_together(rest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inverse of `taken_apart`; the containers in ``rest`` are filled, those that it lacks are left out."""
    whole = {key: value for key, value in rest.items() if key != PLACES}
    for name, place in rest.get(PLACES, {}).items():
        if name not in tensors:
            continue
        try:
            for holder in _holders(whole, tuple(place[:-1])):
                holder[place[-1]] = tensors[name]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f'the checkpoint has no place for its tensor {name!r}') from error
    return whole


def _holders(value: Any, place: Place) -> Iterator[Any]:
    """The containers at ``place``: one, or with `EACH` one for each rank."""
    if not place:
        yield value
        return
    first, below = place[0], place[1:]
    for item in value if first == EACH else [value[first]]:
        yield from _holders(item, below)


def _like_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """``items`` in a mapping of the kind of ``value``, for those kinds that have attributes."""
    metadata = getattr(value, '_metadata', None)
    if metadata is None:
        return items
    from collections import OrderedDict

    ordered = OrderedDict(items)
    ordered._metadata = metadata  # type: ignore[attr-defined]
    return ordered


def layout_of(
    weights: Mapping[str, Any], optimizers: Mapping[str, Optimizer], twin: Callable[[str], str]
) -> dict[Place, Tensor]:
    """The tensors whose layout over the processes those of a checkpoint are to get, by place; only `DTensor`."""
    layout: dict[Place, Tensor] = {}
    for name, value in weights.items():
        if is_dtensor(value):
            layout['state_dict', name] = layout['state_dict', twin(name)] = value
    parameters = {name: held_by_optimizer(optimizer) for name, optimizer in optimizers.items()}
    for name, listed in parameters.items():
        above: Place = ('optimizer', name) if name else ('optimizer',)
        layout |= {(*above, 'state', index): p.detach() for index, p in enumerate(listed) if is_dtensor(p)}
    for name, listed in {'': [p for listed in parameters.values() for p in listed], **parameters}.items():
        for index, parameter in enumerate(listed):
            if is_dtensor(parameter):  # the gradients that each rank has kept to itself
                nothing = torch.empty(1, dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)
                layout['runnerkit', 'ranks', EACH, 'updates', name, 'kept', index] = stacked(nothing, parameter)
    return layout
