"""The data positions of a run: a reader per workflow entry, and one per loader that is evaluated on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from torch.utils.data import SequentialSampler

from runnerkit.data.iter_loader import IterLoader, new_iter_loaders, numbers
from runnerkit.data.kinds import (
    BUILD_DATALOADER_HINT,
    describe_loader,
    is_cheap_to_enter,
    is_unbounded,
    length_of,
    loader_facts,
    order_of,
    set_epoch,
)
from runnerkit.data.rank_sharing import check_pass, until_shortest_rank
from runnerkit.data.reader import Reader
from runnerkit.data.reader_state import ReaderState
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.runner.workflow import first_training_loader, trains
from runnerkit.utils.logging import NOT_EXACT

#: How many readers are kept of evaluation loaders that were unknown when the run began.
_MOST_LATE = 8


class Readers:
    """The readers of the training data. They live as long as the runner, so a second run continues.

    Args:
        runner: the run's runner.

    Attributes:
        entries: the readers of the workflow's entries, in their order, then those of loaders that a subclass's loop
            reads.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.entries: list[Any] = []
        self._since = next(numbers)
        self._is_inside = False  # a resumed run has not entered the epoch yet that was open

    def open(self, loaders: Sequence[Any], kind: type[Reader]) -> None:
        """Make a reader per workflow entry; those of an earlier run are kept if all loaders are the same."""
        former = [reader.dataloader for reader in self.entries]
        if len(former) != len(loaders) or any(one is not other for one, other in zip(former, loaders, strict=True)):
            self.entries = [kind(loader) for loader in loaders]

    def adopt_new_iter_loaders(self) -> None:
        """Use the `IterLoader` objects that a subclass's ``run`` has created."""
        self.entries = list[IterLoader](new_iter_loaders(self._since))

    def find(self, loader: Any, entry: int | None = None) -> Any:
        """The reader of a training loader, preferably that of the workflow entry; None for an unknown loader.

        Args:
            loader: a loader or a reader.
            entry: by default the running entry.
        """
        entry = self._runner.progress.entry if entry is None else entry
        for reader in (*self.entries[entry : entry + 1], *self.entries):
            if reader.dataloader is loader or reader is loader:
                return reader
        return None

    def of(self, loader: Any) -> Any:
        """The reader of a training loader. A new one, of a subclass's loop, enters where the checkpoint was saved."""
        found = self.find(loader)
        if found is None:
            is_endless = isinstance(loader, IterLoader) and not self._runner.by_epoch
            found = loader if is_endless else Reader(loader)
            self.entries.append(found)
            if self._runner.snapshots.resumed is not None:
                for reader, state in self.saved_in(self._runner.snapshots.own):
                    if reader is found:
                        self._load(reader, state)
            if is_endless:
                self.start()
        return found

    # --- reading -----------------------------------------------------------------------------------------------------

    def batches(self, loader: Any) -> Iterator[tuple[int, Any]]:
        """The batches of the running epoch with their indices; of an open epoch, the remaining ones.

        Raises:
            ValueError: at the end: the epoch had no batches.
        """
        runner, reader = self._runner, self.of(loader)
        progress = runner.progress
        # Hooks drew random numbers and cleared values in before_train_epoch before the save already.
        is_resumed, self._is_inside = self._is_inside, False
        progress.inner_iter = progress.batches - 1  # the last one done, should none be left
        if is_resumed and not reader.is_to_enter:
            runner.snapshots.restore_moment()
        moves = reader.is_to_enter
        batches = until_shortest_rank(loader, reader.batches(progress.epoch))
        if moves:
            runner.snapshots.restore_moment()
        start = progress.batches
        unseen = reader.left_out - start if moves else 0  # of another loader than the one that was counted
        return chain(enumerate(batches, start), self._end_of_pass(reader, unseen))

    def _end_of_pass(self, reader: Reader, unseen: int) -> Iterator[tuple[int, Any]]:
        """Check that the pass had as many batches as it should; ``unseen`` of them do not count as batches of the
        epoch."""
        progress = self._runner.progress
        check_pass(reader.dataloader, progress.batches + unseen)
        if not progress.batches:  # the run would never end, or silently train nothing
            raise ValueError(
                f'{describe_loader(reader.dataloader)} gives no batches in epoch {progress.epoch + 1}: generators '
                'and iterators can be read only once; give a loader whose __iter__ starts over'
            )
        yield from ()

    def leave(self, loader: Any) -> None:
        """The run stops inside the epoch, after the current batch."""
        runner, reader = self._runner, self.of(loader)
        reader.remember(runner.data_batch)
        runner.data_batch = None
        if runner.progress.batches == length_of(reader.dataloader):
            reader.exhaust()

    def start(self) -> None:
        """Begin the first passes of endless loaders, or enter the open ones of a resumed run."""
        runner = self._runner
        is_resumed = any(reader.is_to_enter for reader in self.entries)
        for i, reader in enumerate(self.entries):
            validates = i < len(runner.plan.workflow) and runner.plan.workflow[i][0] == 'val'
            apart = validates and runner.keeps_random_states
            with runner.evaluator.apart() if apart else nullcontext():
                reader.start()
        if is_resumed:
            runner.snapshots.restore_moment()

    def give_back_batch(self) -> None:
        """After an error: the batch that was not trained on comes first when this runner runs again."""
        runner = self._runner
        loader = runner.data_loader
        reader = loader if isinstance(loader, Reader) else self.find(loader)
        waits = runner.data_batch is not None and not runner.progress.iter_is_done and runner.mode != 'val'
        if reader is not None and waits:
            reader.give_back(runner.data_batch)
            runner.data_batch = None

    # --- points, which loops of subclasses also call -----------------------------------------------------------------

    def before_train_epoch(self, runner: Any) -> None:
        """An epoch begins, or continues after its completed batches."""
        progress, reader = runner.progress, self.of(runner.data_loader)
        if progress.batches and not (reader.is_open or reader.is_to_enter):
            self._is_inside = True
            self._enter_by_count(reader)
        set_epoch(runner.data_loader, progress.epoch)
        if self._is_inside:
            reader.prime()
            runner.hooks.listen('after_train_iter', self._enter_own_loop)

    def _enter_own_loop(self, runner: Any) -> None:
        """The first iteration of the open epoch is over. If a subclass's loop does not read through the reader, the
        epoch may have started over."""
        runner.hooks.unlisten('after_train_iter', self._enter_own_loop)
        if not self._is_inside:
            return
        self._is_inside = False
        reader = self.of(runner.data_loader)
        if not reader.is_primed:
            runner.progress.count_batches(1)
            runner.logger.warning(
                '%s: the open epoch starts over, because %s.train has its own loop; %s, also there',
                describe_loader(reader.dataloader),
                type(runner).__name__,
                BUILD_DATALOADER_HINT,
                extra=NOT_EXACT,
            )
        reader.close()

    @staticmethod
    def count_own_iteration(runner: Any) -> None:
        """An iteration of a subclass has trained on all batches that it read."""
        if isinstance(runner.data_loader, Reader):
            runner.data_loader.trained = runner.data_loader.given

    def after_train_epoch(self, runner: Any) -> None:
        """Close the pass over the data if the epoch is over."""
        if not runner.progress.epoch_is_open:
            self.of(runner.data_loader).close()

    # --- saving ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The positions of all readers."""
        return {'readers': [self.state_of(reader).state_dict() for reader in self.entries]}

    def state_of(self, reader: Any) -> ReaderState:
        """The position of a reader: after the last batch that was trained on."""
        return self._state_in_epoch(reader) if self._runner.by_epoch else self._state_in_passes(reader)

    def _state_in_epoch(self, reader: Reader) -> ReaderState:
        runner, progress, loader = self._runner, self._runner.progress, reader.dataloader
        is_inside = progress.epoch_is_open and progress.batches > 0 and reader is self.find(runner.data_loader)
        if is_inside and not reader.is_open and not reader.is_to_enter:  # a subclass's loop reads it
            found = ReaderState.at(loader, progress.epoch, progress.batches)
            return replace(reader.state(), epoch=found.epoch, begun=True, batches=found.batches, samples=found.samples)
        if reader.is_open and progress.epoch_is_open:
            is_read = loader is runner.data_loader  # not within an evaluation
            waits = is_read and runner.data_batch is not None and not progress.iter_is_done
            last_batch = runner.data_batch if is_read and not waits else None
            return reader.state(progress.batches - reader.left_out, last_batch, waits)
        return reader.state()

    def _state_in_passes(self, reader: IterLoader) -> ReaderState:
        runner, progress = self._runner, self._runner.progress
        if reader is not runner.data_loader or not reader.is_open:
            return reader.state()
        # A batch that was fetched and not trained on is fetched again.
        if runner.has_own_train:
            waits = reader.given > reader.trained
        else:
            waits = runner.data_batch is not None and progress.unit != progress.inner_iter + 1
        return reader.state(reader.given - waits, None if waits else runner.data_batch, waits)

    def samples(self) -> int | None:
        """How many samples of the open epoch all ranks together have consumed; None if unknown."""
        progress = self._runner.progress
        if not progress.batches:
            return 0
        reader = self.find(self._runner.data_loader)
        if reader is None or not reader.is_open:
            return progress.samples
        found: int | None = reader.samples(progress.batches - reader.left_out)
        return found

    def streams(self) -> list[Any]:
        """The loaders that read a stream."""
        return [reader.dataloader for reader in self.entries if is_unbounded(reader.dataloader)]

    def acknowledge(self, state: Mapping[str, Any]) -> None:
        """Acknowledge the events of streams up to ``state``, which a checkpoint on disk holds."""
        for reader, each in paired(self.entries, state['readers'], state):
            if is_unbounded(reader.dataloader) and each.loader is not None:
                reader.dataloader.acknowledge(each.loader)

    # --- resuming ----------------------------------------------------------------------------------------------------

    def saved_in(self, own: Mapping[str, Any]) -> Iterator[tuple[Any, ReaderState]]:
        """The readers, each with its part of a rank's saved state, except those of entries whose mode has changed."""
        was, now = self._runner.snapshots.condition('workflow', []), self._runner.plan.workflow
        changed = [one[0] != other[0] for one, other in zip(was, now, strict=False)]
        states = own['readers']
        return paired(self.entries, [None if any(changed[i : i + 1]) else states[i] for i in range(len(states))], own)

    def restore_held(self, own: Mapping[str, Any]) -> None:
        """Restore the state of all loaders."""
        for reader, state in self.saved_in(own):
            reader.restore_held(state)
        for reader in self.entries:
            tell_found(reader, self._runner.logger)

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Let all readers enter at their saved positions; passes that no longer fit start over."""
        progress, snapshots, plan = self._runner.progress, self._runner.snapshots, self._runner.plan
        if self._counts_otherwise():
            progress.close_epoch()
        if snapshots.condition('workflow') != [list(entry) for entry in plan.workflow]:
            progress.begin_unit(0, 0)
        for reader, state in self.saved_in(own):
            self._load(reader, state)
        self._is_inside = progress.epoch_is_open

    def rescale(self) -> None:
        """Count the iterations of a resumed epoch run in those of this run: with other ranks or another batch size, an
        epoch has more or fewer. All ranks call it, before the first hook reads the counters."""
        runner, progress, resumed = self._runner, self._runner.progress, self._runner.snapshots.resumed
        if resumed is None or not runner.by_epoch or runner.plan.by_iters or self._counts_otherwise():
            return
        was, now, batches, is_recut = 0, 0, resumed['progress']['batches'], False
        own, workflow = resumed['ranks'][0], runner.plan.workflow
        saved = self._of_training(runner.snapshots.condition('workflow', workflow), own['readers'])
        times = self._of_training(workflow, [n for _, n in workflow])
        pairs = paired(self._of_training(workflow, self.entries), saved, own)
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
            runner.logger.info(text, resumed['progress']['iters'], iters, was, now)
        progress.iter = iters
        progress.count_batches(batches)

    def _of_training(self, workflow: Sequence[Any], values: Iterable[Any]) -> list[Any]:
        """Those of ``values``, one for each entry of ``workflow``, whose entries train."""
        return [each for (mode, _), each in zip(workflow, values, strict=False) if trains(mode, self._runner)]

    def _is_recut(self, reader: Reader, state: ReaderState) -> bool:
        """Whether the batches of the saved run had another size, or other ranks shared them."""
        was, now = state.about, loader_facts(reader.dataloader)
        other_ranks = self._runner.snapshots.resumed['world_size'] != self._runner.world_size
        return other_ranks or ('batch_size' in was and was['batch_size'] != now.get('batch_size'))

    def _counts_otherwise(self) -> bool:
        """Whether the resumed run counted by epochs and this one by iterations, or vice versa."""
        was = self._runner.snapshots.condition('runner')
        return was is not None and (was == 'by epoch') != self._runner.by_epoch

    def _load(self, reader: Reader, state: ReaderState) -> None:
        """Let ``reader`` enter at the position ``state``; a pass that cannot be entered starts over."""
        runner, progress = self._runner, self._runner.progress
        if self._counts_otherwise():
            state.begin_anew()
        elif state.begun and self._is_recut(reader, state) and not is_unbounded(reader.dataloader):
            if not _can_enter(reader, state):
                state.begin_anew()
                progress.count_batches(0)
                runner.logger.warning(
                    '%s: the open epoch starts over: ranks or batch size changed, and the order of the loader is '
                    'unknown. Loaders of runnerkit.data.build_dataloader continue with the same sample, without a '
                    'sampler or with one of torch that the config names',
                    describe_loader(reader.dataloader),
                    extra=NOT_EXACT,
                )
            else:
                state.batches = _batches_done(reader, state)
                progress.count_batches(state.batches)
        reader.load(state)
        tell_found(reader, runner.logger)

    def _enter_by_count(self, reader: Reader) -> None:
        """Let ``reader`` enter the open epoch at the batch that `Progress` gives: its loader is new, or another
        entry's."""
        progress, loader = self._runner.progress, reader.dataloader
        state = ReaderState.at(loader, progress.epoch, progress.batches)
        if order_of(loader) is not None:
            state.samples = self.samples() or state.samples
            state.batches = _batches_done(reader, state)
            progress.count_batches(state.batches)
        elif not isinstance(loader, Sequence) and type(getattr(loader, 'sampler', None)) is not SequentialSampler:
            self._runner.logger.warning(
                '%s: the open epoch continues after %d batches, but it began with another loader: the order '
                'may differ; %s',
                describe_loader(loader),
                progress.batches,
                BUILD_DATALOADER_HINT,
                extra=NOT_EXACT,
            )
        reader.load(state)

    def go_to_counts(self) -> None:
        """Enter the position of a run of MMCV, whose files hold counters only."""
        runner, progress = self._runner, self._runner.progress
        if not runner.by_epoch:
            training = [i for i, (mode, _) in enumerate(runner.plan.workflow) if trains(mode, runner)]
            # Only if one of them has seen all iterations.
            if len(training) == 1 and is_cheap_to_enter(self.entries[training[0]].dataloader):
                reader = self.entries[training[0]]
                reader.load(ReaderState.at(reader.dataloader, *divmod(progress.iter, len(reader))))
            return
        loader = first_training_loader([reader.dataloader for reader in self.entries], runner.plan.workflow, runner)
        length = length_of(loader)
        # A file that MMCV saved by iteration counts the open epoch as done, and one iteration too few.
        if length and not saves_by_epoch(runner.hooks) and progress.iter + 1 < progress.epoch * length:
            epoch, start = divmod(progress.iter + 1, length)
            state = {'epochs': epoch, 'iters': progress.iter + 1, 'batches': start, 'epoch_is_open': start > 0}
            progress.load_state_dict(state)
            self.of(loader).load(ReaderState.at(loader, epoch, start))


