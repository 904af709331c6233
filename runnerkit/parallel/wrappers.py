"""Module wrappers: which classes they are, how to get the model inside, and names without those of wrappers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeGuard

from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.registry import Registry
from runnerkit.utils.lazy import loaded_class
from runnerkit.utils.suggest import did_you_mean

MODULE_WRAPPERS = Registry('module wrapper')
MODULE_WRAPPERS.register_module(module=nn.parallel.DataParallel)
MODULE_WRAPPERS.register_module(module=nn.parallel.DistributedDataParallel)
MODULE_WRAPPERS.offer(
    {
        'DDP': 'runnerkit.parallel.distributed',
        'FSDP2': 'runnerkit.parallel.fsdp',
        'MMDataParallel': 'runnerkit.parallel.data_parallel',
        'MMDistributedDataParallel': 'runnerkit.parallel.distributed',
    }
)


def is_module_wrapper(module: nn.Module) -> bool:
    """Whether ``module`` is of a class in `MODULE_WRAPPERS`, or in a registry below it: the model is its ``module``."""
    return isinstance(module, MODULE_WRAPPERS.loaded_with_children())


def is_fsdp2(model: Any) -> TypeGuard[Any]:
    """Whether ``model`` is a `runnerkit.parallel.FSDP2`."""
    return isinstance(model, loaded_class('runnerkit.parallel.fsdp:FSDP2'))


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside any wrappers, including the one of `torch.compile`."""
    while (name := inner_name(model)) is not None:
        model = getattr(model, name)
    return model


def inner_name(module: nn.Module) -> str | None:
    """Return the name of the attribute that holds the wrapped module; None if ``module`` is not a wrapper."""
    if isinstance(module, MODULE_WRAPPERS.loaded_with_children()):
        return 'module'
    # The wrapper class of torch.compile is not public, but the name of this child is in every checkpoint of one.
    return '_orig_mod' if '_orig_mod' in getattr(module, '_modules', ()) else None


class ReplacedModule:
    """Takes the place of ``wrapper.module`` until it is called, which calls ``call`` instead of the model."""

    def __init__(self, wrapper: nn.Module, call: Callable[..., Any]) -> None:
        self.wrapper, self.model, self.call = wrapper, wrapper.module, call
        vars(wrapper)['module'] = self  # an instance attribute hides the submodule of that name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call ``call``."""
        self.remove()  # it may use the model, or call the wrapper
        return self.call(*inputs, **kwargs)

    forward = __call__

    def remove(self) -> None:
        """Let the wrapper have its model again."""
        vars(self.wrapper).pop('module', None)


def forward_is_collective(model: nn.Module) -> bool:
    """Whether every forward pass of ``model`` is a collective, even without gradients: the ranks then have to make
    equally many in an evaluation.

    A wrapper, or a module inside it, says so with an attribute ``forward_is_collective``. Of torch's own, FSDP (both)
    gathers its weights in every forward pass, and DistributedDataParallel sends the buffers of rank 0.
    """
    sharding = sys.modules.get('torch.distributed.fsdp')  # a sharded model has imported it
    kinds = () if sharding is None else (sharding.FSDPModule, sharding.FullyShardedDataParallel)
    for module in model.modules():
        is_collective = getattr(module, 'forward_is_collective', None)
        if is_collective is None and isinstance(module, nn.parallel.DistributedDataParallel):
            is_collective = module.broadcast_buffers and any(True for _ in module.buffers())
        if is_collective or (is_collective is None and isinstance(module, kinds)):
            return True
    return False


def name_cleaner(module: nn.Module, prefix: str = '') -> Callable[[str], str]:
    """A function that removes from a name in ``module`` what wrappers around its parts, or around it, add;
    `str` if there are none.

    Wrappers are those in `MODULE_WRAPPERS` and `torch.compile`. Names in the module begin with ``prefix``.
    """
    wrapped: dict[str, str] = {}  # the beginnings of names, and what replaces them; inner wrappers come first
    for path, part in [*module.named_modules(prefix=prefix.rstrip('.'), remove_duplicate=False)][::-1]:
        if (attribute := inner_name(part)) is not None:
            wrapped[f'{path}.{attribute}.'.lstrip('.')] = path and f'{path}.'
    if not wrapped:
        return str

    def clean(name: str) -> str:
        name += '.'
        for start, path in wrapped.items():
            if name.startswith(start):
                name = path + name[len(start) :]
        return name[:-1]

    return clean


def without_compile(name: str) -> str:
    """``name`` without what `torch.compile` adds to it, whatever the model is."""
    return '.'.join(part for part in name.split('.') if part != '_orig_mod')


def named_modules(model: nn.Module, remove_duplicate: bool = True) -> dict[str, nn.Module]:
    """The modules of ``model``, inside any wrappers, by name, as torch's function of this name; wrappers are left out.

    Args:
        model: the model.
        remove_duplicate: False: by each of their names.
    """
    model = unwrap(model)
    clean = name_cleaner(model)
    return {clean(name): part for name, part in model.named_modules(remove_duplicate=remove_duplicate)}


def submodule(model: nn.Module, name: str, asked_by: str = '') -> nn.Module:
    """The module of that name in `named_modules`.

    Raises:
        ValueError: there is none; the message begins with ``asked_by``.
    """
    modules = named_modules(model, remove_duplicate=False)
    if name and name in modules:
        return modules[name]
    inner = unwrap(model)
    children = ', '.join(child for child, _ in inner.named_children()) or 'none'
    hint = did_you_mean(name, modules) or f'its children: {children}'
    raise ValueError(f'{asked_by}{type(inner).__name__} has no submodule {name!r}; {hint}')


def held_by_optimizer(optimizer: Optimizer) -> list[Any]:
    """All parameters of ``optimizer``, group by group."""
    return [parameter for group in optimizer.param_groups for parameter in group['params']]


def foreign_parameters(optimizer: Optimizer, model: nn.Module) -> list[Any]:
    """Those parameters of ``optimizer`` that ``model`` does not have."""
    own = {id(parameter) for parameter in model.parameters()}
    return [parameter for parameter in held_by_optimizer(optimizer) if id(parameter) not in own]


def named_parameters(model: nn.Module, remove_duplicate: bool = True) -> dict[str, nn.Parameter]:
    """The parameters of ``model``, inside any wrappers, by name; see `named_modules`."""
    model = unwrap(model)
    clean = name_cleaner(model)
    return {clean(name): each for name, each in model.named_parameters(remove_duplicate=remove_duplicate)}


def named_buffers(model: nn.Module, remove_duplicate: bool = True) -> dict[str, Tensor]:
    """The buffers of ``model``, inside any wrappers, by name; see `named_modules`."""
    model = unwrap(model)
    clean = name_cleaner(model)
    return {clean(name): each for name, each in model.named_buffers(remove_duplicate=remove_duplicate)}
