"""How all wrappers call a model's steps, and what a step must return."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from runnerkit.parallel.scatter_gather import scatter_kwargs, to_device
from runnerkit.parallel.wrappers import unwrap
from runnerkit.utils.exceptions import WrongType

if TYPE_CHECKING:
    _Base = nn.Module  # every wrapper is a module
else:
    _Base = object


class Steps(_Base):
    """The part of a wrapper that passes ``train_step``, ``val_step`` and any other ``<mode>_step`` to the model.

    The arguments go through `scatter` first: the model gets them on its device, with every
    `runnerkit.parallel.DataContainer` unpacked.
    """

    module: nn.Module
    dim: int = 0
    device_ids: Any = None
    #: Whether batches keep their memory format; see `runnerkit.parallel.scatter`.
    keep_strides = False

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model's ``train_step`` with the batch on its device."""
        return self._step('train_step', *inputs, **kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model's ``val_step`` with the batch on its device; ranks do not wait for each other."""
        return self._direct('val_step', *inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.endswith('_step') and hasattr(self.module, name):
                return partial(self._step, name)
            raise

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Return two tuples with the arguments of a call for each device; ``[-1]`` leaves tensors where they are."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim, keep_strides=self.keep_strides)

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run a training step; a wrapper that synchronises gradients overrides this."""
        return self._direct(name, *inputs, **kwargs)

    def _direct(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._moved(inputs, kwargs)
        call: Callable[..., Any] = self.module if name == 'forward' else getattr(self.module, name)
        return call(*inputs, **kwargs)

    def _moved(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Move tensors before containers are unpacked: afterwards, cpu_only data look like other tensors.
        device = self._model_device()
        if device is not None:
            inputs, kwargs = to_device(inputs, device), to_device(kwargs, device)
        shares, kwargs_shares = self.scatter(inputs, kwargs, self.device_ids or [-1])
        return (shares[0], kwargs_shares[0]) if shares else ((), {})  # a call without arguments has no shares

    def _model_device(self) -> torch.device | None:
        """Return the device for the model's batches; None leaves them where they are."""
        raise NotImplementedError


def required_output(key: str, outputs: Mapping[str, Any], model: nn.Module | str) -> Any:
    """``outputs[key]`` of a step."""
    if key not in outputs:
        name = model if isinstance(model, str) else type(unwrap(model)).__name__
        raise KeyError(
            f"{name}'s step returned no {key!r} (it returned {sorted(outputs)}): "
            f'return dict(loss=…, log_vars=dict(…), num_samples=…)'
        )
    return outputs[key]


def check_outputs(outputs: Any, model: str) -> None:
    """Whether the step of ``model`` has returned a dict."""
    if not isinstance(outputs, dict):
        raise TypeError(
            f"{model}'s step must return a dict(loss=…, log_vars=…, num_samples=…), but it returned {outputs!r}"
        )


def check_samples(value: Any, model: str) -> None:
    """Whether ``value`` is a number of samples, the weight of what the step of ``model`` logs."""
    try:
        too_low = value < 0
    except TypeError:
        raise TypeError(f"num_samples of {model}'s step must be a number, but got {value!r}") from None
    if too_low:
        raise ValueError(f"num_samples of {model}'s step must not be negative, but got {value!r}")


def check_loss(loss: Any, model: nn.Module, optimizer: str = '') -> None:
    """Whether gradients can be computed of what the step of ``model`` returned as its loss."""
    name = type(unwrap(model)).__name__
    which = f'the loss[{optimizer!r}]' if optimizer else 'the loss'
    if not isinstance(loss, Tensor):
        raise TypeError(f"{which} of {name}'s step must be a tensor with a gradient, but got {loss!r}")
    if loss.numel() != 1:
        raise ValueError(
            f"{which} of {name}'s step must be one number, but has the shape {tuple(loss.shape)}: return its mean"
        )
    if not loss.requires_grad:
        raise ValueError(
            f"{which} of {name}'s step has no gradient: it does not depend on a parameter that requires one, or was "
            'computed with detach(), item() or no_grad()'
        )


#: Steps of every model, and of models for Lightning and MMEngine.
_OTHER_STEPS = ('train_step', 'val_step', 'training_step', 'validation_step', 'test_step', 'predict_step')


def check_step(model: nn.Module, batch_processor: Callable[..., Any] | None) -> None:
    """Whether the step has exactly one owner."""
    inner = unwrap(model)  # a wrapper has every step as far as hasattr can see
    has_step = hasattr(inner, 'train_step') or hasattr(inner, 'val_step')
    if batch_processor is not None and not callable(batch_processor):
        raise TypeError(f'batch_processor must be callable, but got {type(batch_processor)}')
    if batch_processor is not None:
        warnings.warn(
            'batch_processor is deprecated, please implement train_step() and val_step() in the model instead',
            DeprecationWarning,
            stacklevel=3,
        )
    if batch_processor is not None and has_step:
        raise RuntimeError(
            'batch_processor and model.train_step()/model.val_step() cannot be both available: keep one of them'
        )
    if batch_processor is None and not (has_step or steps_of_modes(inner)):
        raise WrongType(
            f'{type(inner).__name__} has no train_step(data, optimizer): write one that returns dict(loss=…, '
            f"log_vars=…, num_samples=…), or wrap the model: model=dict(type='Supervised', model=…, "
            "loss=dict(type='CrossEntropyLoss'))"
        )


def steps_of_modes(model: nn.Module) -> list[str]:
    """The names of the steps of ``model`` for its own workflow modes, as ``dis_step`` for ``('dis', 5)``."""
    return [name for name in dir(model) if name.endswith('_step') and name not in _OTHER_STEPS]