class EvaluationReaders:
    """The readers of the data that the run evaluates on.

    Args:
        runner: the run's runner.

    Attributes:
        entries: the readers, in the order of their first use.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.entries: list[Reader] = []
        self._prepared = 0  # how many of them were known when the run began

    def of(self, loader: Any) -> Reader:
        """The reader for evaluations on ``loader``."""
        for reader in self.entries:
            if reader.dataloader is loader:
                return reader
        self.entries.append(Reader(loader, starts_over=True))
        self._tell_late(len(self.entries) - 1, loader)
        if len(self.entries) > self._prepared + _MOST_LATE:  # a loader may be built for each evaluation
            del self.entries[self._prepared]
        return self.entries[-1]

    def prepare(self, loaders: Iterable[Any]) -> None:
        """Make readers for validations and for hooks that evaluate, so that they are restored before the first read."""
        known = [reader.dataloader for reader in self.entries]
        for loader in loaders:
            if not any(loader is each for each in known):
                known.append(loader)
                self.entries.append(Reader(loader, starts_over=True))
        self._prepared = len(self.entries)

    def state_dict(self) -> dict[str, Any]:
        """The positions of all readers."""
        return {'evaluations': [reader.state_dict() for reader in self.entries]}

    def restore_held(self, own: Mapping[str, Any]) -> None:
        """Restore the state of all loaders."""
        for reader, state in paired(self.entries, own.get('evaluations', ()), own):
            reader.restore_held(state)

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Repeat a validation that was running when the checkpoint was saved, from its beginning."""
        runner, progress = self._runner, self._runner.progress
        entry, workflow = progress.entry, runner.plan.workflow
        mode, n = workflow[entry] if entry < len(workflow) else ('', 0)
        for reader, state in paired(self.entries, own.get('evaluations', ()), own):
            repeats = runner.by_epoch and mode == 'val'
            if state.begun and not (repeats and runner.readers.entries[entry].dataloader is reader.dataloader):
                state.begun = False
                runner.logger.warning(
                    'the checkpoint was saved inside an evaluation, which is not repeated: the resume is not exact. '
                    'Save before or after it',
                    extra=NOT_EXACT,
                )
            reader.load(state)
            tell_found(reader, runner.logger)
        # A validation of the iteration runner continues after the batches that are done, whose scores are lost.
        if mode == 'val' and not runner.by_epoch and 0 < progress.unit < n:
            runner.logger.warning(
                'the checkpoint was saved inside a validation: its scores cover the remaining batches only. The '
                'training is exact'
            )

    def _tell_late(self, number: int, loader: Any) -> None:
        """Warn about an evaluation loader that is new since the resume: its random state is not restored."""
        snapshots = self._runner.snapshots
        states = [] if snapshots.resumed is None else snapshots.own.get('evaluations', [])
        if number < len(states) and (states[number]['held'] or states[number]['workers_live']):
            self._runner.logger.warning(
                'the random states of %s, used in an evaluation, cannot be restored this late: keep it as the '
                'attribute "dataloader" of the hook that evaluates',
                describe_loader(loader),
                extra=NOT_EXACT,
            )


