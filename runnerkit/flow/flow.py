"""One run from config to trained model, in five stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from runnerkit.config import Config
from runnerkit.distributed import run_on_all_ranks
from runnerkit.flow.context import Context, Options
from runnerkit.flow.stages.process_state import preserved_process_state
from runnerkit.flow.stages.stage import SLOTS, Slot, file_of_user, makers, note_place
from runnerkit.flow.work_dir.journal import JournalHook
from runnerkit.hooks.hook import Hook, Outcome
from runnerkit.utils.user_files import end_import

_RUNNING = threading.RLock()


class Flow:
    """A run: instance → network → startup → runner → terminal.

    A stage is what the config's ``flow`` names for it: a registered name, a dotted path, a file (in which the class has
    the name of the default one, such as ``Startup``), ``file.py:Class``, or a dict with one of these as ``type`` and
    the other arguments of its constructor. None leaves out the startup or the terminal.

    Args:
        cfg: the `Config`; the run fills in and changes it.
        options: the command line's flags.
        name: what stages find as ``context['runner_name']``.
        stages: stages that take precedence over the config's, by slot; also as classes, or functions that make one from
            the context.
        hooks: hooks to register after the config's, each with its priority.
        guard: a context to enter around the training alone.

    Attributes:
        context: what the stages share.
        stages: what makes the stage of each slot; None for one that is left out.

    Raises:
        KeyError: there is no such stage.
        TypeError: what is named is not a stage for its slot; or ``cfg`` is no `Config`.
    """

    def __init__(
        self,
        cfg: Any,
        options: Options | None = None,
        *,
        name: str = '',
        stages: Mapping[str, Any] | None = None,
        hooks: Sequence[tuple[Hook, str]] = (),
        guard: Callable[[Context], AbstractContextManager[Any]] = lambda context: nullcontext(),
    ) -> None:
        end_import()
        options = options or Options()
        if not isinstance(cfg, Config):
            raise TypeError(
                f'cfg must be of the class Config, but got {cfg!r}: give Config.fromfile(path), or Config(dict)'
            )
        if not isinstance(options, Options):
            raise TypeError(f'options must be of the class Options, but got {options!r}: give Options(work_dir=…)')
        self._has_run = False
        self.context = Context(cfg, options, hooks=list(hooks), guard=guard)
        self.context['runner_name'] = name
        # All files are imported now, so that an error in one of them comes before anything is done.
        self.stages = self.context.stages = makers(cfg, options, stages or {})

    def run(self) -> Context:
        """Run all stages, and close what they have opened, whatever happens.

        The terminal finds in ``context.outcome`` how the run ended, also if another stage has raised an error.

        Raises:
            RuntimeError: another thread runs a flow, or this one has been run.
        """
        if self._has_run:
            raise RuntimeError('this Flow has already run: make another one')
        self._has_run = True
        context = self.context
        *working, last = SLOTS
        with only_this_thread(), preserved_process_state(), context.closing:
            try:
                for slot in working:
                    self._run_stage(slot)
            except BaseException:
                try:
                    self._run_stage(last)
                except Exception as error:  # the first error is the one to report
                    context.logger.error('the terminal stage has also failed: %s', error, exc_info=True)
                raise
            if context.outcome is None:  # the runner stage has its own loop, or none
                context.outcome = Outcome('completed')
            try:
                run_on_all_ranks(partial(self._run_stage, last))
            except BaseException as error:
                self._note_failure(error)
                raise
        return context

    def _run_stage(self, slot: Slot) -> None:
        make = self.stages[slot.name]
        if make is None:
            return
        try:
            stage = make(self.context)
            if not isinstance(stage, slot.base):
                raise TypeError(f'{make!r} made a {type(stage).__name__}, which is no {slot.base.__name__}')
            stage(self.context)
        except BaseException as error:
            if (file := file_of_user(make)) is not None:
                note_place(error, file, f'stage {slot.name!r}, ')
            self._note_failure(error)
            raise

    def _note_failure(self, error: BaseException) -> None:
        """An error changes the outcome, unless the run has failed before."""
        context, before, after = self.context, self.context.outcome, Outcome.of(error)
        # The KeyboardInterrupt of a run that Ctrl-C has stopped is no other outcome.
        is_stopped = before is not None and before.reason == 'SIGINT' and isinstance(error, KeyboardInterrupt)
        if before is not None and (before.error is not None or is_stopped):
            after = before
        elif before is not None:
            context.logger.error('Run %s', after)
        context.outcome = after
        for hook in getattr(context.runner, 'hooks', ()):
            if isinstance(hook, JournalHook):
                hook.fail(after)


@contextmanager
def only_this_thread() -> Iterator[None]:
    """Refuse a run while another thread is in one; a run inside a run of the same thread is allowed."""
    if not _RUNNING.acquire(blocking=False):
        raise RuntimeError(
            'another thread of this process is training: the runs would share random generators, torch settings '
            'and the log. Wait for it, or use one process per run'
        )
    try:
        yield
    finally:
        _RUNNING.release()
