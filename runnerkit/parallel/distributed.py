"""The wrapper for several processes, one device each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS


@MODULE_WRAPPERS.register_module()
class MMDistributedDataParallel(Steps, nn.parallel.DistributedDataParallel):
    """torch's DistributedDataParallel for models with steps; takes its arguments.

    Steps that train run through its ``forward``, so that everything it does around a forward pass (buckets, buffers,
    hooks, ``no_sync``) is done around the step. What happens without gradients, ``val_step`` and evaluation, calls the
    model directly: ranks do not wait for each other there, so that they may have different numbers of batches.
    """

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model; with gradients, through DistributedDataParallel."""
        if not torch.is_grad_enabled():
            return self._direct('forward', *inputs, **kwargs)
        inputs, kwargs = self._moved(inputs, kwargs)
        return super().forward(*inputs, **kwargs)

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._direct(name, *inputs, **kwargs)
        with _Redirected(self.module, name):
            return self(*inputs, **kwargs)

    def _model_device(self) -> torch.device | None:
        if self.device_ids:
            return torch.device(self.device_type, self.device_ids[0])
        first = next(self.module.parameters(), None)
        return None if first is None else first.device


class _Redirected:
    """The next call of ``module`` runs its method ``name`` instead of ``forward``; calls within that one do not."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name

    def __enter__(self) -> None:
        self.own = self.module.__dict__.get('forward')
        self.module.forward = self._run

    def __exit__(self, *_: Any) -> None:
        if self.own is None:
            self.module.__dict__.pop('forward', None)
        else:
            self.module.forward = self.own

    def _run(self, *inputs: Any, **kwargs: Any) -> Any:
        self.__exit__()
        return getattr(self.module, self.name)(*inputs, **kwargs)
