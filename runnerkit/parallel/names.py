"""The names of a model's modules and tensors, without what wrappers add to them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from runnerkit.parallel.wrappers import inner_name, unwrap


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
