"""Converts checkpoints of runnerkit's first format to the current one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def from_format_1(state: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the state under ``'runnerkit'`` from format 1 to format 2.

    Args:
        state: in format 1; not changed.
        meta: the ``meta`` of the same checkpoint.
    """
    entry, units = state['cursor']
    loaders = state['ranks'][0]['loaders']
    by_epoch = isinstance(loaders, Mapping)
    is_open = by_epoch and bool(loaders.get('begun', loaders['start'] > 0))
    progress = {
        'epochs': int(meta['epoch']),
        'iters': int(meta['iter']),
        'epoch_is_open': is_open,
        'batches': loaders['start'] if by_epoch else 0,
        'samples': None,
        'entry': entry,
        'units': units,
    }
    ranks = [
        {**rank, 'hooks': state['hooks'], 'readers': _readers(rank['loaders'], entry, int(meta['epoch']))}
        for rank in state['ranks']
    ]
    conditions = {'world size': state['world_size'], 'workflow': state['workflow'], 'optimizer': state['optimizers']}
    return {'format': 2, 'progress': progress, 'conditions': conditions, 'ranks': ranks, 'world_size': len(ranks)}


def _readers(loaders: Any, entry: int, epoch: int) -> list[dict[str, Any] | None]:
    if isinstance(loaders, Mapping):
        return [*[None] * entry, _reader({'epoch': epoch, **loaders})]
    return [_reader(each) for each in loaders or []]


def _reader(loader: Mapping[str, Any]) -> dict[str, Any]:
    """What the first format knew of a `runnerkit.data.reader_state.ReaderState`."""
    rng = loader['rng'] or {}
    own = rng.get('own') or []
    held = {'all': {'in_order': own}} if own else {}
    begun = loader.get('begun', loader['start'] > 0)
    return {
        'epoch': loader['epoch'],
        'begun': begun,
        'batches': loader['start'],
        'began': {'rng': rng['rng'], 'held': held} if rng and begun else None,
        'held': {} if begun else held,
        'loader': loader['state'],
    }
