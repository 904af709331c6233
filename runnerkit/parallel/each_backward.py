"""Averages gradients over all ranks at the end of each backward pass, of those parameters that it has reached."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from runnerkit.distributed import allreduce_grads, get_dist_info

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
