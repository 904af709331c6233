"""Data: loaders whose batches are a function of (seed, epoch, position in the epoch's order) and of nothing else.

builder.py builds data sets and loaders from configs; sampler.py has the order and the positions, seeding.py the random
streams, samples.py and loader.py bring both together, position.py enters any loader's epoch in its middle.
"""

from __future__ import annotations

from runnerkit.data.builder import DATASETS, SAMPLERS, TRANSFORMS, build_dataloader, build_dataset
from runnerkit.data.compose import Compose
from runnerkit.data.loader import SeededLoader
from runnerkit.data.position import epoch_batches, generator_states, loader_seed, set_epoch, set_generator_states
from runnerkit.data.sampler import EpochSampler, epoch_order
from runnerkit.data.seeding import private_streams
from runnerkit.data.wrappers import RepeatDataset

__all__ = [
    'DATASETS',
    'SAMPLERS',
    'TRANSFORMS',
    'Compose',
    'EpochSampler',
    'RepeatDataset',
    'SeededLoader',
    'build_dataloader',
    'build_dataset',
    'epoch_batches',
    'epoch_order',
    'generator_states',
    'loader_seed',
    'private_streams',
    'set_epoch',
    'set_generator_states',
]
