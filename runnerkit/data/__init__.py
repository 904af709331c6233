"""Data: loaders whose batches are a function of (seed, epoch, position in the epoch's order) and of nothing else.

builder.py builds data sets and loaders from configs; sampler.py has the order and the positions, seeding.py the random
streams, samples.py and loader.py bring both together. reader.py passes over any loader and enters it anywhere; held.py
finds all that a loader holds, checksum.py compares batches.
"""

from __future__ import annotations

from runnerkit.data.builder import DATASETS, SAMPLERS, TRANSFORMS, build_dataloader, build_dataset
from runnerkit.data.compose import Compose
from runnerkit.data.kinds import is_cheap_to_enter, loader_seed, set_epoch
from runnerkit.data.loader import SeededLoader
from runnerkit.data.named import name_of_scores, name_scores
from runnerkit.data.reader import IterLoader, Reader, epoch_batches
from runnerkit.data.sampler import EpochSampler, epoch_order
from runnerkit.data.seeding import private_streams
from runnerkit.data.wrappers import RepeatDataset

__all__ = [
    'DATASETS',
    'SAMPLERS',
    'TRANSFORMS',
    'Compose',
    'EpochSampler',
    'IterLoader',
    'Reader',
    'RepeatDataset',
    'SeededLoader',
    'build_dataloader',
    'build_dataset',
    'epoch_batches',
    'epoch_order',
    'is_cheap_to_enter',
    'loader_seed',
    'name_of_scores',
    'name_scores',
    'private_streams',
    'set_epoch',
]
