"""Restores, in a resumed run, the order in which DistributedDataParallel sums gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from runnerkit.parallel.dtensors import is_dtensor, is_sharded
from runnerkit.parallel.wrappers import ReplacedModule, named_buffers, without_compile

#: Modules whose gradients may be sparse.
_TABLES = (nn.Embedding, nn.EmbeddingBag)


class GradientOrders:
    """The orders in which gradients became ready in the first synchronised backward of each DDP wrapper in a model.

    torch's DistributedDataParallel sends gradients in buckets. After the first backward that it synchronises, it
    rebuilds the buckets in the order in which the gradients became ready. With three ranks or more, the order of a
    summation depends on a gradient's position in its bucket. A resumed process that starts with the original buckets
    would therefore differ in the last bits. This class records the order and restores it in the resumed process,
    without a step of the model: it gives DDP gradients of zeros in that order.

    Args:
        model: a DDP wrapper, or a module that contains some.
    """

    def __init__(self, model: nn.Module) -> None:
        named = ((without_compile(name), part) for name, part in model.named_modules())
        wrappers = {name: part for name, part in named if isinstance(part, DistributedDataParallel)}
        self.model = model
        self._orders: dict[str, list[str]] = {}
        self._wrappers = {name: wrapper for name, wrapper in wrappers.items() if _sums_in_some_order(wrapper)}
        self._waiting = {name: wrapper for name, wrapper in self._wrappers.items() if _packs_anew(wrapper)}

    def state_dict(self) -> dict[str, list[str]]:
        """Return for each wrapper, by its name in the model, the names of its parameters in that order.

        Wrappers that have not synchronised a backward yet, and those whose sums do not depend on the order, are not
        included.
        """
        return {name: list(order) for name, order in self._orders.items()}

    def start(self, orders: Mapping[str, Sequence[str]]) -> None:
        """Restore the orders of the resumed run; for wrappers without one, start to record it.

        This happens once for each wrapper, because DDP rebuilds buckets only once. All ranks call this together.
        """
        waiting, self._waiting = self._waiting, {}
        orders = {without_compile(name): order for name, order in orders.items()}
        for name, wrapper in waiting.items():
            if name in orders:
                self._orders[name] = list(orders[name])
                bring_about(wrapper, orders[name])
            else:
                self._record(name, wrapper)

    def doubts(self) -> list[str]:
        """Return which sums may not be exact after a resume."""
        return [
            f'{type(wrapper).__name__}: with static_graph or mixed_precision its buckets are rebuilt after a '
            f'resume, so that sums of gradients over {_size(wrapper)} ranks may differ in the last bits'
            for wrapper in self._wrappers.values()
            if not _packs_anew(wrapper)
        ]

    def _record(self, name: str, wrapper: DistributedDataParallel) -> None:
        handles: list[RemovableHandle] = []
        seen: set[str] = set()

        def ready(parameter: str) -> None:
            if not wrapper.require_backward_grad_sync:
                return
            order = self._orders.setdefault(name, [])
            if parameter not in seen:
                seen.add(parameter)
                order.append(parameter)
                return
            for handle in handles:  # the next backward has begun
                handle.remove()

        for each, parameter in _trained_parameters(wrapper):
            handles.append(parameter.register_post_accumulate_grad_hook(lambda _, each=each: ready(each)))


def own_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the buffers that this rank has for itself, on the CPU: none where DDP broadcasts those of rank 0.

    Without DDP's forward, in which it does that, networks of the model may have been called directly. In a sharded
    model nothing broadcasts them; those that are sharded themselves are in its state dict.
    """
    wrappers = [part for part in model.modules() if isinstance(part, DistributedDataParallel)]
    if not is_sharded(model) and all(
        wrapper.broadcast_buffers and not _does_without_buckets(wrapper) for wrapper in wrappers
    ):
        return {}
    return {
        name: buffer.detach().cpu().clone() for name, buffer in named_buffers(model).items() if not is_dtensor(buffer)
    }


def bring_about(wrapper: DistributedDataParallel, order: Sequence[str]) -> None:
    """Let DDP rebuild its buckets in ``order``; gradients and buffers are not changed. All ranks call it together."""
    place = {without_compile(name): i for i, name in enumerate(order)}
    parameters = sorted(_trained_parameters(wrapper), key=lambda pair: place.get(pair[0], len(place)))
    sparse = {id(part.weight) for part in wrapper.module.modules() if isinstance(part, _TABLES) and part.sparse}
    buffers = [(buffer, buffer.clone()) for buffer in wrapper.module.buffers()]
    gradients = [(parameter, parameter.grad) for _, parameter in parameters]
    syncs_buffers = wrapper.require_forward_param_sync  # at the next forward
    try:
        for _, parameter in parameters:
            parameter.grad = None
        with torch.enable_grad():
            _forward_without_model(wrapper)
            for _, parameter in parameters:
                zeros = torch.zeros_like(parameter)
                parameter.backward(zeros.to_sparse(1) if id(parameter) in sparse else zeros)
                parameter.grad = None
            # Let DDP rebuild the buckets now, not at the next forward. With gradient_as_bucket_view it would then copy
            # the gradients of an unfinished cycle into them, and divide by the number of ranks with other rounding.
            with wrapper.no_sync():
                _forward_without_model(wrapper)
    finally:
        wrapper.require_forward_param_sync = syncs_buffers
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _forward_without_model(wrapper: DistributedDataParallel) -> None:
    replaced = ReplacedModule(wrapper, lambda *inputs: None)
    try:
        DistributedDataParallel.forward(wrapper, None)
    finally:
        replaced.remove()


def _sums_in_some_order(wrapper: DistributedDataParallel) -> bool:
    """Whether sums depend on their order (not with two ranks), and buckets are rebuilt at all."""
    if _does_without_buckets(wrapper):
        return False
    return _size(wrapper) > 2 and (wrapper.static_graph or not wrapper.find_unused_parameters)


def _does_without_buckets(wrapper: DistributedDataParallel) -> bool:
    """Whether `runnerkit.parallel.distributed.BackwardAverages` averages the gradients, in the order of the model."""
    return bool(getattr(wrapper, 'averages_each_backward', False))


def _packs_anew(wrapper: DistributedDataParallel) -> bool:
    return not wrapper.static_graph and wrapper.mixed_precision is None


def _size(wrapper: DistributedDataParallel) -> int:
    return int(wrapper.process_group.size())


def _trained_parameters(wrapper: DistributedDataParallel) -> list[tuple[str, nn.Parameter]]:
    return [(without_compile(name), each) for name, each in wrapper.module.named_parameters() if each.requires_grad]
