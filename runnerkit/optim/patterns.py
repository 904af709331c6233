"""Shell patterns over the names of parameters: ``'generator.*'``, in which ``*`` also matches dots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from runnerkit.parallel import named_parameters
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import did_you_mean


def as_patterns(given: Any, key: str) -> list[str]:
    """A list of patterns from ``given``, one or several of them."""
    patterns: list[Any] = [given] if isinstance(given, str) else list(given) if _is_list(given) else []
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


def _is_list(patterns: Any) -> bool:
    return isinstance(patterns, Iterable) and not isinstance(patterns, (bytes, Mapping))
