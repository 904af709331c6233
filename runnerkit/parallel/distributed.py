"""The wrapper for several processes, one device each, and averages of what single backward passes reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from runnerkit.distributed import allreduce_grads, broadcast_buffers, get_dist_info
from runnerkit.parallel.scatter_gather import scatter_kwargs
from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS, ReplacedModule

#: MiB in one message, as in DistributedDataParallel.
_BUCKET_MB = 25


class BackwardAverages:
    """For models whose losses reach different parts of them, as in a GAN: only what a backward pass reaches is sent.

    DistributedDataParallel expects that each backward pass reaches all parameters that require gradients. This class
    needs no such thing: at the end of a backward pass it averages the gradients of the parameters that the pass has
    reached, in the order of the model. Averages of averages and new gradients are right, too, so that gradients may be
    accumulated over several passes. Nothing is sent while the pass is computed, which is slower in large models.

    A pass must reach the same parameters on all ranks, unless ``ranks_may_differ``.

    Args:
        model: whose parameters' gradients are averaged, those that require gradients now.
        ranks_may_differ: ask in each pass which parameters any of the ranks has reached, and take zeros where a rank
            has not. This waits for the device.

    Attributes:
        is_on: whether gradients are averaged.
    """

    def __init__(self, model: nn.Module, ranks_may_differ: bool = False) -> None:
        self.is_on = False
        self.ranks_may_differ = ranks_may_differ
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._numbers = {id(parameter): number for number, parameter in enumerate(self._parameters)}
        self._reached: set[int] = set()
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._reach)

    def begin(self) -> None:
        """Forget a backward pass that has failed."""
        self._reached.clear()

    def _reach(self, parameter: Tensor) -> None:
        if not self.is_on:
            return
        if not self._reached:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._average)
        self._reached.add(self._numbers[id(parameter)])

    @torch.no_grad()
    def _average(self) -> None:
        numbers = sorted(self._reached)
        self._reached.clear()
        if self.ranks_may_differ:
            numbers = self._reached_by_any(numbers)
        parameters = [self._parameters[number] for number in numbers]
        allreduce_grads([each for each in parameters if not _is_sparse(each)], bucket_size_mb=_BUCKET_MB)
        for parameter in filter(_is_sparse, parameters):
            mean = parameter.grad.coalesce() / get_dist_info()[1]  # type: ignore[union-attr]
            dist.all_reduce(mean)
            parameter.grad = mean

    def _reached_by_any(self, numbers: list[int]) -> list[int]:
        reached = torch.zeros(len(self._parameters), dtype=torch.uint8, device=self._parameters[0].device)
        reached[numbers] = 1
        dist.all_reduce(reached, dist.ReduceOp.MAX)
        found = reached.nonzero().flatten().tolist()
        for number in found:
            parameter = self._parameters[number]
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return found


def _is_sparse(parameter: Tensor) -> bool:
    return parameter.grad is not None and parameter.grad.is_sparse


@MODULE_WRAPPERS.register_module(name=['MMDistributedDataParallel', 'DDP'])
class MMDistributedDataParallel(Steps, nn.parallel.DistributedDataParallel):
    """torch's DistributedDataParallel for models with steps; it takes the same arguments.

    Training steps run through its ``forward``, so everything that it does around a forward pass (buckets, buffers,
    hooks, ``no_sync``) happens around the step. Forward hooks on the model see the model's own calls; those on the
    wrapper see the steps. Calls without gradients (``val_step`` and evaluation) go to the model directly. Ranks do not
    wait for each other there, so they may have different numbers of batches.

    With `averages_each_backward`, gradients are averaged at the end of each backward pass, of those parameters that it
    has reached. Runners switch this on for a run with several optimizers, or with workflow modes of the model's.
    """

    forward_is_collective = False  # without gradients
    _averages: BackwardAverages | None = None

    @property
    def averages_each_backward(self) -> bool:
        """Whether `BackwardAverages` averages the gradients, in place of DistributedDataParallel; False by default.

        ``find_unused_parameters`` then means that ranks may differ in the parameters that they reach. With a
        ``process_group`` of fewer ranks it stays False.
        """
        return self._averages is not None and self._averages.is_on

    @averages_each_backward.setter
    def averages_each_backward(self, value: bool) -> None:
        if value and self.process_group is not dist.group.WORLD:
            return
        if value and self._averages is None:
            self._averages = BackwardAverages(self.module, self.find_unused_parameters)
        if self._averages is not None:
            self._averages.is_on = value

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model, or in `_step` its step; with gradients, through DistributedDataParallel."""
        if not torch.is_grad_enabled():
            return self._direct('forward', *inputs, **kwargs)
        if self.averages_each_backward:
            return self._without_ddp('forward', *inputs, **kwargs)
        inputs, kwargs = self._moved(inputs, kwargs)
        return super().forward(*inputs, **kwargs)

    def to_kwargs(self, inputs: Any, kwargs: Any, device_id: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """`scatter` to one device."""
        return scatter_kwargs(inputs, kwargs, [device_id], dim=self.dim)

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        if self.averages_each_backward and torch.is_grad_enabled():
            return self._without_ddp(name, *inputs, **kwargs)
        replaced = ReplacedModule(self, getattr(self.module, name))  # which `forward` calls
        try:
            return self(*inputs, **kwargs)
        finally:
            replaced.remove()

    def _without_ddp(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        if self._averages is not None:
            self._averages.begin()
        if self.broadcast_buffers:
            broadcast_buffers(self.module.buffers())
        return self._direct(name, *inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Do not average the gradients of the backward passes within."""
        averages, is_on = self._averages, self.averages_each_backward
        with super().no_sync():
            if averages is not None:
                averages.is_on = False
            try:
                yield
            finally:
                if averages is not None:
                    averages.is_on = is_on

    def _model_device(self) -> torch.device | None:
        if self.device_ids:
            return torch.device(self.device_type, self.device_ids[0])
        first = next(self.module.parameters(), None)
        return None if first is None else first.device
