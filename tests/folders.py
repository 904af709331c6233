"""A small checkpoint, and how the tests write it as a folder."""

import torch

from runnerkit.checkpoint.folder import write_folder
from runnerkit.checkpoint.plain import plain_checkpoint
from runnerkit.checkpoint.shards import taken_apart
from runnerkit.parallel.dtensors import local_part


def checkpoint(iteration=3):
    torch.manual_seed(iteration)
    return {
        'meta': {'epoch': 1, 'iter': iteration, 'hook_msgs': {}},
        'state_dict': {'w': torch.randn(5, 3), 'b': torch.randn(5).bfloat16(), 'count': torch.tensor(iteration)},
        'optimizer': {
            'state': {0: {'step': torch.tensor(2.0), 'exp_avg': torch.randn(5, 3)}},
            'param_groups': [{'lr': 0.1, 'betas': (0.9, 0.99), 'params': [0, 1]}],
        },
        'runnerkit': {'ranks': [{'hooks': {'A': {'x': torch.ones(2)}}}]},
    }


def write(path, content):
    tensors, rest = taken_apart(content)
    write_folder(path, tensors, {name: local_part(value) for name, value in tensors.items()}, plain_checkpoint(rest))


def same(one, other):
    """Whether two nested values are equal, tensors to the bit and with their types."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other
