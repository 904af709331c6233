"""What the five stages of a run have in common, and which ones a config names."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from runnerkit.config.readers import hint_for_error
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context, Options
from runnerkit.registry import Registry, placed_errors
from runnerkit.utils.lazy import loaded_class
from runnerkit.utils.suggest import near_miss, suggestion
from runnerkit.utils.user_files import is_ours

#: Stages by name. A config names one in ``flow``, for example ``flow=dict(startup='TreeStartup')``.
STAGES = Registry('stage')
STAGES.offer(
    {
        'Infer': 'runnerkit.flow.stages.inference',
        'InferNetwork': 'runnerkit.flow.stages.inference',
        'Instance': 'runnerkit.flow.stages.instance',
        'Network': 'runnerkit.flow.stages.network',
        'Runner': 'runnerkit.flow.stages.training',
        'Startup': 'runnerkit.flow.stages.startup',
        'Terminal': 'runnerkit.flow.stages.terminal',
        'TrainStage': 'runnerkit.flow.stages.training',
    }
)

#: What makes a stage of the context: a class, or a function.
Maker = Callable[[Context], Any]


class EngineMode(Enum):
    """Whether a run has one process or several: ``context['engine']``, a name of PaddleRec's."""

    SINGLE = 1
    CLUSTER = 2


