"""The data positions of a run: a reader per workflow entry, and one per loader that is evaluated on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from torch.utils.data import SequentialSampler

from runnerkit.data.kinds import (
    BUILD_DATALOADER_HINT,
    check_pass,
    describe_loader,
    is_cheap_to_enter,
    length_of,
    loader_facts,
    may_have_unequal_lengths,
    set_epoch,
)
from runnerkit.data.reader import Reader, ReaderState, new_iter_loaders, numbers
from runnerkit.distributed.groups import get_dist_info
from runnerkit.hooks.hook_table import HookTable
from runnerkit.runner.plan import Plan
from runnerkit.runner.progress import Progress
from runnerkit.utils.logging import NOT_EXACT

#: How many readers are kept of evaluation loaders that were unknown when the run began.
_MOST_LATE = 8


class Readers:
    """The readers of a run. They live as long as the runner, so a second run continues.

    Args:
        progress: the counters of the run.
        plan: its workflow.
        logger: gives the logger, which an experiment chooses later.
        reading: the loader (or reader) that the loop reads, and the batch that it works on; None between two.
        restore: called when an open pass was entered, which moves random states: restores them.

    Attributes:
        entries: the readers of the workflow's entries, in their order, then those of loaders that a subclass's loop
            reads.
        evaluations: those of loaders that are evaluated on, in the order of their first use.
    """

    def __init__(
        self,
        progress: Progress,
        plan: Plan,
        logger: Callable[[], logging.Logger],
        reading: Callable[[], tuple[Any, Any]],
        restore: Callable[[], None],
    ) -> None:
        self._progress, self._plan, self._logger = progress, plan, logger
        self._reading, self._restore = reading, restore
        self.entries: list[Reader] = []
        self.evaluations: list[Reader] = []
        self._prepared = 0  # how many of these were known when the run began
        self._since = next(numbers)
        self._counts_trained = False
        self._is_inside = False  # a resumed run has not entered the epoch yet that was open
        self._is_primed = False  # a subclass's loop would enter it
        self._resumed: Mapping[str, Any] | None = None  # the state of the run that is resumed
        self._own: Mapping[str, Any] = {}  # of it, that of this rank

    def open(self, loaders: Sequence[Any], names: Sequence[str] = ()) -> None:
        """Make a reader per workflow entry; those of an earlier run are kept if all loaders are the same. Loaders with
        names are found by these in a checkpoint."""
        former = [reader.dataloader for reader in self.entries]
        if len(former) != len(loaders) or any(one is not other for one, other in zip(former, loaders, strict=True)):
            self.entries = [Reader(loader) for loader in loaders]
        for reader, name in zip(self.entries, names, strict=False):
            reader.name = name

    def adopt_new_iter_loaders(self) -> None:
        """Use the `IterLoader` objects that a subclass's ``run`` has created."""
        self.entries = new_iter_loaders(self._since)

    def find(self, loader: Any, entry: int | None = None) -> Reader | None:
        """The reader of a training loader (or reader), preferably that of the workflow's ``entry``, by default the
        running one; None for an unknown loader."""
        entry = self._progress.entry if entry is None else entry
        for reader in (*self.entries[entry : entry + 1], *self.entries):
            if reader.dataloader is loader or reader is loader:
                return reader
        return None

    def of(self, loader: Any) -> Reader:
        """The reader of a training loader. A new one, of a subclass's loop, enters where the checkpoint was saved."""
        found = self.find(loader)
        if found is None:
            is_endless = isinstance(loader, Reader) and not self._progress.by_epoch
            found = loader if is_endless else Reader(loader)
            self.entries.append(found)
            for reader, state in self.saved_in(self._own):
                if reader is found:
                    self._load(reader, state)
            if is_endless:
                self.start()
        return found

    def evaluation(self, loader: Any) -> Reader:
        """The reader for evaluations on ``loader``."""
        for reader in self.evaluations:
            if reader.dataloader is loader:
                return reader
        states = self._own.get('evaluations', [])[len(self.evaluations) :]
        if states and (states[0]['held'] or states[0]['workers_live']):
            self._warn(
                'the random states of %s, used in an evaluation, cannot be restored this late: keep it as the '
                'attribute "dataloader" of the hook that evaluates',
                describe_loader(loader),
            )
        self.evaluations.append(Reader(loader, starts_over=True))
        if len(self.evaluations) > self._prepared + _MOST_LATE:  # a loader may be built for each evaluation
            del self.evaluations[self._prepared]
        return self.evaluations[-1]

    def prepare(self, loaders: Iterable[Any]) -> None:
        """Make readers for evaluations on ``loaders``, so that they are restored before the first read."""
        known = [reader.dataloader for reader in self.evaluations]
        for loader in loaders:
            if not any(loader is each for each in known):
                known.append(loader)
                self.evaluations.append(Reader(loader, starts_over=True))
        self._prepared = len(self.evaluations)

    def _warn(self, text: str, *values: Any) -> None:
        self._logger().warning(text, *values, extra=NOT_EXACT)

    # --- reading -----------------------------------------------------------------------------------------------------

    def batches(self, loader: Any) -> Iterator[tuple[int, Any]]:
        """The batches of the running epoch with their indices; of an open epoch, the remaining ones."""
        reader, progress = self.of(loader), self._progress
        # Hooks drew random numbers and cleared values in before_train_epoch before the save already.
        is_resumed, self._is_inside = self._is_inside, False
        progress.inner_iter = progress.batches - 1  # the last one done, should none be left
        if self._plan.awaits_end_of_epoch:
            self._restore()
            return iter(())
        if is_resumed and not reader.is_to_enter:
            self._restore()
        moves = reader.is_to_enter
        batches = reader.batches(progress.epoch)
        if moves:
            self._restore()
        if may_have_unequal_lengths(loader):
            from runnerkit.data.shares import until_shortest_rank

            batches = until_shortest_rank(loader, batches)
        start = progress.batches
        unseen = reader.left_out - start if moves else 0  # of another loader than the one that was counted
        return chain(enumerate(batches, start), self._end_of_pass(reader, unseen))

    def _end_of_pass(self, reader: Reader, unseen: int) -> Iterator[tuple[int, Any]]:
        """Check that the pass had as many batches as it should; ``unseen`` of them do not count as batches of the
        epoch."""
        progress = self._progress
        check_pass(reader.dataloader, progress.batches + unseen)
        if not progress.batches:  # the run would never end, or silently train nothing
            raise ValueError(
                f'{describe_loader(reader.dataloader)} gives no batches in epoch {progress.epoch + 1}: generators '
                'and iterators can be read only once; give a loader whose __iter__ starts over'
            )
        yield from ()

    def leave(self, loader: Any) -> None:
        """The run stops inside the epoch, after the current batch."""
        reader = self.of(loader)
        if self._progress.batches == length_of(reader.dataloader):
            reader.exhaust()

    def start(self, apart: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        """Begin the first passes of endless loaders, or enter the open ones of a resumed run; those of validations in
        the span ``apart``."""
        is_resumed = any(reader.is_to_enter for reader in self.entries)
        modes = [mode for mode, _ in self._plan.workflow]
        for number, reader in enumerate(self.entries):
            with apart() if modes[number : number + 1] == ['val'] else nullcontext():
                reader.start()
        if is_resumed:
            self._restore()

    # --- points, which loops of subclasses also call -----------------------------------------------------------------

    def before_train_epoch(self, runner: Any) -> None:
        """An epoch begins, or continues after its completed batches."""
        progress, reader = self._progress, self.of(runner.data_loader)
        if progress.batches and not (reader.is_open or reader.is_to_enter):
            self._is_inside = True
            self._enter_by_count(reader)
        set_epoch(runner.data_loader, progress.epoch)
        if self._is_inside:
            self._is_primed = reader.prime()
            runner.hooks.listen('after_train_iter', self._enter_own_loop)

    def _enter_own_loop(self, runner: Any) -> None:
        """The first iteration of the open epoch is over. If a subclass's loop does not read through the reader, the
        epoch may have started over."""
        runner.hooks.unlisten('after_train_iter', self._enter_own_loop)
        if not self._is_inside:
            return
        self._is_inside = False
        reader = self.of(runner.data_loader)
        if not self._is_primed:
            self._progress.count_batches(1)
            self._warn(
                '%s: the open epoch starts over, because %s.train has its own loop; %s, also there',
                describe_loader(reader.dataloader),
                type(runner).__name__,
                BUILD_DATALOADER_HINT,
            )
        reader.close()

    def count_trained(self, hooks: HookTable) -> None:
        """The ``train`` of a subclass reads: count what it has trained on when an iteration is over."""
        self._counts_trained = True

        def count(runner: Any) -> None:
            if isinstance(runner.data_loader, Reader):
                runner.data_loader.trained = runner.data_loader.given

        hooks.listen('after_train_iter', count)

    def after_train_epoch(self, runner: Any) -> None:
        """Close the pass over the data if the epoch is over."""
        if not self._progress.epoch_is_open:
            self.of(runner.data_loader).close()

    # --- saving ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The positions of all readers."""
        names = [reader.name for reader in self.entries]
        return {
            'readers': [dict(vars(self.state_of(reader))) for reader in self.entries],
            'evaluations': [reader.state_dict() for reader in self.evaluations],
            **({'loaders': names} if any(names) else {}),
        }

    def state_of(self, reader: Reader) -> ReaderState:
        """The position of a reader of `entries`: after the last batch that was trained on."""
        progress, (loader, batch) = self._progress, self._reading()
        is_read = reader is (self.find(loader) if progress.by_epoch else loader)
        if not progress.by_epoch and is_read and reader.is_open:
            # A batch that was fetched and not trained on is fetched again.
            waits = batch is not None and progress.unit != progress.inner_iter + 1
            if self._counts_trained:
                waits = reader.given > reader.trained
            return reader.state(reader.given - waits, waits)
        if reader.is_open and progress.epoch_is_open:
            waits = reader.dataloader is loader and batch is not None and not progress.iter_is_done
            return reader.state(progress.batches - reader.left_out, waits)
        if is_read and progress.epoch_is_open and progress.batches > 0 and not reader.is_to_enter:
            at = ReaderState.at(reader.dataloader, progress.epoch, progress.batches)  # a subclass's loop reads it
            return replace(reader.state(), epoch=at.epoch, begun=True, batches=at.batches, samples=at.samples)
        return reader.state()

    def samples(self) -> int | None:
        """How many samples of the open epoch all ranks together have consumed; None if unknown."""
        progress, (loader, _) = self._progress, self._reading()
        if not progress.batches:
            return 0
        reader = self.find(loader)
        if reader is None or not reader.is_open:
            return progress.samples
        return reader.samples(progress.batches - reader.left_out)

    def streams(self) -> list[Any]:
        """The loaders that read a stream."""
        return [reader.dataloader for reader in self.entries if reader.is_stream]

    def acknowledge(self, state: Mapping[str, Any]) -> None:
        """Acknowledge the events of streams up to ``state``, which a checkpoint on disk holds."""
        for reader, each in _paired(self.entries, state['readers']):
            if reader.is_stream and each.loader is not None:
                reader.dataloader.acknowledge(each.loader)

    # --- resuming ----------------------------------------------------------------------------------------------------

    def expect(self, resumed: Mapping[str, Any] | None) -> None:
        """The run continues from a checkpoint with this ``'runnerkit'`` content; None: it does not, or is over."""
        self._resumed, self._own = resumed, {}

    def _was(self, condition: str, default: Any = None) -> Any:
        """A condition of the resumed run."""
        return (self._resumed or {}).get('conditions', {}).get(condition, default)

    def saved_in(self, own: Mapping[str, Any]) -> Iterator[tuple[Reader, ReaderState]]:
        """The readers of `entries`, each with its part of a rank's saved state, except those of entries whose mode has
        changed; loaders with names are known by these."""
        states, names = own.get('readers', []), own.get('loaders') or ['']
        if '' not in names:
            by_name = dict(zip(names, states, strict=True))
            return _paired(self.entries, [by_name.get(reader.name) for reader in self.entries])
        entries = zip(self._was('workflow', []), self._plan.workflow, strict=False)
        changed = [one[0] != other[0] for one, other in entries]
        return _paired(self.entries, [None if any(changed[i : i + 1]) else states[i] for i in range(len(states))])

    def restore_held(self, own: Mapping[str, Any]) -> None:
        """Restore the state of all loaders."""
        for reader, state in (*self.saved_in(own), *_paired(self.evaluations, own.get('evaluations', ()))):
            reader.restore_held(state)

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Let all readers enter at their saved positions; passes that no longer fit start over."""
        progress, plan, self._own = self._progress, self._plan, own
        if self._counts_otherwise():
            progress.close_epoch()
        if self._was('workflow') != [list(entry) for entry in plan.workflow]:
            progress.begin_unit(0, 0)
        for reader, state in self.saved_in(own):
            self._load(reader, state)
        self._is_inside = progress.epoch_is_open
        self._load_evaluations(own)

    def _load_evaluations(self, own: Mapping[str, Any]) -> None:
        """Repeat a validation that was running when the checkpoint was saved, from its beginning."""
        progress, workflow = self._progress, self._plan.workflow
        mode, n = workflow[progress.entry] if progress.entry < len(workflow) else ('', 0)
        for reader, state in _paired(self.evaluations, own.get('evaluations', ())):
            repeats = progress.by_epoch and mode == 'val'
            if state.begun and not (repeats and self.entries[progress.entry].dataloader is reader.dataloader):
                state.begun = False
                self._warn(
                    'the checkpoint was saved inside an evaluation, which is not repeated: the resume is not exact. '
                    'Save before or after it'
                )
            self._enter(reader, state)
        # A validation of the iteration runner continues after the batches that are done, whose scores are lost.
        if mode == 'val' and not progress.by_epoch and 0 < progress.unit < n:
            self._logger().warning(
                'the checkpoint was saved inside a validation: its scores cover the remaining batches only. The '
                'training is exact'
            )

    def _enter(self, reader: Reader, state: ReaderState) -> None:
        """Let ``reader`` enter at ``state``, and log each reason why that is not exact."""
        for text in reader.load(state):
            self._warn('%s', text)

    def rescale(self) -> None:
        """Count the iterations of a resumed epoch run in those of this run: with other ranks or another batch size, an
        epoch has more or fewer. All ranks call it, before the first hook reads the counters."""
        progress, plan, resumed = self._progress, self._plan, self._resumed
        if resumed is None or not progress.by_epoch or plan.by_iters or self._counts_otherwise():
            return
        was, now, batches, is_recut = 0, 0, resumed['progress']['batches'], False
        saved = self._of_training(self._was('workflow', plan.workflow), resumed['ranks'][0]['readers'])
        times = self._of_training(plan.workflow, [n for _, n in plan.workflow])
        pairs = _paired(self._of_training(plan.workflow, self.entries), saved)
        for n, (reader, state) in zip(times, pairs, strict=False):
            lengths = state.about.get('batches'), length_of(reader.dataloader)
            if None in lengths:
                continue
            was, now = was + n * lengths[0], now + n * lengths[1]
            is_recut = is_recut or self._is_recut(reader, state)
            if state.begun:
                batches = _batches_done(reader, state) if _can_enter(reader, state) else 0
        if not is_recut:
            return
        iters = round((resumed['progress']['iters'] - resumed['progress']['batches']) * now / was) + batches
        if iters != progress.iter:
            text = 'the iteration number is changed from %d to %d: an epoch had %d iterations and has %d'
            self._logger().info(text, resumed['progress']['iters'], iters, was, now)
        progress.iter = iters
        progress.count_batches(batches)

    def _of_training(self, workflow: Sequence[Any], values: Iterable[Any]) -> list[Any]:
        """Those of ``values``, one for each entry of ``workflow``, whose entries train."""
        return [each for (mode, _), each in zip(workflow, values, strict=False) if self._plan.trains_in(mode)]

    def _is_recut(self, reader: Reader, state: ReaderState) -> bool:
        """Whether the batches of the saved run had another size, or other ranks shared them."""
        was, now = state.about, loader_facts(reader.dataloader)
        other_ranks = (self._resumed or {}).get('world_size') != get_dist_info()[1]
        return other_ranks or ('batch_size' in was and was['batch_size'] != now.get('batch_size'))

    def _counts_otherwise(self) -> bool:
        """Whether the resumed run counted by epochs and this one by iterations, or vice versa."""
        was = self._was('runner')
        return was is not None and (was == 'by epoch') != self._progress.by_epoch

    def _load(self, reader: Reader, state: ReaderState) -> None:
        """Let ``reader`` enter at the position ``state``; a pass that cannot be entered starts over."""
        if self._counts_otherwise():
            state.begin_anew()
        elif state.begun and self._is_recut(reader, state) and not reader.is_stream:
            if not _can_enter(reader, state):
                state.begin_anew()
                self._progress.count_batches(0)
                self._warn(
                    '%s: the open epoch starts over: ranks or batch size changed, and the order of the loader is '
                    'unknown. Loaders of runnerkit.data.build_dataloader continue with the same sample, without a '
                    'sampler or with one of torch that the config names',
                    describe_loader(reader.dataloader),
                )
            else:
                state.batches = _batches_done(reader, state)
                self._progress.count_batches(state.batches)
        self._enter(reader, state)

    def _enter_by_count(self, reader: Reader) -> None:
        """Let ``reader`` enter the open epoch at the batch that `Progress` gives: its loader is new, or another
        entry's."""
        progress, loader = self._progress, reader.dataloader
        state = ReaderState.at(loader, progress.epoch, progress.batches)
        if reader.order is not None:
            state.samples = self.samples() or state.samples
            state.batches = _batches_done(reader, state)
            progress.count_batches(state.batches)
        elif not isinstance(loader, Sequence) and type(getattr(loader, 'sampler', None)) is not SequentialSampler:
            self._warn(
                '%s: the open epoch continues after %d batches, but it began with another loader: the order '
                'may differ; %s',
                describe_loader(loader),
                progress.batches,
                BUILD_DATALOADER_HINT,
            )
        reader.load(state)

    def go_to_counts(self, saved_by_epoch: bool) -> None:
        """Enter the position of a run of MMCV, whose files (saved at the end of epochs or not) hold counters only."""
        progress, training = self._progress, self._of_training(self._plan.workflow, self.entries)
        if not progress.by_epoch:
            # Only if one of them has seen all iterations.
            if len(training) == 1 and is_cheap_to_enter(training[0].dataloader):
                reader = training[0]
                reader.load(ReaderState.at(reader.dataloader, *divmod(progress.iter, len(reader))))
            return
        length = length_of(training[0].dataloader) if training else None
        # A file that MMCV saved by iteration counts the open epoch as done, and one iteration too few.
        if length and not saved_by_epoch and progress.iter + 1 < progress.epoch * length:
            epoch, start = divmod(progress.iter + 1, length)
            state = {'epochs': epoch, 'iters': progress.iter + 1, 'batches': start, 'epoch_is_open': start > 0}
            progress.load_state_dict(state)
            training[0].load(ReaderState.at(training[0].dataloader, epoch, start))


def _paired(readers: Iterable[Reader], states: Iterable[Any]) -> Iterator[tuple[Reader, ReaderState]]:
    """The readers with their saved states; those without one are left out."""
    for reader, state in zip(readers, states, strict=False):
        if state is not None:
            yield reader, ReaderState.of(state)


def _can_enter(reader: Reader, state: ReaderState) -> bool:
    """Whether ``reader`` can enter the pass at the position ``state`` of other batches."""
    return state.samples is not None and reader.order is not None


def _batches_done(reader: Reader, state: ReaderState) -> int:
    """How many batches, in its batch size, ``reader`` yields before the position ``state``."""
    return max(0, (length_of(reader.dataloader) or 0) - (reader.batches_left(state) or 0))
