"""Reading the sections of a search: its algorithm, its objectives, its work dir."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runnerkit.search.algorithm import SEARCH_ALGORITHMS, SearchAlgorithm
from runnerkit.search.optuna_algorithm import DECLINED, OptunaAlgorithm
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.suggest import suggestion


def local_folder(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a work dir."""
    if '://' in str(path):
        raise WrongValue(
            f'the work dir of a search must be a folder of this machine, but got {str(path)!r}: a search locks it and '
            "keeps a journal there. Checkpoints of the trials may go to a URL: checkpoint_config's out_dir"
        )
    return Path(path).absolute()


def as_type(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """A name, or a dict of arguments, as a config with ``type``."""
    if isinstance(config, str):
        return {'type': config}
    if not isinstance(config, Mapping) or 'type' not in config:
        raise WrongType(f"this must be a name, or a dict with the key 'type', but got {config!r}")
    return dict(config)


def checked_algorithm(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """The section of an algorithm as a dict with ``type``."""
    found = as_type(config)
    name = found['type']
    if name in DECLINED:
        raise WrongKey(f'the search algorithm {name} is not built: {DECLINED[name]}')
    if isinstance(name, str) and SEARCH_ALGORITHMS.get(name) is None:
        names = SEARCH_ALGORITHMS.names()
        raise WrongKey(f'there is no search algorithm {name!r}{suggestion(name, names)} (there are {", ".join(names)})')
    return found


def made_algorithm(
    config: str | Mapping[str, Any],
    space: Any,
    objectives: Mapping[str, str],
    seed: int,
    optuna: Mapping[str, Any] | None = None,
) -> SearchAlgorithm:
    """The algorithm that a section means."""
    found = checked_algorithm(config)
    kind = SEARCH_ALGORITHMS.get(found['type'])
    is_of_optuna = getattr(kind, '__module__', '') == OptunaAlgorithm.__module__
    if is_of_optuna and not hasattr(space, 'draw'):
        raise WrongType(
            f'{found["type"]} chooses values, but search_space describes a network: name the values to choose '
            '(in `parameters`, or in `hyperparameters` as Vega does), or take PruneEA'
        )
    more = dict(optuna or {}) if is_of_optuna else {}
    made: SearchAlgorithm = SEARCH_ALGORITHMS.build(
        {'space': space, 'objectives': dict(objectives), 'seed': seed, **more, **found}
    )
    return made


def checked_objectives(objectives: Mapping[str, str]) -> dict[str, str]:
    """The declared objectives."""
    if not isinstance(objectives, Mapping):
        raise WrongType(f"objectives must be a dict such as dict(accuracy='max'), but got {objectives!r}")
    if not objectives:
        raise WrongValue("objectives must name at least one score, such as dict(accuracy='max')")
    for name, rule in objectives.items():
        if rule not in ('max', 'min'):
            hint = suggestion(str(rule), ['max', 'min'])
            raise WrongValue(f"the objective {name!r} must be 'max' or 'min', but got {rule!r}{hint}")
    return dict(objectives)
