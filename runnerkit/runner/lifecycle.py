"""The begin and the end of a run."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from runnerkit.checkpoint.integrity import reading
from runnerkit.distributed.collectives import run_on_all_ranks
from runnerkit.fileio.paths import shown
from runnerkit.hooks.hook import LoopLeft, Outcome
from runnerkit.hooks.hook_table import call_each
from runnerkit.runner.snapshots import RollBackRequest
from runnerkit.runner.workflow import Workflow
from runnerkit.utils.logging import DETAIL, NOT_EXACT
from runnerkit.utils.report import image_scope
from runnerkit.utils.report import scope as report_scope
from runnerkit.utils.waiting import waiting_scope

#: The runner whose run began last.
INNERMOST: ContextVar[Any] = ContextVar('runnerkit_innermost_run', default=None)


class OuterRunEnding(Exception):
    """A nested run has ended only because the run around it ends; its span catches this."""


class LoopEnded(BaseException):
    """Leaves a user's loop when the run was asked to stop. No ``except Exception`` of the user catches it."""


class Lifecycle:
    """The part of the engine that begins and ends a run.

    Args:
        runner: the run's runner, not its parts: a run begins and ends in each of them.

    Attributes:
        own_loop: within a user's loop: begins the run, and returns whether ``train`` (or ``val``) runs.
        parent: the run around this one, whose hook called ``run``; or None.
        inner: the runner of the nested run, or None.
        unfinished: the names of nested runs, of this run or the resumed one, that were cut short and have not started
            again.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.own_loop: Callable[[bool], bool] | None = None
        self.parent: Any = None
        self.inner: Any = None
        self.unfinished: tuple[str, ...] = ()
        self._span: str | None = None

    # --- a user's loop -----------------------------------------------------------------------------------------------

    @contextmanager
    def custom_loop(self, data_loaders: Sequence[Any], workflow: Workflow) -> Iterator[None]:
        """The span of a user's loop: its first ``train`` or ``val`` begins a run, which ends with the span.

        The loop then gets everything that ``run`` does around its own: resumed states, ``before_run``, signals,
        ``after_run``, `outcome`. After a request to stop, the next ``train`` or ``val`` leaves the span. Once the run
        has reached its length, ``train`` returns at once, so a loop over ``range(max_epochs)`` is correct in a resumed
        run. A loop that calls ``run``, or the hooks' ``before_run``, gets none of this.
        """
        runner = self._runner
        with ExitStack() as stack:
            has_begun = is_over = False

            def goes_on(trains: bool) -> bool:
                nonlocal has_begun, is_over
                if not has_begun:
                    has_begun, self.own_loop = True, None  # until the run has begun
                    stack.enter_context(runner.running(list(data_loaders), workflow))
                    self.own_loop = goes_on
                if trains and runner.plan.is_done and not is_over:
                    is_over = True
                    runner.logger.info('The run has its length: further calls of train do nothing')
                if runner.stopping.reason is not None:
                    raise LoopEnded
                return not (trains and is_over)

            self.own_loop = goes_on
            try:
                yield
            except LoopEnded:
                pass
            finally:
                self.own_loop = None

    def skips(self, trains: bool) -> bool:
        """Whether a call of ``train`` (or of ``val``) by a user's loop does nothing."""
        return self.own_loop is not None and not self.own_loop(trains)

    # --- the span of a run -------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, workflow: Workflow) -> Iterator[None]:
        """Enter and leave the run: rings, ``before_run``, and always ``after_run`` with the outcome set."""
        runner = self._runner
        self.own_loop = runner.outputs_of = None
        runner.notices.clear()
        runner.progress.begin_run()
        runner.plan.begin(workflow)
        runner.readers.rescale()
        with ExitStack() as stack:
            stack.enter_context(self._innermost())
            signals = stack.enter_context(runner.stopping.listening())
            stack.enter_context(report_scope(runner.log_buffer))
            stack.enter_context(image_scope(self.show))
            stack.enter_context(waiting_scope(runner.stopping.while_waiting))
            stack.callback(lambda: call_each(runner.hooks.calls['after_outcome'], runner, 'after_outcome'))
            stack.enter_context(self._settling())
            error: BaseException | None = None
            try:
                stack.enter_context(runner.hooks.around['around_run'])
                for stream in runner.readers.streams():
                    stream.open(runner.work_dir)
                runner.call_hook('before_run')
                yield
                outcome = self._outcome()
            except BaseException as caught:
                error = caught
                # A roll-back of the run around this one ends this one like an interrupt.
                is_rolled_back = isinstance(caught, RollBackRequest)
                outcome = Outcome('interrupted', error=caught) if is_rolled_back else Outcome.of(caught)
                runner.give_back_batch()
                raise
            finally:
                runner.stopping.end(outcome)
                try:
                    runner.call_hook('after_run')
                except BaseException:
                    if error is None:
                        raise
                    runner.logger.exception('after_run of a hook failed')
                finally:
                    for stream in runner.readers.streams():  # after the save at the end of the run
                        stream.close()
                    runner.snapshots.forget()
                was_cut = runner.stopping.ends_for_outer
        if runner.stop_signal == signal.SIGINT and not signals.is_nested:
            raise KeyboardInterrupt
        if was_cut:
            self._hand_over_end()

    # --- runs inside this one ----------------------------------------------------------------------------------------

    @contextmanager
    def _innermost(self) -> Iterator[None]:
        """The span of this run: runs that begin in it are nested."""
        outer = self.parent = INNERMOST.get()
        token = INNERMOST.set(self._runner)
        if outer is not None:
            outer.lifecycle.inner = self._runner
        try:
            yield
        finally:
            INNERMOST.reset(token)
            if outer is not None:
                outer.lifecycle.inner = None

    @contextmanager
    def nesting(self, name: str) -> Iterator[None]:
        """The span of a nested run, which is unfinished if this run ends in it."""
        former, self._span = self._span, name
        self.unfinished = tuple(other for other in self.unfinished if other != name)
        try:
            yield
        except OuterRunEnding:
            self.unfinished = (*self.unfinished, name)
        finally:
            self._span = former

    def note_unfinished(self, names: Iterable[str]) -> None:
        """The names of nested runs that were cut short in the resumed run."""
        self.unfinished = tuple(names)

    def _hand_over_end(self) -> None:
        """This run ended only because the one around it ends."""
        outer = self.parent
        outer.stopping.end_with(self._runner.stopping)
        if outer.lifecycle._span is not None:
            raise OuterRunEnding
        outer.logger.warning(
            'a nested run was cut short after %d iterations, and a resume will not start it again: run it in a span, '
            "with runner.nested('a name')",
            self._runner.completed_iters,
            extra=NOT_EXACT,
        )

    def resume_hooks(self) -> None:
        """At the start of a resumed run, call ``after_resume``, in which the nested runs that were open start again."""
        runner, cut = self._runner, self.unfinished
        if runner.snapshots.resumed is None and not cut:
            return
        for name in cut:
            runner.logger.warning(
                'the run ended inside the nested run %r, which starts again from its beginning. If it had changed the '
                'weights of this run, the resume is not exact',
                name,
                extra=NOT_EXACT,
            )
        point = runner.progress.last_point
        with runner.progress.as_at(point if cut else None):
            for hook in [*runner.hooks.dispatch_order()]:
                if hasattr(hook, 'after_resume'):
                    hook.after_resume(runner)
            # What saves after a nested run has saved without its results.
            for hook in [*runner.hooks] if cut and point != 'after_val_iter' and not self.unfinished else ():
                if hook.runs_last:
                    getattr(hook, point)(runner)
        if cut and runner.snapshots.resumed is not None:
            # Keep what that has logged when the moment of this run is restored once more.
            runner.snapshots.own['log_buffer'] = runner.train_log.state_dict()
        if self.unfinished and runner.stopping.reason is None:
            runner.logger.warning(
                'no hook starts the nested runs again that were open: %s. Such a hook opens runner.nested(name) in '
                'after_resume, too',
                ', '.join(self.unfinished),
                extra=NOT_EXACT,
            )
            self.unfinished = ()

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Let an error after the end of the run, on any rank, change its outcome on all ranks.

        A rank whose run has failed before leaves alone: the others may be in another collective.
        """
        stopping = self._runner.stopping
        failure: BaseException | None = None

        def fail() -> None:
            if failure is not None:
                raise failure

        try:
            yield
        except BaseException as error:
            if stopping.outcome is None or stopping.outcome.error is not None:
                raise
            failure = error
        try:
            run_on_all_ranks(fail)
        except BaseException as error:
            stopping.outcome = Outcome.of(error)
            self._runner.logger.error('Run %s', stopping.outcome)
            raise

    def show(self, name: str, pixels: Any) -> bool:
        """Hand a reported picture to the hooks that take pictures; returns whether there are any."""
        self._runner.hooks.dispatch('after_image', self._runner, name, pixels)
        return bool(self._runner.hooks.calls['after_image'])

    def _outcome(self) -> Outcome:
        """The outcome of a run without an error; all ranks call it and get the same result."""
        runner, reason = self._runner, self._runner.stopping.reason
        found = runner.finiteness.look() if runner.plan.trains else {}
        if 'weights' in found:
            runner.last_checkpoint()  # waits for a background save
            runner.notices['finite'] = runner.finiteness.advice(found)
            return Outcome('diverged', reason)
        return Outcome('completed' if reason is None else 'stopped', reason)

    def after_run(self, runner: Any) -> None:
        """Log the outcome, and the notices once more. Called first."""
        if (outcome := runner.outcome) is None:  # of a subclass's own run
            return
        error = outcome.error
        is_wanted = outcome.kind in ('completed', 'stopped') or isinstance(error, RollBackRequest)
        level = logging.INFO if is_wanted else logging.ERROR
        lost = False
        if error is not None and runner.world_size > 1:
            from runnerkit.distributed.watch import DIED, is_lost

            lost = is_lost(error)
        if not isinstance(error, LoopLeft):  # by an error, perhaps: the loop says it when it knows
            runner.logger.log(level, 'Run %s', outcome, extra=DETAIL if lost else self._detail())  # gloo's words
        if lost:
            runner.logger.error('Another rank has died or does not answer. If it has died, %s', DIED)
        if outcome.ended_well and (text := runner.weight_watch.end(runner)):
            runner.notices['weights'] = text
        if runner.rank == 0:
            for text in runner.notices.values():
                runner.logger.error('%s', text)

    def _detail(self) -> dict[str, Any] | None:
        """``extra`` of messages that every run logs: nested runs, which may be many, log them to the file only."""
        return None if self._runner.parent is None else DETAIL

    # --- points ------------------------------------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """A run begins, also in a ``run`` of a subclass."""
        runner.check_parts()
        self.own_loop = None

    def begin(self, runner: Any) -> None:
        """After ``before_run`` of all hooks: log the plan, and restore a resumed run."""
        runner.hooks.forget_calls()  # a hook may have changed its points in before_run
        self._tell_begin()
        readers, snapshots = runner.readers, runner.snapshots
        is_own_run = not runner.by_epoch and not readers.entries  # a run of a subclass
        if is_own_run:
            readers.adopt_new_iter_loaders()
            if snapshots.resumed is not None and len(readers.entries) > 1:
                runner.logger.warning(
                    '%s.run is a custom loop: the workflow begins with its first entry, wherever it was',
                    type(runner).__name__,
                    extra=NOT_EXACT,
                )
        runner.evaluator.prepare()
        runner.updater.follow_orders()
        if snapshots.resumed is None:
            runner.changes.tell_doubts()
        with reading('the checkpoint'):
            snapshots.restore()
        if runner.world_size > 1 and runner.parent is None:  # a nested run may share modules, whose buffers differ
            from runnerkit.parallel.same_weights import check_same_weights

            check_same_weights(runner.model, runner.logger, runner.repairs_weights)
        if is_own_run:
            runner.start_readers()
        runner.weight_watch.begin(runner)
        self.resume_hooks()

    def _tell_begin(self) -> None:
        runner, plan = self._runner, self._runner.plan
        work_dir = runner.work_dir and shown(runner.work_dir)
        runner.logger.info(
            'Start running: workflow %s, at most %s, work dir %s',
            plan.workflow,
            plan.length,
            work_dir,
            extra=self._detail() if runner.evaluates_on is None else DETAIL,
        )
        validates = any(mode == 'val' for mode, _ in plan.workflow)
        hooks = runner.hooks.info(validates)
        runner.logger.info('Hooks, in the order in which they are called:\n%s', hooks, extra=DETAIL)
