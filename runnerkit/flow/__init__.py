"""The program around a training: five stages that share one typed context, each of which a config may replace."""

from runnerkit.flow.context import Context, Options
from runnerkit.flow.experiment import Experiment
from runnerkit.flow.flow import Flow
from runnerkit.flow.from_python import TrainResult, train
from runnerkit.flow.inference import Infer, InferNetwork
from runnerkit.flow.instance import Instance, InstanceBase
from runnerkit.flow.network import Network, NetworkBase
from runnerkit.flow.stage import STAGES, EngineMode, Stage
from runnerkit.flow.startup import Startup, StartupBase
from runnerkit.flow.terminal import Terminal, TerminalBase
from runnerkit.flow.training import Runner, RunnerBase

__all__ = [
    'STAGES',
    'Context',
    'EngineMode',
    'Experiment',
    'Flow',
    'Infer',
    'InferNetwork',
    'Instance',
    'InstanceBase',
    'Network',
    'NetworkBase',
    'Options',
    'Runner',
    'RunnerBase',
    'Stage',
    'Startup',
    'StartupBase',
    'Terminal',
    'TerminalBase',
    'TrainResult',
    'train',
]
