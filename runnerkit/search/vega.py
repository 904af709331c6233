"""The names with which users of Vega write networks, losses, metrics and callbacks. Only their imports change::

from runnerkit.search import vega
from runnerkit.search.vega import Callback, ClassFactory, ClassType, MetricBase
"""

from __future__ import annotations

from runnerkit.hooks.vega_callbacks import CALLBACKS, Callback, VegaCallbacks
from runnerkit.search.class_factory import ClassFactory, ClassType
from runnerkit.search.metrics import Accuracy, MetricBase, Metrics, accuracy
from runnerkit.search.model_statistics import ModelStatistics, calc_model_flops_params
from runnerkit.search.networks import NetTypes, Network, NetworkDesc, NetworkFactory

__all__ = [
    'CALLBACKS',
    'Accuracy',
    'Callback',
    'ClassFactory',
    'ClassType',
    'MetricBase',
    'Metrics',
    'ModelStatistics',
    'NetTypes',
    'Network',
    'NetworkDesc',
    'NetworkFactory',
    'VegaCallbacks',
    'accuracy',
    'calc_model_flops_params',
    'is_tf_backend',
    'is_torch_backend',
]


def is_torch_backend() -> bool:
    """True: PyTorch is the only backend."""
    return True


def is_tf_backend() -> bool:
    """False: TensorFlow is not supported."""
    return False