class Stage:
    """A stage of a run. It is made with the run's context right before it is called, once, with the same context.

    Do not subclass this class but the base of one stage: `InstanceBase`, `NetworkBase`, `StartupBase`, `RunnerBase` or
    `TerminalBase`. The base does what every run needs of a stage, around the method that a subclass overrides.
    """

    def __init__(self, context: Context) -> None:
        """Keep nothing of the context: each method gets it."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        raise NotImplementedError


class Slot(NamedTuple):
    """One of the five places for a stage: its name in a config, the method that a stage for it overrides, the module of
    its base and of its default."""

    name: str
    method: str
    module: str
    is_needed: bool = True

    @property
    def class_name(self) -> str:
        """The name of the default class, and of the class in a file that a config names without one: ``Startup``."""
        return self.name.capitalize()

    @property
    def base(self) -> type[Stage]:
        """What a stage for it must be a subclass of."""
        return getattr(import_module(self.module), f'{self.class_name}Base')

    @property
    def default(self) -> type[Stage]:
        """The stage for it if the config names none."""
        return getattr(import_module(self.module), self.class_name)


#: The stages in their order. The last one is called even if another one fails.
SLOTS = (
    Slot('instance', 'instance', 'runnerkit.flow.stages.instance'),
    Slot('network', 'build_network', 'runnerkit.flow.stages.network'),
    Slot('startup', 'startup', 'runnerkit.flow.stages.startup', is_needed=False),
    Slot('runner', 'run', 'runnerkit.flow.stages.training'),
    Slot('terminal', 'terminal', 'runnerkit.flow.stages.terminal', is_needed=False),
)


def makers(cfg: Any, options: Options, given: Mapping[str, Any]) -> dict[str, Maker | None]:
    """What makes the stage of each slot; None for one that is left out."""
    names = [slot.name for slot in SLOTS]
    for name in given:
        if name not in names:
            raise KeyError(f'unknown stage {name!r}{suggestion(str(name), names)}; there are {", ".join(names)}')
    config = cfg.get('flow')
    if config is not None and not isinstance(config, Mapping):
        with placed_errors(cfg, 'flow'):
            raise TypeError(f"flow must be a dict such as dict(startup='my_startup.py'), but got {config!r}")
    chosen: dict[str, Maker | None] = {}
    for slot in SLOTS:
        if slot.name in given:
            chosen[slot.name] = maker(slot, given[slot.name])
        elif config is not None and slot.name in config:
            value: Any = config[slot.name]
            holder: Any
            holder, key = (value, 'type') if isinstance(value, Mapping) else (config, slot.name)
            if isinstance(holder.get(key), str) and holder[key].endswith('.py'):
                holder[key] += f':{slot.class_name}'  # so that a copy of the config says what it is
            with placed_errors(config, slot.name, name=f'flow.{slot.name}'):
                chosen[slot.name] = maker(slot, config[slot.name])
        else:
            chosen[slot.name] = slot.default
    if options.dry_run and 'runner' not in given:
        made, infer = _underlying(chosen['runner']), loaded_class('runnerkit.flow.stages.inference:Infer')
        if not (isinstance(made, type) and issubclass(made, infer)):
            chosen['runner'] = import_module('runnerkit.flow.look.dry_run').DryRun
    return chosen


def maker(slot: Slot, value: Any) -> Maker | None:
    """What makes the stage that ``value`` names for ``slot``."""
    if value is None:
        if slot.is_needed:
            raise TypeError(f'flow.{slot.name} is None, but a run cannot do without it: leave the key out')
        return None
    arguments = {}
    if isinstance(value, Mapping):
        arguments = {key: each for key, each in value.items() if key != 'type'}
        value = value.get('type', slot.default)
    if isinstance(value, str):
        value = _stage_named(slot, value)
    if isinstance(value, type):
        _check_stage(slot, value, arguments)
    elif not callable(value):
        raise TypeError(f'flow.{slot.name} must name a class, but got {value!r}')
    return partial(value, **arguments) if arguments else value


def _stage_named(slot: Slot, text: str) -> Any:
    """The stage of this registered name, dotted path or file."""
    name = f'{text}:{slot.class_name}' if text.endswith('.py') else text
    try:
        stage = STAGES.get(name)
    except Exception as error:
        note_place(error, name.rpartition(':')[0])
        raise
    if stage is None:
        names = [name for name, kind in STAGES.module_dict.items() if issubclass(kind, slot.base)]
        hint = " (a file's name ends with .py)" if os.path.isfile(f'{text}.py') else suggestion(text, names)
        raise KeyError(f'unknown stage {text!r}{hint}; known are {", ".join(names)}')
    return stage


def _check_stage(slot: Slot, stage: type, arguments: Mapping[str, Any]) -> None:
    """Refuse a class that cannot be the stage of ``slot``: of another base, without a method of it, or with one that
    cannot be called."""
    base, name = slot.base, f'{stage.__name__} ({definition_place(stage)})'
    if not issubclass(stage, base):
        raise TypeError(
            f'{name} cannot be the stage {slot.name!r}: it must be a subclass of runnerkit.flow.{base.__name__}'
        )
    methods = [method for method in dir(base) if not method.startswith('_')]
    overridden = {method for each in stage.__mro__[: stage.__mro__.index(base)] for method in vars(each)}
    for method in overridden:
        meant = None if method.startswith('_') else near_miss(method, methods)
        if meant is not None:
            raise TypeError(
                f'{name} has a method {method!r}, which is never called; did you mean {meant!r}? (Begin its name with '
                'an underscore if it is your own)'
            )
    if stage is not slot.default and not {'__call__', '__init__', *methods} & overridden:
        raise TypeError(f'{name} changes nothing: it overrides no method of {base.__name__} ({", ".join(methods)})')
    for method, function, values, options in (
        ('__init__', stage, [None], arguments),
        (slot.method, getattr(stage, slot.method), [None, None], {}),
    ):
        try:
            inspect.signature(function).bind(*values, **options)
        except TypeError as error:
            raise TypeError(f'{name}: {method}({", ".join(["self", "context", *options])}) fails: {error}') from None


def _underlying(make: Any) -> Any:
    return make.func if isinstance(make, partial) else make


def file_of_user(make: Any) -> str | None:
    """The file in which the class or function of a stage is defined, unless it is runnerkit's own."""
    name = getattr(_underlying(make), '__module__', None) or ''
    return None if is_ours(name) else getattr(sys.modules.get(name), '__file__', None)


def definition_place(make: Any) -> str:
    """Where a class or function is defined: ``'runnerkit.flow.stages.startup'``, ``'stages/my_startup.py:12'``."""
    made, file = _underlying(make), file_of_user(make)
    try:
        return str(made.__module__) if file is None else f'{shown(file)}:{inspect.getsourcelines(made)[1]}'
    except (OSError, AttributeError, TypeError):
        return str(getattr(made, '__module__', None) or made)


def origin(make: Any) -> str:
    """What makes a stage, and where that is defined, for messages."""
    return 'left out' if make is None else f'{getattr(_underlying(make), "__name__", make)} ({definition_place(make)})'


def note_place(error: BaseException, file: str, before: str = '') -> None:
    """Note on ``error`` the last line of a user's ``file`` in its traceback, and what to write in place of another
    system's name."""
    if instead := hint_for_error(error):
        error.add_note(instead)
    path = os.path.realpath(file)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in frames if os.path.realpath(frame.f_code.co_filename) == path]
    if lines:
        error.add_note(f'{before}{shown(file)}:{lines[-1]}')
