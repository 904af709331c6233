"""Which modules of a model are sharded one by one, and which of them compute their activations again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.suggest import did_you_mean

#: Parameters of a unit, at least, where the config names neither classes nor a size.
MIN_NUM_PARAMS = 1_000_000

#: Modules of torch that read the weights of their children without calling them.
_READ_THEIR_CHILDREN = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def units(
    model: nn.Module, module_classes: Sequence[str] | None = None, min_num_params: float | None = None
) -> list[nn.Module]:
    """Return the modules whose weights are gathered together, each before the modules that contain it.

    The model itself, which has the rest of the weights, is not among them.
    """
    if module_classes is not None and min_num_params is not None:
        raise WrongValue('module_classes and min_num_params both select what is sharded: give one of them')
    if module_classes is None:
        return _by_size(model, MIN_NUM_PARAMS if min_num_params is None else min_num_params)
    named = of_classes(model, module_classes, 'module_classes')
    found = [part for part in named if next(part.parameters(), None) is not None]
    owners = _owners(model)
    for part in found:
        name = next(name for name, each in model.named_modules() if each is part)
        if not _has_forward(part):
            raise WrongValue(
                f'module_classes: {name} ({type(part).__name__}) cannot be sharded by itself, because it has no '
                'forward before which its weights could be gathered; name the class of the modules in it'
            )
        shared = _shared_with_others(part, owners)
        if shared:
            raise WrongValue(
                f'module_classes: {name} ({type(part).__name__}) cannot be sharded by itself, because its parameter '
                f'{shared} is also that of a module outside of it (tied weights); leave its class out, or name the '
                'class of a module that contains both'
            )
    return found


def of_classes(model: nn.Module, classes: Sequence[str], key: str) -> list[nn.Module]:
    """Return the modules in ``model`` of these classes, or of subclasses, each before the modules that contain it."""
    inside = [(part, {cls.__name__ for cls in type(part).__mro__}) for part in model.modules() if part is not model]
    there = sorted({type(part).__name__ for part, _ in inside})
    for name in classes:
        if not any(name in names for _, names in inside):
            hint = did_you_mean(name, there) or f'it has {", ".join(there)}'
            raise WrongValue(f'{key}: {type(model).__name__} has no module of a class {name!r}; {hint}')
    wanted = set(classes)
    return [part for part, names in reversed(inside) if names & wanted]


def recompute_activations(parts: Collection[nn.Module]) -> None:
    """Let ``parts`` keep no activations for the backward pass, but compute them again there.

    This saves memory and costs a second forward pass. Random numbers (dropout) are the same both times.
    """
    for part in parts:
        part.forward = partial(checkpoint, part.forward, use_reentrant=False)


def _by_size(model: nn.Module, least: float) -> list[nn.Module]:
    owners, found, seen = _owners(model), [], set[nn.Module]()

    def rest(part: nn.Module) -> dict[int, int]:
        """The sizes of the parameters in ``part`` that are in no unit."""
        if part in seen:
            return {}
        seen.add(part)
        sizes = {id(each): each.numel() for each in part.parameters(recurse=isinstance(part, _READ_THEIR_CHILDREN))}
        if not isinstance(part, _READ_THEIR_CHILDREN):
            for child in part.children():
                sizes.update(rest(child))
        is_large = part is not model and sum(sizes.values()) >= least
        if is_large and _has_forward(part) and not _shared_with_others(part, owners):
            found.append(part)
            return {}
        return sizes

    rest(model)
    return found


def _has_forward(part: nn.Module) -> bool:
    return 'forward' in vars(part) or type(part).forward is not nn.Module.forward


def _owners(model: nn.Module) -> dict[int, set[nn.Module]]:
    """For each parameter, by its id, the modules that have it."""
    owners: dict[int, set[nn.Module]] = {}
    for part in model.modules():
        for parameter in part.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(part)
    return owners


def _shared_with_others(part: nn.Module, owners: dict[int, set[nn.Module]]) -> str:
    """The name of a parameter that ``part`` shares with a module outside of it; empty if there is none."""
    inside = set(part.modules())
    return next((name for name, each in part.named_parameters() if owners[id(each)] - inside), '')
