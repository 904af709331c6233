"""Checks of what few runs have: averages, captures, frozen parts, and the multipliers of ``paramwise_cfg``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from runnerkit.config.origin import Finding
from runnerkit.flow.preflight.plan import Plan, amount, names, parts_of_optimizer
from runnerkit.hooks import EvalHook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.optim.default_constructor import DEFORMABLE, NORMS
from runnerkit.parallel import named_modules, named_parameters
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.lazy import loaded_class


def average_is_slow(plan: Plan) -> Iterator[Finding]:
    """A momentum of `EMAHook` that looks like a decay."""
    for hook in plan.hooks_of(loaded_class('runnerkit.hooks.ema:EMAHook')):
        one_step = 1 - (1 - hook.momentum) ** (1 / hook.interval)
        if one_step > 0.5:
            yield plan.warning(
                plan.key_of(hook, 'momentum'),
                f'momentum={one_step:.6g} is the weight of the newest parameters: hardly anything is averaged',
                f'If it is the decay of another library, write momentum={1 - one_step:.6g}.',
            )


def captures_are_right(plan: Plan) -> Iterator[Finding]:
    """Submodules of `CaptureHook` that the model does not have, and captures that never come or cost much."""
    kind = loaded_class('runnerkit.hooks.capture:CaptureHook')
    for evaluation in plan.hooks_of(EvalHook):
        if any(isinstance(hook, kind) for hook in evaluation.hooks):
            what = 'CaptureHook captures nothing in an evaluation'
            yield plan.warning(plan.key_of(evaluation, 'hooks'), what, 'Write it into custom_hooks.')
    for hook in plan.hooks_of(kind):
        try:
            hook.find_modules(plan.model)
        except ValueError as error:
            way_out = 'Write names of submodules, as in model.named_modules().'
            yield plan.error(plan.key_of(hook, 'modules'), one_line(error), way_out)
        if plan.get('compile') and hook.interval == 1:
            yield plan.warning(
                plan.key_of(hook, 'modules'),
                'CaptureHook captures every iteration, and a captured one runs without compile',
                'Set its interval, for example to that of the log.',
            )


def freezes_something(plan: Plan) -> Iterator[Finding]:
    """Patterns of `FreezeHook` that match nothing or everything, and an end that never comes."""
    for hook in plan.hooks_of(loaded_class('runnerkit.hooks.freeze:FreezeHook')):
        from runnerkit.hooks.freeze import check_patterns

        try:
            found = set(check_patterns(hook.patterns, plan.model, hook.except_))
        except ValueError as error:
            yield plan.error(
                plan.key_of(hook, 'patterns'), one_line(error), 'Write whole names of parameters, with * for any text.'
            )
            continue
        if not any(part.requires_grad for name, part in named_parameters(plan.model).items() if name in found):
            yield plan.warning(
                plan.key_of(hook, 'patterns'),
                f'freezes nothing: its parameters do not require gradients anyway ({names(sorted(found))})',
                'Remove the hook, or the code that freezes them in the model.',
            )
        length = plan.length(hook.by_epoch)
        if length and hook.until is not None and hook.until >= length:
            yield plan.warning(
                plan.key_of(hook, 'until'),
                f'is never reached: the run ends after {amount(length, hook.by_epoch)}',
                f'Let until be less than {length}, or leave it out.',
            )


# --- paramwise_cfg ---------------------------------------------------------------------------------------------------

#: Whether a multiplier applies to a parameter: its module, its name there, and whether that is a part of a deformable
#: convolution.
_Applies = Callable[[nn.Module, str, bool], bool]


def _is_bias(module: nn.Module, name: str, in_dcn: bool) -> bool:
    return name == 'bias' and not isinstance(module, NORMS) and not in_dcn


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.in_channels == module.groups


#: What each multiplier applies to, in words and as a predicate.
_MULTIPLIERS: dict[str, tuple[str, _Applies]] = {
    'bias_lr_mult': ('bias outside of norm layers', _is_bias),
    'bias_decay_mult': (
        'bias outside of norm layers and depthwise convolutions',
        lambda module, name, in_dcn: _is_bias(module, name, in_dcn) and not _is_depthwise(module),
    ),
    'norm_decay_mult': ('norm layer with parameters', lambda module, name, in_dcn: isinstance(module, NORMS)),
    'dwconv_decay_mult': ('depthwise convolution', lambda module, name, in_dcn: _is_depthwise(module)),
    'dcn_offset_lr_mult': (
        'deformable convolution',
        lambda module, name, in_dcn: in_dcn and isinstance(module, nn.Conv2d),
    ),
}


def multipliers_match(plan: Plan) -> Iterator[Finding]:
    """Multipliers and patterns of ``paramwise_cfg`` that apply to no parameter."""
    for path, name, config in parts_of_optimizer(plan):
        paramwise = config.get('paramwise_cfg')
        if not isinstance(paramwise, Mapping) or config.get('constructor', 'DefaultOptimizerConstructor') != (
            'DefaultOptimizerConstructor'
        ):
            continue
        model: nn.Module = plan.model
        if config.get('params') is None:
            model = named_modules(plan.model, remove_duplicate=False).get(name, plan.model)
        path = (*path, 'paramwise_cfg')
        yield from _patterns(plan, path, paramwise.get('custom_keys') or {}, model)
        for key, (meant, applies) in _MULTIPLIERS.items():
            if paramwise.get(key, 1) != 1 and not _applies_somewhere(model, applies):
                yield plan.warning(
                    (*path, key), f'applies to nothing: {type(model).__name__} has no {meant}', f'Leave {key} out.'
                )


def _applies_somewhere(model: nn.Module, applies: _Applies) -> bool:
    for parent in model.modules():
        in_dcn = any(cls.__name__ in DEFORMABLE for cls in type(parent).__mro__)
        for module in (model, *parent.children()) if parent is model else parent.children():
            inside = in_dcn and module is not model
            if any(applies(module, name, inside) for name, _ in module.named_parameters(recurse=False)):
                return True
    return False


def _patterns(plan: Plan, path: tuple[Any, ...], patterns: Mapping[str, Any], model: nn.Module) -> Iterator[Finding]:
    # As the constructor sees them: a parameter of the model itself is called '.weight'.
    parameters = {name if '.' in name else f'.{name}': part for name, part in named_parameters(model).items()}
    ordered = sorted(sorted(patterns), key=len, reverse=True)
    for pattern in patterns:
        matching = [name for name in parameters if pattern in name]
        own = [name for name in matching if next(each for each in ordered if each in name) == pattern]
        if not matching:
            what = f'matches no parameter of {type(model).__name__}, such as {names(list(parameters))}'
        elif not own:
            what = f'has no effect: longer patterns match each of its parameters ({names(matching)})'
        elif not any(parameters[name].requires_grad for name in own):
            what = f'has no effect: its parameters are frozen ({names(own)})'
        else:
            continue
        way_out = "Write a part of a parameter's name, or leave it out."
        yield plan.warning((*path, 'custom_keys', pattern), what, way_out)


def multipliers_last(plan: Plan) -> Iterator[Finding]:
    """Learning rates of several groups that a policy replaces by one."""
    differ = any(len({float(group.get('lr', 0)) for group in one.param_groups}) > 1 for one in plan.optimizers.values())
    for hook in plan.hooks if differ else ():
        peak = getattr(hook, '_max_lr', None) if isinstance(hook, ScheduleHook) else None
        if isinstance(peak, (int, float)):
            yield plan.warning(
                plan.key_of(hook, 'max_lr'),
                f'max_lr={peak} becomes the peak of every parameter group: their different learning rates '
                '(paramwise_cfg) are lost',
                "Use torch's policy='OneCycleLR', which keeps them, or give a list with one value per group.",
            )
