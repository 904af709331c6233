"""A field of a sample with a note of how a batch is to be made of it."""

from __future__ import annotations

import copy
from typing import Any

import torch

from runnerkit.utils.exceptions import WrongValue


class DataContainer:
    """What a data set wraps a field in when batches of it are no ordinary stacks.

    Three kinds are told apart by `collate`, and all are unpacked by the wrappers of `runnerkit.parallel`:

    - ``cpu_only``: anything (names, sizes, masks as objects): it is put in a list, and stays where it is.
    - ``stack``: tensors that may differ in size: they are padded at their ends to the largest and stacked.
    - neither: tensors that cannot be stacked, such as boxes: a list of them, each of which goes to the device.

    Args:
        data: the field.
        stack: make one tensor of a batch's fields.
        padding_value: what fills the ends.
        cpu_only: leave the field where it is.
        pad_dims: how many of the last dimensions may differ, 1, 2 or 3; None: they are stacked as they are.

    Raises:
        ValueError: another ``pad_dims``.
    """

    def __init__(
        self,
        data: Any,
        stack: bool = False,
        padding_value: int = 0,
        cpu_only: bool = False,
        pad_dims: int | None = 2,
    ) -> None:
        if pad_dims not in (None, 1, 2, 3):
            raise WrongValue(f'pad_dims must be None, 1, 2 or 3, but got {pad_dims!r}')
        self._data = data
        self._stack = stack
        self._padding_value = padding_value
        self._cpu_only = cpu_only
        self._pad_dims = pad_dims

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.data!r})'

    def __len__(self) -> int:
        return len(self._data)

    @property
    def data(self) -> Any:
        """The field; of a batch, a list with an entry for each device."""
        return self._data

    @property
    def datatype(self) -> type | str:
        """A tensor's type as text (``'torch.FloatTensor'``), the class of anything else."""
        return self.data.type() if isinstance(self.data, torch.Tensor) else type(self.data)

    @property
    def cpu_only(self) -> bool:
        """Whether the field stays where it is."""
        return self._cpu_only

    @property
    def stack(self) -> bool:
        """Whether a batch's fields become one tensor."""
        return self._stack

    @property
    def padding_value(self) -> int:
        """What fills the ends of smaller tensors."""
        return self._padding_value

    @property
    def pad_dims(self) -> int | None:
        """How many of the last dimensions may differ."""
        return self._pad_dims

    def size(self, *args: Any, **kwargs: Any) -> Any:
        """The tensor's ``size``.

        Raises:
            AttributeError: the field is no tensor.
        """
        return self._tensor('size').size(*args, **kwargs)

    def dim(self) -> int:
        """The tensor's number of dimensions.

        Raises:
            AttributeError: the field is no tensor.
        """
        return self._tensor('dim').dim()

    def pin_memory(self) -> DataContainer:
        """The container with its tensors in page-locked memory, as a loader with ``pin_memory=True`` asks for; one that
        is ``cpu_only`` itself."""
        if self.cpu_only:
            return self
        pinned = copy.copy(self)
        pinned._data = _pinned(self.data)
        return pinned

    def _tensor(self, wanted: str) -> torch.Tensor:
        if isinstance(self.data, torch.Tensor):
            return self.data
        raise AttributeError(f'{type(self).__name__} has no attribute {wanted} for type {self.datatype}')


def _pinned(data: Any) -> Any:
    if isinstance(data, list):
        return [_pinned(each) for each in data]
    return data.pin_memory() if isinstance(data, torch.Tensor) else data
