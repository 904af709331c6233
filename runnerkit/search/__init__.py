"""Searches over configs: a study is a pipeline of ordinary runs. These names need neither torch nor Optuna."""

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
