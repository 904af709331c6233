"""Write the generated pages of docs/ and runnerkit/config/known_keys.json: ``make docs``.

In both pages, the tables between ``<!-- what: names -->`` and ``<!-- end -->`` come from signatures and docstrings; all
other text is written by hand. ``<!-- written: section -->`` marks a table of keys that no docstring describes, and in
other tables of keys the rows without a docstring are written by hand. A key that has neither is an error.

The data file has the keys of each reader of a section, with their types, so that runnerkit can check a config without
importing torch.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit import data, hooks, nn, parallel, runner
from runnerkit.checkpoint.loader import CheckpointLoader
from runnerkit.cli.main import COMMANDS, command_named
from runnerkit.config.known_keys import DDP, DEFAULT_READERS, MMCV_TOOLS, SAME, SCHEDULES
from runnerkit.data.loader import LOADER_OPTIONS
from runnerkit.fileio import FileClient
from runnerkit.hooks import HOOKS, Hook
from runnerkit.hooks.hook import POINTS, RINGS, get_priority
from runnerkit.hooks.param_schedule import ParamScheduleHook
from runnerkit.hooks.registration import PRIORITIES
from runnerkit.nn.weight_init import INITIALIZERS
from runnerkit.optim import schedules
from runnerkit.optim.default_constructor import PARAMWISE_DEFAULTS, DefaultOptimizerConstructor
from runnerkit.utils.ending import ENDINGS, MEANINGS
from runnerkit.utils.imports import import_modules_from_strings
from runnerkit.utils.signatures import LOADER_FUNCTIONS
from runnerkit.utils.user_files import is_ours

ROOT = Path(__file__).resolve().parent.parent
PAGES = {'config_keys.md': ROOT / 'docs' / 'config_keys.md', 'hooks.md': ROOT / 'docs' / 'hooks.md'}
COMMANDS_PAGE = ROOT / 'docs' / 'reference' / 'commands.md'
KNOWN_KEYS = ROOT / 'runnerkit' / 'config' / 'known_keys.json'
REGION = re.compile(r'(<!-- (\w+)(?:: ([^>]*?))? -->\n).*?(<!-- end -->)', flags=re.DOTALL)

#: The reader of a section, if it is not a hook. Its docstrings describe the keys; its signature has the defaults.
READERS: dict[str, Any] = {
    'data': data.build_dataloader,
    'dataloader': data.build_dataloader,
    'custom_imports': import_modules_from_strings,
    'paramwise_cfg': DefaultOptimizerConstructor,
    'EpochBasedRunner': runner.EpochBasedRunner,
    'IterBasedRunner': runner.IterBasedRunner,
    'Supervised': nn.Supervised,
    'LoggerHook': hooks.LoggerHook,
    'FSDP2': parallel.FSDP2,
}

#: What the page of the commands says before and after the table of endings.
ENDS = (
    'How a run ends decides its [outcome](../concepts/life_of_a_run.md#the-end) and the exit code of `runnerkit '
    'train`. A run that an exception ends never exits with 0.',
)
ENDS_WHERE = (
    'Once the run has begun, an exception counts wherever it is raised: in a hook (`after_run` included), a loader, a '
    'step, a save, an evaluation or a stage.',
    '`run.json`, the log, `runnerkit runs` and the report then have the same outcome. If it ends an evaluation, what '
    'was trained until then is saved.',
    'Before the run begins (in the config, the model or the data set), `run.json` gets no entry; the exit codes are '
    'the same. `runnerkit.train` and `Runner.run` raise the exception as it is.',
)

#: Points that not every runner calls, listed after `POINTS`.
MORE_POINTS = ('before_resume', 'after_save', 'after_roll_back', 'after_resume', 'while_waiting', 'after_outcome')

#: Names of types in the pages.
TYPES = (
    (r'\bCallable\[.*?\](?=$| \|)', 'function'),
    (r'\b(?:dict|Mapping)\[[^\]]*\]', 'dict'),
    (r'\b(?:list|Sequence)\[Any\]', 'list'),
    (r'\b(?:list|Sequence)\[([^,\]]+)\]', r'list of \1'),
    (r'\btuple\[.*?\]', 'tuple'),
    (r'\bAny\b', 'any'),
    (r'\bnn\.Module\b', 'module'),
    (r'\bFields\b', 'int, str, list or dict'),
    (r'\bstr \| os\.PathLike\[str\]', 'path'),
    (r'\b(?:logging|torch)\.(?=\w)', ''),
    (r'\bInitCfg\b', 'dict or list of dicts'),
    (r' \| ', ' or '),
)

#: Keys that a reader takes from a config in addition to its arguments, and arguments that a config cannot have.
ADDED = {'EpochBasedRunner': ('constructor',), 'IterBasedRunner': ('constructor',)}
LEFT_OUT = {
    'EvalHook': ('dataloader',),
    'FSDP2': ('module', 'device'),
    'dataloader': ('dataset', 'dist', 'seed', 'kwargs'),
}

#: Rows that are written by hand although a docstring describes the argument: it means something else in a config.
WRITTEN = {
    'data': ('batch_size', 'samples_per_gpu', 'workers', 'num_workers', 'workers_per_gpu'),
    'dataloader': ('shuffle', 'round_up'),
    'EpochBasedRunner': ('model', 'optimizer', 'work_dir', 'logger', 'meta'),
}

#: Tables of the page whose keys no reader of `DEFAULT_READERS` or of the flow takes.
NOT_READERS = ('splits', 'optimizer', 'custom_hooks', 'compile', 'Supervised', 'LoggerHook')


class Key(NamedTuple):
    """One key of a config. The texts are Markdown.

    Attributes:
        type: the kind of its value.
        default: what holds without it; ``'required'`` if there is no run without it.
        meaning: one line.
    """

    type: str
    default: str
    meaning: str


# --- docstrings and signatures ---------------------------------------------------------------------------------------


class Doc(NamedTuple):
    """A docstring: its text up to the first section, and the descriptions of arguments in its sections."""

    text: str
    lines: dict[str, str]


def parsed(documented: Any) -> Doc:
    """The docstring of a class or function itself, not of its bases."""
    text = vars(documented).get('__doc__') if inspect.isclass(documented) else documented.__doc__
    head, *sections = re.split(r'^(?=[A-Z][\w ]*:\n    )', inspect.cleandoc(text or ''), flags=re.MULTILINE)
    lines: dict[str, str] = {}
    for section in sections:
        if section.startswith(('Args:', 'Keys of')):
            for names, meaning in re.findall(r'^    ([\w*, ]+): (.+(?:\n {5,}.+)*)', section, flags=re.MULTILINE):
                lines.update(dict.fromkeys(names.replace('*', '').split(', '), ' '.join(meaning.split())))
    return Doc(head.strip(), lines)


def family(reader: Any) -> list[Any]:
    """The objects that may document the arguments of ``reader``: a class with its bases, or a function."""
    return [each for each in reader.__mro__ if each is not object] if inspect.isclass(reader) else [reader]


def signature(reader: Any) -> dict[str, inspect.Parameter]:
    """The arguments of ``reader`` by name, and those that its ``**kwargs`` pass on to base classes."""
    inits = [vars(each)['__init__'] for each in family(reader) if '__init__' in vars(each)]
    found: dict[str, inspect.Parameter] = {}
    for function in inits if inspect.isclass(reader) else [reader]:
        parameters = inspect.signature(function).parameters
        kinds = {each.kind for each in parameters.values()}
        for name, parameter in parameters.items():
            if name != 'self' and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                found.setdefault(name, parameter)
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return found


def is_open(reader: Any) -> bool:
    """Whether ``reader`` takes further arguments, which no base class names."""
    inits = [vars(each)['__init__'] for each in family(reader) if '__init__' in vars(each)]
    kinds = [{each.kind for each in inspect.signature(init).parameters.values()} for init in inits]
    return all(inspect.Parameter.VAR_KEYWORD in each for each in kinds)


def meaning(reader: Any, name: str) -> str:
    """The description of one argument in the docstrings, with "as in `Other`" replaced by the text there.

    Raises:
        LookupError: no docstring describes it.
    """
    said = next((doc.lines[name] for doc in map(parsed, family(reader)) if name in doc.lines), None)
    if said is None:
        raise LookupError(f'no docstring of {reader.__qualname__} has a line for {name}: write one below "Args:"')
    same = re.match(r'[Aa]s (?:in|for) `(\w+)`(.*)', said)
    other = same and (getattr(hooks, same[1], None) or getattr(schedules, same[1], None))
    return meaning(other, name).rstrip('.') + same[2] if same and other else said


def key_of(reader: Any, name: str) -> Key:
    """Type, default and meaning of an argument."""
    parameter = signature(reader).get(name)
    if parameter is None:
        raise LookupError(f'{reader.__qualname__} takes no {name}: write its row into docs/config_keys.md')
    kind = '' if parameter.annotation is parameter.empty else str(parameter.annotation)
    for pattern, plain in TYPES:
        kind = re.sub(pattern, plain, kind)
    default = 'required' if parameter.default is parameter.empty else f'`{shown(parameter.default)}`'
    if name == 'by_epoch' and getattr(reader, 'by_iteration_only', False):
        default = '`False`'
    return Key(kind, default, sentence(meaning(reader, name)))


def shown(value: Any) -> str:
    """A default as written in a config."""
    if isinstance(value, list | tuple):
        inside = ', '.join(map(shown, value))
        return f'[{inside}]' if isinstance(value, list) else f'({inside})'
    return f'{value:.6g}' if isinstance(value, float) else repr(value)


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(text: str) -> str:
    """A piece of a docstring as Markdown, with links to the hooks that it names."""

    def quoted(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        is_hook = match[2] and re.fullmatch(r'\w+Hook', name) and hasattr(hooks, name)
        return f'[`{name}`](hooks.md#{name.lower()})' if is_hook else f'`{name}`'

    return re.sub(r'``(.+?)``|`([^`]+)`', quoted, ' '.join(text.split()), flags=re.DOTALL)


def sentence(text: str) -> str:
    """The text of a docstring's line, beginning with a capital."""
    text = markdown(text)
    return text[0].upper() + text[1:]


