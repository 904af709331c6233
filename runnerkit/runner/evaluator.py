"""Evaluations of the model: the span that all of them have, and the passes over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Protocol

import torch

from runnerkit.data.kinds import check_pass, describe_loader, may_have_unequal_lengths
from runnerkit.data.loader_state import RandomStates
from runnerkit.data.named import name_of_scores
from runnerkit.distributed import (
    broadcast_patiently,
    meet_patiently,
    reduce_extremes,
    reduce_named_sums,
    tell_failure,
)
from runnerkit.evaluation import Scores, evaluation_mode, numbers_of, score_dataset, with_equal_steps
from runnerkit.hooks.hook import Hook, RunnerView, Score
from runnerkit.hooks.hook_table import HookTable, call_each
from runnerkit.log_buffer import LogBuffer
from runnerkit.runner.plan import Plan
from runnerkit.runner.progress import Progress
from runnerkit.runner.readers import Readers
from runnerkit.runner.stop import Stop
from runnerkit.runner.workflow import trains
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.report import scope as report_scope

#: Attributes of the runner that an evaluation restores.
_KEPT = ('mode', 'data_loader', 'data_batch', 'outputs', 'outputs_of')

_NOBODY = HookTable()


class _EvaluatedRunner(RunnerView, Protocol):
    """What `Evaluator` reads of its runner, in addition to what hooks read."""

    hooks: HookTable
    plan: Plan
    progress: Progress
    readers: Readers
    stopping: Stop
    keeps_random_states: bool
    train_log: LogBuffer
    outputs_of: int | str | None
    world_size: int

    def call_hook(self, fn_name: str) -> None: ...
    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None: ...


class Evaluator:
    """The part of the engine that evaluates.

    Args:
        runner: the run's runner.

    Attributes:
        scores: those of the running evaluation by name, or None.
        is_open: whether an evaluation is running, or hooks get its scores.
        is_repeating: whether the running step only matches a collective of other ranks and does not count.
    """

    def __init__(self, runner: _EvaluatedRunner) -> None:
        self._runner = runner
        self.scores: dict[str, Any] | None = None
        self.is_open = False
        self.is_repeating = False
        self._training_rng: RandomStates | None = None  # of the training, during an evaluation
        self._has_told_moves = False
        self._guests: list[Hook] | None = None  # hooks of evaluations that leave with the run; None outside a run
        self._log = LogBuffer()  # of an entry of the iteration runner
        self._scores: Scores | None = None  # of the same

    # --- points ------------------------------------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Hooks of evaluations leave with the run."""
        self._guests = []

    def after_run(self, runner: Any) -> None:
        """Call ``after_run`` of the hooks of evaluations."""
        guests, self._guests = self._guests or [], None
        call_each([hook.after_run for hook in guests], runner)

    def prepare(self) -> None:
        """Make readers for all known evaluation loaders."""
        entries = zip(self._runner.readers.entries, self._runner.plan.workflow, strict=False)
        loaders = [reader.dataloader for reader, (mode, _) in entries if mode == 'val']
        for hook in self._runner.hooks:
            several = getattr(hook, 'dataloaders', None)
            for loader in several.values() if isinstance(several, Mapping) else [getattr(hook, 'dataloader', None)]:
                loaders += loader.values() if isinstance(loader, Mapping) else [loader]  # of an experiment, by name
        self._runner.readers.prepare(loader for loader in loaders if loader is not None)

    # --- the span ----------------------------------------------------------------------------------------------------

    @contextmanager
    def around_val(self) -> Iterator[dict[str, Any]]:
        """The span of an evaluation, which yields the scores to fill in; a span inside another one is part of it.

        It enters the hooks' ``around_val`` rings and puts the model into evaluation mode. At the end it restores the
        runner, and with `keeps_random_states` the random generators. All ranks enter and leave it together.
        """
        if self.scores is not None:
            yield self.scores
            return
        runner = self._runner
        with self.apart(runner.keeps_random_states), self._opened():
            kept = {name: getattr(runner, name, None) for name in _KEPT}  # MMCV's loops delete the batch
            inner_iter, log, before = runner.progress.inner_iter, runner.log_buffer, dict(runner.log_buffer.output)
            scores: dict[str, Any] = {}
            self.scores = scores
            log.output.clear()
            if runner.world_size > 1:  # all ranks evaluate the model that rank 0 saves
                from runnerkit.parallel.same_weights import broadcast_shared_buffers

                meet_patiently()
                broadcast_shared_buffers(runner.model)
            try:
                with runner.hooks.around['around_val'], evaluation_mode(runner.model):
                    yield scores
            except BaseException as error:
                tell_failure(error)
                raise
            finally:
                self.scores = None
                written = dict(log.output)
                log.output.clear()
                log.output.update({**before, **written})
                for name, value in kept.items():
                    setattr(runner, name, value)
                runner.progress.inner_iter = inner_iter
            # Rank 0 may have scored alone, for hours.
            numbers = broadcast_patiently(numbers_of({**written, **scores}))
            if numbers:
                runner.scores.update({name: Score(value, runner.progress.iters) for name, value in numbers.items()})
                runner.hooks.dispatch('after_evaluate', runner, numbers)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        former, self.is_open = self.is_open, True
        try:
            yield
        finally:
            self.is_open = former

    @contextmanager
    def apart(self, keeps: bool = True) -> Iterator[None]:
        """With ``keeps``, random numbers that are drawn in it do not advance the training's generators."""
        if self._training_rng is not None:
            yield
            return
        runner = self._runner
        entries = zip(runner.plan.workflow, runner.readers.entries, strict=False)
        loaders = [reader.dataloader for (mode, _), reader in entries if keeps and trains(mode, runner)]
        before = RandomStates(loaders)
        self._training_rng = before if keeps else None
        try:
            yield
        finally:
            if keeps:
                self._training_rng = None
                before.restore()
            elif not self._has_told_moves and runner.stopping.signals is not None and before.have_moved():
                self._has_told_moves = True
                runner.logger.info(
                    'The evaluation has drawn random numbers that the training would have drawn, as in MMCV: without '
                    'it, the weights would be others. runner.keeps_random_states = True keeps them apart'
                )

    def as_before(self) -> AbstractContextManager[None]:
        """In it, the random generators are the training's: a resumed run does not repeat the evaluation."""
        return nullcontext() if self._training_rng is None else self._training_rng.restored()

    # --- on a loader -------------------------------------------------------------------------------------------------

    def evaluate(
        self, loader: Any, hooks: Iterable[Hook] = (), test_fn: Callable[..., Any] | None = None, scope: str = 'val'
    ) -> dict[str, Any]:
        """Evaluate the model, or its averaged weights if it has an EMA, on ``loader``; all ranks call it.

        The training continues as without the evaluation, even if this one draws random numbers.
        """
        runner = self._runner
        called = HookTable(hooks, runner) if hooks else _NOBODY
        others = [hook for hook in called if not any(hook is own for own in runner.hooks)]
        guests = HookTable(others, runner) if others else _NOBODY
        with (
            self.apart(),
            guests.around['around_run'],
            self._visited_by(guests) if guests else nullcontext(),
            runner.around_val() as found,
        ):
            with guests.around['around_val']:
                if test_fn is not None or hasattr(getattr(loader, 'dataset', None), 'evaluate'):
                    scores = score_dataset(runner.model, loader, test_fn, logger=runner.logger)
                else:
                    scores = self.validate(loader, called, scope, guests=guests)
            found.update(scores)
            numbers = broadcast_patiently(numbers_of(scores))
            guests.dispatch('after_evaluate', runner, numbers)
        return scores or dict(numbers)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The span of evaluations without a run: the hooks' ``around_run`` rings, ``before_run`` and ``after_run``."""
        runner = self._runner
        with runner.hooks.around['around_run'], self._visited_by([*runner.hooks]):
            runner.hooks.forget_calls()  # one may have chosen in before_run which points it serves
            yield

    @contextmanager
    def _visited_by(self, guests: Iterable[Hook]) -> Iterator[None]:
        """Call ``before_run`` of the new ``guests``; they leave with the run, or here if no run is active."""
        entered: list[Hook] = [] if self._guests is None else self._guests
        leaving = entered if self._guests is None else []
        try:
            for hook in guests:
                if not any(hook is other for other in entered):
                    entered.append(hook)
                    hook.before_run(self._runner)
            yield
        except BaseException:
            with suppress(BaseException):  # which is logged
                call_each([hook.after_run for hook in leaving], self._runner)
            raise
        call_each([hook.after_run for hook in leaving], self._runner)

    def validate(
        self, loader: Any, hooks: HookTable, mode: str, epoch: int = 0, guests: HookTable = _NOBODY
    ) -> dict[str, Any]:
        """One pass of ``val_step`` over ``loader`` in a separate log scope, with the val points of ``hooks``; the
        ``guests`` among them are not hooks of the runner. Returns the scores."""
        runner, log = self._runner, LogBuffer()
        train_log, runner.log_buffer = runner.log_buffer, log
        runner.mode, runner.data_loader = mode, loader
        call = runner.call_hook if hooks is runner.hooks else partial(hooks.dispatch, runner=runner)
        around, around_guests = runner.hooks.around, guests.around
        scores, reader = Scores(runner.model), runner.readers.evaluation(loader)
        once: AbstractContextManager[None] = nullcontext()
        if runner.world_size > 1:
            from runnerkit.data.shares import each_sample_once

            once = each_sample_once(loader)
        try:
            with (
                report_scope(log),
                torch.no_grad(),
                once,
                around['around_epoch'],
                around_guests['around_epoch'],
            ):
                call('before_val_epoch')
                # A pass that an error interrupted starts over.
                batches = reader.batches(epoch) if reader.is_to_enter else reader.begin(epoch)
                given, first = 0, None
                for i, (batch, counts) in enumerate(with_equal_steps(runner.model, loader, batches)):
                    runner.progress.inner_iter, runner.data_batch = i, batch
                    if not counts:
                        self._repeat_batch(guests)
                        continue
                    if not given and may_have_unequal_lengths(loader):
                        first = batch
                    given += 1
                    with around['around_iter'], around_guests['around_iter']:
                        call('before_val_iter')
                        runner.run_iter(runner.data_batch, train_mode=False)
                        guests.dispatch('after_forward', runner)
                        scores.update(runner.outputs)
                        call('after_val_iter')
                    batch = runner.data_batch = runner.outputs_of = None
                check_pass(loader, reader.left_out + given)
                reader.close()
                if may_have_unequal_lengths(loader):
                    from runnerkit.data.shares import warn_if_not_sharded

                    warn_if_not_sharded(loader, first)
                fewest, most = reduce_extremes(given)
                if most == 0:
                    raise WrongValue(
                        f'nothing was evaluated: {describe_loader(loader)} gave no batches on any rank. Its data set '
                        'is empty, smaller than one full batch (drop_last), or an iterator that an earlier evaluation '
                        'has read to its end: then let __iter__ return a new one each time'
                    )
                # A rank without a batch has no losses, which is no reason to warn.
                results = _averages(log, scores, loader, tells=fewest > 0)
                call('after_val_epoch')
        finally:
            runner.log_buffer = train_log
        return results

    @torch.no_grad()
    def validate_batch(self, loader: Any, k: int, n: int, **kwargs: Any) -> None:
        """Validate batch ``k`` of the ``n`` of an entry of the iteration runner; the last one logs the averages and
        scores of all of them."""
        runner = self._runner
        if k == 0 or self._scores is None:
            self._log, self._scores = LogBuffer(), Scores(runner.model)
        runner.log_buffer = self._log
        try:
            with runner.around_val() as found, report_scope(self._log):
                runner.readers.of(loader)
                runner.mode, runner.data_loader, runner.data_batch = 'val', loader, next(loader)
                with runner.hooks.around['around_iter']:
                    runner.call_hook('before_val_iter')
                    runner.run_iter(runner.data_batch, train_mode=False, **kwargs)
                    self._scores.update(runner.outputs)
                    if k + 1 == n:
                        found.update(_averages(self._log, self._scores, loader))
                    runner.call_hook('after_val_iter')
                runner.outputs_of = None
        finally:
            runner.log_buffer = runner.train_log

    def _repeat_batch(self, guests: HookTable) -> None:
        """Make a validation step that only matches the collectives of other ranks: no logs, no points."""
        runner, own_log = self._runner, self._runner.log_buffer
        runner.log_buffer, self.is_repeating = LogBuffer(), True
        try:
            with (
                report_scope(runner.log_buffer),
                runner.hooks.around['around_iter'],
                guests.around['around_iter'],
            ):
                runner.run_iter(runner.data_batch, train_mode=False)
        finally:
            runner.log_buffer, self.is_repeating = own_log, False


def _averages(log: LogBuffer, scores: Scores, loader: Any, tells: bool = True) -> dict[str, Any]:
    """Compute the results of an evaluation and write them to ``log``."""
    log.update(scores.compute())
    if name := name_of_scores(loader):
        log.add_prefix(f'{name}/')
    log.average(reduce=reduce_named_sums, tells=tells)
    return dict(log.output)
