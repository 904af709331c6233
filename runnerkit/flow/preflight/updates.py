"""Checks of what updates the weights, and of which weights."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from runnerkit.config.findings import Finding
from runnerkit.config.known_keys import OWN_CONSTRUCTOR
from runnerkit.flow.preflight.plan import Plan, names, parts_of_optimizer
from runnerkit.hooks import OptimizerHook
from runnerkit.utils.user_files import is_ours

#: Parts of the names of submodules that are not trained by an optimizer, as a rule: copies that follow other weights.
_FOLLOWERS = ('ema', 'teacher', 'target', 'momentum')

#: What the code of a class has that updates the weights, and that lets parameters require gradients.
_UPDATING = r'\.step\(|\brunner\.update\('
_UNFREEZING = r'\brequires_grad|\bunfreeze\b'


def something_updates(plan: Plan) -> Iterator[Finding]:
    """A run without an `OptimizerHook`, whose steps do not look as if they update the weights themselves."""
    if not plan.optimizers or plan.hooks_of(OptimizerHook) or not plan.training_loaders:
        return
    processor, parts = getattr(plan.runner, 'batch_processor', None), {type(each) for each in plan.model.modules()}
    steps = [*map(type, plan.hooks), type(plan.runner), *parts, *([] if processor is None else [processor])]
    if hasattr(plan.runner, 'train_batch') or any(_has_code(each, _UPDATING) for each in steps):
        return
    yield plan.warning(
        ('optimizer_config',),
        f'no OptimizerHook is registered, and the step of {type(plan.model).__name__} seems not to call '
        'optimizer.step(): the weights never change',
        'Set optimizer_config=dict() (in Python: runner.register_optimizer_hook(dict())), or update the weights in '
        'the step.',
    )


def _has_code(thing: Any, pattern: str) -> bool:
    """Whether the code of a user's class or function matches ``pattern``, or cannot be read.

    Base classes count as well, but not those of torch and of runnerkit.
    """
    for each in inspect.getmro(thing) if isinstance(thing, type) else (inspect.unwrap(thing),):
        module = each.__module__ or ''
        if is_ours(module) or module.startswith(('torch.', 'builtins')):
            continue
        try:
            if re.search(pattern, inspect.getsource(each)):
                return True
        except (OSError, TypeError):
            return True
    return False


def step_takes_the_batch(plan: Plan) -> Iterator[Finding]:
    """A ``train_step`` with other parameters than ``(data, optimizer)``."""
    step = getattr(plan.model, 'train_step', None)
    if step is None or not any(mode == 'train' for mode, _ in plan.workflow):
        return
    try:
        signature = inspect.signature(step)
    except ValueError:
        return  # written in C
    try:
        signature.bind('data', 'optimizer')
    except TypeError as error:
        yield plan.error(
            ('model',),
            f'{type(plan.model).__name__}.train_step{signature} cannot be called with (data, optimizer): {error}',
            'Write def train_step(self, data, optimizer, **kwargs).',
        )


def something_is_trained(plan: Plan) -> Iterator[Finding]:
    """Models and optimizers without parameters that require gradients."""
    parameters = list(plan.model.parameters())
    trainable = {id(parameter) for parameter in parameters if parameter.requires_grad}
    if not plan.training_loaders or not plan.optimizers:
        return
    model = type(plan.model).__name__
    if not trainable:
        what = f'all {len(parameters)} parameters of {model} are frozen' if parameters else f'{model} has no parameters'
        may_unfreeze = [hook for hook in plan.hooks if _has_code(type(hook), _UNFREEZING)]
        tell = plan.warning if parameters and may_unfreeze else plan.error
        yield tell(
            ('model',),
            f'{what} (requires_grad=False): there is nothing to train'
            + (f' before {type(may_unfreeze[0]).__name__} changes that' if may_unfreeze else ''),
            'Unfreeze some parameters: look for frozen_stages, requires_grad_(False) and similar settings.',
        )
        return
    held = {name: _held(optimizer) for name, optimizer in plan.optimizers.items()}
    for name, own in held.items():
        which, path = (f'the optimizer {name!r}', ('optimizer', name)) if name else ('the optimizer', ('optimizer',))
        if not own & trainable:
            frozen = any(id(parameter) in own for parameter in parameters)
            what = 'holds frozen parameters only' if frozen else f'holds no parameter of {model}'
            # One of several may be of parameters that are trained later, or that are elsewhere.
            tell = plan.warning if len(held) > 1 else plan.error
            yield tell(path, f'{which} {what}: it changes nothing', "Build it over the model's trainable parameters.")
    yield from _left_out(plan, set().union(*held.values()))


def _held(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group['params']}


def _left_out(plan: Plan, held: set[int]) -> Iterator[Finding]:
    """Trainable parameters that no optimizer holds."""
    missing = [
        name
        for name, parameter in plan.model.named_parameters()
        if parameter.requires_grad and id(parameter) not in held and not any(part in name for part in _FOLLOWERS)
    ]
    if missing and len(missing) < sum(1 for _ in plan.model.parameters()):
        yield plan.warning(
            ('optimizer',),
            f'{len(missing)} trainable parameters are in no optimizer and never change: {names(missing)}',
            'Add them to an optimizer, or freeze them with requires_grad_(False).',
        )


def patterns_match(plan: Plan) -> Iterator[Finding]:
    """Patterns of ``paramwise_cfg.custom_keys`` that apply to no parameter."""
    for path, name, config in parts_of_optimizer(plan):
        paramwise = config.get('paramwise_cfg')
        if not isinstance(paramwise, Mapping) or config.get('constructor', OWN_CONSTRUCTOR) != OWN_CONSTRUCTOR:
            continue
        model: nn.Module = plan.model
        if config.get('params') is None:
            model = dict(plan.model.named_modules()).get(name, plan.model)
        # As the constructor sees them: a parameter of the model itself is called '.weight'.
        parameters = [name if '.' in name else f'.{name}' for name, _ in model.named_parameters()]
        for pattern in paramwise.get('custom_keys') or {}:
            if not any(pattern in name for name in parameters):
                yield plan.warning(
                    (*path, 'paramwise_cfg', 'custom_keys', pattern),
                    f'matches no parameter of {type(model).__name__}, such as {names(parameters)}',
                    "Write a part of a parameter's name, or leave it out.",
                )
