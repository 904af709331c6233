"""How the model is evaluated: the span that every evaluation has, and the passes over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.generator_state import RandomStates
from runnerkit.data.named import name_of_scores, with_name
from runnerkit.data.rank_sharing import check_pass, each_sample_once, may_have_unequal_lengths, warn_if_not_sharded
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
from runnerkit.hooks.hook_table import HookTable, call_each
from runnerkit.log_buffer import LogBuffer
from runnerkit.parallel.same_weights import shared_buffers
from runnerkit.runner.readers import EvaluationReaders, loaders_to_evaluate
from runnerkit.runner.workflow import trains
from runnerkit.utils.report import scope as report_scope

#: What an evaluation gives back to the training as it was.
_KEPT = ('mode', 'data_loader', 'data_batch', 'outputs', 'outputs_of')

_NOBODY = HookTable()


class Evaluator:
    """The part of the engine that evaluates.

    Args:
        runner: whose model.

    Attributes:
        scores: of the running evaluation, by name; None outside of one.
        readers: one for each loader that was evaluated on.
        is_repeating: whether the running step only keeps other ranks company: it does not count.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.scores: dict[str, Any] | None = None
        self.readers = EvaluationReaders(runner)
        self.is_repeating = False
        self._training_rng: RandomStates | None = None  # while an evaluation may draw: the training's
        self._has_told_moves = False
        self._guests: list[Hook] | None = None  # hooks of evaluations that leave with the run; None: there is no run
        self._log = LogBuffer()  # of an entry of the iteration runner
        self._scores: Scores | None = None  # of the same

    # --- as a part ---------------------------------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """From now on, hooks of evaluations leave with the run."""
        self._guests = []

    def after_run(self, runner: Any) -> None:
        """Call ``after_run`` of the hooks of evaluations."""
        guests, self._guests = self._guests or [], None
        call_each([hook.after_run for hook in guests], runner)

    def prepare(self) -> None:
        """Make readers for all loaders that the run is known to evaluate on."""
        entries = zip(self._runner.readers.entries, self._runner.plan.workflow, strict=False)
        loaders = [reader.dataloader for reader, (mode, _) in entries if mode == 'val']
        self.readers.prepare([*loaders, *loaders_to_evaluate(self._runner.hooks)])

    # --- the span ----------------------------------------------------------------------------------------------------

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
        if self.scores is not None:
            yield self.scores
            return
        with self.apart(self._runner.keeps_random_states), self._span() as found:
            yield found

    @contextmanager
    def apart(self, keeps: bool = True) -> Iterator[None]:
        """What draws random numbers here does not move the training's generators, if it ``keeps`` them."""
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
            elif not self._has_told_moves and runner.stopping.is_running and before.have_moved():
                self._has_told_moves = True
                runner.logger.info(
                    'The evaluation has drawn random numbers that the training would have drawn, as in MMCV: without '
                    'it, the weights would be others. runner.keeps_random_states = True keeps them apart'
                )

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """In it, random generators are where the training's were: a resumed run does not repeat the evaluation."""
        if self._training_rng is None:
            yield
            return
        with self._training_rng.restored():
            yield

    @contextmanager
    def _span(self) -> Iterator[dict[str, Any]]:
        runner = self._runner
        kept = {name: getattr(runner, name, None) for name in _KEPT}  # MMCV's loops delete the batch
        inner_iter = runner.progress.inner_iter
        found: dict[str, Any] = {}
        self.scores, log, before = found, runner.log_buffer, dict(runner.log_buffer.output)
        log.output.clear()
        meet_patiently()
        broadcast_buffers(shared_buffers(runner.model))  # all ranks evaluate what rank 0 would save
        try:
            with runner.hooks.around['around_val'], evaluation_mode(runner.model):
                yield found
        except Exception as error:
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
        scores = broadcast_patiently(numbers_of({**written, **found}))
        if scores:
            runner.scores.update({name: Score(value, runner.completed_iters) for name, value in scores.items()})
            runner.hooks.dispatch('after_evaluate', runner, scores)

    # --- on a loader -------------------------------------------------------------------------------------------------

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
        runner = self._runner
        table = hooks if isinstance(hooks, HookTable) else HookTable(hooks, runner)
        guests = HookTable((hook for hook in table if not any(hook is own for own in runner.hooks)), runner)
        with (
            self.apart(),
            guests.around['around_run'],
            self._visited_by(guests),
            runner.around_val() as found,
        ):
            with guests.around['around_val']:
                if test_fn is not None or hasattr(getattr(loader, 'dataset', None), 'evaluate'):
                    scores = with_name(loader, score_dataset(runner.model, loader, test_fn, logger=runner.logger))
                else:
                    scores = self.validate(loader, table, scope, guests=guests)
            found.update(scores)
            numbers = broadcast_patiently(numbers_of(scores))
            guests.dispatch('after_evaluate', runner, numbers)
        return scores or dict(numbers)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The span of evaluations without a run: the hooks' ``around_run`` rings, ``before_run`` and ``after_run``."""
        runner = self._runner
        entered: list[Hook] = []
        with runner.hooks.around['around_run'], _leaving(entered, runner):
            for hook in [*runner.hooks]:
                entered.append(hook)
                hook.before_run(runner)
            runner.hooks.forget_calls()  # one may have chosen in before_run which points it serves
            yield

    @contextmanager
    def _visited_by(self, guests: Iterable[Hook]) -> Iterator[None]:
        """Call ``before_run`` of those ``guests`` that are new; they leave with the run, or where there is none,
        here."""
        entered = [] if self._guests is None else self._guests
        with _leaving(entered if self._guests is None else [], self._runner):
            for hook in guests:
                if not any(hook is known for known in entered):
                    entered.append(hook)
                    hook.before_run(self._runner)
            yield

    def validate(
        self, loader: Any, hooks: HookTable, mode: str, epoch: int = 0, guests: HookTable = _NOBODY
    ) -> dict[str, Any]:
        """One pass of ``val_step`` over ``loader`` in a log scope of its own, in which the val points of ``hooks`` are
        called; the ``guests`` among them are not the runner's own. Returns the scores."""
        runner, log = self._runner, LogBuffer()
        train_log, runner.log_buffer = runner.log_buffer, log
        runner.mode, runner.data_loader = mode, loader
        call = runner.call_hook if hooks is runner.hooks else partial(hooks.dispatch, runner=runner)
        around, around_guests = runner.hooks.around, guests.around
        scores, reader = Scores(runner.model), self.readers.of(loader)
        try:
            with (
                report_scope(log),
                torch.no_grad(),
                each_sample_once(loader),
                around['around_epoch'],
                around_guests['around_epoch'],
            ):
                call('before_val_epoch')
                # A pass that an error has cut short does not continue here.
                batches = reader.batches(epoch) if reader.is_to_enter else reader.begin(epoch)
                given, first = 0, {}
                for i, (batch, counts) in enumerate(in_step(runner.model, loader, batches)):
                    runner.progress.inner_iter, runner.data_batch = i, batch
                    if not counts:
                        self._repeat_batch(guests)
                        continue
                    if not given and may_have_unequal_lengths(loader):
                        first = batch_checksums(batch)
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
                    warn_if_not_sharded(loader, first)
                # A rank without a batch has no losses, and is none to warn of.
                results = _averages(log, scores, loader, tells=reduce_extremes(given)[0] > 0)
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
        """Make a validation step that only keeps other ranks company: nothing is logged, and no points are called."""
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
    """The results of an evaluation, which are in ``log`` then."""
    log.update(scores.compute())
    if name := name_of_scores(loader):
        log.add_prefix(f'{name}/')
    log.average(reduce=reduce_named_sums, tells=tells)
    return dict(log.output)


@contextmanager
def _leaving(entered: list[Hook], runner: Any) -> Iterator[None]:
    """At the end, call ``after_run`` of the hooks that have ``entered``."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            call_each([hook.after_run for hook in entered], runner)
        raise
    call_each([hook.after_run for hook in entered], runner)
