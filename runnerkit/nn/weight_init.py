"""Initial weights: functions for one layer, and initialisers that a config names in ``init_cfg``.

An ``init_cfg`` is a dict, or a list of dicts that are applied one after another::

    dict(type='Kaiming', layer=['Conv2d', 'Linear'], override=dict(type='Normal', name='head', std=0.01))

``layer`` names the classes, or direct base classes, of the sub-modules to initialise. ``override`` initialises the
whole attribute ``name`` of the module in another way: by its own ``type``, or by the outer settings if it has none.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.parallel import submodule
from runnerkit.registry import Registry, build_from_cfg
from runnerkit.utils.exceptions import WrongKey, WrongValue
from runnerkit.utils.signatures import bind_arguments
from runnerkit.utils.suggest import did_you_mean, suggestion

INITIALIZERS = Registry('initializer')

_LOG = logging.getLogger('runnerkit')

_POSITIONAL, _REST = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_KEYWORD


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    """Set the weight to ``val`` and the bias to ``bias``, where ``module`` has them."""
    _fill_weight(module, lambda weight: nn.init.constant_(weight, val), bias)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = 'normal') -> None:
    """Xavier weights, 'uniform' or 'normal' (Glorot and Bengio 2010: variance ``gain**2 * 2 / (fan_in + fan_out)``)."""
    draw = _by_distribution(distribution, nn.init.xavier_uniform_, nn.init.xavier_normal_)
    _fill_weight(module, lambda weight: draw(weight, gain=gain), bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    """Normally distributed weights."""
    _fill_weight(module, lambda weight: nn.init.normal_(weight, mean, std), bias)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    """Normally distributed weights, cut off at ``a`` and ``b`` (values, not multiples of ``std``)."""
    _fill_weight(module, lambda weight: trunc_normal_(weight, mean, std, a, b), bias)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    """Weights uniform in ``[a, b)``."""
    _fill_weight(module, lambda weight: nn.init.uniform_(weight, a, b), bias)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: str = 'fan_out',
    nonlinearity: str = 'relu',
    bias: float = 0,
    distribution: str = 'normal',
) -> None:
    """Kaiming weights, 'uniform' or 'normal' (He et al. 2015).

    Args:
        module: the layer.
        a: negative slope of the rectifier after the layer, for 'leaky_relu'.
        mode: 'fan_in' keeps the variance in the forward pass, 'fan_out' in the backward pass.
        nonlinearity: what follows the layer, a name for `torch.nn.init.calculate_gain`.
        bias: constant for the bias.
        distribution: 'uniform' or 'normal'.
    """
    draw = _by_distribution(distribution, nn.init.kaiming_uniform_, nn.init.kaiming_normal_)
    _fill_weight(module, lambda weight: draw(weight, a=a, mode=mode, nonlinearity=nonlinearity), bias)


def caffe2_xavier_init(module: nn.Module, bias: float = 0) -> None:
    """Caffe2's ``XavierFill``: uniform with variance ``1 / fan_in``, in Kaiming's terms a leaky slope of 1."""
    kaiming_init(module, a=1, mode='fan_in', nonlinearity='leaky_relu', bias=bias, distribution='uniform')


def bias_init_with_prob(prior_prob: float) -> float:
    """Return the bias for which a sigmoid gives ``prior_prob``, in ``(0, 1)``; used in RetinaNet for rare classes."""
    if not 0 < prior_prob < 1:
        raise ValueError(
            f'bias_prob must be a probability between 0 and 1, both excluded, but got {prior_prob!r}, e.g. 0.01'
        )
    return -math.log((1 - prior_prob) / prior_prob)


@torch.no_grad()
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill ``tensor`` from the normal distribution restricted to ``[a, b]``, by inverting its distribution function.

    `torch.nn.init.trunc_normal_` samples in another way, so its numbers differ from MMCV's for the same seed.
    """
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    return tensor.uniform_(low, high).erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(min=a, max=b)


def _fill_weight(module: nn.Module, draw: Callable[[Tensor], Any], bias: float) -> None:
    if getattr(module, 'weight', None) is not None:
        draw(module.weight)  # type: ignore[arg-type]
    if getattr(module, 'bias', None) is not None:
        nn.init.constant_(module.bias, bias)  # type: ignore[arg-type]


def _by_distribution(distribution: str, uniform: Callable[..., Any], normal: Callable[..., Any]) -> Callable[..., Any]:
    if distribution not in ('uniform', 'normal'):
        raise WrongValue(f"distribution must be 'uniform' or 'normal', but got {distribution!r}")
    return uniform if distribution == 'uniform' else normal


