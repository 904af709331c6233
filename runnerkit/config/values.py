"""Values of a wrong type in a config: texts where numbers or booleans belong, fractions where whole numbers do.

Needs neither torch nor what the config builds.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from math import isfinite
from numbers import Number
from operator import getitem
from typing import Any, NamedTuple

from runnerkit.config.findings import Finding
from runnerkit.config.keys import is_ours
from runnerkit.config.known_keys import REQUIRED, SCHEDULES
from runnerkit.config.objects import WAY_OUT, is_mark, why_nameless
from runnerkit.config.origin import dotted, written_at
from runnerkit.config.pretty import OBJECT
from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import non_finite_numbers
from runnerkit.utils.signatures import LOADER_FUNCTIONS

Path = tuple[Any, ...]


class Kind(NamedTuple):
    """What a key's value must be.

    Attributes:
        needed: in words, for messages.
        fits: whether a value is of this kind.
    """

    needed: str
    fits: Callable[[Any], bool]


def whole(at_least: int | None = None) -> Kind:
    """Whole numbers, of at least ``at_least`` if given. True and False are none."""
    needed = 'a whole number' if at_least is None else f'a whole number of at least {at_least}'
    low = float('-inf') if at_least is None else at_least
    return Kind(needed, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low)


def one_of(*names: Any) -> Kind:
    """One of a few values."""
    return Kind(f'{", ".join(map(repr, names[:-1]))} or {names[-1]!r}', lambda value: value in names)


def _is_number(value: Any) -> bool:
    # A learning rate may be a tensor.
    return (isinstance(value, Number) and not isinstance(value, bool)) or hasattr(value, 'item')


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


BOOL = Kind('True or False', lambda value: isinstance(value, bool))
NUMBER = Kind('a number', _is_number)
POSITIVE = Kind('a number above 0', lambda value: _is_number(value) and value > 0)
NUMBERS = Kind('a list of numbers', lambda value: _is_list(value) and all(map(_is_number, value)))
NUMBER_OR_PER_GROUP = Kind(
    'a number, a list of them or a dict by optimizer', lambda value: NUMBER.fits(value) or isinstance(value, Mapping)
    or NUMBERS.fits(value)
)  # fmt: skip
NUMBER_OR_PAIR = Kind('a number', lambda value: _is_number(value) or _is_list(value))  # Adafactor has two
WHOLE = whole()
STEPS = Kind(
    'a whole number or a list of them, such as [8, 11]',
    lambda value: all(map(WHOLE.fits, value)) if _is_list(value) else WHOLE.fits(value),
)
WHOLES = Kind('a list of whole numbers', lambda value: _is_list(value) and all(map(WHOLE.fits, value)))
TEXT = Kind('a text', lambda value: isinstance(value, str))
PATH = Kind('a path', lambda value: isinstance(value, (str, os.PathLike)))
SECTION = Kind('a dict', lambda value: isinstance(value, Mapping))
MODEL = Kind(
    'a dict with a type, or a torch.nn.Module',
    lambda value: isinstance(value, Mapping) or (hasattr(value, 'state_dict') and not isinstance(value, type)),
)
HOOK = Kind('a dict or a hook', lambda value: isinstance(value, Mapping) or hasattr(value, 'get_triggered_stages'))
#: The name or path of a class alone, which is enough for a hook without arguments.
_NAME = re.compile(r'[\w./\\:~ -]+')
HOOKS = Kind(
    'a list of dicts, hooks or names of hooks',
    lambda value: (
        all(HOOK.fits(each) or (isinstance(each, str) and _NAME.fullmatch(each)) for each in value)
        if _is_list(value)
        else HOOK.fits(value)
    ),
)
LOSS_SCALE = Kind(
    "a number above 0, 'dynamic' or a dict",
    lambda value: value == 'dynamic' or isinstance(value, Mapping) or (_is_number(value) and value > 0),
)
NORM_TYPE = Kind('a number', lambda value: value == 'inf' or _is_number(value))
NAMES = Kind('a list of strings', lambda value: TEXT.fits(value) or (_is_list(value) and all(map(TEXT.fits, value))))
NAME_LIST = Kind('a list of names', lambda value: _is_list(value) and bool(value) and all(map(TEXT.fits, value)))
FUNCTION = Kind(
    "a function, its name such as 'my_file.py:function', or a dict with the name as type",
    lambda value: callable(value) or isinstance(value, str) or (isinstance(value, Mapping) and 'type' in value),
)
FUNCTIONS = Kind(
    f'{FUNCTION.needed}, or a list of these',
    lambda value: all(map(FUNCTION.fits, value)) if _is_list(value) else FUNCTION.fits(value),
)
SAMPLER = Kind('a dict or a sampler', lambda value: isinstance(value, Mapping) or hasattr(value, '__iter__'))
DATASET = Kind(
    'a dict with a type, a list of them or a data set',
    lambda value: not isinstance(value, str) and (hasattr(value, '__getitem__') or hasattr(value, '__iter__')),
)
LEVELS = logging.getLevelNamesMapping() if hasattr(logging, 'getLevelNamesMapping') else logging._nameToLevel
LEVEL = Kind(f'a number or one of {", ".join(LEVELS)}', lambda value: value in LEVELS or WHOLE.fits(value))

_SCHEDULE: dict[str, Kind] = {
    'policy': TEXT,
    'by_epoch': BOOL,
    'warmup': one_of('constant', 'linear', 'exp'),
    'warmup_iters': WHOLE,
    'warmup_ratio': NUMBER,
    'warmup_by_epoch': BOOL,
    'optimizer': TEXT,
    'step': STEPS,
    'periods': WHOLES,
    'restart_weights': NUMBERS,
    'three_phase': BOOL,
    **dict.fromkeys(
        ('gamma', 'power', 'min_lr', 'min_lr_ratio', 'min_momentum', 'min_momentum_ratio', 'start_percent'), NUMBER
    ),
    **dict.fromkeys(('step_ratio_up', 'pct_start', 'div_factor', 'final_div_factor'), NUMBER),
    **dict.fromkeys(('max_lr', 'max_momentum', 'base_momentum'), NUMBER_OR_PER_GROUP),
    **dict.fromkeys(('cyclic_times', 'total_steps'), whole(1)),
    # Arguments of torch's schedulers.
    **dict.fromkeys(('T_max', 'T_0', 'T_mult', 'total_iters', 'step_size', 'step_size_up', 'step_size_down'), NUMBER),
    **dict.fromkeys(('eta_min', 'factor', 'start_factor', 'end_factor', 'patience', 'cooldown', 'threshold'), NUMBER),
    'milestones': WHOLES,
    'lr_lambda': FUNCTIONS,
    'scale_fn': FUNCTION,
}

_OPTIMIZER: dict[str, Kind] = {
    'params': NAMES,
    'betas': NUMBERS,
    'eps': NUMBER_OR_PAIR,
    **dict.fromkeys(
        (
            'lr',
            'weight_decay',
            'momentum',
            'dampening',
            'alpha',
            'rho',
            'lr_decay',
            'initial_accumulator_value',
            'lambd',
            't0',
            'momentum_decay',
            'max_iter',
            'max_eval',
            'history_size',
        ),
        NUMBER,
    ),
    **dict.fromkeys(
        (
            'nesterov',
            'amsgrad',
            'maximize',
            'fused',
            'foreach',
            'capturable',
            'differentiable',
            'centered',
            'decoupled_weight_decay',
        ),
        BOOL,
    ),
    'paramwise_cfg': SECTION,
    'paramwise_cfg.custom_keys': SECTION,
    'paramwise_cfg.custom_keys.*': SECTION,
    'paramwise_cfg.custom_keys.*.*': NUMBER,
    'paramwise_cfg.bypass_duplicate': BOOL,
    **{
        f'paramwise_cfg.{key}': NUMBER
        for key in ('bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'dwconv_decay_mult', 'dcn_offset_lr_mult')
    },
}

_LOADER: dict[str, Kind] = {
    **dict.fromkeys(('samples_per_gpu', 'batch_size', 'prefetch_factor', 'max_batches'), whole(1)),
    **dict.fromkeys(('workers_per_gpu', 'num_workers'), whole(0)),
    **dict.fromkeys(('persistent_workers', 'pin_memory', 'seeded', 'shuffle', 'drop_last', 'round_up'), BOOL),
    'timeout': NUMBER,
    **dict.fromkeys(('sampler', 'batch_sampler'), SAMPLER),
    **dict.fromkeys(LOADER_FUNCTIONS, FUNCTION),
}

#: Options of hooks that mean the same in each of ours. The hooks of others may mean something else by them.
_LOGGER: dict[str, Kind] = {
    'interval': whole(1),
    **dict.fromkeys(('by_epoch', 'ignore_last', 'reset_flag'), BOOL),
    **dict.fromkeys(('log_dir', 'out_dir'), PATH),
}


#: Number types by their names in a config.
DTYPE = one_of('bf16', 'fp16', 'fp32')

_WRAPPER: dict[str, Kind] = {
    'type': Kind('a name or a class', lambda value: isinstance(value, (str, type))),
    **dict.fromkeys(
        (
            'broadcast_buffers',
            'find_unused_parameters',
            'gradient_as_bucket_view',
            'static_graph',
            'init_sync',
            'cpu_offload',
        ),
        BOOL,
    ),
    'bucket_cap_mb': POSITIVE,
    'module_classes': NAME_LIST,
    'min_num_params': POSITIVE,
    'forward_methods': NAME_LIST,
    'activation_checkpointing': Kind(
        'True, False or a list of names of classes', lambda value: BOOL.fits(value) or NAME_LIST.fits(value)
    ),
    'reshard_after_forward': Kind(
        'True, False or a number of ranks of at least 2',
        lambda value: BOOL.fits(value) or (WHOLE.fits(value) and value >= 2),
    ),
    'mp_policy': SECTION,
    'mp_policy.param_dtype': DTYPE,
    'mp_policy.reduce_dtype': DTYPE,
    'mp_policy.output_dtype': DTYPE,
    'mp_policy.cast_forward_inputs': BOOL,
}


def _below(section: str, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    return {f'{section}.{key}': kind for key, kind in kinds.items()}


#: What the value of each key must be, by its dotted key; ``*`` is any one key or index. None is allowed at the top
#: level, and where it is the default.
KINDS: dict[str, Kind] = {
    'seed': whole(0),
    'num_threads': whole(1),
    'total_epochs': whole(0),
    'log_level': LEVEL,
    'custom_hooks': HOOKS,
    **dict.fromkeys(('deterministic', 'auto_resume', 'find_unused_parameters', 'broadcast_buffers'), BOOL),
    'sync_batchnorm': BOOL,
    **dict.fromkeys(('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch'), BOOL),
    **dict.fromkeys(('load_from', 'resume_from', 'work_dir'), PATH),
    **dict.fromkeys(
        ('data', 'evaluation', 'log_config', 'dist_params', 'optimizer', 'auto_scale_lr', 'flow', 'training'), SECTION
    ),
    'model': MODEL,
    'runner': SECTION,
    **dict.fromkeys(('lr_config', 'momentum_config', 'optimizer_config', 'checkpoint_config', 'timer_config'), HOOK),
    'profiler_config': HOOK,
    **_below('optimizer', _OPTIMIZER),
    **_below('optimizer.*', _OPTIMIZER),
    **_below('lr_config', _SCHEDULE),
    **_below('momentum_config', _SCHEDULE),
    'runner.max_epochs': whole(0),
    'runner.max_iters': whole(0),
    'runner.batch_processor': FUNCTION,
    'optimizer_config.cumulative_iters': whole(1),
    'optimizer_config.detect_anomalous_params': BOOL,
    'optimizer_config.grad_clip': SECTION,
    'optimizer_config.grad_clip.max_norm': NUMBER,
    'optimizer_config.grad_clip.norm_type': NORM_TYPE,
    'optimizer_config.grad_clip.error_if_nonfinite': BOOL,
    'optimizer_config.grad_clip.foreach': BOOL,
    'optimizer_config.amp': one_of('bf16', 'fp16'),
    'optimizer_config.loss_scale': LOSS_SCALE,
    'fp16.loss_scale': LOSS_SCALE,
    'model_wrapper': SECTION,
    **_below('model_wrapper', _WRAPPER),
    'auto_scale_lr.enable': BOOL,
    **{f'dist_params.{key}': POSITIVE for key in ('join_within', 'end_within', 'hang_after')},
    'dist_params.timeout': Kind(
        'a number of seconds above 0', lambda value: POSITIVE.fits(value) or isinstance(value, timedelta)
    ),
    'dist_params.backend': Kind("a name such as 'gloo'", TEXT.fits),
    'auto_scale_lr.base_batch_size': whole(1),
    'checkpoint_config.interval': WHOLE,
    'checkpoint_config.max_keep_ckpts': WHOLE,
    **{
        f'checkpoint_config.{key}': BOOL
        for key in ('by_epoch', 'save_optimizer', 'save_last', 'sync_buffer', 'async_save', 'create_symlink')
    },
    'checkpoint_config.meta': SECTION,
    'checkpoint_config.out_dir': PATH,
    'checkpoint_config.file_client_args': SECTION,
    'checkpoint_config.filename_tmpl': TEXT,
    'evaluation.interval': whole(1),
    'evaluation.start': whole(0),
    'evaluation.by_epoch': BOOL,
    'evaluation.gpu_collect': BOOL,
    'evaluation.test_fn': FUNCTION,
    'evaluation.save_best': TEXT,
    'evaluation.rule': one_of('greater', 'less'),
    'evaluation.greater_keys': NAMES,
    'evaluation.less_keys': NAMES,
    'evaluation.out_dir': PATH,
    'evaluation.file_client_args': SECTION,
    'profiler_config.profile_iters': whole(1),
    **{
        f'profiler_config.{key}': BOOL
        for key in ('by_epoch', 'record_shapes', 'profile_memory', 'with_stack', 'with_flops', 'parts')
    },
    'profiler_config.json_trace_path': PATH,
    'log_config.interval': whole(1),
    'log_config.hooks': HOOKS,
    **_below('log_config.hooks.*', _LOGGER),
    **_below('data', _LOADER),
    **{f'data.{split}': DATASET for split in ('train', 'val', 'test')},
    **{f'data.{split}_dataloader': SECTION for split in ('train', 'val', 'test')},
    **{f'data.{split}_dataloader.{key}': kind for split in ('train', 'val', 'test') for key, kind in _LOADER.items()},
}

#: Keys whose value may be infinite: a limit that limits nothing, and the norm that is the largest value.
MAY_BE_INFINITE = ('optimizer_config.grad_clip.max_norm', 'optimizer_config.grad_clip.norm_type')

#: Kinds of values that hold others.
_CONTAINERS = (SECTION, HOOK, HOOKS, MODEL, DATASET, SAMPLER)

#: Sections that a class of the user's own may read.
_BY_HOOKS = (*SCHEDULES, 'optimizer_config', 'checkpoint_config', 'model_wrapper')

_ROOTS = {key.partition('.')[0] for key in KINDS}
_DEPTH = max(key.count('.') + 1 for key in KINDS)

#: Sections in which texts that look like numbers are texts: addresses and ports, names of files and runs.
_TEXTUAL = ('dist_params', 'work_dir', 'load_from', 'resume_from', 'log_level', 'log_config', 'custom_imports')

#: What YAML 1.1 reads as a text, because it wants a point and a sign: 1e-3, 1.5e3, 2E+4.
_EXPONENT = re.compile(r'[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d{1,2}')

_TRUTHS = {'true': True, 'yes': True, 'on': True, '1': True, 'false': False, 'no': False, 'off': False, '0': False}


def wrong_values(cfg: Any) -> Iterator[Finding]:
    """Every value of a wrong type: an error where the key is known (`KINDS`), a warning elsewhere.

    A function without a name, which a work dir cannot keep, gets a warning.
    """
    for path, value in _walk(getattr(cfg, '_cfg_dict', cfg)):
        kind = KINDS.get(_pattern(path))
        if why := why_nameless(value):
            yield Finding('warning', dotted(path), written_at(cfg, path), *why)
        if is_mark(value):
            what = f'was a Python object, which a written config cannot hold: {value[len(OBJECT) :]}'
            level: Any = 'error' if path[0] in _ROOTS else 'warning'
            yield Finding(level, dotted(path), written_at(cfg, path), what, WAY_OUT + '.')
        elif kind is not None:
            is_told = _is_list(value) and any(map(is_mark, value))  # item by item, as marks
            is_wrong = value is not None and not kind.fits(value) and not is_told
            if is_wrong and (_is_known(cfg, path) or _meant(value, kind) is not None):
                yield _finding(
                    'error', cfg, path, f'must be {kind.needed}, but got {printable(repr(value), 200)}', value, kind
                )
        elif isinstance(value, str) and path[0] not in _TEXTUAL:
            if _EXPONENT.fullmatch(value):
                yield _finding('warning', cfg, path, f'{value!r} is a string, not a number', value, NUMBER)
            elif value in ('True', 'False', 'true', 'false') and not isinstance(path[-1], int):  # not names of classes
                yield _finding('warning', cfg, path, f'{value!r} is a string, which counts as true', value, BOOL)


def non_finite(cfg: Any) -> Iterator[Finding]:
    """Numbers that are NaN or infinite: an error in the sections of a run, where only `MAY_BE_INFINITE` may be
    infinite; a warning where classes of the user's own read them, of which NaN is one everywhere."""
    node = getattr(cfg, '_cfg_dict', cfg)
    for path, number in non_finite_numbers(node):
        holder = next((path[:n] for n in range(len(path), 0, -1) if _pattern(path[:n]) in KINDS), ())
        pattern = _pattern(holder) if holder else ''
        kind = KINDS.get(pattern)
        is_value = kind is not None and kind not in _CONTAINERS
        if kind is not None and is_value and not kind.fits(reduce(getitem, holder, node)):
            continue  # `wrong_values` tells it
        is_nan, is_ours = number != number, path[0] in _ROOTS and path[0] not in ('model', 'data')
        if not is_nan and (pattern in MAY_BE_INFINITE or not (is_ours or is_value)):
            continue
        level: Any = 'error' if (is_value and _is_known(cfg, path)) or (is_nan and is_ours) else 'warning'
        name = next(str(step) for step in reversed(path) if isinstance(step, str))
        what = f'must be finite, but is {number!r}'
        yield Finding(level, dotted(path), written_at(cfg, path), what, f'Give a finite number, or leave {name} out.')


