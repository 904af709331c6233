"""What both wrappers do with calls of a model's steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from runnerkit.parallel.scatter_gather import scatter_kwargs, to_device

if TYPE_CHECKING:
    _Base = nn.Module  # what every wrapper is besides
else:
    _Base = object


class Steps(_Base):
    """The part of a wrapper that hands ``train_step``, ``val_step`` and any other ``<mode>_step`` on to the model.

    What a call gives to the wrapper goes through `scatter` first; the model gets it on its device, with every
    `runnerkit.parallel.DataContainer` unpacked.
    """

    module: nn.Module
    dim: int = 0
    device_ids: Any = None

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """The model's ``train_step``, with the batch on its device."""
        return self._step('train_step', *inputs, **kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """The model's ``val_step``, with the batch on its device; ranks do not wait for each other."""
        return self._direct('val_step', *inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.endswith('_step') and hasattr(self.module, name):
                return partial(self._step, name)
            raise

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Two tuples, with the arguments of a call for each device; ``[-1]`` leaves tensors where they are."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run a step that trains; a wrapper that synchronises gradients does it here."""
        return self._direct(name, *inputs, **kwargs)

    def _direct(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._moved(inputs, kwargs)
        call: Callable[..., Any] = self.module if name == 'forward' else getattr(self.module, name)
        return call(*inputs, **kwargs)

    def _moved(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Moved while containers are still closed: what one keeps on the CPU is a tensor like any other afterwards.
        device = self._model_device()
        if device is not None:
            inputs, kwargs = to_device(inputs, device), to_device(kwargs, device)
        shares, kwargs_shares = self.scatter(inputs, kwargs, self.device_ids or [-1])
        return (shares[0], kwargs_shares[0]) if shares else ((), {})  # without arguments there is nothing to share

    def _model_device(self) -> torch.device | None:
        """Where the model wants its batches; None: where they are."""
        raise NotImplementedError
