"""A field of a sample that says how it is collated."""

from __future__ import annotations

import copy
from typing import Any

import torch

from runnerkit.utils.exceptions import WrongValue


class DataContainer:
    """A wrapper for fields that are not simply stacked in a batch.

    `collate` knows three kinds; the wrappers of `runnerkit.parallel` unpack all of them:

    - ``cpu_only``: anything (names, sizes, masks as objects). A batch has a list of them, which stays on the CPU.
    - ``stack``: tensors that may differ in size. They are padded at their ends to the largest and stacked.
    - neither: tensors that cannot be stacked, such as boxes. A batch has a list of them, which is moved to the device.

    Args:
        data: the field.
        stack: make one tensor of a batch's fields.
        padding_value: the value of the padding.
        cpu_only: leave the field on the CPU.
        pad_dims: how many of the last dimensions may differ, 1, 2 or 3; None: none, nothing is padded.

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
        """The field; in a batch, a list with one entry per device."""
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
        """The value that smaller tensors are padded with."""
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
        """Return the container with its tensors in page-locked memory, for loaders with ``pin_memory=True``; a
        ``cpu_only`` one returns itself."""
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
