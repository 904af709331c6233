"""The table of meanings: complete lines, and no key that nobody reads."""

import inspect

import pytest
import torch

from runnerkit.config.key_meanings import MEANINGS, TOP, Key
from runnerkit.config.known_keys import KEYS
from runnerkit.config.values import BOOL, HOOK, HOOKS, KINDS, PATH, SECTION
from runnerkit.data.loader import LOADER_OPTIONS
from runnerkit.nn.compiled import _KNOWN as COMPILE_OPTIONS

ROWS = {f'{section}.{name}': key for section, keys in {'': TOP, **MEANINGS}.items() for name, key in keys.items()}


@pytest.mark.parametrize('name', ROWS)
def test_each_row_says_something(name):
    key = ROWS[name]
    assert isinstance(key, Key)
    assert key.type
    assert key.meaning.endswith(('.', '…'))
    assert '\n' not in key.meaning


def test_types_are_those_that_the_preflight_wants():
    words = {BOOL: 'bool', SECTION: 'dict', HOOK: 'dict', HOOKS: 'list of dicts', PATH: 'path'}
    checked = {f'.{name}': kind for name, kind in KINDS.items()} | KINDS
    known = [name for name in ROWS if checked.get(name) in words]
    assert len(known) > 25
    assert [(name, ROWS[name].type) for name in known if words[checked[name]] not in ROWS[name].type] == []


def test_the_sections_have_no_other_keys():
    assert set(MEANINGS['data']) <= set(KEYS['data'])
    assert set(LOADER_OPTIONS) <= set(MEANINGS['dataloader']) | set(KEYS['data'])
    assert set(MEANINGS['dataloader']) <= set(KEYS['dataloader'])
    assert set(MEANINGS['compile']) <= set(COMPILE_OPTIONS)


@pytest.mark.parametrize(
    'section, function',
    [
        ('grad_clip', torch.nn.utils.clip_grad_norm_),
        ('loss_scale', torch.amp.GradScaler),
        ('schedule', torch.profiler.schedule),
    ],
)
def test_the_defaults_of_torch_are_those_of_the_table(section, function):
    parameters = inspect.signature(function).parameters
    for name, key in MEANINGS[section].items():
        if name in parameters:  # an older torch may lack it
            default = parameters[name].default
            assert key.default == ('required' if default is inspect.Parameter.empty else str(default))