def loaders_to_evaluate(hooks: Iterable[Any]) -> list[Any]:
    """The loaders that ``hooks`` evaluate on."""
    found: list[Any] = []
    for hook in hooks:
        several = getattr(hook, 'dataloaders', None)
        found += several.values() if isinstance(several, Mapping) else [getattr(hook, 'dataloader', None)]
    return [loader for loader in found if loader is not None]


def paired(readers: Iterable[Any], saved: Iterable[Any], own: Mapping[str, Any]) -> Iterator[tuple[Any, ReaderState]]:
    """The readers with their saved states, which get the random states of the rank."""
    for reader, each in zip(readers, saved, strict=False):
        if each is not None:
            yield reader, ReaderState.of({**each, 'rng': own.get('rng')})


def tell_found(reader: Reader, logger: Any) -> None:
    """Log each reason why the resume of ``reader`` is not exact, once."""
    for text in dict.fromkeys(reader.found):
        logger.warning('%s', text, extra=NOT_EXACT)
    reader.found.clear()


def _can_enter(reader: Reader, state: ReaderState) -> bool:
    """Whether ``reader`` can enter the pass at the position ``state`` of other batches."""
    return state.samples is not None and order_of(reader.dataloader) is not None


def _batches_done(reader: Reader, state: ReaderState) -> int:
    """How many batches, in its batch size, ``reader`` yields before the position ``state``."""
    return max(0, (length_of(reader.dataloader) or 0) - (reader.batches_left(state) or 0))
