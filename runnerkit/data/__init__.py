"""Data: loaders whose batches are a function of (seed, epoch, position in the epoch's order) and of nothing else.

builder.py builds data sets and loaders from configs; sampler.py has the order and the positions, seeding.py the random
streams, loader.py brings both together. reader.py passes over any loader and enters it anywhere;
loader_state.py finds the state of a loader, shares.py shards it. stream.py reads events as they come, from a source
(source.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.data.builder import DATASETS, SAMPLERS, TRANSFORMS, RepeatDataset, build_dataloader, build_dataset
    from runnerkit.data.compose import Compose
    from runnerkit.data.kinds import is_cheap_to_enter, set_epoch
    from runnerkit.data.loader import SeededLoader
    from runnerkit.data.named import name_of_scores, name_scores
    from runnerkit.data.reader import IterLoader, Reader, epoch_batches
    from runnerkit.data.sampler import EpochSampler, epoch_order
    from runnerkit.data.seeding import private_streams
    from runnerkit.data.source import (
        SOURCES,
        DirectorySource,
        EndpointSource,
        Event,
        Malformed,
        Source,
        parse_event,
    )
    from runnerkit.data.stream import Stream, StreamLoader

__all__ = [
    'DATASETS',
    'SAMPLERS',
    'SOURCES',
    'TRANSFORMS',
    'Compose',
    'DirectorySource',
    'EndpointSource',
    'EpochSampler',
    'Event',
    'IterLoader',
    'Malformed',
    'Reader',
    'RepeatDataset',
    'SeededLoader',
    'Source',
    'Stream',
    'StreamLoader',
    'build_dataloader',
    'build_dataset',
    'epoch_batches',
    'epoch_order',
    'is_cheap_to_enter',
    'name_of_scores',
    'name_scores',
    'parse_event',
    'private_streams',
    'set_epoch',
]

__getattr__ = lazy_getattr(__name__)
