"""Searches over configs: a study is a pipeline of ordinary runs. These names need neither torch nor Optuna."""

from importlib import import_module
from typing import Any

from runnerkit.search.conditions import Condition
from runnerkit.search.parameters import PARAMETERS, Bool, Categorical, Float, Int, Parameter
from runnerkit.search.quota import Quota
from runnerkit.search.space import Forbidden, NothingAllowed, Space, draw_allowed
from runnerkit.search.suggesters import RandomSuggest, Suggest

__all__ = [
    'PARAMETERS',
    'Bool',
    'Categorical',
    'Condition',
    'Float',
    'Forbidden',
    'Int',
    'NothingAllowed',
    'Parameter',
    'Quota',
    'RandomSuggest',
    'Space',
    'Suggest',
    'draw_allowed',
]

#: Vega's names, which were here before they moved to `runnerkit.compat.vega`.
_MOVED = {
    **dict.fromkeys(('AdjacencyList', 'BinaryCode'), 'space'),
    **dict.fromkeys(('FAMILIES', 'NetTypes', 'Network', 'NetworkDesc', 'NetworkFactory', 'SearchSpace'), 'networks'),
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return getattr(import_module(f'runnerkit.compat.vega.{_MOVED[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