def _is_known(cfg: Any, path: Path) -> bool:
    """Whether the key at ``path`` has the meaning that `KINDS` gives it; a user's own hook may read other values."""
    return len(path) == 1 or path[0] not in _BY_HOOKS or is_ours(cfg, path[0])


def _walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if path:
        yield path, node
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _walk(value, (*path, key))
    elif type(node) in (list, tuple):
        for index, value in enumerate(node):
            if isinstance(value, (Mapping, str, list, tuple)) or callable(value):  # lists of numbers may be long
                yield from _walk(value, (*path, index))


def _pattern(path: Path) -> str:
    """The key of `KINDS` that ``path`` matches; an empty text if there is none."""
    if path[0] not in _ROOTS or len(path) > _DEPTH:  # most values of a config: those of its model and its data
        return ''
    patterns = ['']
    for step in path:
        patterns = [f'{start}.{part}' for start in patterns for part in (str(step), '*')]
    return next((each[1:] for each in patterns if each[1:] in KINDS), '')


def _finding(level: Any, cfg: Any, path: Path, what: str, value: Any, kind: Kind) -> Finding:
    where = written_at(cfg, path)
    way_out = right_value(str(path[-1]), value, kind, where)
    if len(path) == 1 and path[0] in REQUIRED:
        way_out = way_out.replace(f', or leave {path[0]} out', '')
    return Finding(level, dotted(path), where, what, way_out)


