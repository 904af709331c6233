"""The tables of keys, held against what reads the sections."""

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
    SCHEDULES,
    TOP,
)
from runnerkit.data import build_dataloader
from runnerkit.data.loader import LOADER_OPTIONS
from runnerkit.flow.stages import defaults, instance, network, startup, switches, terminal, training, wrapping
from runnerkit.flow.stages import stage_config as slots
from runnerkit.hooks import HOOKS
from runnerkit.optim import OPTIMIZER_BUILDERS
from runnerkit.optim.default_constructor import CUSTOM_KEY_OPTIONS, PARAMWISE_DEFAULTS
from runnerkit.parallel import MODULE_WRAPPERS
from runnerkit.parallel.fsdp import MP_POLICY
from runnerkit.runner import RUNNERS, BaseRunner
from runnerkit.utils.imports import import_modules_from_strings
from runnerkit.utils.signatures import parameters_of

CLASSES = [name for name in KEYS if name[0].isupper()]


@pytest.mark.parametrize('name', CLASSES)
def test_classes(name):
    if name in DDP:
        assert set(KEYS[name]) < set(parameters_of(MODULE_WRAPPERS.get('DDP')))  # the others are not for configs
        return
    taken = set(parameters_of(HOOKS.get(name) or RUNNERS.get(name) or MODULE_WRAPPERS.get(name)))
    if name == 'FSDP2':
        taken -= {'module', 'device'}  # the flow's
    if name.endswith('Runner'):
        taken.add('constructor')  # see build_runner
    if name == 'EvalHook':
        taken.remove('dataloader')  # the flow's
    if name == 'CheckpointHook':
        taken |= set(inspect.signature(BaseRunner.save_checkpoint).parameters) - {'self', 'out_dir'}
    assert set(KEYS[name]) == taken
    assert len(KEYS[name]) == len(taken)


def test_every_schedule_and_default_is_there():
    ends = tuple(SCHEDULES.values())
    policies = {name for name in HOOKS.names() if name.endswith(ends) and HOOKS.get(name).__module__.startswith('runn')}
    assert policies - set(KEYS) == {'TorchLrUpdaterHook'}  # it hands its arguments on to a scheduler of torch
    assert set(DEFAULT_READERS.values()) - {None} <= set(CLASSES)


def test_loaders():
    taken = {*inspect.signature(build_dataloader).parameters, *LOADER_OPTIONS}
    taken -= {'dataset', 'dist', 'seed', 'kwargs'}  # the flow's
    assert set(KEYS['dataloader']) == taken | {'batch_size', 'num_workers'}
    assert set(KEYS['data']) < set(KEYS['dataloader'])
    assert set(KEYS['custom_imports']) == set(inspect.signature(import_modules_from_strings).parameters)


def test_parts_of_sections():
    assert set(KEYS['paramwise_cfg']) == set(PARAMWISE_DEFAULTS)
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
        ('dist_params', torch.distributed.init_process_group, {'_ranks'}),
    ],
)
def test_functions_of_torch(name, function, without):
    """The table may know more than an older torch."""
    assert set(inspect.signature(function).parameters) - without <= set(KEYS[name])


def test_every_key_that_the_stages_ask_for_is_known():
    stages = (instance, network, startup, training, terminal, defaults, slots, switches, wrapping)
    sources = [inspect.getsource(part) for part in stages]
    asked = {name for source in sources for name in re.findall(r"cfg\.get\('(\w+)'", source)}
    assert len(asked) > 15
    assert asked - set(TOP) == set()


def test_the_stages():
    assert KEYS['flow'] == tuple(slot.name for slot in slots.SLOTS)


def test_no_key_has_two_meanings():
    assert set(TOP) & {*MMCV_TOOLS, *(key for keys in FOREIGN.values() for key in keys)} == set()
    assert set(BELONGS) & set(TOP) == set()
    assert set(REQUIRED) <= set(TOP)
