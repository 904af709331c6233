"""What the five stages of a run have in common, and the registry of stages."""

from __future__ import annotations

from enum import Enum

from runnerkit.flow.context import Context
from runnerkit.registry import Registry

#: Stages by name. A config names one in ``flow``, for example ``flow=dict(startup='TreeStartup')``.
STAGES = Registry('stage')
STAGES.offer(
    {
        'Infer': 'runnerkit.flow.stages.inference',
        'InferNetwork': 'runnerkit.flow.stages.inference',
        'Instance': 'runnerkit.flow.stages.instance',
        'Network': 'runnerkit.flow.stages.network',
        'Runner': 'runnerkit.flow.stages.training',
        'Startup': 'runnerkit.flow.stages.startup',
        'Terminal': 'runnerkit.flow.stages.terminal',
        'TrainStage': 'runnerkit.flow.stages.training',
    }
)


class EngineMode(Enum):
    """Whether a run has one process or several: ``context['engine']``, a name of PaddleRec's."""

    SINGLE = 1
    CLUSTER = 2


class Stage:
    """A stage of a run. It is made with the run's context right before it is called, once, with the same context.

    Do not subclass this class but the base of one stage: `InstanceBase`, `NetworkBase`, `StartupBase`, `RunnerBase` or
    `TerminalBase`. The base does what every run needs of a stage, around the method that a subclass overrides.
    """

    def __init__(self, context: Context) -> None:
        """Keep nothing of the context: each method gets it."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        raise NotImplementedError
