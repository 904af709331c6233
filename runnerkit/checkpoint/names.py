"""Names of a model's weights without the prefixes of wrappers around the model or its parts."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from runnerkit.parallel import unwrap
from runnerkit.parallel.wrappers import name_cleaner, without_compile

EMA_PREFIX = 'ema_'


def get_state_dict(
    module: nn.Module, destination: dict[str, Any] | None = None, prefix: str = '', keep_vars: bool = False
) -> dict[str, Any]:
    """The state dict of the module inside any wrappers, with clean names, also in its ``_metadata``.

    Wrappers are those in `runnerkit.parallel.MODULE_WRAPPERS` and `torch.compile`, also around parts of the model.

    Args:
        module: the model, wrapped or not.
        destination: a dict to fill; by default a new one.
        prefix: put before each name.
        keep_vars: return the parameters themselves instead of detached tensors.
    """
    inner = unwrap(module)
    state, clean = inner.state_dict(prefix=prefix, keep_vars=keep_vars), name_cleaner(inner, prefix)
    state = state if clean is str else renamed(state, clean)
    if destination is None:
        return state
    destination.update(state)
    if hasattr(destination, '_metadata'):
        destination._metadata.update(getattr(state, '_metadata', {}))
    return destination


def to_names_of(module: nn.Module, state: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The inverse of `get_state_dict`: ``state`` with the names that the unwrapped ``module`` uses.

    Names that the module already uses, or does not know, stay as they are, without what `torch.compile` adds.
    """
    clean = name_cleaner(module)
    wrapped = {clean(name): name for name in module.state_dict()}
    wrapped.update({clean(path): path for path, _ in module.named_modules(remove_duplicate=False)})
    return renamed(plain_names(state), lambda name: wrapped.get(name, name))


def plain_names(state: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """``state``, as a file has it, without what `torch.compile` adds to names.

    Names of averages follow from those of the weights (`ema_name`): in old files they contain those of wrappers, as in
    ``ema_body__orig_mod_weight``.
    """
    state = renamed(state, without_compile)
    twins = {ema_name(name) for name in state}
    lacking = {_WRAPPER_IN_TWIN.sub('', name): name for name in twins - state.keys()}
    old = [name for name in state if name.startswith(EMA_PREFIX) and name not in twins]
    new = {name: lacking.get(_WRAPPER_IN_TWIN.sub('', name), name) for name in old}
    return renamed(state, lambda name: new.get(name, name))


_WRAPPER_IN_TWIN = re.compile('__orig_mod|_module(?=_)')


def ema_name(parameter: str) -> str:
    """The name of the EMA copy of ``parameter``, as in MMCV: buffer names may not contain dots."""
    return EMA_PREFIX + parameter.replace('.', '_')


def renamed(state: Mapping[str, Any], rename: Callable[[str], str]) -> OrderedDict[str, Any]:
    """``state`` with ``rename`` applied to its names and to those in its ``_metadata``."""
    answer = OrderedDict((rename(name), value) for name, value in state.items())
    metadata = getattr(state, '_metadata', {})
    answer._metadata = OrderedDict((rename(name), value) for name, value in metadata.items())  # type: ignore[attr-defined]
    return answer
