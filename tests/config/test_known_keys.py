"""The tables of keys, held against what reads the sections. `tests/tools/test_reference.py` holds the data file."""

import inspect
import re

import pytest
import torch

from runnerkit.config.known_keys import (
    BELONGS,
    DDP,
    DEFAULT_READERS,
    FOREIGN,
    KEYS,
    MMCV_TOOLS,
    OF_TORCH,
    OWN_CONSTRUCTOR,
    PARTS,
    REQUIRED,
    TOP,
)
from runnerkit.data import build_dataloader
from runnerkit.data.loader import LOADER_OPTIONS
from runnerkit.flow.stages import defaults, instance, network, stage, startup, terminal, training, wrapping
from runnerkit.optim import OPTIMIZER_BUILDERS
from runnerkit.optim.default_constructor import CUSTOM_KEY_OPTIONS
from runnerkit.parallel import MODULE_WRAPPERS
from runnerkit.parallel.fsdp import MP_POLICY
from runnerkit.utils.signatures import parameters_of


def test_ddp_and_the_defaults():
    later = {'init_sync'}  # which torch 2.6 does not have
    assert set(KEYS['DDP']) < later.union(parameters_of(MODULE_WRAPPERS.get('DDP')))  # the others are not for configs
    assert all(KEYS[name] == KEYS['DDP'] for name in DDP)
    assert set(DEFAULT_READERS.values()) - {None} <= set(KEYS)


def test_loaders():
    taken = {*inspect.signature(build_dataloader).parameters, *LOADER_OPTIONS}
    taken -= {'dataset', 'dist', 'seed', 'kwargs'}  # the flow's
    assert set(KEYS['dataloader']) == taken | {'batch_size', 'num_workers'}
    assert set(KEYS['data']) < set(KEYS['dataloader'])


def test_parts_of_sections():
    assert KEYS['custom_keys'] == CUSTOM_KEY_OPTIONS
    assert OPTIMIZER_BUILDERS.get(OWN_CONSTRUCTOR) is not None
    assert {part for parts in PARTS.values() for part in parts} <= {*OF_TORCH, 'mp_policy'}
    assert KEYS['mp_policy'] == MP_POLICY


@pytest.mark.parametrize(
    'name, function, without',
    [
        ('grad_clip', torch.nn.utils.clip_grad_norm_, {'parameters'}),
        ('loss_scale', torch.amp.GradScaler, {'device'}),
        ('schedule', torch.profiler.schedule, set()),
        ('dist_params', torch.distributed.init_process_group, {'_ranks', 'enable_reconfigure'}),  # the latter: 2.14
    ],
)
def test_functions_of_torch(name, function, without):
    """The table may know more than an older torch."""
    assert set(inspect.signature(function).parameters) - without <= set(KEYS[name])


def test_every_key_that_the_stages_ask_for_is_known():
    stages = (instance, network, startup, training, terminal, defaults, stage, wrapping)
    sources = [inspect.getsource(part) for part in stages]
    asked = {name for source in sources for name in re.findall(r"cfg\.get\('(\w+)'", source)}
    assert len(asked) > 15
    assert asked - set(TOP) == set()


def test_the_stages():
    assert KEYS['flow'] == tuple(slot.name for slot in stage.SLOTS)


def test_no_key_has_two_meanings():
    assert set(TOP) & {*MMCV_TOOLS, *(key for keys in FOREIGN.values() for key in keys)} == set()
    assert set(BELONGS) & set(TOP) == set()
    assert set(REQUIRED) <= set(TOP)
