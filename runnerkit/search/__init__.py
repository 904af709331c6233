"""Searches over configs: a study is a pipeline of ordinary runs. These names need neither torch nor Optuna."""

from runnerkit.search.parameters import PARAMETERS, Bool, Categorical, Float, Int, Parameter, RandomSuggest, Suggest
from runnerkit.search.quota import Quota
from runnerkit.search.space import Condition, Forbidden, NothingAllowed, Space, draw_allowed

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
