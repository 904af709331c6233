"""The base classes of the model wrappers for these accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from runnerkit.compat.mmcv.device.scatter_gather import scatter_kwargs
from runnerkit.parallel import MMDataParallel, MMDistributedDataParallel

Arguments = tuple[tuple[Any, ...], tuple[Any, ...]]


class AcceleratorDataParallel(MMDataParallel):
    """Puts a model on one accelerator, and moves the batches to it.

    Args:
        *args: those of `MMDataParallel`.
        dim: no effect (accepted for compatibility with MMCV); with one device nothing is split.
        **kwargs: those of `MMDataParallel`.

    Raises:
        RuntimeError: there is no such accelerator.
    """

    #: The kind of device, and the package that adds it to torch.
    kind: str
    package: str

    def __init__(self, *args: Any, dim: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **{'dim': dim, **kwargs})
        number = max(self.output_device, 0)
        self.src_device_obj = self._own_device(number)
        self.device_ids = [number]
        self.module.to(self.src_device_obj)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Arguments:
        """The arguments of a call on the accelerator."""
        return scatter_kwargs(inputs, kwargs, [self.src_device_obj], dim=self.dim)

    def _model_device(self) -> torch.device | None:  # type: ignore[override]
        return None  # `scatter` has already moved everything, except what belongs on the CPU

    def _own_device(self, number: int) -> torch.device:
        try:
            return torch.device(self.kind, number)
        except RuntimeError as error:
            raise RuntimeError(
                f'{type(self).__name__} needs a device {self.kind!r}, which torch does not know here: install and '
                f'import {self.package}, or use MMDataParallel ({error})'
            ) from error


class AcceleratorDistributedDataParallel(MMDistributedDataParallel):
    """`MMDistributedDataParallel` whose device numbers mean this machine's kind of accelerator."""

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Arguments:
        """Move the arguments of a call to the accelerator."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def to_kwargs(self, inputs: Any, kwargs: Any, device_id: int) -> Arguments:
        """Move the arguments of a call to the accelerator of this number."""
        return self.scatter(inputs, kwargs, [device_id])

    def _model_device(self) -> torch.device | None:
        return None if self.device_ids else super()._model_device()
