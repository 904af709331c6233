"""The bits of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def view_bits(tensor: Tensor) -> Tensor:
    """``tensor`` as integers of the same size, which share its memory, so that -0 and each NaN have their own value.

    Args:
        tensor: of any strides. A complex one gets a last dimension of 2. Not quantized, and all of it on this rank
            (see `runnerkit.parallel.dtensors.local_part`).
    """
    plain = tensor.detach().resolve_conj().resolve_neg()  # a copy of those whose numbers differ from their memory
    real = torch.view_as_real(plain) if plain.is_complex() else plain
    return real.view(_INTEGERS[real.element_size()])
