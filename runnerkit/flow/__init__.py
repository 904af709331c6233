"""The program around a training: five stages that share one typed context, each of which a config may replace."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.flow.context import Context, Options
    from runnerkit.flow.experiment.experiment import Experiment
    from runnerkit.flow.fitting import fit
    from runnerkit.flow.flow import Flow
    from runnerkit.flow.from_python import TrainResult, train
    from runnerkit.flow.own_loop import Loop, loop
    from runnerkit.flow.stages.inference import Infer, InferNetwork
    from runnerkit.flow.stages.instance import Instance, InstanceBase
    from runnerkit.flow.stages.network import Network, NetworkBase
    from runnerkit.flow.stages.stage import STAGES, EngineMode, Stage
    from runnerkit.flow.stages.startup import Startup, StartupBase
    from runnerkit.flow.stages.terminal import Terminal, TerminalBase
    from runnerkit.flow.stages.training import Runner, RunnerBase, TrainStage

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
    'Loop',
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
    'TrainStage',
    'fit',
    'loop',
    'train',
]

__getattr__ = lazy_getattr(__name__)
