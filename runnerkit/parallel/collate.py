"""Collates samples whose fields may be `DataContainer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional
from torch.utils.data import default_collate

from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lazy import loaded_class

if TYPE_CHECKING:
    from runnerkit.parallel.data_container import DataContainer


def collate(batch: Sequence[Any], samples_per_gpu: int = 1) -> Any:
    """Collate a batch, with torch's ``default_collate`` for everything but `DataContainer`.

    A `DataContainer` field stays one. Its data become a list with one entry per ``samples_per_gpu`` samples: a list of
    their fields, or one tensor if they are stacked.

    Args:
        batch: the samples.
        samples_per_gpu: how many samples go to one device.

    Raises:
        TypeError: ``batch`` is not a sequence, or a field to be stacked is not a tensor.
        ValueError: samples that are lists differ in length, or fields to be stacked differ in dimensions other than
            the last ``pad_dims``.
    """
    if not isinstance(batch, Sequence):
        raise TypeError(f'a batch must be a sequence of samples, but got {type(batch)}')
    first = batch[0]
    if isinstance(first, loaded_class('runnerkit.parallel.data_container:DataContainer')):
        return _collate_containers(batch, samples_per_gpu)
    if isinstance(first, Mapping):
        # The first sample decides which keys the batch has.
        return {key: collate([sample[key] for sample in batch], samples_per_gpu) for key in first}
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        fields = [collate(each, samples_per_gpu) for each in zip(*batch, strict=True)]
        return type(first)(*fields) if hasattr(first, '_fields') else fields
    return default_collate(list(batch))


def _collate_containers(batch: Sequence[DataContainer], samples_per_gpu: int) -> DataContainer:
    first = batch[0]
    from runnerkit.parallel.data_container import DataContainer

    fields = [container.data for container in batch]
    groups = [fields[start : start + samples_per_gpu] for start in range(0, len(fields), samples_per_gpu)]
    if first.cpu_only:
        return DataContainer(groups, first.stack, first.padding_value, cpu_only=True)
    if first.stack:
        stacked = [_stacked(group, first) for group in groups]
        return DataContainer(stacked, first.stack, first.padding_value)
    return DataContainer(groups, first.stack, first.padding_value)


def _stacked(tensors: list[Any], like: DataContainer) -> Tensor:
    """Stack tensors, each padded at the end of its last ``pad_dims`` dimensions to the size of the largest."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise WrongType(
                f'DataContainer(stack=True) must hold a tensor, but it holds a {type(tensor).__name__}: give '
                f'torch.as_tensor(data), or cpu_only=True for what is no tensor'
            )
    if like.pad_dims is None:
        return default_collate(tensors)
    first, padded = tensors[0], like.pad_dims
    for tensor in tensors:
        if tensor.dim() <= padded or tensor.dim() != first.dim() or tensor.shape[:-padded] != first.shape[:-padded]:
            raise WrongValue(
                f'fields of the shapes {[tuple(each.shape) for each in tensors]} cannot be stacked with '
                f'pad_dims={padded}: they must have more than {padded} dimensions and agree in all but the last '
                f'{padded}'
            )
    largest = [max(tensor.shape[-i] for tensor in tensors) for i in range(1, padded + 1)]
    missing = [[side for i, size in enumerate(largest, 1) for side in (0, size - each.shape[-i])] for each in tensors]
    pairs = zip(tensors, missing, strict=True)
    return default_collate([functional.pad(tensor, sides, value=like.padding_value) for tensor, sides in pairs])
