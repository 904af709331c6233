"""The wrapper for several processes, one device each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from runnerkit.distributed import broadcast_buffers
from runnerkit.parallel.each_backward import BackwardAverages
from runnerkit.parallel.scatter_gather import scatter_kwargs
from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS, ReplacedModule


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