class BaseInit:
    """An initialiser for the layers of certain classes; a subclass initialises one layer in `init`.

    Args:
        bias: constant for the biases.
        bias_prob: sets the bias so that a sigmoid gives this probability, in ``(0, 1)``.
        layer: names of the classes, or direct base classes, of the layers to initialise.
    """

    #: Whether to initialise every sub-module, whatever its class; True in an ``override``.
    wholemodule = False

    def __init__(
        self, *, bias: float = 0, bias_prob: float | None = None, layer: str | Sequence[str] | None = None
    ) -> None:
        if not isinstance(bias, int | float):
            raise TypeError(f'bias must be a number, but got a {type(bias)}: {bias!r}')
        if not (bias_prob is None or isinstance(bias_prob, int | float)):
            raise TypeError(f'bias_prob type must be float, but got {type(bias_prob)}: {bias_prob!r}')
        layers = [layer] if isinstance(layer, str) else [] if layer is None else layer
        if not (isinstance(layers, list | tuple) and all(isinstance(name, str) for name in layers)):
            raise TypeError(f'layer must be a str or a list of str, but got a {type(layer)}: {layer!r}')
        self.bias = bias if bias_prob is None else bias_init_with_prob(bias_prob)
        self.layer = list(layers)

    def __call__(self, module: nn.Module) -> None:
        """Initialise the matching layers in ``module``, inner ones first."""
        parts: list[nn.Module] = []
        module.apply(parts.append)  # in the order in which MMCV draws its random numbers
        for part in parts:
            if self.wholemodule or not _names_of(part).isdisjoint(self.layer):
                self.init(part)
        update_init_info(module, self._get_init_info())

    def init(self, module: nn.Module) -> None:
        """Initialise the weight and bias of one layer."""
        raise NotImplementedError

    def _get_init_info(self) -> str:
        settings = (f'{name}={value}' for name, value in vars(self).items() if name not in ('layer', 'wholemodule'))
        return f'{type(self).__name__}: {", ".join(settings)}'


def _make_initializer(name: str, fill: Callable[..., None], **defaults: float) -> Any:
    """Make and register the class ``<name>Init``, which calls ``fill`` with its arguments for each layer."""
    taken = [each for key, each in inspect.signature(fill).parameters.items() if key not in ('module', 'bias')]
    own = [each.replace(default=defaults.get(each.name, each.default)) for each in taken]
    ends = [inspect.Parameter(key, kind) for key, kind in (('self', _POSITIONAL), ('kwargs', _REST))]
    signature = inspect.Signature([ends[0], *own, ends[1]])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = bind_arguments(self, signature, args, kwargs)
        BaseInit.__init__(self, **given.pop('kwargs'))
        vars(self).update(given)

    def init(self: Any, module: nn.Module) -> None:
        """Initialise the weight and bias of one layer."""
        fill(module, bias=self.bias, **{each.name: getattr(self, each.name) for each in own})

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    body = {'__init__': __init__, 'init': init, '__doc__': f'See `{fill.__name__}`.', '__module__': __name__}
    return INITIALIZERS.register_module(name=name)(type(f'{name}Init', (BaseInit,), body))


ConstantInit = _make_initializer('Constant', constant_init)
XavierInit = _make_initializer('Xavier', xavier_init)
NormalInit = _make_initializer('Normal', normal_init)
TruncNormalInit = _make_initializer('TruncNormal', trunc_normal_init)
UniformInit = _make_initializer('Uniform', uniform_init, a=0.0, b=1.0)  # MMCV's function has whole numbers
KaimingInit = _make_initializer('Kaiming', kaiming_init)
Caffe2XavierInit = _make_initializer('Caffe2Xavier', caffe2_xavier_init)


@INITIALIZERS.register_module(name='Pretrained')
class PretrainedInit:
    """Weights from a checkpoint.

    Args:
        checkpoint: path or URL; of a folder, such as a work dir, its best checkpoint, else its latest.
        prefix: load only what lies below this name in the file, e.g. 'backbone.'.
        map_location: the device that the file's tensors are loaded to before they are copied; by default the CPU.
        part: the submodule that gets the weights, e.g. 'model.backbone'; by default the whole module. The rest is
            initialised as it would be without this.
    """

    def __init__(
        self, checkpoint: str, prefix: str | None = None, map_location: Any = None, part: str | None = None
    ) -> None:
        self.checkpoint, self.prefix, self.map_location = checkpoint, prefix, map_location or 'cpu'
        self.part = part

    def __call__(self, module: nn.Module) -> None:
        """Load into ``module``; missing and unexpected keys are logged.

        Raises:
            ValueError: there is no such part, the file has nothing below the prefix, or nothing of it fits.
        """
        from runnerkit.checkpoint.state_dict import load_checkpoint, load_part

        target = module if self.part is None else submodule(module, self.part, f'part={self.part!r}: ')
        if self.prefix is None:
            load_checkpoint(target, self.checkpoint, map_location=self.map_location, strict=False, logger=_LOG)
        else:
            load_part(target, self.prefix, self.checkpoint, map_location=self.map_location, logger=_LOG)
        update_init_info(module, self._get_init_info())

    def _get_init_info(self) -> str:
        return f'PretrainedInit: load from {self.checkpoint}'


