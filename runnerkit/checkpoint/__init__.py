"""Checkpoints: their content, atomic writing, and loading without running code."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.checkpoint.content import save_checkpoint
    from runnerkit.checkpoint.integrity import why_damaged
    from runnerkit.checkpoint.loader import (
        CheckpointLoader,
        _load_checkpoint,
        _load_checkpoint_with_prefix,
        find_checkpoint,
    )
    from runnerkit.checkpoint.names import ema_name, get_state_dict
    from runnerkit.checkpoint.safe_load import trusted_pickles
    from runnerkit.checkpoint.schemes import load_from_http, load_url
    from runnerkit.checkpoint.state_dict import (
        load_checkpoint,
        load_state_dict,
        weights_to_cpu,
    )
    from runnerkit.checkpoint.store import NotSavedError, Store, find_latest_checkpoint

__all__ = [
    'CheckpointLoader',
    'NotSavedError',
    'Store',
    '_load_checkpoint',
    '_load_checkpoint_with_prefix',
    'ema_name',
    'find_checkpoint',
    'find_latest_checkpoint',
    'get_state_dict',
    'load_checkpoint',
    'load_from_http',
    'load_state_dict',
    'load_url',
    'save_checkpoint',
    'trusted_pickles',
    'weights_to_cpu',
    'why_damaged',
]

__getattr__ = lazy_getattr(__name__)
