"""The five places for the stages of a run, and what a config puts there."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runnerkit.config.readers import hint_for_error
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context, Options
from runnerkit.flow.stages.instance import Instance, InstanceBase
from runnerkit.flow.stages.network import Network, NetworkBase
from runnerkit.flow.stages.stage import STAGES, Stage
from runnerkit.flow.stages.startup import Startup, StartupBase
from runnerkit.flow.stages.terminal import Terminal, TerminalBase
from runnerkit.flow.stages.training import RunnerBase, TrainStage
from runnerkit.registry import placed_errors
from runnerkit.utils.lazy import loaded_class
from runnerkit.utils.suggest import near_miss, suggestion
from runnerkit.utils.user_files import is_ours


@dataclass(frozen=True)
class Slot:
    """One of the five places for a stage.

    Attributes:
        name: what a config calls it.
        base: what a stage for it must be a subclass of.
        method: the method that a stage for it overrides.
        default: the stage for it if the config names none.
        is_needed: whether a config may not leave it out.
    """

    name: str
    base: type[Stage]
    method: str
    default: type[Stage]
    is_needed: bool = True

    @property
    def class_name(self) -> str:
        """The name of the class in a file that a config names without one: ``Startup``."""
        return self.name.capitalize()


#: The stages in their order. The last one is called even if another one fails.
SLOTS = (
    Slot('instance', InstanceBase, 'instance', Instance),
    Slot('network', NetworkBase, 'build_network', Network),
    Slot('startup', StartupBase, 'startup', Startup, is_needed=False),
    Slot('runner', RunnerBase, 'run', TrainStage),
    Slot('terminal', TerminalBase, 'terminal', Terminal, is_needed=False),
)


def makers(cfg: Any, options: Options, given: Mapping[str, Any]) -> dict[str, Callable[[Context], Any] | None]:
    """What makes the stage of each slot; None for one that is left out."""
    names = [slot.name for slot in SLOTS]
    for name in given:
        if name not in names:
            raise KeyError(f'unknown stage {name!r}{suggestion(str(name), names)}; there are {", ".join(names)}')
    config = cfg.get('flow')
    if config is not None and not isinstance(config, Mapping):
        with placed_errors(cfg, 'flow'):
            raise TypeError(f"flow must be a dict such as dict(startup='my_startup.py'), but got {config!r}")
    found: dict[str, Callable[[Context], Any] | None] = {}
    if config is not None:
        name_classes(config)
    for slot in SLOTS:
        if slot.name in given:
            found[slot.name] = maker(slot, given[slot.name])
        elif config is not None and slot.name in config:
            with placed_errors(config, slot.name, name=f'flow.{slot.name}'):
                found[slot.name] = maker(slot, config[slot.name])
        else:
            found[slot.name] = slot.default
    if options.dry_run and 'runner' not in given and not is_inference(found['runner']):
        from runnerkit.flow.look.dry_run import DryRun

        found['runner'] = DryRun
    return found


def is_inference(make: Any) -> bool:
    """Whether what makes the runner stage makes one that does not train."""
    made = make.func if isinstance(make, partial) else make
    return isinstance(made, type) and issubclass(made, loaded_class('runnerkit.flow.stages.inference:Infer'))


def name_classes(config: Any) -> None:
    """Add the names of the classes to the files in ``config``, so that a copy of the config says what they are."""
    for slot in SLOTS:
        value = config.get(slot.name)
        holder: Any
        holder, key = (value, 'type') if isinstance(value, Mapping) else (config, slot.name)
        if isinstance(holder.get(key), str) and holder[key].endswith('.py'):
            holder[key] += f':{slot.class_name}'


def maker(slot: Slot, value: Any) -> Callable[[Context], Any] | None:
    """What makes the stage that ``value`` names for ``slot``.

    Raises:
        KeyError: there is no such stage.
        TypeError: it is not one for this slot.
    """
    if value is None:
        if slot.is_needed:
            raise TypeError(f'flow.{slot.name} is None, but a run cannot do without it: leave the key out')
        return None
    arguments = {}
    if isinstance(value, Mapping):
        arguments = {key: each for key, each in value.items() if key != 'type'}
        value = value.get('type', slot.default)
    if isinstance(value, str):
        value = _named(slot, value)
    if isinstance(value, type):
        check_stage(slot, value)
        check_signatures(slot, value, arguments)
    elif not callable(value):
        raise TypeError(f'flow.{slot.name} must name a class, but got {value!r}')
    return partial(value, **arguments) if arguments else value


def _named(slot: Slot, text: str) -> Any:
    """The stage of this registered name, dotted path or file."""
    name = f'{text}:{slot.class_name}' if text.endswith('.py') else text
    try:
        found = STAGES.get(name)
    except Exception as error:
        if instead := hint_for_error(error):
            error.add_note(instead)
        note_line(error, name.rpartition(':')[0])
        raise
    if found is None:
        known = [each for each, stage in STAGES.module_dict.items() if issubclass(stage, slot.base)]
        hint = " (a file's name ends with .py)" if os.path.isfile(f'{text}.py') else suggestion(text, known)
        raise KeyError(f'unknown stage {text!r}{hint}; known are {", ".join(known)}')
    return found


def check_stage(slot: Slot, stage: type) -> None:
    """Check that a class can be the stage of ``slot``.

    Raises:
        TypeError: it is no subclass of the slot's base, or overrides none of its methods.
    """
    base, name = slot.base.__name__, f'{stage.__name__} ({definition_place(stage)})'
    if not issubclass(stage, slot.base):
        raise TypeError(f'{name} cannot be the stage {slot.name!r}: it must be a subclass of runnerkit.flow.{base}')
    own = [method for each in stage.__mro__[: stage.__mro__.index(slot.base)] for method in vars(each)]
    known = [method for method in dir(slot.base) if not method.startswith('_')]
    for method in own:
        meant = None if method.startswith('_') else near_miss(method, known)
        if meant is not None:
            raise TypeError(
                f'{name} has a method {method!r}, which is never called; did you mean {meant!r}? (Begin its name with '
                'an underscore if it is your own)'
            )
    if stage is not slot.default and not {'__call__', '__init__', *known} & set(own):
        raise TypeError(f'{name} changes nothing: it overrides no method of {base} ({", ".join(known)})')


def check_signatures(slot: Slot, stage: type, arguments: Mapping[str, Any]) -> None:
    """Check that a stage can be made with the context and ``arguments``, and its methods be called with the context.

    Raises:
        TypeError: it cannot.
    """
    for name, function, values, options in (
        ('__init__', stage, [None], arguments),
        (slot.method, getattr(stage, slot.method), [None, None], {}),
    ):
        try:
            inspect.signature(function).bind(*values, **options)
        except TypeError as error:
            given = ', '.join(['self', 'context', *options])
            raise TypeError(f'{stage.__name__} ({definition_place(stage)}): {name}({given}) fails: {error}') from None


def origin(make: Any) -> str:
    """What makes a stage, and where that is defined, for messages."""
    if make is None:
        return 'left out'
    made = make.func if isinstance(make, partial) else make
    return f'{getattr(made, "__name__", made)} ({definition_place(made)})'


def definition_place(made: Any) -> str:
    """Where a class or function is defined: ``'runnerkit.flow.stages.startup'``, ``'stages/my_startup.py:12'``."""
    made = made.func if isinstance(made, partial) else made
    file = file_of_user(made)
    try:
        return str(made.__module__) if file is None else f'{shown(file)}:{inspect.getsourcelines(made)[1]}'
    except (OSError, AttributeError, TypeError):
        return str(getattr(made, '__module__', None) or made)


def file_of_user(made: Any) -> str | None:
    """The file of a class or function, unless it is runnerkit's own."""
    name = getattr(made, '__module__', None) or ''
    if is_ours(name):
        return None
    return getattr(sys.modules.get(name), '__file__', None)


def add_place(error: BaseException, slot: Slot, make: Any) -> None:
    """Note on ``error`` in which stage it was raised, and on which line if the stage is a user's; and what to write in
    place of another system's name."""
    file = file_of_user(make.func if isinstance(make, partial) else make)
    if file is None:
        return
    if instead := hint_for_error(error):
        error.add_note(instead)
    note_line(error, file, f'stage {slot.name!r}, ')


def note_line(error: BaseException, file: str, before: str = '') -> None:
    """Note on ``error`` the last line of ``file`` in its traceback, if there is one."""
    path = os.path.realpath(file)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in frames if os.path.realpath(frame.f_code.co_filename) == path]
    if lines:
        error.add_note(f'{before}{shown(file)}:{lines[-1]}')
