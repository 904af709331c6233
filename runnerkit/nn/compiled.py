"""Compiles a model, or parts of it, in place: its class, its steps and the names of its weights do not change."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import nn

from runnerkit.parallel import submodule
from runnerkit.utils.suggest import did_you_mean
from runnerkit.utils.torch_versions import compile_defaults

#: The known options: ``modules`` and the keyword arguments of torch.compile.
_KNOWN = (
    'modules',
    *(name for name, each in inspect.signature(torch.compile).parameters.items() if each.kind is each.KEYWORD_ONLY),
)

#: Modes of torch.compile that record CUDA graphs.
_GRAPH_MODES = ('reduce-overhead', 'max-autotune')


def check_options(options: Mapping[str, Any]) -> None:
    """Check the arguments of `compile_model`, as far as possible without a model."""
    for name, value in options.items():
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN)
            raise ValueError(f'compile has no key {name!r}; {hint or "it has " + ", ".join(_KNOWN)}')
        if name in ('fullgraph', 'disable') and not isinstance(value, bool):
            raise TypeError(f'compile: {name} must be True or False, but got {value!r}')
    backend, own = options.get('backend', 'inductor'), options.get('options')
    if not (isinstance(backend, str) or callable(backend)):
        raise TypeError(f"compile: backend must be a name such as 'inductor' or a function, but got {backend!r}")
    if own is not None and not isinstance(own, Mapping):
        raise TypeError(f'compile: options must be a dict of settings of the backend, but got {own!r}')
    dynamic, modules = options.get('dynamic'), options.get('modules')
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f'compile: dynamic must be True, False or None, but got {dynamic!r}')
    names = isinstance(modules, Sequence) and not isinstance(modules, str)
    if modules is not None and not (names and modules and all(isinstance(name, str) for name in modules)):
        raise TypeError(
            f"compile: modules must be a list of the names of submodules, such as ['backbone', 'head'], but got "
            f'{modules!r}'
        )


def compile_model(
    model: nn.Module, modules: Sequence[str] | None = None, dynamic: bool | None = False, **options: Any
) -> None:
    """Let torch compile ``model``, or some of its submodules, at the first call.

    Only calls are compiled, ``self(…)``: a step that calls ``self.backbone(…)`` needs ``modules=['backbone', …]``.
    """
    check_options({'modules': modules, 'dynamic': dynamic, **options})
    parts = [model] if modules is None else [submodule(model, name, 'compile: ') for name in modules]
    for part, name in zip(parts, modules or [''], strict=True):
        if getattr(part.forward, '__func__', None) is nn.Module.forward:
            what = f'the submodule {name!r}' if name else f'{type(model).__name__}'
            inside = [f'{name}.{child}'.lstrip('.') for child, _ in part.named_children()]
            raise ValueError(
                f'compile: {what} has no forward that could be compiled; name what is called in it, '
                f'compile=dict(modules=[…]), of {", ".join(inside)}'
            )
    options = {**compile_defaults(), **options}
    for part in parts:
        if 'forward' not in vars(part) and str(getattr(part.forward, '__module__', None)).startswith('torch.'):
            part.forward = MethodType(forward, part)
        try:
            part.compile(dynamic=dynamic, **options)
        except RuntimeError as error:
            raise ValueError(f'compile: torch refuses these settings: {error}') from error
    if modules is not None and uses_cuda_graphs(options):
        model.register_forward_pre_hook(_mark_step)


def uses_cuda_graphs(options: Mapping[str, Any]) -> bool:
    """Whether each call of the compiled module overwrites the outputs of the last one."""
    by_inductor = bool((options.get('options') or {}).get('triton.cudagraphs'))
    return options.get('mode') in _GRAPH_MODES or options.get('backend') == 'cudagraphs' or by_inductor


def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call the ``forward`` of the module's class.

    torch does not compile its own functions at the top level, so an ``nn.Sequential`` would not be compiled. It does
    compile this function. It is bound to the module as its ``forward``, and is copied and pickled with it.
    """
    return type(module).forward(module, *args, **kwargs)


def _mark_step(model: nn.Module, args: Any) -> None:
    # Without gradients, torch would take the call of the second compiled module for the beginning of the next batch.
    torch.compiler.cudagraph_mark_step_begin()