def first_sentence(text: str) -> str:
    """A line up to its first full stop."""
    return re.split(r'(?<=[^.…])\.(?= [A-Z`([])', text, maxsplit=1)[0].rstrip('.') + '.'


def paragraphs(text: str) -> str:
    """The text of a docstring as Markdown; literal blocks become blocks of Python."""
    parts = []
    for paragraph in re.split(r'\n\n(?! )', text):
        prose, _, code = paragraph.partition('::\n\n')
        parts.append(markdown(prose + ':' if code else prose))
        if code:
            parts.append(f'```python\n{inspect.cleandoc(code)}\n```')
    return '\n\n'.join(parts)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = [list(head), *map(list, rows)]
    texts = [' | '.join(re.sub(r'(?<!\\)\|', r'\\|', cell) for cell in line) for line in lines]
    return '\n'.join([f'| {texts[0]} |', '|' + '---|' * len(lines[0]), *(f'| {text} |' for text in texts[1:])])


def keys_table(keys: dict[str, Key], head: str = 'key') -> str:
    """A table of keys."""
    return table((head, 'type', 'default', 'what it means'), ((f'`{name}`', *cells(key)) for name, key in keys.items()))


def cells(key: Key) -> Key:
    """A key's texts for a table: a default that is a value is code."""
    is_value = re.fullmatch(r'None|True|False|-?[\d.]+', key.default)
    return key._replace(default=f'`{key.default}`') if is_value else key


def anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')


# --- the regions of the pages ----------------------------------------------------------------------------------------


def contents(names: str, page: str) -> str:
    """Links to the page's headings."""
    headings = re.findall(r'^(##|###) (.+)$', without_code(page), flags=re.MULTILINE)
    levels = {'##': '- ', '###': '  - '} if names == 'deep' else {'##': '- '}
    return '\n'.join(f'{levels[level]}[{title}](#{anchor(title)})' for level, title in headings if level in levels)


def without_code(page: str) -> str:
    """``page`` without its blocks of code."""
    return re.sub(r'^```.*?^```', '', page, flags=re.DOTALL | re.MULTILINE)


def keys(names: str, page: str) -> str:
    """The keys of one section."""
    return keys_table(keys_of(names, page))


def keys_of(section: str, page: str) -> dict[str, Key]:
    """The keys of a section, described; rows of the page that no docstring describes are kept."""
    reader, written = found(section), rows_of(section, page)
    names = arguments_of(section)
    kept = [name for name in written if name not in names and name in ('type', 'policy', *ADDED.get(section, ()))]
    shared = set(arguments_of('data')) if section == 'dataloader' else set()  # they are in the table above
    described = {name: written[name] for name in kept}
    for name in names:
        if name in shared:
            continue
        by_hand = name in WRITTEN.get(section, ()) or not any(name in parsed(each).lines for each in family(reader))
        described[name] = written[name] if name in written and by_hand else brief(section, reader, name)
    return {name: described[name] for name in sorted(described, key=[*written, *described].index)}


