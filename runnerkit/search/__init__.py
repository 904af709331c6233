"""Searches over configs: a study is a pipeline of ordinary runs.

The names below are imported at their first use, so that neither torch nor Optuna is waited for before it is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnerkit.search.conditions import Condition
    from runnerkit.search.networks import (
        FAMILIES,
        NetTypes,
        Network,
        NetworkDesc,
        NetworkFactory,
        SearchSpace,
    )
    from runnerkit.search.parameters import (
        PARAMETERS,
        AdjacencyList,
        BinaryCode,
        Bool,
        Categorical,
        Float,
        Int,
        Parameter,
    )
    from runnerkit.search.quota import Quota
    from runnerkit.search.space import Forbidden, NothingAllowed, Space, draw_allowed
    from runnerkit.search.suggesters import RandomSuggest, Suggest

_HOMES = {
    'conditions': ('Condition',),
    'networks': ('FAMILIES', 'NetTypes', 'Network', 'NetworkDesc', 'NetworkFactory', 'SearchSpace'),
    'parameters': (
        'PARAMETERS',
        'AdjacencyList',
        'BinaryCode',
        'Bool',
        'Categorical',
        'Float',
        'Int',
        'Parameter',
    ),
    'quota': ('Quota',),
    'space': ('Forbidden', 'NothingAllowed', 'Space', 'draw_allowed'),
    'suggesters': ('RandomSuggest', 'Suggest'),
}

__all__ = [
    'FAMILIES',
    'PARAMETERS',
    'AdjacencyList',
    'BinaryCode',
    'Bool',
    'Categorical',
    'Condition',
    'Float',
    'Forbidden',
    'Int',
    'NetTypes',
    'Network',
    'NetworkDesc',
    'NetworkFactory',
    'NothingAllowed',
    'Parameter',
    'Quota',
    'RandomSuggest',
    'SearchSpace',
    'Space',
    'Suggest',
    'draw_allowed',
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f'{__name__}.{home}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
