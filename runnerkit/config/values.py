"""What the values of a config must be, by the types in `known_keys` and a few ranges, and what others mean."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import isfinite
from numbers import Number
from typing import Any, NamedTuple

from runnerkit.config.known_keys import DEFAULT_READERS, SCHEDULES, SPLITS, TYPES


class ValueKind(NamedTuple):
    """What a key's value must be.

    Attributes:
        needed: in words, for messages.
        fits: whether a value is of this kind.
    """

    needed: str
    fits: Callable[[Any], bool]


def whole(at_least: int | None = None) -> ValueKind:
    """Whole numbers, of at least ``at_least`` if given. True and False are none."""
    needed = 'a whole number' if at_least is None else f'a whole number of at least {at_least}'
    low = float('-inf') if at_least is None else at_least
    return ValueKind(needed, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low)


def one_of(*names: Any) -> ValueKind:
    """One of a few values."""
    return ValueKind(f'{", ".join(map(repr, names[:-1]))} or {names[-1]!r}', lambda value: value in names)


def _is_numeric(value: Any) -> bool:
    # A learning rate may be a tensor.
    return (isinstance(value, Number) and not isinstance(value, bool)) or hasattr(value, 'item')


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


BOOL = ValueKind('True or False', lambda value: isinstance(value, bool))
NUMBER = ValueKind('a number', _is_numeric)
POSITIVE = ValueKind('a number above 0', lambda value: _is_numeric(value) and value > 0)
NUMBERS = ValueKind('a list of numbers', lambda value: _is_sequence(value) and all(map(_is_numeric, value)))
NUMBER_OR_PER_GROUP = ValueKind(
    'a number, a list of them or a dict by optimizer', lambda value: NUMBER.fits(value) or isinstance(value, Mapping)
    or NUMBERS.fits(value)
)  # fmt: skip
NUMBER_OR_PAIR = ValueKind('a number', lambda value: _is_numeric(value) or _is_sequence(value))  # Adafactor has two
WHOLE = whole()
STEPS = ValueKind(
    'a whole number or a list of them, such as [8, 11]',
    lambda value: all(map(WHOLE.fits, value)) if _is_sequence(value) else WHOLE.fits(value),
)
WHOLES = ValueKind('a list of whole numbers', lambda value: _is_sequence(value) and all(map(WHOLE.fits, value)))
TEXT = ValueKind('a text', lambda value: isinstance(value, str))
PATH = ValueKind('a path', lambda value: isinstance(value, (str, os.PathLike)))
SECTION = ValueKind('a dict', lambda value: isinstance(value, Mapping))
FP16 = ValueKind("a dict such as fp16=dict(loss_scale='dynamic')", SECTION.fits)
MODEL = ValueKind(
    'a dict with a type, or a torch.nn.Module',
    lambda value: isinstance(value, Mapping) or (hasattr(value, 'state_dict') and not isinstance(value, type)),
)
OPTIMIZER = ValueKind(
    'a dict with a type, the name of an optimizer, or a torch.optim.Optimizer',
    lambda value: isinstance(value, (Mapping, str)) or hasattr(value, 'param_groups'),
)
HOOK = ValueKind('a dict or a hook', lambda value: isinstance(value, Mapping) or hasattr(value, 'get_triggered_stages'))
#: The name or path of a class alone, which is enough for a hook without arguments.
_NAME = re.compile(r'[\w./\\:~ -]+')
HOOKS = ValueKind(
    'a list of dicts, hooks or names of hooks',
    lambda value: (
        all(HOOK.fits(each) or (isinstance(each, str) and _NAME.fullmatch(each)) for each in value)
        if _is_sequence(value)
        else HOOK.fits(value)
    ),
)
LOSS_SCALE = ValueKind(
    "a number above 0, 'dynamic' or a dict",
    lambda value: value == 'dynamic' or isinstance(value, Mapping) or (_is_numeric(value) and value > 0),
)
NORM_TYPE = ValueKind('a number', lambda value: value == 'inf' or _is_numeric(value))
NAMES = ValueKind(
    'a list of strings', lambda value: TEXT.fits(value) or (_is_sequence(value) and all(map(TEXT.fits, value)))
)
NAME_LIST = ValueKind(
    'a list of names', lambda value: _is_sequence(value) and bool(value) and all(map(TEXT.fits, value))
)
FUNCTION = ValueKind(
    "a function, its name such as 'my_file.py:function', or a dict with the name as type",
    lambda value: callable(value) or isinstance(value, str) or (isinstance(value, Mapping) and 'type' in value),
)
FUNCTIONS = ValueKind(
    f'{FUNCTION.needed}, or a list of these',
    lambda value: all(map(FUNCTION.fits, value)) if _is_sequence(value) else FUNCTION.fits(value),
)
SAMPLER = ValueKind('a dict or a sampler', lambda value: isinstance(value, Mapping) or hasattr(value, '__iter__'))
DATASET = ValueKind(
    'a dict with a type, a list of them or a data set, or a loader',
    lambda value: not isinstance(value, str) and (hasattr(value, '__getitem__') or hasattr(value, '__iter__')),
)
LEVELS = logging.getLevelNamesMapping() if hasattr(logging, 'getLevelNamesMapping') else logging._nameToLevel
LEVEL = ValueKind(f'a number or one of {", ".join(LEVELS)}', lambda value: value in LEVELS or WHOLE.fits(value))

#: Number types by their names in a config.
DTYPE = one_of('bf16', 'fp16', 'fp32')

#: The kinds of the types in `TYPES`; values of other types are checked by hand below, or by their reader.
_OF_TYPES = {
    'bool': BOOL,
    'int': WHOLE,
    'float': NUMBER,
    'dict': SECTION,
    'function': FUNCTION,
    'function or its name': FUNCTION,
    'list of int': WHOLES,
    'list of float': NUMBERS,
    'int or list of int': STEPS,
    'float or list of float or dict': NUMBER_OR_PER_GROUP,
    'list of str or str': NAMES,
    'path or URL': PATH,
}

_LOADERS = [f'data.{split}_dataloader' for split in SPLITS]

#: The sections whose values have the types of their readers' arguments, and these readers.
_READERS = {
    '': ['top'],
    **{section: [name for name in TYPES if name.endswith(suffix)] for section, suffix in SCHEDULES.items()},
    **{section: [reader] for section, reader in DEFAULT_READERS.items() if reader is not None},
    'model_wrapper': ['DDP', 'FSDP2'],
    'model_wrapper.mp_policy': ['mp_policy'],
    'optimizer_config.grad_clip': ['grad_clip'],
    'optimizer.paramwise_cfg': ['paramwise_cfg'],
    'optimizer.*.paramwise_cfg': ['paramwise_cfg'],
    'auto_scale_lr': ['auto_scale_lr'],
    'runner': ['EpochBasedRunner'],
    **{section: ['dataloader'] for section in ('data', *_LOADERS)},
}


def _all(kind: ValueKind, keys: str, *sections: str) -> dict[str, ValueKind]:
    """The kind of each of these keys, at the top level or in each of the sections."""
    return {f'{section}.{key}'.lstrip('.'): kind for section in sections or [''] for key in keys.split()}


_DATA = ('data', *_LOADERS)
_OPTIMIZERS = ('optimizer', 'optimizer.*')

#: What the value of each key must be, by its dotted key; ``*`` is any one key or index. None is allowed at the top
#: level, and where it is the default.
KINDS: dict[str, ValueKind] = {
    **{
        f'{section}.{key}'.lstrip('.'): _OF_TYPES[name]
        for section, readers in _READERS.items()
        for reader in readers
        for key, type_ in TYPES[reader].items()
        if (name := type_.removesuffix(' or None')) in _OF_TYPES
    },
    # The top level.
    'seed': whole(0),
    'num_threads': whole(1),
    'total_epochs': whole(0),
    'log_level': LEVEL,
    'custom_hooks': HOOKS,
    'model': MODEL,
    'optimizer': OPTIMIZER,
    'amp': one_of('bf16', 'fp16'),
    'fp16': FP16,
    **_all(HOOK, 'lr_config momentum_config optimizer_config checkpoint_config timer_config profiler_config'),
    # Schedules, with the arguments of torch's schedulers.
    **_all(TEXT, 'policy optimizer', *SCHEDULES),
    **_all(one_of('constant', 'linear', 'exp'), 'warmup', *SCHEDULES),
    **_all(whole(1), 'cyclic_times total_steps', *SCHEDULES),
    **_all(NUMBER, 'T_max T_0 T_mult total_iters step_size step_size_up step_size_down', *SCHEDULES),
    **_all(NUMBER, 'eta_min factor start_factor end_factor patience cooldown threshold', *SCHEDULES),
    **_all(WHOLES, 'milestones', *SCHEDULES),
    **_all(FUNCTIONS, 'lr_lambda', *SCHEDULES),
    **_all(FUNCTION, 'scale_fn', *SCHEDULES),
    # Arguments of torch's optimizers.
    **_all(NAMES, 'params', *_OPTIMIZERS),
    **_all(NUMBERS, 'betas', *_OPTIMIZERS),
    **_all(NUMBER_OR_PAIR, 'eps', *_OPTIMIZERS),
    **_all(NUMBER, 'lr weight_decay momentum dampening alpha rho lr_decay lambd t0 momentum_decay', *_OPTIMIZERS),
    **_all(NUMBER, 'initial_accumulator_value max_iter max_eval history_size', *_OPTIMIZERS),
    **_all(BOOL, 'nesterov amsgrad maximize fused foreach capturable differentiable centered', *_OPTIMIZERS),
    **_all(BOOL, 'decoupled_weight_decay', *_OPTIMIZERS),
    **_all(SECTION, 'paramwise_cfg paramwise_cfg.custom_keys.*', *_OPTIMIZERS),
    **_all(NUMBER, 'paramwise_cfg.custom_keys.*.*', *_OPTIMIZERS),
    # Ranges, and values that a type does not tell.
    **_all(whole(0), 'runner.max_epochs runner.max_iters evaluation.start'),
    **_all(whole(1), 'optimizer_config.cumulative_iters auto_scale_lr.base_batch_size evaluation.interval'),
    **_all(whole(1), 'profiler_config.profile_iters log_config.interval log_config.hooks.*.interval'),
    **_all(one_of('bf16', 'fp16'), 'optimizer_config.amp'),
    **_all(LOSS_SCALE, 'optimizer_config.loss_scale fp16.loss_scale'),
    'optimizer_config.grad_clip.norm_type': NORM_TYPE,
    **_all(PATH, 'out_dir', 'checkpoint_config', 'evaluation', 'log_config.hooks.*'),
    'checkpoint_config.filename_tmpl': TEXT,
    'evaluation.save_best': TEXT,
    'evaluation.rule': one_of('greater', 'less'),
    'evaluation.gpu_collect': BOOL,
    'profiler_config.json_trace_path': PATH,
    'log_config.hooks': HOOKS,
    'log_config.fingerprint': BOOL,
    # Options of hooks that mean the same in each of ours. The hooks of others may mean something else by them.
    **_all(BOOL, 'by_epoch ignore_last reset_flag', 'log_config.hooks.*'),
    'log_config.hooks.*.log_dir': PATH,
    **_all(POSITIVE, 'join_within end_within hang_after', 'dist_params'),
    'dist_params.timeout': ValueKind(
        'a number of seconds above 0', lambda value: POSITIVE.fits(value) or isinstance(value, timedelta)
    ),
    'dist_params.backend': ValueKind("a name such as 'gloo'", TEXT.fits),
    # Wrappers of the model.
    'model_wrapper.type': ValueKind('a name or a class', lambda value: isinstance(value, (str, type))),
    **_all(POSITIVE, 'bucket_cap_mb min_num_params', 'model_wrapper'),
    **_all(NAME_LIST, 'module_classes forward_methods', 'model_wrapper'),
    'model_wrapper.activation_checkpointing': ValueKind(
        'True, False or a list of names of classes', lambda value: BOOL.fits(value) or NAME_LIST.fits(value)
    ),
    'model_wrapper.reshard_after_forward': ValueKind(
        'True, False or a number of ranks of at least 2',
        lambda value: BOOL.fits(value) or (WHOLE.fits(value) and value >= 2),
    ),
    **_all(DTYPE, 'param_dtype reduce_dtype output_dtype', 'model_wrapper.mp_policy'),
    # Data.
    **_all(whole(1), 'samples_per_gpu batch_size prefetch_factor max_batches', *_DATA),
    **_all(whole(0), 'workers_per_gpu workers num_workers', *_DATA),
    **_all(SAMPLER, 'sampler batch_sampler', *_DATA),
    **{f'data.{split}': DATASET for split in SPLITS},
    **dict.fromkeys(_LOADERS, SECTION),
}

#: Keys whose value may be infinite: a limit that limits nothing, and the norm that is the largest value.
MAY_BE_INFINITE = ('optimizer_config.grad_clip.max_norm', 'optimizer_config.grad_clip.norm_type')

#: Kinds of values that hold others.
CONTAINERS = (SECTION, FP16, HOOK, HOOKS, MODEL, OPTIMIZER, DATASET, SAMPLER)

ROOTS = {key.partition('.')[0] for key in KINDS}
_DEPTH = max(key.count('.') + 1 for key in KINDS)

#: What YAML 1.1 reads as a text, because it wants a point and a sign: 1e-3, 1.5e3, 2E+4.
EXPONENT = re.compile(r'[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d{1,2}')

_TRUTHS = {'true': True, 'yes': True, 'on': True, '1': True, 'false': False, 'no': False, 'off': False, '0': False}


def kind_at(path: tuple[Any, ...]) -> str:
    """The key of `KINDS` that ``path`` matches; an empty text if there is none."""
    if path[0] not in ROOTS or len(path) > _DEPTH:  # most values of a config: those of its model and its data
        return ''
    patterns = ['']
    for step in path:
        patterns = [f'{start}.{part}' for start in patterns for part in (str(step), '*')]
    return next((each[1:] for each in patterns if each[1:] in KINDS), '')


def right_value(key: str, value: Any, kind: ValueKind, where: str = '') -> str:
    """What to write in place of ``value``, which is not of this kind; ``where`` is its ``file:line``."""
    right = meant_by(value, kind)
    if kind is HOOKS and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return f'Write names alone, such as {key}=[TextLoggerHook,TensorboardLoggerHook]; arguments need a config file.'
    if right is None:
        return f'Give {kind.needed}, or leave {key} out.'
    if kind is NUMBER and EXPONENT.fullmatch(str(value)) and where.split(':')[0].endswith(('.yaml', '.yml')):
        mantissa, _, exponent = value.lower().partition('e')
        written = f'{mantissa if "." in mantissa else mantissa + ".0"}e{int(exponent):+d}'
        return f'Write {key}: {written}; YAML reads an exponent without a point and a sign as a string.'
    return f'Write {right!r} in place of {value!r}.'


def meant_by(value: Any, kind: ValueKind) -> Any:
    """``value`` converted to this kind; None if it cannot be converted."""
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