def brief(section: str, reader: Any, name: str) -> Key:
    """The key that ``reader`` documents, in one sentence, with a link to the hook where there are more."""
    if section == 'paramwise_cfg':
        default = shown(PARAMWISE_DEFAULTS[name])
        return Key(type(PARAMWISE_DEFAULTS[name]).__name__, f'`{default}`', sentence(meaning(reader, name)))
    if section == 'CheckpointHook' and name not in signature(reader):
        reader = runner.EpochBasedRunner.save_checkpoint
    key = key_of(reader, name)
    short = first_sentence(key.meaning)
    if section in HOOKS and reader is HOOKS.get(section) and short != key.meaning:
        short += f' [More](hooks.md#{section.lower()}).'
    return key._replace(meaning=short if section in HOOKS else key.meaning)


def documents(reader: Any, name: str) -> bool:
    """Whether a docstring describes an argument."""
    return any(name in parsed(each).lines for each in family(reader))


def rows_of(section: str, page: str) -> dict[str, Key]:
    """The rows of the page's tables of a section, by key."""
    found: dict[str, Key] = {}
    for region in REGION.finditer(page):
        if region[2] in ('keys', 'written') and region[3] == section:
            for row in re.findall(r'^\| \[?`([^`]+)`.*? \| (.*?) \| (.*?) \| (.*) \|$', region[0], flags=re.MULTILINE):
                found[row[0]] = Key(*(cell.replace('\\|', '|') for cell in row[1:]))
    return found


def arguments_of(section: str) -> list[str]:
    """The keys that the reader of a section takes, without ``type`` and ``policy``."""
    if section == 'paramwise_cfg':
        return list(PARAMWISE_DEFAULTS)
    pairs = [key for mmcv, usual in SAME.items() for key in (*usual, mmcv)]
    if section == 'data':
        return [*pairs, 'persistent_workers', 'pin_memory', 'seeded', *LOADER_FUNCTIONS]
    reader = found(section)
    taken = [*signature(reader), *(signature(runner.BaseRunner.save_checkpoint) if section == 'CheckpointHook' else ())]
    if section == 'dataloader':
        taken = [*pairs, *taken, *LOADER_OPTIONS]
    return list(
        dict.fromkeys([*ADDED.get(section, ()), *(each for each in taken if each not in LEFT_OUT.get(section, ()))])
    )


def known_keys(page: str) -> dict[str, dict[str, str]]:
    """The keys of each reader of a section, by its name, with their types; the top-level keys under ``top``."""
    regions = [(region[2], region[3]) for region in REGION.finditer(page) if region[2] in ('keys', 'written')]
    schedules_ = [
        name for name in ours(HOOKS) if name.endswith(tuple(SCHEDULES.values())) and name != 'TorchLrUpdaterHook'
    ]
    updates = [name for name in ours(HOOKS) if name.endswith('OptimizerHook')]
    others = ['EpochBasedRunner', 'IterBasedRunner', *updates, *schedules_, 'IterTimerHook']
    known: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys([*(section for _, section in regions), *others]):
        if name in NOT_READERS:
            continue
        written = rows_of('EpochBasedRunner' if name == 'IterBasedRunner' else name, page)
        if name == 'dataloader':
            written |= rows_of('data', page)
        names = list(written) if ('written', name) in regions else arguments_of(name)
        known[name] = {
            key: written[key].type if key in written else key_of(found(name), key).type
            for key in names
            if key in written or key in signature(found(name))
        }
    return {**known, **dict.fromkeys(DDP, known['DDP'])}


