"""What differs between the versions of torch that runnerkit runs on. Nothing else asks what a torch can do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from inspect import signature
from typing import Any


def shards_function(name: str) -> Callable[..., Any]:
    """``save`` or ``load`` of `torch.distributed.checkpoint`. In torch 2.6 only those before them take ``no_dist``."""
    from torch.distributed import checkpoint as dcp

    function = getattr(dcp, name)
    return function if 'no_dist' in signature(function).parameters else getattr(dcp, f'{name}_state_dict')


def second_connection(store: Any) -> Any:
    """Return another connection to ``store``, the same on all ranks. The stores of torch 2.6 have no ``clone``.

    There, the keys begin with the number of the launcher's attempt, since a restarted run may find the store of the
    former one.
    """
    from torch.distributed import PrefixStore, TCPStore

    if hasattr(store, 'clone'):
        return store.clone()
    timeout = store.timeout
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        store = TCPStore(store.host, store.port, is_master=False, wait_for_workers=False, timeout=timeout)
    return PrefixStore(f'attempt_{os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")}', store)


def compile_defaults() -> dict[str, Any]:
    """Arguments of `torch.compile`: each compiled module has its own limit of eight variants (shapes and modes).

    An older torch has one limit for all modules of a class, and does not compile further variants.
    """
    import torch

    return {'isolate_recompiles': True} if 'isolate_recompiles' in signature(torch.compile).parameters else {}


def accelerator_errors() -> tuple[type[Exception], ...]:
    """The class of errors of an accelerator, which an older torch does not have: it raises RuntimeErrors."""
    import torch

    return (torch.AcceleratorError,) if hasattr(torch, 'AcceleratorError') else ()


def shards_exactly() -> bool:
    """Whether FSDP2 computes with this torch what one process would, also after a resume."""
    from torch.distributed import fsdp

    return hasattr(getattr(fsdp, 'FSDPModule', None), 'reset_iter_state')


def check_sharding() -> None:
    """Raise an error unless `shards_exactly`."""
    import torch

    if not shards_exactly():
        raise RuntimeError(
            f'FSDP2 needs torch 2.13 or later, but this is {torch.__version__}. Before, a step fails on CPUs (2.6) or '
            'computes other weights (2.8), and a failed one cannot be undone. Use DDP, or upgrade torch.'
        )


def destroy_group(group: Any = None) -> None:
    """Leave ``group``, or all. Before torch 2.8, that waits for Gloo's threads without releasing the interpreter, which
    one of them may still need to drop the tensor of its last sum."""
    import torch

    if torch.__version__ < '2.8':
        time.sleep(0.1)  # far more than such a thread needs
    torch.distributed.destroy_process_group(group)
