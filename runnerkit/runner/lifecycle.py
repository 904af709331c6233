"""How a run is entered and left: signals, rings, ``before_run`` and ``after_run``, and why it stops."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from runnerkit.data.reader import Reader
from runnerkit.distributed.watch import DIED, is_lost
from runnerkit.fileio.paths import shown
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import Hook, Outcome
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.same_weights import check_same_weights
from runnerkit.runner.checkpoints import EXACTNESS
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.nesting import OUTER, CutShort, Nesting
from runnerkit.runner.rollback import GoBack
from runnerkit.runner.signals import StopSignals
from runnerkit.runner.workflow import Workflow, trains
from runnerkit.utils.logging import DETAIL
from runnerkit.utils.report import scope as report_scope
from runnerkit.utils.waiting import waiting_scope

_NO_RINGS: AbstractContextManager[Any] = nullcontext()


class LoopEnded(BaseException):
    """Leaves a loop of the user's own when the run has been asked to stop; no ``except Exception`` there keeps it."""


class Lifecycle(Nesting):
    """The part of a runner that begins and ends a run, whatever happens in between."""

    _entered_hooks: Sequence[Hook] = ()
    _guests: list[Hook] | None = None  # hooks of evaluations that leave with the run; None: there is no run
    _is_restored = True
    _iters_before = 0  # this run
    _prepare_run: Callable[[Any, Workflow], None]
    _is_finished: Callable[[], bool]
    _averaged_before: bool | None = None  # the model's averages_each_backward before the run
    _own_loop: Callable[[bool], bool] | None = None  # begins the run of a loop of the user's own; whether it goes on

    @contextmanager
    def around_own_loop(self, data_loaders: Sequence[Any], workflow: Workflow) -> Iterator[None]:
        """The span of a loop of one's own: its first ``train`` or ``val`` begins a run, which ends with the span.

        All that is around ``run`` is then around this loop: resumed states, ``before_run``, signals, ``after_run``,
        `outcome`. When the run has been asked to stop, the next ``train`` or ``val`` leaves the span. When the run has
        its length, ``train`` returns at once: a loop over ``range(max_epochs)`` is right in a resumed run. If the loop
        calls ``run``, or the hooks' ``before_run`` itself, nothing of this happens.
        """
        with ExitStack() as stack:
            has_begun = is_over = False

            def goes_on(trains: bool) -> bool:
                nonlocal has_begun, is_over
                if not has_begun:
                    has_begun = True
                    self._prepare_run(list(data_loaders), workflow)
                    self._own_loop = None  # until all is ready
                    stack.enter_context(self._running(workflow))
                    self._own_loop = goes_on
                if trains and self._is_finished() and not is_over:
                    is_over = True
                    self.logger.info('The run has its length: further calls of train do nothing')
                if self._stop_reason is not None:
                    raise LoopEnded
                return not (trains and is_over)

            self._own_loop = goes_on
            try:
                yield
            except LoopEnded:
                pass
            finally:
                self._own_loop = None

    @contextmanager
    def _running(self, workflow: Workflow) -> Iterator[None]:
        """Enter and leave the run: rings, ``before_run``; whatever happens, ``after_run`` with the outcome set."""
        self._outcome, self._stop_reason, self.stop_signal, self._stepped = None, None, None, None
        self._own_loop = None
        self.notices.clear()
        self._iters_before = self._progress.iters
        former, self._workflow = self._workflow, [(mode, n) for mode, n in workflow]
        if former and self._workflow != former:
            self._progress.entry = self._progress.units = 0
        with ExitStack() as stack:
            stack.enter_context(self._as_innermost())
            signals = stack.enter_context(StopSignals(self._rank, self._world_size))
            stack.enter_context(report_scope(self.log_buffer))
            stack.enter_context(waiting_scope(self._while_waiting))
            self._signals = signals
            error: BaseException | None = None
            try:
                stack.enter_context(self._rings('around_run'))
                for stream in self._readers.streams():
                    stream.open(self.work_dir)
                self.call_hook('before_run')
                yield
                outcome = self._end()
            except BaseException as caught:
                error = caught
                # A run around this one that goes back to a checkpoint leaves this one as an interrupt does.
                kind: Any = 'interrupted' if isinstance(caught, (KeyboardInterrupt, GoBack)) else 'failed'
                outcome = Outcome(kind, error=caught)
                self._give_back_batch()
                raise
            finally:
                self._signals, self._outcome = None, outcome
                signals.leave(has_failed=error is not None)
                level = logging.INFO if outcome.ended_well or isinstance(error, GoBack) else logging.ERROR
                self.logger.log(level, 'Run %s', self._outcome, extra=self._detail())
                if error is not None and is_lost(error):
                    self.logger.error('Another rank has died or does not answer. If it has died, %s', DIED)
                self._tell_notices()
                try:
                    self.call_hook('after_run')
                except Exception:
                    if error is None:
                        raise
                    self.logger.exception('after_run of a hook failed')
                finally:
                    for stream in self._readers.streams():  # only now: the end of the run is saved and acknowledged
                        stream.close()
                self._resumed, was_cut = None, self._was_cut()
                self.stop_signal = self.stop_signal or signals.received
        if self.stop_signal == signal.SIGINT and not signals.is_nested:
            raise KeyboardInterrupt
        if was_cut:
            self._leave_outer()

    def _end(self) -> Outcome:
        """How a run without an error ends; all ranks call it and get the same answer."""
        is_trained = any(trains(mode, self) for mode, _ in self._workflow)
        found = self._finiteness.look(self) if is_trained else {}
        if 'weights' in found:
            self.last_checkpoint()  # one that is being written is waited for
            self.notices['finite'] = self._finiteness.advice(self, found)
            return Outcome('diverged', self._stop_reason)
        return Outcome('completed' if self._stop_reason is None else 'stopped', self._stop_reason)

    def _enter_hooks(self) -> None:
        """Call ``before_run`` of every hook, also of those that are registered meanwhile; restore what was resumed."""
        self._choose_averaging()
        entered: list[Hook] = []
        self._entered_hooks, self._guests, self._own_loop = entered, [], None
        while True:
            waiting = [hook for hook in self._hook_table if not any(hook is done for done in entered)]
            if not waiting:
                break
            entered.append(waiting[0])
            waiting[0].before_run(self)  # type: ignore[arg-type]
        self._begin_run()

    def _choose_averaging(self) -> None:
        """With several optimizers or modes, let each backward pass average only those gradients that it computes."""
        has_several = len(named_optimizers(self.optimizer)) > 1
        if hasattr(self.model, 'averages_each_backward'):
            self._averaged_before = self.model.averages_each_backward
            has_modes = any(mode != 'train' and trains(mode, self) for mode, _ in self._workflow)
            self.model.averages_each_backward = has_modes or has_several
        elif has_several and isinstance(self.model, DistributedDataParallel):
            self.logger.warning(
                '%s expects that each backward pass reaches all parameters, which losses for one of several optimizers '
                'do not: wrap the model in MMDistributedDataParallel, which runs without that',
                type(self.model).__name__,
            )

    def _begin_run(self) -> None:
        """After ``before_run``: say what is going to happen, and be where a resumed run was."""
        if self._is_restored:
            return
        self._is_restored = True
        self._hook_table.calls.clear()  # a hook may have chosen in before_run which points it serves
        work_dir = self.work_dir and shown(self.work_dir)
        self.logger.info(
            'Start running: workflow %s, at most %s, work dir %s',
            self._workflow,
            self._length(),
            work_dir,
            extra=self._detail() if self.evaluates_on is None else DETAIL,
        )
        validates = any(mode == 'val' for mode, _ in self._workflow)
        hooks = self._hook_table.info(validates)
        self.logger.info('Hooks, in the order in which they are called:\n%s', hooks, extra=DETAIL)
        is_own_run = not self.by_epoch and not self._readers.entries  # a subclass's own
        if is_own_run:
            self._readers.adopt_new_iter_loaders()
            if self._resumed is not None and len(self._readers.entries) > 1:
                self.logger.warning(
                    '%s.run has a loop of its own: the workflow begins with its first entry, wherever it was',
                    type(self).__name__,
                    extra=EXACTNESS,
                )
        self._readers.add_evaluations(self._workflow, self._hook_table)
        self._follow_orders()
        if self._resumed is None:
            self._tell_doubts()
        self._restore()
        if self.parent is None:  # one inside another may share modules with it, whose buffers differ by then
            check_same_weights(self.model, self.logger, self.repairs_weights)
        if is_own_run:
            self._start_readers()
        self._weight_watch.begin(self)
        self._finiteness.begin(self)
        self._go_on_inside()

    def _detail(self) -> dict[str, Any] | None:
        """How what every run says is logged: runs inside others, which may be many, say it in the log file alone."""
        return None if self.parent is None else DETAIL

    def _tell_notices(self) -> None:
        """The run's last lines: warnings of its log that should not be missed."""
        if self._outcome is not None and self._outcome.ended_well and (text := self._weight_watch.end(self)):
            self.notices['weights'] = text
        if self._rank == 0:
            for text in self.notices.values():
                self.logger.error('%s', text)

    def _leave_hooks(self) -> None:
        """Call ``after_run`` of every hook that was entered, also if one of them fails; the first failure is raised."""
        failures = self._end_saving()
        entered = {id(hook) for hook in self._entered_hooks}
        failures += self._leave([hook for hook in self._hook_table.dispatch_order() if id(hook) in entered])
        guests, self._guests = self._guests or [], None
        failures += self._leave(guests)
        failures += self._end_saving()  # a hook may have saved in after_run
        if self._averaged_before is not None:  # a nested run may train the same model
            self.model.averages_each_backward, self._averaged_before = self._averaged_before, None
        if failures:
            raise failures[0]

    def _end_saving(self) -> list[Exception]:
        try:
            self._saver.close()
        except Exception as failure:
            self.logger.exception('the checkpoint that was being written in the background failed')
            return [failure]
        return []

    def _leave(self, hooks: Iterable[Hook]) -> list[Exception]:
        """Call ``after_run`` of each of ``hooks``, also where another one's fails; returns what failed."""
        failures: list[Exception] = []
        for hook in hooks:
            try:
                hook.after_run(self)  # type: ignore[arg-type]
            except CutShort:
                continue
            except Exception as failure:
                self.logger.exception('after_run of %s failed', type(hook).__name__)
                failures.append(failure)
        return failures

    def stop(self, reason: str) -> None:
        """End the run after the running iteration; ``reason`` becomes part of `outcome` and of the log.

        In a distributed run any rank may call it, and all ranks stop after the same iteration: after the running one
        if all of them call it there, else as soon as all of them can.
        """
        if self._signals is None or self._world_size == 1:
            self._stop_reason = reason
        else:
            self._signals.request(reason)
        if self._inner is not None:
            self._inner.stop(OUTER + reason)

    def _while_waiting(self) -> bool:
        """What the run does while it waits for data; returns whether it has been asked to end."""
        self._waits += 1
        if self._saver.in_flight is not None:
            self._saver.poll()
        for call in self._hook_table.calls['while_waiting']:
            call(self)
        if self.parent is not None:
            self.parent._while_waiting()
        return self.is_ending

    def _stop_if_signalled(self, signals: StopSignals) -> None:
        """At a boundary: stop here because of a signal, or because some rank has called `stop`."""
        due = signals.due()
        if due is None or self._stop_reason is not None:
            return
        self._stop_reason, self.stop_signal = due
        if due.signal is None:
            return
        self.logger.warning('%s: the run stops after iteration %d', due.reason, self.completed_iters)
        if not any(isinstance(hook, CheckpointHook) and hook.save_last for hook in self._hook_table):
            self.logger.warning(
                'nothing is saved: no CheckpointHook with save_last=True is registered, which would save the end of '
                'the run'
            )

    def _rings(self, span: str, hooks: HookTable | None = None) -> AbstractContextManager[Any]:
        """The context managers of ``hooks``, or else of the runner's, for ``span``, nested; the lowest priority number
        is the outermost."""
        rings = (self._hook_table if hooks is None else hooks).calls[span]
        return _nested(rings, self) if rings else _NO_RINGS

    def _give_back_batch(self) -> None:
        """After an error: the batch that was not trained on comes first if this runner runs again."""
        loader = self.data_loader
        reader = loader if isinstance(loader, Reader) else self._readers.find(loader, self._progress.entry)
        waits = self.data_batch is not None and self._progress.iters == self._iter and self.mode != 'val'
        if reader is not None and waits:
            reader.give_back(self.data_batch)
            self.data_batch = None


@contextmanager
def _nested(rings: Iterable[Callable[[Any], AbstractContextManager[Any]]], runner: Lifecycle) -> Iterator[None]:
    with ExitStack() as stack:
        for ring in rings:
            stack.enter_context(ring(runner))
        yield
