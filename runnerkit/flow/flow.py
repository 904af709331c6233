"""One run from config to trained model, in five stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from runnerkit.flow.context import Context
from runnerkit.flow.instance import Instance
from runnerkit.flow.network import Network
from runnerkit.flow.process_state import preserved_process_state
from runnerkit.flow.startup import Startup
from runnerkit.flow.terminal import Terminal
from runnerkit.flow.training import Runner
from runnerkit.hooks.hook import Outcome
from runnerkit.utils.user_files import end_import

Stage = Callable[[Context], None]

_RUNNING = threading.RLock()


class Flow:
    """The stages of a run: instance → network → startup → runner → terminal.

    Args:
        stages: called with the context, in order; the last one is called even if another fails.
    """

    def __init__(self, stages: Sequence[Stage] | None = None) -> None:
        default: list[Stage] = [Instance(), Network(), Startup(), Runner(), Terminal()]
        self.stages: list[Stage] = default if stages is None else list(stages)

    def __call__(self, context: Context) -> Context:
        """Run all stages with ``context``; settings of the process that they change are restored at the end.

        The last stage finds in ``context.outcome`` how the run ended, also if another stage raised an error.

        Raises:
            RuntimeError: another thread runs a flow.
        """
        end_import()
        *working, last = self.stages
        with only_this_thread(), preserved_process_state():
            try:
                for stage in working:
                    run_stage(stage, context)
            finally:
                last(context)
        return context


@contextmanager
def only_this_thread() -> Iterator[None]:
    """Refuse a run while another thread is in one; a run inside a run of the same thread is allowed.

    Raises:
        RuntimeError: another thread is.
    """
    if not _RUNNING.acquire(blocking=False):
        raise RuntimeError(
            'another thread of this process is training: the two runs would share the random generators, the settings '
            'of torch and the log. Wait for it, or give each run a process of its own'
        )
    try:
        yield
    finally:
        _RUNNING.release()


def run_stage(stage: Stage, context: Context) -> None:
    """Call ``stage``; if it fails without setting an outcome, its error is the outcome."""
    before = context.outcome
    try:
        stage(context)
    except BaseException as error:
        if context.outcome is before:
            context.outcome = Outcome('interrupted' if isinstance(error, KeyboardInterrupt) else 'failed', error=error)
        raise
