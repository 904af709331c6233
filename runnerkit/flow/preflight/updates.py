"""Checks of what updates the weights, and of which weights."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from runnerkit.config.origin import Finding
from runnerkit.flow.preflight.plan import Plan, names
from runnerkit.hooks import OptimizerHook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.nn import Supervised
from runnerkit.parallel.wrappers import held_by_optimizer, named_parameters
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
    if plan.is_experiment or any(_has_code(each, _UPDATING) for each in steps):
        return
    yield plan.warning(
        ('optimizer_config',),
        f'no OptimizerHook is registered, and the step of {type(plan.model).__name__} seems not to call '
        'optimizer.step(): the weights never change',
        'Set optimizer_config=dict() (in Python: runner.register_optimizer_hook(dict())), or update the weights in '
        'the step.',
    )


def precision_is_used(plan: Plan) -> Iterator[Finding]:
    """``amp`` and ``fp16`` without an `OptimizerHook`, which is what applies them."""
    key = next((key for key in ('amp', 'fp16') if plan.get(key)), None)
    if key is not None and plan.runner is not None and not plan.hooks_of(OptimizerHook):
        yield plan.warning(
            (key,),
            'it has no effect: no OptimizerHook is registered, which applies it',
            'Leave optimizer_config=None out, or autocast in the step.',
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


def one_updater(plan: Plan) -> Iterator[Finding]:
    """Several optimizer hooks: the first one updates, the others find the update done."""
    # One that the user has written may update one optimizer among several.
    ours = [hook for hook in plan.hooks_of(OptimizerHook) if is_ours(type(hook).after_train_iter.__module__)]
    for hook in ours[1:]:
        yield plan.warning(
            plan.path_of(hook),
            f'{type(hook).__name__} updates nothing: {type(ours[0]).__name__} runs before it and has already updated',
            'Keep one of the two.',
        )


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
    model = type(plan.model.model if isinstance(plan.model, Supervised) else plan.model).__name__
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
    held = {name: set(map(id, held_by_optimizer(optimizer))) for name, optimizer in plan.optimizers.items()}
    for name, own in held.items():
        which, path = (f'the optimizer {name!r}', ('optimizer', name)) if name else ('the optimizer', ('optimizer',))
        if not own & trainable:
            frozen = any(id(parameter) in own for parameter in parameters)
            what = 'holds frozen parameters only' if frozen else f'holds no parameter of {model}'
            # One of several may be of parameters that are trained later, or that are elsewhere.
            tell = plan.warning if len(held) > 1 else plan.error
            yield tell(path, f'{which} {what}: it changes nothing', "Build it over the model's trainable parameters.")
    yield from _left_out(plan, set().union(*held.values()))


def _left_out(plan: Plan, held: set[int]) -> Iterator[Finding]:
    """Trainable parameters that no optimizer holds."""
    missing = [
        name
        for name, parameter in named_parameters(plan.model).items()
        if parameter.requires_grad and id(parameter) not in held and not any(part in name for part in _FOLLOWERS)
    ]
    if missing and len(missing) < sum(1 for _ in plan.model.parameters()):
        yield plan.warning(
            ('optimizer',),
            f'{len(missing)} trainable parameters are in no optimizer and never change: {names(missing)}',
            'Add them to an optimizer, or freeze them with requires_grad_(False).',
        )


def groups_hold_something(plan: Plan) -> Iterator[Finding]:
    """Parameter groups without parameters."""
    for name, optimizer in plan.optimizers.items():
        empty = [str(index) for index, group in enumerate(optimizer.param_groups) if not group['params']]
        if empty and len(empty) < len(optimizer.param_groups):
            yield plan.warning(
                ('optimizer', name) if name else ('optimizer',),
                f'parameter group {names(empty)} is empty',
                'Remove it, or check how its parameters are selected.',
            )


def learning_rate(plan: Plan) -> Iterator[Finding]:
    """A learning rate of 0 that no schedule raises."""
    for hook in plan.hooks:
        has_end = getattr(hook, 'minimum', None) or hasattr(hook, '_max_lr')
        raises = isinstance(hook, ScheduleHook) and hook.key == 'lr' and bool(hook.scheduler or has_end)
        if raises or not is_ours(type(hook).__module__):
            return
    for name, optimizer in plan.optimizers.items():
        if optimizer.param_groups and all(float(group.get('lr', 1)) == 0 for group in optimizer.param_groups):
            path = ('optimizer', name, 'lr') if name else ('optimizer', 'lr')
            yield plan.warning(path, 'is 0: the weights never change', 'Give a positive learning rate.')
