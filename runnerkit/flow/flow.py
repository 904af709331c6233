"""One run from config to trained model: five stages, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runnerkit.flow.context import Context
from runnerkit.flow.instance import Instance
from runnerkit.flow.network import Network
from runnerkit.flow.process_state import preserved_process_state
from runnerkit.flow.startup import Startup
from runnerkit.flow.terminal import Terminal
from runnerkit.flow.training import Runner

Stage = Callable[[Context], None]


class Flow:
    """The stages of a run: instance → network → startup → runner → terminal.

    Args:
        stages: what to call with the context, in order; the last one is called whatever happens before it.
    """

    def __init__(self, stages: Sequence[Stage] | None = None) -> None:
        default: list[Stage] = [Instance(), Network(), Startup(), Runner(), Terminal()]
        self.stages: list[Stage] = default if stages is None else list(stages)

    def __call__(self, context: Context) -> Context:
        """Run all stages over ``context``; what they change for the whole process is put back at the end."""
        *working, last = self.stages
        with preserved_process_state():
            try:
                for stage in working:
                    stage(context)
            finally:
                last(context)
        return context
