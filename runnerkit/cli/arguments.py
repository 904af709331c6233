"""Arguments that several tools share, and the types of their values."""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import Any, NamedTuple

from runnerkit.config import DictAction


def whole_number(text: str, least: int = 0) -> int:
    """An argparse type: a whole number of at least ``least``."""
    if not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f'must be a whole number of at least {least}, but got {text!r}')
    return int(text)


#: An argparse type: a whole number of at least 1.
count = partial(whole_number, least=1)


def number(text: str, is_positive: bool = False) -> float:
    """An argparse type: a finite number of at least 0, or above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or (is_positive and value == 0):
        allowed = 'above 0' if is_positive else 'of at least 0'
        raise argparse.ArgumentTypeError(f'must be a number {allowed}, but got {text!r}')
    return value


#: An argparse type: a finite number above 0.
positive_number = partial(number, is_positive=True)


#: The shared arguments, by name or flag.
SHARED: dict[str, dict[str, Any]] = {
    'config': {'help': 'the config file (.py, .yaml or .json)'},
    '--cfg-options': {
        'nargs': '+',
        'action': DictAction,
        'metavar': 'KEY=VALUE',
        'help': 'change settings of the config, e.g. optimizer.lr=0.1 workflow="[(train,1)]"',
    },
    '--launcher': {
        'choices': ['none', 'pytorch', 'slurm', 'mpi'],
        'default': 'none',
        'help': 'the launcher that started the processes (default: none)',
    },
    '--trust-pickles': {'action': 'store_true', 'help': 'load checkpoints even if that runs code inside them'},
    '--local-rank': {'type': int, 'help': "set by torch's launcher"},
    '--gpu-id': {'type': int, 'default': 0, 'help': 'the GPU to use, in a run of one process'},
    '--device': {'help': 'cpu, cuda, cuda:1 … (default: a GPU if there is one)'},
    '--seed': {'type': whole_number},
    'source': {'help': 'a work dir; a config, whose work dir is used; or a checkpoint'},
    '--checkpoint': {'metavar': 'CKPT', 'help': 'the checkpoint or work dir to use with the config of source'},
    '--which': {
        'choices': ['best', 'latest'],
        'default': 'best',
        'help': 'which checkpoint of a work dir (default: %(default)s)',
    },
    '--trust': {
        'action': 'store_true',
        'help': 'execute and build what the config names of a work dir or checkpoint that you did not make on this '
        'machine (default: refuse)',
    },
}


class Argument(NamedTuple):
    """What ``add_argument`` gets."""

    names: tuple[str, ...]
    options: dict[str, Any]


def argument(name: str, **options: Any) -> Argument:
    """An argument of a command; one of `SHARED` has its settings, which ``options`` change."""
    names = (name, '--local_rank') if name == '--local-rank' else (name,)
    return Argument(names, {**SHARED.get(name, {}), **options})


def flag(name: str, help: str) -> Argument:
    """A flag without a value."""
    return argument(name, action='store_true', help=help)
