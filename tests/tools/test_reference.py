"""The reference pages say what the code says, and all of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from torch import amp, nn, optim, profiler

from runnerkit import hooks
from runnerkit.config.known_keys import KEYS, MMCV_TOOLS, SCHEDULES, TOP
from runnerkit.config.values import BOOL, HOOK, KINDS, PATH, SECTION
from runnerkit.config.values import HOOKS as HOOK_LIST
from runnerkit.data import DATASETS, SAMPLERS
from runnerkit.fileio import FileClient
from runnerkit.hooks import HOOKS, Hook, Priority
from runnerkit.hooks.hook import POINTS, RINGS
from runnerkit.hooks.torch_scheduler import scheduler_names
from runnerkit.nn.compiled import _KNOWN as COMPILE_OPTIONS
from runnerkit.nn.weight_init import INITIALIZERS
from runnerkit.utils.imports import import_object
from runnerkit.utils.user_files import is_ours

ROOT = Path(__file__).parents[2]
TOOL = import_object(f'{ROOT}/tools/reference.py:regenerated').__globals__
PAGES = {name: path.read_text(encoding='utf-8') for name, path in TOOL['PAGES'].items()}
DOCS = sorted([*(ROOT / 'docs').rglob('*.md'), *ROOT.glob('*.md')])


def ours(names):
    return [name for name in names if is_ours(getattr(HOOKS.get(name), '__module__', ''))]


def section(page, heading):
    """What stands below a heading, up to the next one of the same level or a higher one."""
    level = heading.split()[0]
    return re.search(rf'^{re.escape(heading)}\n(.*?)(?=^#{{2,{len(level)}}} |\Z)', page, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize('name', PAGES)
def test_the_page_is_what_the_code_says(name):
    lines, fresh = PAGES[name].splitlines(), TOOL['regenerated'](PAGES[name]).splitlines()
    others = [line for line in zip_longest(lines, fresh) if line[0] != line[1]]
    assert others[:1] == [], f'docs/{name} is not up to date: run make docs'


def test_the_page_of_commands_is_what_the_parsers_say():
    page = TOOL['COMMANDS_PAGE'].read_text(encoding='utf-8')
    assert page == TOOL['commands_page'](), 'docs/reference/commands.md is not up to date: run make docs'


def test_the_data_file_is_what_the_code_says():
    fresh = TOOL['as_data'](PAGES['config_keys.md'])
    assert TOOL['KNOWN_KEYS'].read_text(encoding='utf-8') == fresh, 'known_keys.json is not up to date: run make docs'


def test_types_of_written_keys_are_those_that_the_preflight_wants():
    words = {BOOL: 'bool', SECTION: 'dict', HOOK: 'dict', HOOK_LIST: 'list of dicts', PATH: 'path'}
    rows = {name: key.type for name, key in TOOL['rows_of']('top', PAGES['config_keys.md']).items()}
    known = [name for name in rows if KINDS.get(name) in words]
    assert len(known) > 20
    assert [(name, rows[name]) for name in known if words[KINDS[name]] not in rows[name]] == []


@pytest.mark.parametrize(
    'section, function',
    [
        ('grad_clip', nn.utils.clip_grad_norm_),
        ('loss_scale', amp.GradScaler),
        ('schedule', profiler.schedule),
    ],
)
def test_written_defaults_of_torch_are_torchs(section, function):
    parameters = inspect.signature(function).parameters
    for name, key in TOOL['rows_of'](section, PAGES['config_keys.md']).items():
        if name in parameters:  # an older torch may lack it
            default = parameters[name].default
            assert key.default.strip('`') == ('required' if default is inspect.Parameter.empty else str(default))


def test_compile_has_no_other_keys():
    assert set(TOOL['rows_of']('compile', PAGES['config_keys.md'])) <= set(COMPILE_OPTIONS)


# --- complete --------------------------------------------------------------------------------------------------------


def test_every_hook_is_on_the_page():
    headings = re.findall(r'^### (\w+)$', PAGES['hooks.md'], re.MULTILINE)
    assert len(headings) == len(set(headings))
    exported = {name for name in hooks.__all__ if isinstance(getattr(hooks, name), type)}
    exported = {name for name in exported if issubclass(getattr(hooks, name), Hook)} - {'Hook'}
    missing = 'write the hook into a "<!-- hooks: … -->" of docs/hooks.md'
    assert set(headings) == {*exported, *ours(HOOKS.names())}, missing


def test_every_argument_of_a_hook_is_there_with_a_meaning():
    for name in ours(HOOKS.names()):
        text = section(PAGES['hooks.md'], f'### {name}')
        if base := re.search(r'^It (?:also )?takes the arguments of .`(\w+)`', text, re.MULTILINE):
            text += section(PAGES['hooks.md'], f'### {base[1]}')
        for argument in TOOL['signature'](HOOKS.get(name)):
            assert re.search(rf'^\| `{argument}` \| .+ \| .+ \| \S.+ \|$', text, re.MULTILINE), f'{name}: {argument}'


def test_every_point_is_there():
    assert all(f'| `{point}` |' in PAGES['hooks.md'] for point in POINTS)
    assert all(f'`{band.name}` {band.value}' in PAGES['hooks.md'] for band in Priority)
    assert all(f'`{ring}' in section(PAGES['hooks.md'], '## Points') for ring in RINGS)


def test_every_key_of_the_top_level_is_there():
    page = PAGES['config_keys.md']
    regions = ''.join(re.findall(r'<!-- written: top -->\n(.*?)<!-- end -->', page, re.DOTALL))
    for key in TOP:
        row = rf'^\| (?:\[`{key}`\]\(#{key}\)|`{key}`) \| .+ \| .* \| \S.+ \|$'
        assert re.search(row, regions, re.MULTILINE), (
            f'write {key} into a "<!-- written: top -->" of docs/config_keys.md'
        )
    assert all(f'`{key}`' in page for key in MMCV_TOOLS)


def test_every_key_of_every_section_is_there():
    """Those of a schedule or of a variant of a hook are on the page about hooks."""
    page = PAGES['config_keys.md']
    regions = dict(re.findall(r'<!-- (?:keys|written): (.+?) -->\n(.*?)<!-- end -->', page, re.DOTALL))
    one_of_two = {
        'IterBasedRunner': 'EpochBasedRunner',
        'MMDistributedDataParallel': 'DDP',
        'DistributedDataParallel': 'DDP',
    }
    elsewhere = {name for name in KEYS if name.endswith((*SCHEDULES.values(), 'OptimizerHook', 'IterTimerHook'))}
    assert set(KEYS) - set(regions) == {*one_of_two, *elsewhere} - {'OptimizerHook', 'FixedLrUpdaterHook'}
    for name, keys in KEYS.items():
        region = regions.get(one_of_two.get(name, name))
        for key in keys if region is not None else ():
            assert f'\n| `{key}` |' in region or (name == 'dataloader' and key in KEYS['data']), f'{name}.{key}'


def test_every_schedule_storage_and_initializer_is_there():
    page = PAGES['config_keys.md']
    for key, suffix in SCHEDULES.items():
        names = [name.removesuffix(suffix) for name in ours(HOOKS.names()) if name.endswith(suffix)]
        missing = [name for name in names if f"`'{name}'`" not in section(page, f'### {key}')]
        assert missing == (['Torch'] if key == 'lr_config' else [])
    names = [
        name
        for name in FileClient.backend_names()
        if FileClient.backend_class(name).__module__.startswith('runnerkit.')
    ]
    assert all(f"`'{name}'`" in section(page, '## Storages') for name in names)
    names = [name for name in INITIALIZERS.names() if INITIALIZERS.get(name).__module__.startswith('runnerkit.')]
    assert all(f"`'{name}'`" in section(page, '### model') for name in names)


def test_every_class_of_torch_and_of_data_is_named():
    page = PAGES['config_keys.md']
    classes = {name for name, each in vars(optim).items() if isinstance(each, type) and name != 'Optimizer'}
    assert {name for name in classes if f'`{name}`' not in section(page, '### optimizer')} == set()
    assert {name for name in scheduler_names() if f'`{name}`' not in section(page, '### lr_config')} == set()
    for registry in (DATASETS, SAMPLERS):
        homes = {name: registry.get(name).__module__ for name in registry.names()}
        ours_or_torch = [name for name, home in homes.items() if is_ours(home) or home.startswith('torch.')]
        assert {name for name in ours_or_torch if name not in section(page, '### data')} == set()


# --- what the tool refuses and makes ---------------------------------------------------------------------------------


def test_an_argument_without_a_line_is_refused():
    class Forgotten(Hook):
        """Has an argument.

        Args:
            known: a number.
        """

        def __init__(self, known: int, unknown: int = 3) -> None:
            pass

    assert TOOL['key_of'](Forgotten, 'known').meaning == 'A number.'
    with pytest.raises(LookupError, match=r'no docstring of .*Forgotten has a line for unknown'):
        TOOL['key_of'](Forgotten, 'unknown')


def test_a_docstring_is_read():
    def documented(one: Sequence[str] | None, two: dict[str, Any], by_epoch: bool = True, **kwargs: Any) -> None:
        """Does ``this``::

            with_code()

        And more of `EMAHook`.

        Args:
            one, two: as a list, e.g. ``[1]``,
                in two lines.
            by_epoch: as in `LoggerHook`; and more.
            **kwargs: the others.

        Raises:
            ValueError: never.
        """

    doc = TOOL['parsed'](documented)
    assert TOOL['paragraphs'](doc.text) == (
        'Does `this`:\n\n```python\nwith_code()\n```\n\nAnd more of [`EMAHook`](hooks.md#emahook).'
    )
    assert set(doc.lines) == {'one', 'two', 'by_epoch', 'kwargs'}
    assert TOOL['key_of'](documented, 'one') == (
        'list of str or None',
        'required',
        'As a list, e.g. `[1]`, in two lines.',
    )
    assert TOOL['key_of'](documented, 'two').type == 'dict'
    key = TOOL['key_of'](documented, 'by_epoch')
    assert key.default == '`True`'
    assert key.meaning == "Whether iterations are counted from each epoch's beginning; and more."


# --- links -----------------------------------------------------------------------------------------------------------


def test_links_to_headings_lead_to_one():
    for path in DOCS:
        for target, place in re.findall(r'\]\(([^)#\s]*)#([^)\s]+)\)', path.read_text(encoding='utf-8')):
            if '://' not in target:
                page = (path.parent / target if target else path).read_text(encoding='utf-8')
                headings = re.findall(r'^#+ (.+)$', TOOL['without_code'](page), re.MULTILINE)
                assert place in map(TOOL['anchor'], headings), f'{path.name}: {target}#{place}'
