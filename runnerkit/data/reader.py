"""Readers: passes over a loader that can be left and entered anywhere, whatever kind of loader it is."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, count, islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from runnerkit.data.kinds import (
    BUILD_DATALOADER_HINT,
    can_skip_indices,
    check_pass,
    describe_loader,
    doubts_about,
    draws_in_workers,
    epoch_sampler_of,
    fetches_again,
    has_state,
    is_in_order,
    is_seeded_map,
    is_unbounded,
    length_of,
    loader_facts,
    may_have_unequal_lengths,
    order_of,
    set_epoch,
    workers_live,
)
from runnerkit.data.loader import LOADER_OPTIONS, SeededLoader, keep_queues
from runnerkit.data.loader_state import held_states, is_of_order, restore_held
from runnerkit.data.sampler import ORDERS, EpochBatchSampler, EpochSampler
from runnerkit.utils.seed import preserved_rng, rng_state, set_rng_state
from runnerkit.utils.waiting import WaitEnded

_END = object()

logger = logging.getLogger('runnerkit')


@dataclass
class ReaderState:
    """Where one rank is in a loader, and what the loader holds. Checkpoints have it as a dict of its fields.

    Attributes:
        about: what a resumed run compares of the loader, see `runnerkit.data.kinds.loader_facts`; empty if unknown.
        epoch: the running pass, from 0.
        begun: whether a pass was open.
        batches: of the open pass, how many batches this rank has consumed.
        samples: of its order, how many samples all ranks together have consumed; None if that is not known.
        began: all states at the beginning of the open pass; None where its order does not follow from them.
        first: all states before its first batch, if that came later.
        held: what the loader holds, by place, see `runnerkit.data.loader_state.held_states`.
        loader: the loader's own ``state_dict``, if it has one.
        workers_live: whether it has workers that wait for the next pass.
        waits: whether one more batch was fetched, and waits to be trained on.
    """

    epoch: int = 0
    begun: bool = False
    batches: int = 0
    samples: int | None = None
    about: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Any] | None = None
    first: dict[str, Any] | None = None
    held: dict[str, Any] = field(default_factory=dict)
    loader: Any = None
    workers_live: bool = False
    waits: bool = False

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> ReaderState:
        """From what `Reader.state_dict` gave; missing fields get their defaults, and those of earlier versions are left
        out."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})

    @classmethod
    def at(cls, loader: Any, epoch: int, batches: int) -> ReaderState:
        """``batches`` batches into the pass ``epoch`` over ``loader``, of which nothing else is known."""
        state, order = cls(epoch, batches > 0, batches), order_of(loader)
        state.samples = None if order is None else state.position_in(order)
        return state

    def position_in(self, order: EpochBatchSampler) -> int:
        """How many samples of ``order`` are consumed; where that was not saved, from the number of batches."""
        return self.batches * order.batch_size * order.sampler.world_size if self.samples is None else self.samples

    def begin_anew(self) -> None:
        """Forget the open pass: it begins again."""
        self.begun, self.batches, self.samples = False, 0, 0


