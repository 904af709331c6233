"""How a runner evaluates: the span that every evaluation has, and the pass over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.generator_state import RandomStates
from runnerkit.data.named import name_of_scores, with_name
from runnerkit.data.together import check_pass, each_sample_once, may_differ, tell_unshared
from runnerkit.distributed import (
    broadcast_buffers,
    broadcast_patiently,
    meet_patiently,
    reduce_extremes,
    reduce_named_sums,
    tell_failure,
)
from runnerkit.evaluation import Scores, evaluation_mode, in_step, numbers_of, score_dataset
from runnerkit.hooks.hook import Hook, Score
from runnerkit.log_buffer import LogBuffer
from runnerkit.parallel.same_weights import shared_buffers
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.lifecycle import Lifecycle
from runnerkit.runner.workflow import trains
from runnerkit.utils.report import scope as report_scope

_NOBODY = HookTable()


class Evaluating(Lifecycle):
    """The part of a runner that evaluates."""

    run_iter: Callable[..., None]
    _found: dict[str, Any] | None = None  # the scores of the running evaluation
    _is_repeating = False  # a step of an evaluation that does not count
    _training_rng: RandomStates | None = None  # while an evaluation may draw: the training's
    _has_told_moves = False

    @property
    def heartbeat(self) -> tuple[Any, ...] | None:
        """What changes with each iteration of this run and of those inside it, and while it waits for a stream.

        Its first item is how many iterations this run has done.

        None outside of a run, and where a pause may be long: in an evaluation, and while a checkpoint is saved.
        """
        if self._signals is None or self._outcome is not None or self._found is not None or self._is_saving:
            return None
        inside = None if self._inner is None else self._inner.heartbeat
        if self._inner is not None and inside is None:
            return None
        return self._progress.iters - self._iters_before, self._epoch, self._iter, self._inner_iter, self._waits, inside

    @contextmanager
    def around_val(self) -> Iterator[dict[str, Any]]:
        """The span of an evaluation; one inside another is part of it.

        The hooks' ``around_val`` rings are entered, the model is in evaluation mode, and afterwards the runner is as it
        was before. So are the random generators, if `keeps_random_states`. All ranks enter and leave it together.

        Yields:
            The evaluation's scores by name, to be filled in. What code in the span writes to ``log_buffer.output``
            counts as well, as MMCV's evaluation hooks do. On leaving, rank 0's numbers among them become part of
            `scores` on every rank, and the hooks' ``after_evaluate`` is called, unless there are none.
        """
        if self._found is not None:
            yield self._found
            return
        with self._apart(self.keeps_random_states), self._evaluation() as found:
            yield found

    @contextmanager
    def _apart(self, keeps: bool = True) -> Iterator[None]:
        """What draws random numbers here does not move the training's generators, if it ``keeps`` them."""
        if self._training_rng is not None:
            yield
            return
        entries = zip(self._workflow, self._readers.entries, strict=False)
        loaders = [reader.dataloader for (mode, _), reader in entries if keeps and trains(mode, self)]
        before = RandomStates(loaders)
        self._training_rng = before if keeps else None
        try:
            yield
        finally:
            if keeps:
                self._training_rng = None
                before.restore()
            elif not self._has_told_moves and self._signals is not None and before.have_moved():
                self._has_told_moves = True
                self.logger.info(
                    'The evaluation has drawn random numbers that the training would have drawn, as in MMCV: without '
                    'it, the weights would be others. runner.keeps_random_states = True keeps them apart'
                )

    def _rank_state(self) -> dict[str, Any]:
        """A run that is resumed inside an evaluation ends it where the training's generators were."""
        if self._training_rng is None:
            return super()._rank_state()
        with self._training_rng.restored():
            return {**super()._rank_state(), 'rng': self._training_rng.rng}

    @contextmanager
    def _evaluation(self) -> Iterator[dict[str, Any]]:
        names = ('mode', 'data_loader', 'data_batch', 'outputs', '_stepped', '_inner_iter')
        kept = {name: getattr(self, name, None) for name in names}  # MMCV's loops delete the batch
        found: dict[str, Any] = {}
        self._found, log, before = found, self.log_buffer, dict(self.log_buffer.output)
        log.output.clear()
        meet_patiently()
        broadcast_buffers(shared_buffers(self.model))  # all ranks evaluate what rank 0 would save
        try:
            with self._rings('around_val'), evaluation_mode(self.model):
                yield found
        except Exception as error:
            tell_failure(error)
            raise
        finally:
            self._found = None
            written = dict(log.output)
            log.output.clear()
            log.output.update({**before, **written})
            for name, value in kept.items():
                setattr(self, name, value)
        # Rank 0 may have scored alone, for hours.
        scores = broadcast_patiently(numbers_of({**written, **found}))
        if scores:
            self.scores.update({name: Score(value, self.completed_iters) for name, value in scores.items()})
            self._hook_table.dispatch('after_evaluate', self, scores)

    def evaluate(
        self, loader: Any, hooks: Iterable[Hook] = (), test_fn: Callable[..., Any] | None = None, scope: str = 'val'
    ) -> dict[str, Any]:
        """Evaluate the model, or its averaged weights where there is an EMA, on ``loader``; on all ranks.

        The training goes on as if there had been no evaluation, whatever this draws from random generators.

        Args:
            loader: a loader; if its data set has a method ``evaluate``, that is asked with the model's predictions
                (``model(return_loss=False, **data)``), else ``model.val_step`` gives losses and what the model's
                metrics need. With a name (`runnerkit.data.name_scores`), the scores are called ``<name>/<score>``.
            hooks: hooks whose ``val`` points and ``after_evaluate`` are called. Those that are not the runner's own are
                entered and left as in a run, inside the runner's: their ``around_run``, ``around_val``,
                ``around_epoch`` and ``around_iter`` rings span this evaluation and its parts, and ``after_forward`` is
                called. ``before_run`` is called at the first evaluation that is given the hook, and ``after_run`` at
                the end of the runner's run, whatever happens: a logger writes one file. Outside of a run,
                ``after_run`` is called at the end of this evaluation.
            test_fn: ``test_fn(model, loader) -> predictions`` instead of the loop.
            scope: the name of the log scope, which is `mode` meanwhile.

        Returns:
            Scores by name. What a data set's ``evaluate`` gives, rank 0 has as it is, and the others have the numbers
            among it.
        """
        table = hooks if isinstance(hooks, HookTable) else HookTable(hooks)
        guests = HookTable(hook for hook in table if not any(hook is own for own in self._hook_table))
        with (
            self._apart(),
            self._rings('around_run', guests),
            self._visited_by(guests),
            self.around_val() as found,
        ):
            with self._rings('around_val', guests):
                if test_fn is not None or hasattr(getattr(loader, 'dataset', None), 'evaluate'):
                    scores = with_name(loader, score_dataset(self.model, loader, test_fn, logger=self.logger))
                else:
                    scores = self._validate(loader, table, scope, guests=guests)
            found.update(scores)
            numbers = broadcast_patiently(numbers_of(scores))
            guests.dispatch('after_evaluate', self, numbers)
        return scores or dict(numbers)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The span of evaluations without a run: the hooks' ``around_run`` rings, ``before_run`` and ``after_run``."""
        failures: list[Exception] = []
        entered: list[Hook] = []
        with self._rings('around_run'):
            try:
                for hook in [*self._hook_table]:
                    entered.append(hook)
                    hook.before_run(self)
                self._hook_table.calls.clear()  # one may have chosen in before_run which points it serves
                yield
            finally:
                failures = self._leave(entered)
        if failures:
            raise failures[0]

    @contextmanager
    def _visited_by(self, guests: Iterable[Hook]) -> Iterator[None]:
        """Call ``before_run`` of those ``guests`` that are new; they leave with the run, or where there is none,
        here."""
        entered = [] if self._guests is None else self._guests
        try:
            for hook in guests:
                if not any(hook is known for known in entered):
                    entered.append(hook)
                    hook.before_run(self)  # type: ignore[arg-type]
            yield
        finally:
            failures = self._leave(entered) if self._guests is None else []
        if failures:
            raise failures[0]

    def _validate(
        self, loader: Any, hooks: HookTable, mode: str, epoch: int = 0, guests: HookTable = _NOBODY
    ) -> dict[str, Any]:
        """One pass of ``val_step`` over ``loader`` in a log scope of its own; ``hooks`` hear the val points, and the
        ``guests`` among them are not the runner's own."""
        train_log, self.log_buffer = self.log_buffer, LogBuffer()
        self.mode, self.data_loader = mode, loader
        call = self.call_hook if hooks is self._hook_table else partial(hooks.dispatch, runner=self)
        number = len(self._readers.evaluations)
        scores, reader = Scores(self.model), self._readers.find_or_add_evaluation(loader)
        if len(self._readers.evaluations) > number:
            self._tell_late_evaluation(number, loader)
        try:
            with (
                report_scope(self.log_buffer),
                torch.no_grad(),
                each_sample_once(loader),
                self._rings('around_epoch'),
                self._rings('around_epoch', guests),
            ):
                call('before_val_epoch')
                # A pass that an error has cut short does not go on here.
                batches = reader.batches(epoch) if reader.is_to_enter else reader.begin(epoch)
                given, first = 0, {}
                for self._inner_iter, (self.data_batch, counts) in enumerate(in_step(self.model, loader, batches)):
                    if not counts:
                        self._repeat_batch(guests)
                        continue
                    if not given and may_differ(loader):
                        first = batch_checksums(self.data_batch)
                    given += 1
                    with self._rings('around_iter'), self._rings('around_iter', guests):
                        call('before_val_iter')
                        self.run_iter(self.data_batch, train_mode=False)
                        guests.dispatch('after_forward', self)
                        scores.update(self.outputs)
                        call('after_val_iter')
                    self.data_batch, self._stepped = None, None
                check_pass(loader, reader.left_out + given)
                reader.close()
                if may_differ(loader):
                    tell_unshared(loader, first)
                self.log_buffer.update(scores.compute())
                if name := name_of_scores(loader):
                    self.log_buffer.add_prefix(f'{name}/')
                # A rank without a batch has no losses, and is none to warn of.
                self.log_buffer.average(reduce=reduce_named_sums, tells=reduce_extremes(given)[0] > 0)
                results = dict(self.log_buffer.output)
                call('after_val_epoch')
        finally:
            self.log_buffer = train_log
        return results

    def _repeat_batch(self, guests: HookTable) -> None:
        """Make a validation step that only keeps other ranks company: nothing is logged, and no points are called."""
        own_log, self.log_buffer, self._is_repeating = self.log_buffer, LogBuffer(), True
        try:
            with report_scope(self.log_buffer), self._rings('around_iter'), self._rings('around_iter', guests):
                self.run_iter(self.data_batch, train_mode=False)
        finally:
            self.log_buffer, self._is_repeating = own_log, False
