"""The program around a training: five stages that share one typed context."""

from runnerkit.flow.context import Context, Options
from runnerkit.flow.flow import Flow, Stage
from runnerkit.flow.from_python import TrainResult, train
from runnerkit.flow.instance import Instance
from runnerkit.flow.network import Network
from runnerkit.flow.startup import Startup
from runnerkit.flow.terminal import Terminal
from runnerkit.flow.training import Runner

__all__ = [
    'Context',
    'Flow',
    'Instance',
    'Network',
    'Options',
    'Runner',
    'Stage',
    'Startup',
    'Terminal',
    'TrainResult',
    'train',
]