def policies(names: str, page: str) -> str:
    """The schedules of ``lr_config`` or ``momentum_config``; the page of hooks has their keys."""
    suffix, rows = SCHEDULES[names], []
    for name in ours(HOOKS):
        hook = HOOKS.get(name)
        if not name.endswith(suffix) or not issubclass(hook, ParamScheduleHook):
            continue
        policy = f'`{name.removesuffix(suffix)!r}`'
        value = next(formula(hook), 'always `base`').split('\n')[0].removeprefix('Value: ').rstrip('.')
        value = value if value.startswith(('`', 'always')) else ''  # some are described in words only
        link = f'[{policy}](hooks.md#{name.lower()})'
        rows.append((link, first_sentence(markdown(parsed(hook).text)), value))
    return table(('policy', 'what it does', 'value'), rows)


def loggers(names: str, page: str) -> str:
    """The hooks of ``log_config.hooks``."""
    return listed(name for name in ours(HOOKS) if is_logger(name))


def is_logger(name: str) -> bool:
    """Whether ``log_config`` lists the hook."""
    return issubclass(found(name), hooks.LoggerHook) and name != 'HistoryHook'


def listed(names: Iterable[str]) -> str:
    """Hooks, each with its first sentence."""
    return table(('hook', 'what it does'), told(names))


