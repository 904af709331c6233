"""A flow that trains in its own thread, and waits there before the iterations that its caller names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from runnerkit.data.kinds import is_unbounded
from runnerkit.flow.context import Context
from runnerkit.utils.logging import ConsoleHandler, get_logger
from runnerkit.utils.seed import rng_state, set_rng_state

T = TypeVar('T')

#: What replays the loop of a script, which asks for it here.
REPLAYING: ContextVar[Any] = ContextVar('runnerkit_replaying', default=None)

#: Why a run over a stream is refused.
NO_STREAM = (
    '{what} is a stream: its source does not give the same events again once they are acknowledged, and a replay would '
    'acknowledge events that the run has not trained on. Such a run cannot be replayed; runnerkit diff compares its '
    'records'
)


class _Left(BaseException):
    """The caller needs no more of the run. No ``except Exception`` of the user's code catches it."""


class Passage:
    """A run on its way. Its own thread lets it wait anywhere without being left, whatever its loop looks like.

    The console does not show its log: what went wrong in it has gone wrong in the run, and an error that ends it is
    raised. While it waits, the random generators may be used: it
    continues with their former states.

    Args:
        prepare: makes the flow, with the guard that it is given.
        roll_backs_to: how often the run goes back to a checkpoint before it has trained that many iterations for good.

    Attributes:
        runner: the run's runner, from its first wait on.
        is_waiting: whether it waits; False before the first wait, and when the run has ended.
        told: what the run has logged about resumes that are not exact.
    """

    def __init__(
        self, prepare: Callable[[Callable[[Context], Any]], Any], roll_backs_to: Callable[[int], int] = lambda _: 0
    ) -> None:
        get_logger('runnerkit')  # so that its console is there
        self._flow = prepare(self._guard)
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name='runnerkit-replay', daemon=True
        )
        self._tasks: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[bool, Any, BaseException | None]] = SimpleQueue()
        self._target: int | None = None
        self._roll_backs, self._roll_backs_to = 0, roll_backs_to
        self._is_left = False
        self.runner: Any = None
        self.is_waiting = False
        self.told: list[str] = []

    # --- for the caller ----------------------------------------------------------------------------------------------

    def advance(self, target: int | None) -> bool:
        """Train until ``target`` iterations are done, None: to the end. Returns whether the run waits there, before the
        next iteration; if not, it has ended.
        """
        self._target = target
        if self.is_waiting:
            self._tasks.put(None)
        else:
            self._thread.start()
        self.is_waiting = False
        self.is_waiting, _, error = self._answers.get()
        if error is not None:
            raise error
        return self.is_waiting

    def call(self, task: Callable[[Any], T]) -> T:
        """What ``task(runner)`` returns, which is called in the run's thread with its random states and settings; after
        the end of the run, it is called here."""
        if not self.is_waiting:
            return task(self.runner)
        self._tasks.put(lambda: task(self.runner))
        _, result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def leave(self) -> None:
        """End the run, which trains no further iteration and saves nothing. Without effect if it has ended."""
        self._is_left = True
        if self.is_waiting:
            self._tasks.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self.is_waiting = False

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        with self._listening():
            try:
                self._flow.run()
            except BaseException as raised:
                error = raised
        self._answers.put((False, None, None if isinstance(error, _Left) else error))

    @contextmanager
    def _guard(self, context: Context) -> Iterator[None]:
        self.runner = context.runner
        loaders = context.val_loader.values() if isinstance(context.val_loader, dict) else [context.val_loader]
        if any(map(is_unbounded, [*context.loaders, *loaders])):  # that no config tells; nothing has been read yet
            raise ValueError(NO_STREAM.format(what='what a loader reads'))
        for hook in [hook for hook in self.runner.hooks if hook.sends_outside]:  # that only the object itself knows
            self.runner.hooks.remove(hook)
        self.runner.hooks.listen('before_train_iter', self._wait)
        self.runner.hooks.listen('after_roll_back', self._count)
        yield

    def _count(self, runner: Any) -> None:
        self._roll_backs += 1

    def _wait(self, runner: Any) -> None:
        """Called first before each iteration."""
        target = self._target
        is_before = target is None or runner.completed_iters < target or self._roll_backs < self._roll_backs_to(target)
        if is_before and not self._is_left:
            return
        states = rng_state()
        task: Callable[[], Any] | None = None
        while not self._is_left:
            self._answers.put((True, None, None) if task is None else self._answer(task))
            task = self._tasks.get()
            set_rng_state(states)
            if task is None:
                break
        if self._is_left:
            for hook in [hook for hook in runner.hooks if hook.runs_last]:  # which would save in after_run
                runner.hooks.remove(hook)
            raise _Left

    @staticmethod
    def _answer(task: Callable[[], Any]) -> tuple[bool, Any, BaseException | None]:
        try:
            return True, task(), None
        except BaseException as error:
            return True, None, error

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Keep the run's log off the console, and note what it says about exactness."""
        own = threading.get_ident()

        def passes(record: logging.LogRecord) -> bool:
            if record.thread != own:
                return True
            if hasattr(record, 'exactness'):
                self.told.append(record.getMessage())
            return False

        consoles = [each for each in logging.getLogger('runnerkit').handlers if isinstance(each, ConsoleHandler)]
        for console in consoles:
            console.addFilter(passes)
        try:
            yield
        finally:
            for console in consoles:
                console.removeFilter(passes)
