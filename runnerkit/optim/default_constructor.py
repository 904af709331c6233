"""Parameter groups with their own learning rate and weight decay, by kind of layer or by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from runnerkit.optim.builder import OPTIMIZER_BUILDERS, OPTIMIZERS
from runnerkit.parallel import named_parameters, unwrap
from runnerkit.registry import build_from_cfg
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import did_you_mean


def as_patterns(given: Any, key: str) -> list[str]:
    """A list of patterns from ``given``, one or several of them."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    patterns: list[Any] = [given] if isinstance(given, str) else list(given) if several else []
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise WrongType(f"{key} must be names or patterns such as ['backbone.*'], but got {given!r}")
    return patterns


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of ``patterns`` matches the parameter ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def chosen_parameters(patterns: Sequence[str], model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of ``model`` that ``patterns`` match, by their names, in the order of the model.

    Names are those inside any wrappers. A shared parameter is chosen by any of its names, and returned once, under the
    first of them.
    """
    named = named_parameters(model, remove_duplicate=False)
    names = list(named)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise WrongValue(
                f'the pattern {pattern!r} matches no parameter of {type(model).__name__}; {_hint(pattern, names)}'
            )
    chosen = {id(parameter) for name, parameter in named.items() if matches(patterns, name)}
    return {name: parameter for name, parameter in named_parameters(model).items() if id(parameter) in chosen}


def _hint(pattern: str, names: Sequence[str]) -> str:
    tries = (f'{pattern}.*', f'*{pattern}', f'*.{pattern}', f'*.{pattern}.*')
    meant = next((each for each in tries if any(fnmatchcase(name, each) for name in names)), None)
    if meant is not None:
        return f'did you mean {meant!r}?'
    parts = [name.split('.') for name in names]
    modules = dict.fromkeys('.'.join(part[:length]) + '.*' for part in parts for length in range(1, len(part)))
    return did_you_mean(pattern, [*modules, *names]) or f'they are called {", ".join(names[:3])} …'


#: The keys of ``paramwise_cfg`` and their defaults.
PARAMWISE_DEFAULTS: dict[str, Any] = {
    'custom_keys': {},
    'bias_lr_mult': 1.0,
    'bias_decay_mult': 1.0,
    'norm_decay_mult': 1.0,
    'dwconv_decay_mult': 1.0,
    'dcn_offset_lr_mult': 1.0,
    'bypass_duplicate': False,
}
CUSTOM_KEY_OPTIONS = ('lr_mult', 'decay_mult')

NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)

#: Deformable convolutions are recognised by name, because their libraries may not be installed.
DEFORMABLE = {'DeformConv2d', 'ModulatedDeformConv2d'}


@OPTIMIZER_BUILDERS.register_module()
class DefaultOptimizerConstructor:
    """Builds an optimizer for a model whose parameters may differ in learning rate and weight decay.

    Without ``paramwise_cfg`` the parameters form one group. With it each parameter has its own group, in the order of
    the modules, including parameters without gradients. A subclass may override `add_params` and have its own keys.

    Args:
        optimizer_cfg: ``type`` and arguments of the optimizer. It is not changed.
        paramwise_cfg: A dict with the keys below; None for none.
        params: Shell patterns over the names of parameters, such as ``['generator.*', 'shared.*']``, in which ``*``
            also matches dots: the optimizer gets those that one of them matches. None: all parameters. A shared
            parameter is found by each of its names, and has the options of the first.

    Keys of paramwise_cfg:
        custom_keys: ``{part of a parameter's name: dict(lr_mult=1, decay_mult=1)}``. The longest part that matches
            decides (the first in alphabetical order if equally long), and no other rule applies then.
        bias_lr_mult: factor of the learning rate of biases, but not of norm layers' and deformable convolutions'.
        bias_decay_mult: factor of the weight decay of biases, but not of norm layers', depthwise and deformable
            convolutions'.
        norm_decay_mult: factor of the weight decay of norm layers, biases included.
        dwconv_decay_mult: factor of the weight decay of depthwise convolutions, biases included.
        dcn_offset_lr_mult: factor of the learning rate of the offset layer in deformable convolutions.
        bypass_duplicate: whether to skip a parameter that is found a second time, with a warning.

    Raises:
        TypeError: If an argument, or ``custom_keys``, is not a dict.
        ValueError: If a key is unknown, a factor has nothing to multiply, or a pattern matches nothing.
    """

    #: Patterns of the parameters that the optimizer gets; None for all. For subclasses with their own __init__.
    params: list[str] | None = None

    def __init__(
        self,
        optimizer_cfg: dict[str, Any],
        paramwise_cfg: dict[str, Any] | None = None,
        params: Sequence[str] | str | None = None,
    ) -> None:
        if not isinstance(optimizer_cfg, dict):
            raise TypeError(
                f"optimizer_cfg should be a dict such as dict(type='SGD', lr=0.1), but got {optimizer_cfg!r}"
            )
        self.optimizer_cfg = optimizer_cfg
        self.paramwise_cfg = {} if paramwise_cfg is None else paramwise_cfg
        self.params = None if params is None else as_patterns(params, 'params')
        self.base_lr = optimizer_cfg.get('lr')
        self.base_wd = optimizer_cfg.get('weight_decay')
        self._validate_cfg()

    def __call__(self, model: nn.Module) -> Any:
        """Build the optimizer over the parameters of ``model``, or of the module that it wraps."""
        model = unwrap(getattr(model, 'module', model))
        params: Any = model.parameters()
        if self.paramwise_cfg:
            params = []
            self.add_params(params, model)
        if self.params is not None:
            params = self._chosen(params, model)
        elif self.paramwise_cfg:
            _check_once(params, model)
        return build_from_cfg(self.optimizer_cfg, OPTIMIZERS, default_args={'params': params})

    def _chosen(self, params: Iterable[Any], model: nn.Module) -> list[Any]:
        """Those of ``params``, parameters or groups of them, that the patterns choose."""
        chosen = {id(parameter): parameter for parameter in chosen_parameters(self.params or [], model).values()}
        found: list[Any] = []
        for each in params:
            own = [
                parameter
                for parameter in (each['params'] if isinstance(each, dict) else [each])
                if chosen.pop(id(parameter), None) is not None  # the first time: it may have several names
            ]
            if own:
                found.append({**each, 'params': own} if isinstance(each, dict) else own[0])
        return found

    def add_params(
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = '',
        is_dcn_module: int | float | bool | None = None,
    ) -> None:
        """Add a group for every parameter of ``module`` and of all modules in it.

        Args:
            params: The groups so far, to which the new ones are added.
            module: The module whose parameters are added.
            prefix: Name of the module in the whole model.
            is_dcn_module: Whether it is a direct child of a deformable convolution.
        """
        module = unwrap(module)  # a compiled part has the names of the part
        for name, parameter in module.named_parameters(recurse=False):
            group: dict[str, Any] = {'params': [parameter]}
            if self._option('bypass_duplicate') and self._is_in(group, params):
                warnings.warn(f'{prefix} is duplicate. It is skipped since bypass_duplicate=True')  # MMCV's words
                continue
            if parameter.requires_grad:
                lr_mult, decay_mult = self._multipliers(module, prefix, name, bool(is_dcn_module))
                if lr_mult is not None and self.base_lr is not None:
                    group['lr'] = self.base_lr * lr_mult
                if decay_mult is not None and self.base_wd is not None:
                    group['weight_decay'] = self.base_wd * decay_mult
            params.append(group)
        is_dcn_module = any(cls.__name__ in DEFORMABLE for cls in type(module).__mro__)
        for child_name, child in module.named_children():
            child_prefix = f'{prefix}.{child_name}' if prefix else child_name
            self.add_params(params, child, prefix=child_prefix, is_dcn_module=is_dcn_module)

    def _multipliers(
        self, module: nn.Module, prefix: str, name: str, in_dcn: bool
    ) -> tuple[float | None, float | None]:
        """Return the factors of a parameter's learning rate and weight decay; None if its group needs no entry."""
        custom_keys = self._option('custom_keys')
        for key in sorted(sorted(custom_keys), key=len, reverse=True):
            if key in f'{prefix}.{name}':
                return custom_keys[key].get('lr_mult', 1.0), custom_keys[key].get('decay_mult', 1.0)
        is_norm = isinstance(module, NORMS)
        is_conv = isinstance(module, nn.Conv2d)
        lr_mult = self._option('bias_lr_mult') if name == 'bias' and not is_norm and not in_dcn else None
        if in_dcn and is_conv and 'conv_offset' in prefix:
            lr_mult = self._option('dcn_offset_lr_mult')
        if is_norm:
            return lr_mult, self._option('norm_decay_mult')
        if is_conv and module.in_channels == module.groups:
            return lr_mult, self._option('dwconv_decay_mult')
        is_bias = name == 'bias' and not in_dcn
        return lr_mult, self._option('bias_decay_mult') if is_bias else None

    def _option(self, key: str) -> Any:
        return self.paramwise_cfg.get(key, PARAMWISE_DEFAULTS[key])

    def _is_in(self, param_group: dict[str, Any], param_group_list: list[dict[str, Any]]) -> bool:
        """Whether a parameter of the group is in one of the others."""
        seen = {id(parameter) for group in param_group_list for parameter in group['params']}
        return any(id(parameter) in seen for parameter in param_group['params'])

    def _validate_cfg(self) -> None:
        if not isinstance(self.paramwise_cfg, dict):
            raise TypeError(
                f'paramwise_cfg should be None or a dict of factors such as bias_lr_mult, got {self.paramwise_cfg!r}'
            )
        custom_keys = self.paramwise_cfg.get('custom_keys', {})
        if not isinstance(custom_keys, dict):
            raise TypeError(
                f"custom_keys must be a dict such as {{'backbone': dict(lr_mult=0.1)}}, got {custom_keys!r}"
            )
        if type(self) is DefaultOptimizerConstructor:  # a subclass may have other keys
            _check_keys('paramwise_cfg', self.paramwise_cfg, PARAMWISE_DEFAULTS)
            for key, options in custom_keys.items():
                if not isinstance(options, dict):
                    raise TypeError(
                        f'custom_keys[{key!r}] should be a dict such as dict(lr_mult=0.1), but got {options!r}'
                    )
                _check_keys(f'custom_keys[{key!r}]', options, CUSTOM_KEY_OPTIONS)
        self._check_bases(custom_keys)

    def _check_bases(self, custom_keys: dict[str, Any]) -> None:
        """Refuse factors of values that the optimizer's config does not give."""
        options = [key for key in self.paramwise_cfg if key.endswith(('lr_mult', 'decay_mult'))]
        options += [key for part in custom_keys.values() if isinstance(part, dict) for key in part]
        for suffix, name, base in (('decay_mult', 'weight_decay', self.base_wd), ('lr_mult', 'lr', self.base_lr)):
            given = [option for option in options if option.endswith(suffix)]
            if given and base is None:
                raise ValueError(
                    f'{given[0]} multiplies {name}, but the config of {self.optimizer_cfg.get("type")} has no '
                    f'{name}; set it there, or leave {given[0]} out'
                )


def _check_once(groups: Iterable[dict[str, Any]], model: nn.Module) -> None:
    """Refuse a parameter that is in two groups, with all its names."""
    owner: dict[int, int] = {}
    for number, parameter in ((number, each) for number, group in enumerate(groups) for each in group['params']):
        if owner.setdefault(id(parameter), number) != number:
            named = named_parameters(model, remove_duplicate=False).items()
            raise WrongValue(
                f'paramwise_cfg: {" = ".join(name for name, each in named if each is parameter)} is one parameter with '
                'several names (tied weights), which would be in several groups. Set bypass_duplicate=True in '
                'paramwise_cfg: the parameter then has the options of its first name'
            )


def _check_keys(what: str, given: dict[str, Any], known: Any) -> None:
    unknown = [key for key in given if key not in known]
    if unknown:
        hint = did_you_mean(str(unknown[0]), known)
        raise ValueError(f'{what} has no {unknown[0]!r}{"; " + hint if hint else "."} It takes: {", ".join(known)}.')