class Reader:
    """Passes over one loader, each of which can be left and entered anywhere.

    `batches` gives one pass; as an iterator, a reader is endless: when a pass is over, the next epoch begins. With
    ``starts_over``, a resumed run repeats an open pass from its beginning, with all random numbers.
    """

    def __init__(self, dataloader: Any, starts_over: bool = False) -> None:
        self.dataloader = self._dataloader = dataloader  # its name in MMCV
        # What cannot change of a loader: a DataLoader refuses other samplers once it is built.
        self.order = order_of(dataloader)
        self.is_stream = is_unbounded(dataloader)
        self._keeps_place = has_state(dataloader)
        draws_no_seed = isinstance(dataloader, SeededLoader) or not getattr(dataloader, 'num_workers', 0)
        is_known = self.order is not None and type(self.order.sampler) is EpochSampler  # a subclass may have a state
        self._follows_epoch = draws_no_seed and (is_known or is_in_order(dataloader)) and not starts_over
        self._about: dict[str, Any] = {}  # `loader_facts`, from the first save of a pass on
        self.name = ''  # what an experiment calls the loader
        self._iterator: Iterator[Any] | None = None  # of the open pass
        self._next_pass: Iterator[Any] | None = None  # that the loader has begun by itself
        self._pending: ReaderState | None = None  # the state of an open pass that is not entered yet
        self.epoch = 0  # the running pass
        self.given = 0  # batches that `next` has given since the open pass was entered
        self.left_out = 0  # batches of the open pass before the place where it was entered
        self.trained = 0  # of those given, how many were trained on, where a loop of a subclass reads
        self._from = 0  # the sample of the order with which the open pass was entered
        self._began: dict[str, Any] | None = None  # all states at the beginning of the open pass
        self._first: dict[str, Any] | None = None  # all states before its first batch, if that came later
        self._may_differ = False  # whether ranks may get unequally many batches

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
        """The batches of the pass ``epoch`` (0-based): a new one's, or what is left of the open one. Entering one that
        was loaded moves the random states of process and loader: restore them afterwards (`restore_held`)."""
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
        set_epoch(self.dataloader, epoch)
        if self.order is not None:
            self.order.sampler.start = 0
        self._iterator, self._next_pass = self._next_pass or self._new_iterator(), None
        return self._iterator

    def _new_iterator(self) -> Iterator[Any]:
        return keep_queues(iter(self.dataloader))

    def start(self) -> None:
        """Begin the first pass now, or enter the open one: what that draws comes before the first step, as in MMCV."""
        if self._iterator is None:
            self.batches(self.epoch)

    def __next__(self) -> Any:
        batches = self._iterator
        if batches is None:
            batches = self.batches(self.epoch)
        if not self.given:
            self._may_differ = may_have_unequal_lengths(self.dataloader)
            if not self.left_out and self._first is None:  # else a resume has fetched it under these states
                self._first = self.states_of_order()
        # The usual case saves a call in each iteration.
        batch = self._next_in_step(batches) if self._may_differ else next(batches, _END)
        if batch is _END:
            if self.is_stream:
                raise WaitEnded('the stream has ended')
            check_pass(self.dataloader, self.position)
            batches = self.begin(self.epoch + 1)
            self._first = self.states_of_order()
            batch = self._next_in_step(batches) if self._may_differ else next(batches, _END)
            if batch is _END:
                raise ValueError(
                    f'{describe_loader(self.dataloader)} gives no batches: its data set is empty, smaller than one '
                    'full batch (drop_last), or an iterator that was read to its end: then let __iter__ begin again'
                )
        self.given += 1
        return batch

    def _next_in_step(self, batches: Iterator[Any]) -> Any:
        """The next batch; the end if this rank, or another one that waits for it, has none left."""
        from runnerkit.data.shares import next_in_step

        return next_in_step(self.dataloader, batches, self.given, _END)

    def __len__(self) -> int:
        return len(self.dataloader)

    @property
    def position(self) -> int:
        """How many batches of the running pass `next` has given, those before a resume included."""
        return self.left_out + self.given

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
        self._from = self.given = self.left_out = self.trained = 0
        self._about = {}

    def prime(self) -> bool:
        """Let the next one who passes over the loader begin where the open pass is to be entered; returns whether that
        can be."""
        if self._pending is not None and self.order is not None:
            self.order.sampler.start = self._pending.position_in(self.order)
        return self._pending is None or self.order is not None

    def samples(self, batches: int) -> int | None:
        """How many samples of the order all ranks together have consumed after so many batches since the open pass was
        entered; None where the ranks' shares are not ours to know."""
        order = self.order
        return None if order is None else order.sampler.consumed(self._from, batches * order.batch_size)

    def batches_left(self, state: ReaderState) -> int | None:
        """How many batches of the pass this rank will get behind the place of ``state``; None if unknown."""
        if self.order is not None:
            return self.order.batches_from(state.position_in(self.order))
        length = length_of(self.dataloader)
        return None if length is None else length - state.batches

    def states_of_order(self) -> dict[str, Any] | None:
        """All states from which the pass can begin again as it did; None where it follows from the epoch."""
        if self._follows_epoch:
            return None
        loader = self.dataloader
        return {'rng': rng_state(), 'held': held_states(loader), 'workers_live': workers_live(loader)}

    # --- saving and entering -----------------------------------------------------------------------------------------

    def state_dict(self, batches: int | None = None, waits: bool = False) -> dict[str, Any]:
        """`state` as checkpoints have it."""
        return dict(vars(self.state(batches, waits)))

    def state(self, batches: int | None = None, waits: bool = False) -> ReaderState:
        """Where this rank is in the loader, and all that it holds: after so many ``batches`` since the open pass
        was entered, by default those that `next` has given. One more may be fetched, and wait to be trained on."""
        if self._pending is not None:
            return self._pending
        loader, batches, own = self.dataloader, self.given if batches is None else batches, None
        held = held_states(loader)  # before torchdata's loaders begin a pass to say where they are
        if self._keeps_place:  # a stream gives the place behind so many batches
            own = loader.state_dict(batches) if self.is_stream else loader.state_dict()
        self._about = self._about or loader_facts(loader)
        return ReaderState(
            about=self._about,
            epoch=self.epoch,
            begun=self.is_open,
            batches=batches + self.left_out,
            samples=self.samples(batches) if self.is_open else 0,
            began=self._began,
            first=self._first,
            held=held,
            loader=own,
            workers_live=workers_live(loader),
            waits=waits,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """`load` what `state_dict` gave."""
        return self.load(ReaderState.of(state))

    def load(self, state: ReaderState) -> list[str]:
        """Be where the reader was that gave ``state``; a pass that was open then is entered by the next `batches`.
        Returns what is not known to be exact."""
        self.close()
        self.epoch, loader, is_torchs = state.epoch, self.dataloader, isinstance(self.dataloader, DataLoader)
        doubts = doubts_about(loader, is_inside=state.begun and state.batches > 0) if state.about else []
        texts = [*self._keep_order(state.about)]
        missing = restore_held(loader, state.held)
        if missing:
            texts.append(f'the checkpoint has state for {", ".join(missing)}, which the loader no longer has')
        in_samples = [place for place in state.held if not is_of_order(place)]
        if state.waits and (in_samples or not fetches_again(loader)):
            texts.append(
                'the checkpoint was saved between fetching a batch and training on it: the batch is fetched '
                f'again, with later random numbers; {BUILD_DATALOADER_HINT}'
            )
        drawing = [place for place in in_samples if 'generator' in state.held[place]]
        has_workers = bool(getattr(loader, 'num_workers', 0)) and (state.begun or state.workers_live)
        if drawing and has_workers:
            texts.append(
                f'{", ".join(drawing)} advances in the workers, where it cannot be saved: let samples draw from the '
                'generators of the process, which build_dataloader seeds for each sample'
            )
        if state.workers_live and not isinstance(loader, SeededLoader):
            if draws_in_workers(loader):
                texts.append(
                    'its persistent workers kept their random states from pass to pass and start over now, so '
                    f'random samples differ; {BUILD_DATALOADER_HINT}'
                )
            if not workers_live(loader):
                with preserved_rng():  # the undisturbed run has not started them a second time
                    self._new_iterator()
                restore_held(loader, state.held)
        if state.begun:
            self._pending = state
        # Between two passes, torchdata's loaders say how the last one began. Without waiting workers they would go
        # through it to its end once more, and draw for that; what continues with the next one is saved apart.
        elif self._keeps_place and state.loader is not None and (state.workers_live or not is_torchs):
            loader.load_state_dict(state.loader)
        return [*doubts, *(f'{describe_loader(loader)}: {text}' for text in texts)]

    def _keep_order(self, was: Mapping[str, Any]) -> Iterator[str]:
        """Shuffle as in the run that is resumed, of which ``was`` tells; other data have no order to keep."""
        sampler = epoch_sampler_of(self.dataloader)
        if sampler is None or not was or was.get('length') != sampler.length:
            return
        order = was.get('order', 'randperm')  # there was no other one before it was saved
        if order not in ORDERS:
            yield f'it was shuffled by {order!r}, which is unknown to this version of runnerkit'
        elif order != sampler.order:
            logger.info(
                '%s: shuffled by %r as before, not by %r', describe_loader(self.dataloader), order, sampler.order
            )
            sampler.order = order

    def restore_held(self, state: ReaderState) -> None:
        """Restore the loader's generators and stateful parts to what they were when ``state`` was saved."""
        # A batch that was fetched and waits is fetched again: the order is right before it, where it was entered.
        drawn = state.waits and self.order is None
        restore_held(self.dataloader, state.held, pass_is_open=self.is_open, with_order=not drawn)

    def _enter(self, state: ReaderState) -> Iterator[Any]:
        """Open the pass that was open when ``state`` was saved, behind what was consumed of it."""
        loader, batches, order = self.dataloader, state.batches, self.order
        self._pending, self.epoch, self._began, self._first = None, state.epoch, state.began, state.first
        self.left_out = batches
        self._go_back(self._began)
        set_epoch(loader, self.epoch)
        if not batches and not state.samples and not self.is_stream:
            self._iterator = self._new_iterator()
            if state.waits:  # samplers draw when the first batch is fetched, which was before the save
                self._go_back(self._first)
                self.exhaust()
        elif state.loader is not None and self._keeps_place:
            loader.load_state_dict(state.loader)
            self._iterator = self._new_iterator()
            if batches == length_of(loader):
                self._iterator = self._at_end(self._iterator)
        elif order is not None:
            self._from = order.sampler.start = state.position_in(order)
            self._iterator = self._new_iterator()
        elif isinstance(loader, Sequence):
            self._iterator = islice(iter(loader), batches, None)
        elif can_skip_indices(loader):
            self._iterator = self._skipped(batches)
        else:
            # Its last batch is loaded, so that the samplers draw now what is left out.
            again = 1 if is_seeded_map(loader) else batches
            rest = loader.enter(self.epoch, batches - 1) if is_seeded_map(loader) else self._new_iterator()
            if again > 1 and isinstance(loader, SeededLoader):  # of others, `load` says so
                logger.warning('%s: %d batches of the open epoch are loaded again', describe_loader(loader), again)
            self._go_back(self._first)
            for _ in islice(rest, again):
                pass
            self._iterator = rest
        return self._iterator

    def _go_back(self, states: Mapping[str, Any] | None) -> None:
        """Restore ``states``: the first batch may not have been asked for when the pass began, but with these."""
        if states is not None:
            set_rng_state(states['rng'])
            restore_held(self.dataloader, states['held'])

    def _at_end(self, rest: Iterator[Any]) -> Iterator[Any]:
        """No batches: a loader that keeps its place itself ends its pass once more, or continues with the next one."""
        first = next(rest, _END)
        if first is not _END:
            self._next_pass = chain([first], rest)
        yield from ()

    def _skipped(self, batches: int) -> Iterator[Any]:
        """An iterator over a DataLoader's batches but the first, whose indices are drawn and thrown away."""
        loader = self.dataloader
        whole = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        rest = SkippedSampler(whole, batches)
        batching: dict[str, Any] = {'batch_sampler': rest}
        if loader.batch_sampler is None:
            batching = {'batch_size': None, 'sampler': rest}
        options = {name: getattr(loader, name) for name in ('num_workers', *LOADER_OPTIONS)}
        if self._began is not None and self._began.get('workers_live'):
            options['generator'] = torch.Generator()  # workers that were there already drew no seed
        iterator = keep_queues(iter(DataLoader(loader.dataset, **batching, **options)))
        if not loader.num_workers:  # workers were given the first indices already
            self._go_back(self._first)
            rest.enter()
        return iterator


class SkippedSampler(Sampler[Any]):
    """A sampler or batch sampler without its first ``start`` items."""

    def __init__(self, sampler: Iterable[Any], start: int) -> None:
        self.sampler = sampler
        self.start = start

    def __iter__(self) -> Iterator[Any]:
        self._items, self._left = iter(self.sampler), self.start
        return self

    def __next__(self) -> Any:
        self.enter()
        return next(self._items)

    def enter(self) -> None:
        """Draw and leave out the first items, unless that is done.

        A loader draws its workers' seed before the first index, so that this comes after ``iter(loader)``; but before
        the first batch is loaded, so that a caller can then put global generators where they belong.
        """
        skipped, self._left = self._left, 0
        for _ in islice(self._items, skipped):
            pass


def epoch_batches(loader: Any, epoch: int, start: int = 0) -> Iterator[Any]:
    """The batches of an epoch after the first ``start`` ones, from any loader.

    A loader of `runnerkit.data.build_dataloader` enters there without loading anything that lies before. In a torch
    DataLoader over a map-style data set the first index lists are drawn and thrown away. Everything else is read up to
    there, which is logged.

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
        for text in doubts_about(loader):
            logger.warning('%s', text)
    return reader.batches(epoch)


# --- MMCV's name -----------------------------------------------------------------------------------------------------


class IterLoader(Reader):
    """A `Reader` that a runner's own ``run`` makes, as in MMCV."""

    def __init__(self, dataloader: Any) -> None:
        super().__init__(dataloader)
        self.number = next(numbers)
        _iter_loaders.append(weakref.ref(self))


#: Tells what was made before what.
numbers = count()

#: All that there are, in the order in which they were made.
_iter_loaders: list[weakref.ref[IterLoader]] = []


def new_iter_loaders(since: int) -> list[Reader]:
    """Those made after the number ``since`` that nothing was read from yet, in their order: a runner whose own ``run``
    makes its loaders passes them to no method of ours."""
    _iter_loaders[:] = [reference for reference in _iter_loaders if reference() is not None]
    living = (reference() for reference in _iter_loaders)
    return [loader for loader in living if loader is not None and not loader.is_open and loader.number > since]
