"""Which layer an error of torch comes from, what it got, and what is probably wrong: notes on errors that pass by.

Nothing here is called unless something has failed.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from runnerkit.utils.torch_versions import accelerator_errors

#: What a layer calls its number of input channels, and along which dimension of a batch they lie.
_CHANNELS: dict[str, int] = {'in_features': -1, 'num_features': 1, 'in_channels': 1}

#: What these settings count.
_UNITS = {'in_features': 'features', 'num_features': 'features', 'in_channels': 'channels'}

#: What is said of an error of a GPU, which may belong to something that ran before.
_LATE = 'a GPU reports errors late, so another operation may be the cause: use --device cpu to find it'


def note_layer(error: Exception, network: nn.Module, where: str = '') -> None:
    """Note on ``error`` which layer of ``network`` raised it, and the shapes that the layer got."""
    layer, name, given = _failed(error.__traceback__, network)
    if layer is None:
        return
    hint = _LATE if _is_of_gpu(error) else _unfit(error, layer, given)
    got = f', input {", ".join(map(describe_value, given))}' if given else ''
    error.add_note(f'while running {name} ({type(layer).__name__}){got}{f": {hint}" if hint else ""}{where}')


def note_loss(error: Exception, loss: Any, outputs: Any, target: Any, where: str = '') -> None:
    """Note on ``error`` what the loss got, and what the network or the data set probably should give."""
    late = _is_of_gpu(error)
    name = getattr(loss, '__name__', type(loss).__name__)
    got = f'outputs {describe_value(outputs)}, targets {describe_value(target)}'
    limits = None if late else _limits(target)
    if limits is not None:
        got += f' {limits[0]:g}…{limits[1]:g}'
    hint = _LATE if late else _needed(error, outputs, target, limits)
    error.add_note(f'in the loss {name}: {got}{f": {hint}" if hint else ""}{where}')


def note_metric(error: Exception, name: str, metric: Any, preds: Any, target: Any) -> None:
    """Note on ``error`` which metric raised it, and what it got."""
    classes = getattr(metric, 'num_classes', None)
    settings = '' if classes is None else f'(num_classes={classes})'
    got = f'preds {describe_value(preds)}, target {describe_value(target)}'
    limits = None if _is_of_gpu(error) else _limits(target)
    if limits is not None:
        got += f' {limits[0]:g}…{limits[1]:g}'
    hint = _shape_hint(preds, target)
    error.add_note(f'in the metric {name!r}, {type(metric).__name__}{settings}: {got}{f": {hint}" if hint else ""}')


def describe_value(value: Any) -> str:
    """A tensor's shape and type, ``'(16, 2) float32'``; of a list or dict, that of what it holds.

    Nothing is read from a GPU.
    """
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix('torch.')
        return f'{tuple(value.shape)} {kind}' + ('' if value.device.type == 'cpu' else f' on {value.device}')
    if isinstance(value, Mapping):
        return f'a {type(value).__name__} of {", ".join(map(repr, list(value)[:5])) or "nothing"}'
    if isinstance(value, list | tuple):
        held = f' {type(value[0]).__name__}' if value else ''
        return f'a {type(value).__name__} of {len(value)}{held}'
    return f'a {type(value).__name__}'


def _failed(trace: TracebackType | None, network: nn.Module) -> tuple[nn.Module | None, str, list[Any]]:
    """The innermost module of ``network`` in a traceback, its name, and its arguments."""
    names = {id(module): name for name, module in network.named_modules() if name}
    layer: nn.Module | None = None
    given: list[Any] = []
    for frame, _ in traceback.walk_tb(trace):
        info = inspect.getargvalues(frame)
        owner = info.locals.get('self')
        if id(owner) not in names:
            continue
        if owner is not layer:
            layer, given = owner, []
        if info.varargs and not given:  # torch's __call__ gets (*args, **kwargs), before `forward` rebinds anything
            given = [*info.locals[info.varargs], *info.locals.get(info.keywords or '', {}).values()]
    return layer, names.get(id(layer), '').replace('_orig_mod.', ''), given


def _unfit(error: Exception, layer: nn.Module, given: list[Any]) -> str:
    """What of ``layer`` does not fit its input; empty if nothing is known."""
    x = given[0] if given else None
    if not isinstance(x, Tensor):
        return ''
    weight = next((each for each in layer.parameters(recurse=False)), None)
    if weight is not None and x.device != weight.device:
        return f'its weights are on {weight.device}'
    for setting, dim in _CHANNELS.items():
        wanted = getattr(layer, setting, None)
        if isinstance(wanted, int) and -x.dim() <= dim < x.dim() and x.shape[dim] != wanted:
            fits = f'set {setting}={x.shape[dim]}'
            advice = fits if layer.training else f'give data with {wanted}, or {fits} and train'
            return f'got {x.shape[dim]} {_UNITS[setting]}, expects {wanted}: {advice}'
    if isinstance(layer, _BatchNorm) and x.shape[:1] == (1,) and 'more than 1 value per channel' in str(error):
        return (
            'the batch has one sample, of which no variance can be computed: set drop_last=True in '
            'data.train_dataloader, or another batch size'
        )
    if weight is not None and x.dtype != weight.dtype and 'type' in str(error) and not isinstance(layer, nn.Embedding):
        return f'its weights are {str(weight.dtype).removeprefix("torch.")}: convert the input to that type'
    if not isinstance(layer, nn.Embedding):
        return ''
    rows, limits = layer.num_embeddings, _limits(x)
    if limits is not None and not 0 <= limits[0] <= limits[1] < rows:
        return f'the input has indices {limits[0]:g}…{limits[1]:g}, but num_embeddings={rows}'
    return ''


def _needed(error: Exception, outputs: Any, target: Any, limits: tuple[float, float] | None) -> str:
    """What would probably fit; empty if nothing is known."""
    if not isinstance(outputs, Tensor):
        return 'choose one of the outputs with outputs=… of Supervised'
    if not isinstance(target, Tensor):
        return 'return the target as a number or a tensor from the data set, or choose it with targets=… of Supervised'
    of_type = 'type' in str(error) or 'Long' in str(error)
    if outputs.shape == target.shape:
        return '' if target.is_floating_point() or not of_type else 'give targets of float32: target.float()'
    of_classes = 'same s' not in str(error)  # other losses ask for the same shape, or size
    if of_classes and outputs.dim() == target.dim() == 2 and target.shape[1] == 1 < outputs.shape[1]:
        return 'class indices have no last dimension: target.squeeze(1)'
    if outputs.dim() != target.dim() + 1 or outputs.shape[:1] != target.shape[:1]:
        return _shape_hint(outputs, target)
    classes = outputs.shape[1]
    if limits is not None and any(words in str(error) for words in ('bounds', 'range', 'smaller than num_classes')):
        if limits[0] < 0:
            return 'class indices begin at 0'
        if limits[1] >= classes:
            return (
                f'the network needs {limits[1] + 1:g} outputs for these classes, but has {classes}; or use class '
                f'indices 0…{classes - 1}'
            )
    needs_long = target.is_floating_point() and of_type
    return _shape_hint(outputs, target) or ('class indices must be int64: target.long()' if needs_long else '')


def _shape_hint(outputs: Any, target: Any) -> str:
    """How ``[n, 1]`` and ``[n]`` get the same shape; empty if they are something else."""
    if not isinstance(outputs, Tensor) or not isinstance(target, Tensor):
        return ''
    if outputs.dim() > 1 and outputs.shape == (*target.shape, 1):
        return 'give both the same shape: target.unsqueeze(-1), or squeeze(-1) at the end of the network'
    if target.dim() > 1 and target.shape == (*outputs.shape, 1):
        return 'give both the same shape: target.squeeze(-1), or unsqueeze(-1) at the end of the network'
    return ''


def _limits(value: Any) -> tuple[float, float] | None:
    """The least and the greatest value of a tensor; None if it has none that can be read."""
    if not isinstance(value, Tensor) or value.numel() == 0 or value.is_complex():
        return None
    try:
        low, high = value.detach().aminmax()
        return low.item(), high.item()
    except RuntimeError:  # a tensor without values, or a GPU that has failed before
        return None


def _is_of_gpu(error: Exception) -> bool:
    """Whether the error is one of a GPU, after which it answers nothing more."""
    return isinstance(error, accelerator_errors()) or any(
        word in str(error) for word in ('CUDA error', 'CUBLAS', 'CUDNN_STATUS')
    )