def right_value(key: str, value: Any, kind: Kind, where: str = '') -> str:
    """What to write in place of ``value``, which is not of this kind; ``where`` is its ``file:line``."""
    right = _meant(value, kind)
    if kind is HOOKS and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return f'Write names alone, such as {key}=[TextLoggerHook,TensorboardLoggerHook]; arguments need a config file.'
    if right is None:
        return f'Give {kind.needed}, or leave {key} out.'
    if kind is NUMBER and _EXPONENT.fullmatch(str(value)) and where.split(':')[0].endswith(('.yaml', '.yml')):
        mantissa, _, exponent = value.lower().partition('e')
        written = f'{mantissa if "." in mantissa else mantissa + ".0"}e{int(exponent):+d}'
        return f'Write {key}: {written}; YAML reads an exponent without a point and a sign as a string.'
    return f'Write {right!r} in place of {value!r}.'


def _meant(value: Any, kind: Kind) -> Any:
    """The value of this kind that ``value`` stands for; None if that is not clear."""
    if isinstance(value, str):
        if kind is BOOL:
            return _TRUTHS.get(value.lower())
        if kind is LEVEL and value.upper() in LEVELS:
            return value.upper()
        try:
            number = float(value)
        except ValueError:
            return None
        if not isfinite(number) and kind is not NORM_TYPE:
            return None
        value = int(number) if number.is_integer() and kind not in (NUMBER, POSITIVE) else number
    elif kind is BOOL and value in (0, 1):
        return bool(value)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if not isinstance(value, bool) and kind.fits(value) else None
