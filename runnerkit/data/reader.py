"""Readers: passes over a loader that can be left and entered anywhere, whatever kind of loader it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from runnerkit.data.checksum import batch_checksums, same_batch
from runnerkit.data.kinds import (
    BUILD_DATALOADER_HINT,
    Order,
    batches_to_reread,
    can_skip_indices,
    dataset_of,
    describe_loader,
    draws_in_workers,
    epoch_sampler_of,
    fetches_again,
    has_state,
    in_workers,
    is_in_order,
    is_reread_by_itself,
    is_seeded_map,
    is_unbounded,
    length_of,
    loader_facts,
    lost_at_resume,
    order_of,
    set_epoch,
    tells_by_reading,
    workers_live,
)
from runnerkit.data.loader import LOADER_OPTIONS, SeededLoader, keep_queues
from runnerkit.data.loader_state import LoaderState, is_attribute, same_state
from runnerkit.data.probe import can_be_probed, samples_repeat
from runnerkit.data.reader_state import ReaderState
from runnerkit.data.sampler import ORDERS, EpochSampler
from runnerkit.data.skipped import DrawCheck, SkippedSampler
from runnerkit.utils.seed import preserved_rng, rng_state, set_rng_state

_END = object()

logger = logging.getLogger('runnerkit')


class Reader:
    """Passes over one loader, each of which can be left and entered anywhere.

    A run has one reader for each entry of its workflow and one for each evaluation. Readers keep what a resumed run
    needs of their loader: the states of everything that it holds, now and at the beginning of the open pass.

    Args:
        loader: any iterable of batches.
        starts_over: whether a resumed run repeats an open pass from its beginning, with all random numbers.
    """

    def __init__(self, loader: Any, starts_over: bool = False) -> None:
        self._dataloader = loader
        self._starts_over = starts_over
        self._state = LoaderState(loader)  # before anything is read
        self._iterator: Iterator[Any] | None = None  # of the open pass
        self._next_pass: Iterator[Any] | None = None  # that the loader has begun by itself
        self._pending: ReaderState | None = None  # the state of an open pass that is not entered yet
        self.epoch = 0  # the running pass
        self.given = 0  # batches given out since the open pass was entered, where the reader counts them
        self.left_out = 0  # batches of the open pass before the place where it was entered
        self._from = 0  # the sample of the order with which the open pass was entered
        self._began: dict[str, Any] | None = None  # all states at the beginning of the open pass
        self._first: dict[str, Any] | None = None  # all states before its first batch, if that came later
        self.trained = 0  # of these, how many were trained on, where a loop of a subclass's own reads
        self._checksums: dict[str, list[int]] = {}  # of the last batch of a run that was stopped
        self._is_probed = False
        #: What was found not to be exact, or is not known to be, since the last `load_state_dict`.
        self.found: list[str] = []

    @property
    def dataloader(self) -> Any:
        """What is passed over."""
        return self._dataloader

    @property
    def is_open(self) -> bool:
        """Whether a pass has begun and is not over."""
        return self._iterator is not None

    @property
    def is_to_enter(self) -> bool:
        """Whether a pass was open when the state was saved that was loaded, and is not entered yet."""
        return self._pending is not None

    # --- reading -----------------------------------------------------------------------------------------------------

    def batches(self, epoch: int) -> Iterator[Any]:
        """The batches of the pass ``epoch`` (0-based): a new one's, or what is left of the open one.

        A pass that `load_state_dict` has left to be entered moves the process's random states and those of the loader:
        restore them afterwards (`restore_held`).
        """
        if self._pending is not None:
            return self._enter(self._pending)
        if self._iterator is None or self.epoch != epoch:
            return self.begin(epoch)
        return self._iterator

    def begin(self, epoch: int) -> Iterator[Any]:
        """The batches of a new pass."""
        self.close()
        self.epoch = epoch
        self._began = self.states_of_order()
        set_epoch(self._dataloader, epoch)
        order = order_of(self._dataloader)
        if order is not None:
            order.sampler.start = 0
        self._iterator, self._next_pass = self._next_pass or keep_queues(iter(self._dataloader)), None
        return self._iterator

    def exhaust(self) -> None:
        """After the last batch, let the loader come to its end: some samplers draw once more there."""
        if self._iterator is not None and (batch := next(self._iterator, _END)) is not _END:
            self._iterator = chain([batch], self._iterator)

    def give_back(self, batch: Any) -> None:
        """Put a batch back that was given out and not trained on: it comes next."""
        if self._iterator is not None:
            self._iterator = chain([batch], self._iterator)
            self.given = max(0, self.given - 1)

    def close(self) -> None:
        """The pass is over."""
        self._iterator, self._began, self._first, self._pending = None, None, None, None
        self._from, self.given, self.left_out, self.trained, self._checksums = 0, 0, 0, 0, {}

    def prime(self) -> None:
        """Let the next one who passes over the loader begin where the open pass is to be entered, if that can be."""
        order = order_of(self._dataloader)
        if self._pending is not None and order is not None:
            order.sampler.start = self._pending.position_in(order)

    @property
    def is_primed(self) -> bool:
        """Whether `prime` could do so."""
        return self._pending is None or order_of(self._dataloader) is not None

    def remember(self, batch: Any) -> None:
        """The run stops after this batch, which will be gone when the run's state is saved."""
        self._checksums = batch_checksums(batch)

    def samples(self, batches: int) -> int | None:
        """How many samples of the epoch's order all ranks together have consumed after ``batches`` batches since the
        open pass was entered; None where the ranks' shares are not ours to know."""
        order = order_of(self._dataloader)
        return None if order is None else order.sampler.consumed(self._from, batches * order.batch_size)

    def batches_left(self, state: ReaderState) -> int | None:
        """How many batches of the pass this rank will get behind the place of ``state``; None if unknown."""
        order = order_of(self._dataloader)
        if order is not None:
            return order.batches_from(state.position_in(order))
        length = length_of(self._dataloader)
        return None if length is None else length - state.batches

    def states_of_order(self) -> dict[str, Any] | None:
        """All states from which the pass can begin again as it did; None where it follows from the epoch."""
        loader = self._dataloader
        order = order_of(loader)
        draws_no_seed = isinstance(loader, SeededLoader) or not getattr(loader, 'num_workers', 0)
        is_known = order is not None and type(order.sampler) is EpochSampler  # a subclass may have a state
        if draws_no_seed and (is_known or is_in_order(loader)) and not self._starts_over:
            return None
        live = workers_live(loader)
        return {'rng': rng_state(), 'held': self._state.states(), 'workers_live': live}

    def _go_back(self, states: Mapping[str, Any]) -> None:
        set_rng_state(states['rng'])
        self._state.restore(states['held'])

    # --- saving and entering -----------------------------------------------------------------------------------------

    def state_dict(self, batches: int | None = None, last_batch: Any = None, waits: bool = False) -> dict[str, Any]:
        """`state` as checkpoints have it."""
        return self.state(batches, last_batch, waits).state_dict()

    def state(self, batches: int | None = None, last_batch: Any = None, waits: bool = False) -> ReaderState:
        """Where this rank is in the loader, and all that the loader holds.

        Args:
            batches: how many batches were trained on since the open pass was entered; by default, those that were
                given out.
            last_batch: the last of them, if it is at hand.
            waits: whether one more batch was fetched, and waits to be trained on.
        """
        if self._pending is not None:
            return self._pending
        batches = self.given if batches is None else batches
        checksums = self._checksums if last_batch is None else batch_checksums(last_batch)
        return ReaderState(
            about=loader_facts(self._dataloader),
            epoch=self.epoch,
            begun=self.is_open,
            batches=batches + self.left_out,
            samples=self.samples(batches) if self.is_open else 0,
            last=self.samples(batches - 1) if self.is_open and batches > 0 else None,
            began=self._began,
            first=self._first,
            held=self._state.states(),
            unsaved=self._state.changed(),
            loader=self._state_of_loader(batches),
            workers_live=workers_live(self._dataloader),
            checksums=checksums if batches else {},
            waits=waits,
        )

    def _state_of_loader(self, batches: int) -> Any:
        """What the loader says of its place itself; a stream's is the one after ``batches`` batches."""
        if is_unbounded(self._dataloader):
            return self._dataloader.state_dict(batches)
        return self._dataloader.state_dict() if has_state(self._dataloader) else None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """`load` what `state_dict` gave."""
        self.load(ReaderState.of(state))

    def load(self, state: ReaderState) -> None:
        """Be where the reader was that gave ``state``. A pass that was open then is entered by the next `batches`.

        What is not known to be exact is in `found` then.
        """
        self.close()
        self.found = []
        self.epoch = state.epoch
        loader = self._dataloader
        self._keep_order(state.about)
        missing = self._state.restore(state.held)
        if missing:
            self._tell(f'the checkpoint has state for {", ".join(missing)}, which the loader no longer has')
        changed = [*state.unsaved, *(place for place, each in state.held.items() if is_attribute(each))]
        if changed:
            self._tell(
                f'{", ".join(changed)} changed while the loader was read, and checkpoints hold no attributes: give the '
                'object state_dict() and load_state_dict()'
            )
        of_order = self._state.of_order()
        in_samples = [place for place in self._state.generators() if place not in of_order]
        drawn_from = {place for place, each in state.held.items() if 'epoch' not in each}
        if state.waits and (not of_order.issuperset(drawn_from) or not fetches_again(loader)):
            self._tell(
                'the checkpoint was saved between fetching a batch and training on it: the batch is fetched '
                f'again, with later random numbers; {BUILD_DATALOADER_HINT}'
            )
        if state.about:
            self._probe()
        workers = loader.num_workers if isinstance(loader, DataLoader) else 0
        if in_samples and workers and (state.begun or state.workers_live):
            self._tell(
                f'{", ".join(in_samples)} advances in the workers, where it cannot be saved: let samples draw from the '
                'generators of the process, which build_dataloader seeds for each sample'
            )
        if state.workers_live and not isinstance(loader, SeededLoader):
            if draws_in_workers(loader):
                self._tell(
                    'its persistent workers kept their random states from pass to pass and start over now, so '
                    f'random samples differ; {BUILD_DATALOADER_HINT}'
                )
            if not workers_live(loader):
                with preserved_rng():  # the undisturbed run has not started them a second time
                    keep_queues(iter(loader))
                self._state.restore(state.held)
        is_torchs = isinstance(loader, DataLoader)
        if state.begun:
            self._pending = state
            for text in lost_at_resume(loader) if state.batches else ():
                self._tell(text)
        elif state.loader is not None and has_state(loader) and (state.workers_live or not is_torchs):
            # Between two passes, torchdata's loaders say how the last one began. Without waiting workers they would go
            # through it to its end once more, and draw for that; what continues with the next one is saved apart.
            loader.load_state_dict(state.loader)

    def _keep_order(self, was: Mapping[str, Any]) -> None:
        """Shuffle as in the run that is resumed, of which ``was`` tells; other data have no order to keep."""
        sampler = epoch_sampler_of(self._dataloader)
        if sampler is None or not was or was.get('length') != sampler.length:
            return
        order = was.get('order', 'randperm')  # there was no other one before it was saved
        if order not in ORDERS:
            self._tell(f'it was shuffled by {order!r}, which is unknown to this version of runnerkit')
        elif order != sampler.order:
            logger.info(
                '%s: shuffled by %r as before, not by %r', describe_loader(self._dataloader), order, sampler.order
            )
            sampler.order = order

    def restore_held(self, state: ReaderState) -> None:
        """Restore the loader's generators and stateful parts to what they were when ``state`` was saved."""
        # A batch that was fetched and waits is fetched again: the order is right before it, where it was entered.
        drawn = state.waits and order_of(self._dataloader) is None
        self._state.restore(state.held, pass_is_open=self.is_open, with_order=not drawn)

    def _enter(self, state: ReaderState) -> Iterator[Any]:
        """Open the pass that was open when ``state`` was saved, behind what was consumed of it."""
        loader, batches = self._dataloader, state.batches
        self._pending, self.epoch, self._began, self._first = None, state.epoch, state.began, state.first
        self.left_out = batches
        order = order_of(loader)
        if self._began is not None:
            self._go_back(self._began)
        set_epoch(loader, self.epoch)
        if not batches and not state.samples and not is_unbounded(loader):
            self._iterator = keep_queues(iter(loader))
            if state.waits:  # samplers draw when the first batch is fetched, which was before the save
                self._go_on_at_first()
                self.exhaust()
        elif state.loader is not None and has_state(loader):
            loader.load_state_dict(state.loader)
            self._iterator = keep_queues(iter(loader))
            if batches == length_of(loader):
                self._iterator = self._at_end(self._iterator)
        elif order is not None:
            self._iterator = self._at_sample(order, state)
        elif isinstance(loader, Sequence):
            self._iterator = islice(iter(loader), batches, None)
        else:
            self._iterator = self._behind(batches, state)
        return self._iterator

    def _at_end(self, rest: Iterator[Any]) -> Iterator[Any]:
        """No batches: a loader that keeps its place itself ends its pass once more, or continues with the next one."""
        first = next(rest, _END)
        if first is not _END:
            self._next_pass = chain([first], rest)
        yield from ()

    def _at_sample(self, order: Order, state: ReaderState) -> Iterator[Any]:
        """From any sample of the order on; one batch before it is read again where that can be compared."""
        loader, sampler = self._dataloader, order.sampler
        step = order.batch_size * sampler.world_size
        same_place = state.about.get('batch_size') == order.batch_size and (
            state.about.get('world_size') == sampler.world_size
        )
        self._from = state.position_in(order)
        again = bool(same_place and state.checksums and state.batches and tells_by_reading(loader))
        back, start = 0, self._from
        if again:  # only the last batch may be short, so that those before it lie whole steps before its beginning
            last = state.last_in(order)
            back = batches_to_reread(loader, last // step + 1)
            start = last - (back - 1) * step
        if order.batches_from(start) < back:  # of a pass that is shorter now
            again, start = False, self._from
        sampler.start = start
        rest = keep_queues(iter(loader))
        if again:
            self._read_last(rest, back, state.checksums)
        elif draws_in_workers(loader):
            self._tell(in_workers(loader))
        return rest

    def _behind(self, batches: int, state: ReaderState) -> Iterator[Any]:
        """Behind the first ``batches`` batches, which are skipped, or read again where they cannot be."""
        loader, watch = self._dataloader, DrawCheck(self._state)
        checksums = state.checksums
        if can_skip_indices(loader):
            back = batches_to_reread(loader, batches) if checksums and tells_by_reading(loader) else 0
            rest = self._skipped(batches - back, watch)
            if back:
                self._read_last(rest, back, checksums)
            elif draws_in_workers(loader):
                self._tell(in_workers(loader))
        elif is_seeded_map(loader):
            back = batches_to_reread(loader, batches)
            rest = loader.enter(self.epoch, batches - back)
            self._go_on_at_first()
            self._read_last(rest, back, checksums)  # also lets the samplers draw now what is left out
            watch.start()
        else:
            rest = self._read_again(batches, checksums, watch)
        moved = watch.moved_elsewhere(state) if batches > 1 else []
        if moved:
            self._tell(
                f'its order is drawn step by step from {", ".join(moved)}, which other code also uses: give its '
                f'sampler its own generator; {BUILD_DATALOADER_HINT}'
            )
        return rest

    def _skipped(self, batches: int, watch: DrawCheck) -> Iterator[Any]:
        """An iterator over a DataLoader's batches but the first, whose indices are drawn and thrown away."""
        loader = self._dataloader
        whole = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        rest = SkippedSampler(whole, batches, after_first=watch.start)
        batching: dict[str, Any] = {'batch_sampler': rest}
        if loader.batch_sampler is None:
            batching = {'batch_size': None, 'sampler': rest}
        options = {name: getattr(loader, name) for name in ('num_workers', *LOADER_OPTIONS)}
        if self._began is not None and self._began.get('workers_live'):
            options['generator'] = torch.Generator()  # workers that were there already drew no seed
        iterator = keep_queues(iter(DataLoader(loader.dataset, **batching, **options)))
        if not loader.num_workers:  # workers were given the first indices already
            self._go_on_at_first()
            rest.enter()
        return iterator

    def _probe(self) -> None:
        if self._is_probed or not can_be_probed(self._dataloader):  # a roll-back comes here again
            return
        self._is_probed = True
        dataset = dataset_of(self._dataloader)
        if not samples_repeat(dataset, self._state):
            self._tell(
                f'a sample read twice differs, though no generator moved in between: {type(dataset).__name__} has '
                'state that checkpoints do not hold (a cache, a file position): give it state_dict() and '
                'load_state_dict()'
            )

    def _read_again(self, batches: int, checksums: Mapping[str, Any], watch: DrawCheck) -> Iterator[Any]:
        loader = self._dataloader
        logger.warning(
            '%s cannot be entered in the middle of an epoch: the first %d batches are loaded again and dropped, '
            'which takes as long as in training. Loaders of map-style data sets made by '
            'runnerkit.data.build_dataloader are entered at once.',
            type(loader).__name__,
            batches,
        )
        rest = keep_queues(iter(loader))
        self._go_on_at_first()
        last = next(rest, _END)
        watch.start()
        for batch in islice(rest, batches - 1):
            last = batch
        self._compare(last, checksums)
        return rest

    def _go_on_at_first(self) -> None:
        """The first batch was not asked for when the pass began, but when the generators had these states."""
        if self._first is not None:
            self._go_back(self._first)

    def _read_last(self, rest: Iterator[Any], back: int, checksums: Mapping[str, Any]) -> None:
        """Read the last ``back`` batches that were trained on again, and compare the last one if nothing has moved on
        that it may depend on."""
        before = self._state.states()
        batch: Any = _END
        for _ in range(back):
            batch = next(rest, _END)
        if same_state(before, self._state.states()) or draws_in_workers(self._dataloader):
            self._compare(batch, checksums)

    def _compare(self, batch: Any, checksums: Mapping[str, Any]) -> None:
        """Tell if the last batch, read again, is not what it was."""
        if batch is not _END and same_batch(batch, checksums) is not False:
            return
        if draws_in_workers(self._dataloader):
            self._tell(in_workers(self._dataloader))
        else:
            self._tell(
                'its last batch, read again, differs: samples or order depend on something that is not saved, '
                f'such as earlier reads; {BUILD_DATALOADER_HINT}'
            )

    def _tell(self, text: str) -> None:
        self.found.append(f'{describe_loader(self._dataloader)}: {text}')

    def doubts(self) -> list[str]:
        """What of the loader is not known to be exact after a resume; some of it is found out at the resume."""
        loader = self._dataloader
        sure = isinstance(loader, Sequence) or can_skip_indices(loader) or is_seeded_map(loader) or has_state(loader)
        texts = []
        if draws_in_workers(loader):
            texts.append(in_workers(loader))
        texts += lost_at_resume(loader)
        if is_reread_by_itself(loader):
            texts.append(
                f'{type(dataset_of(loader)).__name__} has no state_dict() and load_state_dict(): a resumed run '
                'reads its batches again without comparing them, so they must be the same each time; '
                f'{BUILD_DATALOADER_HINT}, or warns that it is not'
            )
        if not sure:
            texts.append(
                'it cannot be entered inside an epoch: a resumed run reads its batches again from the beginning and '
                f'compares the last one; {BUILD_DATALOADER_HINT}, for map-style data sets'
            )
        return [f'{describe_loader(loader)}: {text}' for text in texts]


def epoch_batches(loader: Any, epoch: int, start: int = 0) -> Iterator[Any]:
    """The batches of an epoch after the first ``start`` ones, from any loader.

    A loader of `runnerkit.data.build_dataloader` enters there without loading anything that lies before. In a torch
    DataLoader over a map-style data set the first index lists are drawn and thrown away. Everything else is read up to
    there.

    Args:
        loader: an iterable of batches.
        epoch: 0-based; handed to the loader and its samplers where they have a ``set_epoch``.
        start: how many batches to leave out, at least 0.

    Raises:
        ValueError: ``start`` is negative.
    """
    if start < 0:
        raise ValueError(f'start must be the number of batches to leave out, at least 0, but got {start}')
    reader = Reader(loader)
    if start:
        reader.load(ReaderState.at(loader, epoch, start))
    return reader.batches(epoch)