def told(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """A link to each hook, and its first sentence."""
    for name in names:
        text = parsed(found(name)).text.split('\n\n')[0]
        yield f'[`{name}`](hooks.md#{name.lower()})', first_sentence(markdown(text))


def ours(registry: Any) -> list[str]:
    """The names in a registry that this package has registered."""
    return [name for name in registry.names() if is_ours(registry.get(name).__module__)]


def found(name: str) -> Any:
    """What reads a section: a hook, a base class of hooks, or one of `READERS`."""
    return READERS.get(name) or HOOKS.get(name) or getattr(hooks, name)


def initializers(names: str, page: str) -> str:
    """The types for ``init_cfg``."""
    rows = []
    for name in ours(INITIALIZERS):
        parameters = signature(INITIALIZERS.get(name))
        shared = ('bias', 'bias_prob', 'layer')
        text = ', '.join(f'`{each}{default_of(value)}`' for each, value in parameters.items() if each not in shared)
        rows.append((f"`'{name}'`", text))
    return table(('type', 'its keys, with their defaults'), rows)


def default_of(parameter: inspect.Parameter) -> str:
    """A parameter's default as in a call."""
    return '' if parameter.default is parameter.empty else f'={shown(parameter.default)}'


def storages(names: str, page: str) -> str:
    """The backends for ``file_client_args``."""
    rows = []
    for name in FileClient.backend_names():
        backend = FileClient.backend_class(name)
        if backend.__module__.startswith('runnerkit.'):
            text = ', '.join(f'`{each}{default_of(value)}`' for each, value in signature(backend).items())
            rows.append((f"`'{name}'`", first_sentence(markdown(parsed(backend).text)), text))
    return table(('backend', 'what it is', 'its arguments'), rows)


def schemes(names: str, page: str) -> str:
    """The prefixes of checkpoint names."""
    by_loader: dict[Any, list[str]] = {}
    import_module('runnerkit.checkpoint.schemes')
    for prefix, loader in CheckpointLoader._schemes.items():
        if prefix and loader.__module__.startswith('runnerkit.'):
            by_loader.setdefault(loader, []).append(f'`{prefix.split(")?")[-1]}`')
    return table(
        ('name', 'what is loaded'),
        sorted(
            (', '.join(sorted(names)), sentence(first_sentence(parsed(each).text.removeprefix('Load '))))
            for each, names in by_loader.items()
        ),
    )


def ignored(names: str, page: str) -> str:
    """Keys of MMCV's tools."""
    return ', '.join(f'`{name}`' for name in MMCV_TOOLS) + '.'


def hook_list(names: str, page: str) -> str:
    """The page's hooks, each with its first sentence and its section."""
    rows = []
    for title, section in re.findall(r'^## (.+?)\n(.*?)(?=^## |\Z)', page, flags=re.DOTALL | re.MULTILINE):
        group = [name for names in re.findall(r'<!-- hooks: (.*?) -->', section) for name in names.split()]
        here = f'[{title}](#{anchor(title)})'
        rows += [(*row, here) for row in told(name for name in group if name in HOOKS)]
    return table(('hook', 'what it does', 'section'), rows).replace('(hooks.md#', '(#')


def key_index(names: str, page: str) -> str:
    """All keys of the page's tables, each with its first sentence and a link to the heading above its table."""
    rows, here = [], ''
    for part in re.finditer(
        rf'^###? (?P<title>[^\n]+)$|{REGION.pattern}', without_code(page), re.DOTALL | re.MULTILINE
    ):
        if part['title']:
            here = anchor(part['title'].strip())
        elif part[3] in ('keys', 'written'):
            for name, key in rows_of(part[4], part[0]).items():
                rows.append((f'[`{name}`](#{here})', here.replace('-', ' '), first_sentence(key.meaning)))
    return table(('key', 'section', 'what it means'), rows)


def hooks_in_full(names: str, page: str) -> str:
    """Complete descriptions of hooks."""
    return '\n\n'.join(map(hook_in_full, names.split())).replace('(hooks.md#', '(#')


def hook_in_full(name: str) -> str:
    """One hook: text, facts, arguments."""
    hook = found(name)
    text = [f'### {name}', paragraphs(parsed(hook).text), *formula(hook), *facts(name, hook)]
    described = {each: key_of(hook, each) for each in signature(hook)}
    rest = ''
    base = next((each for each in family(hook)[1:] if is_base(each, hook)), None)
    if base is not None:
        same = {each for each in signature(base) if key_of(base, each) == described[each]}
        described = {each: key for each, key in described.items() if each not in same}
        rest = f'It {"also takes" if described else "takes"} the arguments of {markdown(f"`{base.__name__}`")}.'
    further = next((line for name, line in parsed(hook).lines.items() if name.endswith('kwargs')), '')
    if further and is_open(hook) and not (base is not None and is_open(base)):
        described['…'] = Key('', '', sentence(f'any other: {further[0].lower()}{further[1:]}'))
    return '\n\n'.join([*text, *([keys_table(described, 'argument')] if described else []), *([rest] if rest else [])])


def is_base(each: Any, hook: Any) -> bool:
    """Whether the page describes the hook ``each``, and ``hook`` takes all of its arguments."""
    described = each is not Hook and getattr(hooks, each.__name__, None) is each and bool(signature(each))
    return described and signature(each).keys() <= signature(hook).keys()


def formula(hook: Any) -> Iterator[str]:
    """The value of a policy."""
    for each in family(hook):
        if each.__module__ == schedules.__name__ and each not in (schedules.Policy, schedules.Annealed):
            yield f'Value: {paragraphs(parsed(each).text)}'
            return


def facts(name: str, hook: Any) -> Iterator[str]:
    """How a config names the hook, when it is called, and which state checkpoints keep."""
    lines = []
    if name in HOOKS:
        config, priority = in_config(name, hook)
        number = f'`{priority}` ({get_priority(priority)})'
        lines.append(f'- **In a config:** {config}')
        after = '; called after all other hooks of a point' if hook.runs_last else ''
        lines.append(f'- **Priority:** {number}{after}')
    known = (*POINTS, *MORE_POINTS, *RINGS)
    acts = [point for point in known if getattr(hook, point, None) is not getattr(Hook, point, None)]
    if acts:
        lines.append(f'- **Acts at:** {", ".join(f"`{point}`" for point in acts)}')
    if hook.state_dict is not Hook.state_dict:
        kept = first_sentence(markdown(' '.join(inspect.getdoc(hook.state_dict).split()))).removeprefix('Return ')
        lines.append(f'- **Kept in checkpoints:** {kept}')
    if lines:
        yield '\n'.join(lines)


def in_config(name: str, hook: Any) -> tuple[str, str]:
    """How a config names the hook, and the priority that it then has."""
    for section, suffix in SCHEDULES.items():
        if name.endswith(suffix):
            policy = 'CosineAnnealingLR' if name.startswith('Torch') else name.removesuffix(suffix)
            return f"`{section} = dict(policy='{policy}', …)`", PRIORITIES[section.removesuffix('_config')]
    if name == 'ProgressBarHook':
        return 'nothing to write: it is registered if the log goes to a terminal', 'LOWEST'
    if name in ('ClosureHook', 'DistEvalHook'):
        return 'none; register it in code: `runner.register_hook(…)`', 'NORMAL'
    if is_logger(name):
        return f"`log_config = dict(hooks=[dict(type='{name}')])`", PRIORITIES['logger']
    for section, default in DEFAULT_READERS.items():
        if default is not None and default in HOOKS and issubclass(hook, HOOKS.get(default)):
            kind = '…' if name == default else f"type='{name}', …"
            kind = f"type='{name}'" if name == 'IterTimerHook' else kind
            also = '; `dataloader` is the loader of `data.val`' if section == 'evaluation' else ''
            return f'`{section} = dict({kind})`{also}', PRIORITIES.get(section.removesuffix('_config'), 'LOW')
    more = ', …' if signature(hook) else ''
    return f"`custom_hooks = [dict(type='{name}'{more})]`", 'NORMAL'


def points(names: str, page: str) -> str:
    """Every point of a run, in order."""
    rows = [(f'`{point}`', markdown(inspect.getdoc(getattr(Hook, point)).split('\n\n')[0])) for point in POINTS]
    return table(('point', 'when'), rows)


GENERATORS: dict[str, Callable[[str, str], str]] = {
    'contents': contents,
    'index': key_index,
    'keys': keys,
    'policies': policies,
    'loggers': loggers,
    'initializers': initializers,
    'storages': storages,
    'schemes': schemes,
    'ignored': ignored,
    'list': hook_list,
    'hooks': hooks_in_full,
    'points': points,
}


def regenerated(page: str) -> str:
    """The page with all text between its markers regenerated."""

    def written(region: re.Match[str], what: Iterable[str]) -> str:
        start, kind, names, end = region.groups()
        return f'{start}\n{GENERATORS[kind](names or "", page)}\n\n{end}' if kind in what else region[0]

    page = REGION.sub(partial(written, what=set(GENERATORS) - {'contents', 'index'}), page)
    return REGION.sub(partial(written, what={'contents', 'index'}), page)  # they are made of the rest


def commands_page() -> str:
    """The page of all commands: usage, arguments and exit codes, from their parsers."""
    lines = [
        '# Every command',
        '',
        'Written by `make docs` from the parsers. `runnerkit COMMAND --help` prints the same.',
        '',
    ]
    for name, (_, purpose) in COMMANDS.items():
        parser = command_named(name).parser()
        formatter = parser._get_formatter()
        formatter._width = 110
        formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix='')
        lines += [f'## runnerkit {name}', '', f'{purpose[0].upper()}{purpose[1:]}.', '']
        lines += ['```text', formatter.format_help().strip(), '```', '', '| argument | meaning |', '|---|---|']
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
                continue
            flags = ', '.join(f'`{flag}`' for flag in action.option_strings) or f'`{action.metavar or action.dest}`'
            lines.append(f'| {flags} | {cell((action.help or "") % {**vars(action), "prog": parser.prog})} |')
        lines.append('')
    lines += ['## Exit codes', '', 'The same for all commands.', '', '| code | meaning |', '|---|---|']
    lines += [f'| {code} | {cell(meaning)} |' for code, meaning in MEANINGS.items()]
    lines += ['', *ENDS, '', '| ended by | outcome | exit code |', '|---|---|---|']
    lines += [f'| {" | ".join(map(cell, row))} |' for row in ENDINGS]
    lines += ['', *ENDS_WHERE]
    return '\n'.join(lines) + '\n'


def cell(text: str) -> str:
    """A text in a row of a table; ``[3][50]`` in it is no link."""
    return text.replace('|', '\\|').replace('[', '\\[').replace('<', '&lt;').replace('\n', ' ')


def main() -> None:
    """Write the pages and the data file."""
    COMMANDS_PAGE.write_text(commands_page(), encoding='utf-8')
    for path in PAGES.values():
        path.write_text(regenerated(path.read_text(encoding='utf-8')), encoding='utf-8')
    KNOWN_KEYS.write_text(as_data(PAGES['config_keys.md'].read_text(encoding='utf-8')), encoding='utf-8')


def as_data(page: str) -> str:
    """The text of the data file."""
    return json.dumps(known_keys(page), indent=1) + '\n'


if __name__ == '__main__':
    main()
