"""Names of a model's weights without the prefixes of wrappers around the model or its parts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from runnerkit.parallel import unwrap
from runnerkit.parallel.wrappers import inner_name


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
    state = inner.state_dict(prefix=prefix, keep_vars=keep_vars)
    if clean := _clean_prefixes(inner, prefix):
        state = renamed(state, lambda name: _replaced(name, clean))
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
    state = renamed(state, lambda name: '.'.join(part for part in name.split('.') if part != '_orig_mod'))
    clean = _clean_prefixes(module, '')
    if not clean:
        return state
    wrapped = {_replaced(name, clean): name for name in module.state_dict()}
    wrapped.update({_replaced(path, clean): path for path, _ in module.named_modules(remove_duplicate=False)})
    return renamed(state, lambda name: wrapped.get(name, name))


def renamed(state: Mapping[str, Any], rename: Callable[[str], str]) -> OrderedDict[str, Any]:
    """``state`` with ``rename`` applied to its names and to those in its ``_metadata``."""
    answer = OrderedDict((rename(name), value) for name, value in state.items())
    metadata = getattr(state, '_metadata', {})
    answer._metadata = OrderedDict((rename(name), value) for name, value in metadata.items())  # type: ignore[attr-defined]
    return answer


def _clean_prefixes(module: nn.Module, prefix: str) -> dict[str, str]:
    """For each wrapper inside ``module``: the prefix of what it wraps, and the wrapper's own prefix, which replaces it.

    Inner wrappers come first.
    """
    found = {}
    for path, part in module.named_modules(prefix=prefix.rstrip('.'), remove_duplicate=False):
        attribute = inner_name(part)
        if attribute is not None:
            found[f'{path}.{attribute}'] = path
    return dict(reversed(found.items()))


def _replaced(name: str, clean: Mapping[str, str]) -> str:
    for wrapped, path in clean.items():
        if name == wrapped or name.startswith(wrapped + '.'):
            name = path + name[len(wrapped) :]
    return name