def loads_a_part(cfg: Any) -> bool:
    """Whether a config, one of ``init_cfg``, loads weights into a submodule only: that comes last."""
    return isinstance(cfg, dict) and cfg.get('type') == 'Pretrained' and cfg.get('part') is not None


def initialize(module: nn.Module, init_cfg: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
    """Initialise ``module`` as ``init_cfg`` says; see this file's head. ``init_cfg`` is not changed.

    Raises:
        TypeError: ``init_cfg``, or a value in it, is of the wrong kind.
        KeyError: there is no initialiser of that ``type``.
        ValueError: a layer is misspelt, or an ``override`` lacks its ``name`` or ``type``.
        RuntimeError: ``module`` has no attribute that an ``override`` names.
    """
    for cfg in _configs_in(init_cfg, 'init_cfg'):
        own = copy.copy(cfg)
        overrides = own.pop('override', None)
        initializer = build_from_cfg(own, INITIALIZERS)
        _check_layers(module, initializer, cfg)
        initializer(module)
        if overrides is not None:
            for override in _configs_in(overrides, 'override'):
                _initialize_override(module, override, own)


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Record, while `BaseModule.init_weights` runs, how the changed parameters of ``module`` were initialised.

    Raises:
        KeyError: a parameter is not among the recorded ones.
    """
    noted = getattr(module, '_params_init_info', None)
    if noted is None:
        return
    for name, parameter in module.named_parameters():
        mean = mean_value(parameter)
        try:
            changed = mean != noted[parameter]['tmp_mean_value']
        except KeyError:
            raise WrongKey(
                f'{type(module).__name__} has a parameter {name!r} that its _params_init_info does not list: do not '
                f'add or replace parameters while weights are initialised'
            ) from None
        if changed:
            noted[parameter].update(init_info=init_info, tmp_mean_value=mean)


def mean_value(parameter: nn.Parameter) -> Any:
    """Return the mean of ``parameter``, used to detect changes; None if it has no values yet (lazy, meta)."""
    if nn.parameter.is_lazy(parameter) or parameter.is_meta:
        return None
    return parameter.detach().float().mean()


def _initialize_override(module: nn.Module, override: dict[str, Any], outer: dict[str, Any]) -> None:
    settings = copy.copy(override)
    name = settings.pop('name', None)
    if name is None:
        raise ValueError(f'`override` must contain the key "name", an attribute of the module, but got {override}')
    if settings and 'type' not in settings:
        raise ValueError(
            f'`override` need "type" key, but got {override}; '
            f'add type={outer["type"]!r}, or give only the name to use the outer settings {outer}'
        )
    if not hasattr(module, name):
        hint = suggestion(name, [child for child, _ in module.named_children()])
        raise RuntimeError(
            f'module did not have attribute {name}: it is a {type(module).__name__}, override={override}{hint}'
        )
    initializer = build_from_cfg(settings or outer, INITIALIZERS)
    initializer.wholemodule = True
    initializer(getattr(module, name))


def _configs_in(value: Any, name: str) -> list[dict[str, Any]]:
    items = [value] if isinstance(value, dict) else value
    if not (isinstance(items, list | tuple) and all(isinstance(item, dict) for item in items)):
        raise TypeError(f'{name} must be a dict or a list of dict, but got {type(value)}: {value!r}')
    return list(items)


def _names_of(module: nn.Module) -> set[str]:
    return {type(module).__name__, *(base.__name__ for base in type(module).__bases__)}


def _check_layers(module: nn.Module, initializer: Any, cfg: dict[str, Any]) -> None:
    """Find settings that would silently initialise nothing. A known layer that the model lacks is fine in a config."""
    if not isinstance(initializer, BaseInit):
        return
    if not initializer.layer and 'override' not in cfg:
        _LOG.warning('init_cfg=%s initialises nothing: say which layers it is for, e.g. layer=["Conv2d"]', cfg)
    present = set().union(*map(_names_of, module.modules()))
    for name in initializer.layer:
        if name in present or hasattr(nn, name):
            continue
        known = present | {other for other in dir(nn) if not other.startswith('_')}
        if any(name.lower() == other.lower() for other in known):
            raise ValueError(f'layer={name!r} in init_cfg={cfg} is not a layer; {did_you_mean(name, known)}')
        _LOG.warning('init_cfg: %s has no layer %r%s', type(module).__name__, name, suggestion(name, known))
