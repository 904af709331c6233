"""What both wrappers do with calls of a model's steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from runnerkit.parallel.scatter import to_device

if TYPE_CHECKING:
    _Base = nn.Module  # what every wrapper is besides
else:
    _Base = object


class Steps(_Base):
    """The part of a wrapper that hands ``train_step``, ``val_step`` and any other ``<mode>_step`` on to the model."""

    module: nn.Module

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

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run a step that trains; a wrapper that synchronises gradients does it here."""
        return self._direct(name, *inputs, **kwargs)

    def _direct(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._moved(inputs, kwargs)
        call: Callable[..., Any] = self.module if name == 'forward' else getattr(self.module, name)
        return call(*inputs, **kwargs)

    def _moved(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        device = self._model_device()
        return (inputs, kwargs) if device is None else (to_device(inputs, device), to_device(kwargs, device))

    def _model_device(self) -> torch.device | None:
        """Where the model wants its batches; None: where they are."""
        raise NotImplementedError
