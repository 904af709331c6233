"""Batches of a stream of events: each event is trained on once, whatever happens to the run."""

from __future__ import annotations

import json
import logging
import os
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from torch.utils.data import IterableDataset, default_collate

from runnerkit.data.builder import DATASETS, TRANSFORMS
from runnerkit.data.seeding import mix_seed, private_streams, sample_seed, seed_streams
from runnerkit.data.source import SOURCES, Event, Malformed, Source, is_offset
from runnerkit.data.stream_buffer import StreamBuffer
from runnerkit.distributed import from_first_rank, get_dist_info
from runnerkit.registry import build_or_bind
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.small_files import open_own
from runnerkit.utils.waiting import WaitEnded, pulse

_POLL = 0.1  # seconds between two pulses while the run waits

#: Where malformed records are kept, in the work dir.
ASIDE = 'malformed.jsonl'

_MOST_ASIDE = 100 << 20  # bytes in that file

logger = logging.getLogger('runnerkit')


@DATASETS.register_module()
class Stream(IterableDataset[Any]):
    """A stream as a data set of a config; `runnerkit.data.build_dataloader` makes a `StreamLoader` of it.

    Args:
        source: a `Source`, or the config of one.
        decode: makes a sample of an event's payload: a function, its name, or the config of a transform. What it
            raises makes the record a malformed one. None: the payload is the sample.
        buffer: how many records are read ahead, at least 1.
        aside: the file for malformed records, a line of JSON for each, up to 100 MiB; by default ``malformed.jsonl`` in
            the work dir.
    """

    def __init__(
        self,
        source: Any,
        decode: Callable[[Any], Any] | dict[str, Any] | None = None,
        buffer: int = 1024,
        aside: str | None = None,
    ) -> None:
        check_whole_number('buffer', buffer)
        self.source: Source = SOURCES.build(source) if isinstance(source, dict) else source
        if not isinstance(self.source, Source):
            raise WrongType(f'source must be a runnerkit.data.Source or the config of one, but got {source!r}')
        self.decode: Callable[[Any], Any] | None = (
            build_or_bind(decode, TRANSFORMS) if isinstance(decode, dict) else decode
        )
        if self.decode is not None and not callable(self.decode):
            raise WrongType(f'decode must be a function or the config of a transform, but got {decode!r}')
        self.buffer = buffer
        self.aside = aside

    def make_loader(self, batch_size: int, **options: Any) -> StreamLoader:
        """Called by `runnerkit.data.build_dataloader`, see `StreamLoader`."""
        return StreamLoader(self, batch_size, **options)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            'a Stream is read by the loader that runnerkit.data.build_dataloader(stream, batch_size, 0) makes of '
            'it, not by itself'
        )


class StreamLoader:
    """The batches of a stream, in the order of its events.

    Where the loader is, is part of every checkpoint: the offset of the last event that was trained on. A resumed run
    asks the source for what follows, and drops what comes again. When a checkpoint is on disk, the run acknowledges its
    events (`acknowledge`). At most ``stream.buffer`` records and one batch are read ahead; nothing else of the stream
    is, however fast it comes.

    Samples that do not fit most others of their batch (``collate_fn`` raises an error for the two together) are
    malformed records, too, and are replaced by the next ones. If no more than half of a batch fits together, the error
    ends the run.

    While a batch is waited for, the run stays responsive: see `runnerkit.utils.waiting`. A batch is only given when it
    is full, or the stream has ended; which events are in it does not depend on when they came.

    In a distributed run rank 0 alone reads, and deals the events of each batch out to the ranks. If fewer events than
    ranks are left at the end, they are neither trained on nor acknowledged.

    Args:
        stream: what is read.
        batch_size: events a batch and rank, at least 1.
        collate_fn: makes a batch of a list of samples.
        drop_last: leave out what does not fill a last batch; it is not acknowledged.
        seed: randomness in ``decode`` is a function of this and of the event's number in the stream.
        rank: of this process.
        world_size: how many ranks share the stream.
    """

    #: It has no length, and when it ends, the run does.
    is_unbounded = True

    def __init__(
        self,
        stream: Stream,
        batch_size: int,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_whole_number('batch_size', batch_size)
        self.dataset = stream
        self.batch_size = batch_size
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.drop_last = drop_last
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self._buffer: StreamBuffer | None = None
        self._samples: list[tuple[Event, Any]] = []  # of the batch to come, with their events
        self._read: dict[str, Any] = {'offset': None, 'events': 0, 'malformed': 0, 'duplicates': 0}  # with these
        self._given = 0  # batches since the pass was begun or entered
        self._places = {0: dict(self._read)}  # after this and the batch before
        self._acknowledged: Any = None
        self._work_dir: str | None = None
        self._told = 0  # malformed records
        self._kept = ''  # what came of the last one
        self._has_new = False  # events since the source was opened
        self._came_again = 0  # behind these

    # --- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Continues where the loader is; a stream has one pass."""
        self._given, self._places = 0, {0: self._places[self._given]}
        return _Batches(self)

    def next_batch(self) -> Any:
        """The next batch, waited for.

        Raises:
            StopIteration: the stream has ended.
            WaitEnded: the run around it has been asked to end. It may be called again.
        """
        leaves = False
        while True:
            look = partial(self._look, leaves)  # rank 0 reads for all
            what, batch, place = look() if self.world_size == 1 else from_first_rank(look)
            if what == 'batch':
                break
            if what == 'end':
                raise StopIteration
            if what == 'leave':
                raise WaitEnded
            leaves = pulse()
        self._given += 1
        self._places = {self._given - 1: self._places[self._given - 1], self._given: place}
        return batch if self.world_size == 1 else self.collate_fn(batch[self.rank :: self.world_size])

    def _look(self, leaves: bool) -> tuple[str, Any, dict[str, Any]]:
        """Read for a tenth of a second at most, unless a batch is there before.

        Returns:
            ``'batch'`` with the batch (with several ranks, the samples of all) and its place; or ``'end'``, ``'wait'``,
            ``'leave'``.
        """
        if leaves:
            return 'leave', None, {}
        if self._buffer is None:
            self._buffer = StreamBuffer(self.dataset.source, self._read['offset'], self.dataset.buffer)
            self._has_new = False
        wanted, until = self.batch_size * self.world_size, time.monotonic() + _POLL
        while True:
            while len(self._samples) < wanted and not self._buffer.ended:
                if not self._take(wanted - len(self._samples), until):
                    break
            if self._buffer.ended and self._samples and self._is_too_few():
                self._samples = []
            if len(self._samples) < wanted and not (self._buffer.ended and self._samples):
                return 'end' if self._buffer.ended else 'wait', None, {}
            samples = [sample for _, sample in self._samples]
            try:
                batch = self._collated(samples)
            except Exception as error:
                self._leave_out_misfits(samples, error)
                continue
            self._samples = []
            return 'batch', batch, dict(self._read)

    def _collated(self, samples: list[Any]) -> Any:
        """The batch; or the samples again, if several ranks make batches of them: then whether they can."""
        if self.world_size == 1:
            return self.collate_fn(samples)
        with private_streams():
            for rank in range(self.world_size):
                self.collate_fn(samples[rank :: self.world_size])
        return samples

    def _leave_out_misfits(self, samples: list[Any], error: Exception) -> None:
        """Set the samples aside that do not fit most others.

        Raises:
            Exception: ``error``, if there are no such; then it is not the fault of a few records.
        """
        fits = [False]  # a lone one that makes no batch
        for sample in samples if len(samples) > 1 else ():
            fits = [self._fit(sample, other) for other in samples]
            if sum(fits) * 2 > len(samples):
                break
        if len(samples) > 1 and (all(fits) or sum(fits) * 2 <= len(samples)):
            raise error
        problem = f'it does not fit into a batch with others: {type(error).__name__}: {error}'
        for (event, _), fit in zip(self._samples, fits, strict=True):
            if not fit:
                self._set_aside(Malformed(as_text(event.payload), problem, event.offset))
        self._samples = [pair for pair, fit in zip(self._samples, fits, strict=True) if fit]

    def _fit(self, *samples: Any) -> bool:
        """Whether a batch can be made of these."""
        with private_streams():
            try:
                self.collate_fn(list(samples))
            except Exception:
                return False
        return True

    def _is_too_few(self) -> bool:
        """Whether the last events do not make a batch, with a warning."""
        few, wanted = len(self._samples), self.batch_size * self.world_size
        if few >= wanted or (few >= self.world_size and not self.drop_last):
            return False
        why = 'drop_last=True' if self.drop_last else f'there are {self.world_size} ranks'
        logger.warning('the last %d events of the stream are not trained on and not acknowledged: %s', few, why)
        return True

    def _take(self, number: int, until: float) -> bool:
        """Take up to ``number`` events out of the buffer and decode them; returns whether to go on."""
        events: list[Event] = []
        buffer, offset = self._buffer, self._read['offset']
        goes_on = True
        while buffer is not None and len(events) < number:
            seconds = until - time.monotonic()
            record = buffer.take(seconds) if seconds > 0 else None  # also where nothing that comes can be used
            if record is None:
                goes_on = False
                break
            place = record.offset if is_offset(record.offset) else None
            try:
                is_old = place is not None and offset is not None and place <= offset
            except TypeError as error:  # a number behind a text
                record, is_old, place = _without_place(record, str(error)), False, None
            if is_old:
                self._drop(place, offset)
                continue
            if isinstance(record, Event) and place is None:
                record = _without_place(record, 'it is not a number of at most 64 bits, a text or a list of these')
            if isinstance(record, Malformed):
                self._set_aside(record)
            else:
                events.append(record)
                self._has_new = True
            offset = offset if place is None else place
        self._decode(events)
        self._read['offset'] = offset
        return goes_on

    def _drop(self, place: Any, offset: Any) -> None:
        """Count what came again. Behind new events that is logged, since it may be new as well, with a wrong offset."""
        self._read['duplicates'] += 1
        if not self._has_new:
            return
        self._came_again += 1
        if _is_told(self._came_again):
            logger.warning(
                'events of the stream that came behind others and are dropped: %d so far. The last one has the offset '
                '%s, and those up to %s are read already: either they came twice, or their offsets do not grow',
                self._came_again,
                reprlib.repr(place),
                reprlib.repr(offset),
            )

    def _decode(self, events: list[Event]) -> None:
        decode = self.dataset.decode
        if decode is None or not events:
            self._samples += [(event, event.payload) for event in events]
            self._read['events'] += len(events)
            return
        base = mix_seed(self.seed, 0)
        with private_streams():
            for event in events:
                seed_streams(sample_seed(base, self._read['events']))
                try:
                    sample = decode(event.payload)
                except Exception as error:  # a record of any kind must not end the run
                    problem = f'{type(error).__name__}: {error}'
                    self._set_aside(Malformed(as_text(event.payload), problem, event.offset))
                    continue
                self._samples.append((event, sample))
                self._read['events'] += 1

    def _set_aside(self, record: Malformed) -> None:
        """Count a malformed record and keep it in the file for them."""
        self._read['malformed'] += 1
        self._told += 1
        before, self._kept = self._kept, self._keep(record)
        if self._kept != before or _is_told(self._told):
            problem = printable(record.problem, 300)  # it may quote what came
            logger.warning(
                'malformed records of the stream: %d so far, %s. The last one: %s', self._told, self._kept, problem
            )

    def _keep(self, record: Malformed) -> str:
        """Write a record into the file for malformed ones; returns what came of it."""
        path = self.dataset.aside or (None if self._work_dir is None else os.path.join(self._work_dir, ASIDE))
        if path is None:
            return 'not kept (give the Stream a file aside=…)'
        try:
            with open(path, 'a', encoding='utf-8') if self.dataset.aside else open_own(path) as file:
                if file.tell() >= _MOST_ASIDE:
                    return f'no more are kept: {path} is full'
                file.write(json.dumps(record._asdict(), default=repr) + '\n')
        except OSError as error:
            return f'cannot be kept in {path} ({error})'
        return f'kept in {path}'

    # --- the place, and the run --------------------------------------------------------------------------------------

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Where the loader is after so many batches since the pass was begun or entered: the last one, which is the
        default, or the one before.

        Raises:
            ValueError: another number.
        """
        batches = self._given if batches is None else batches
        if batches not in self._places:
            raise ValueError(
                f'a stream knows where it was after {" and ".join(map(str, self._places))} batches, not after {batches}'
            )
        return dict(self._places[batches])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be where `state_dict` was."""
        self.close()
        self._read = dict(state)
        self._samples, self._given, self._places = [], 0, {0: dict(state)}

    def open(self, work_dir: str | None) -> None:
        """A run begins; malformed records go to its work dir, unless the stream names a file.

        Raises:
            ValueError: the run has other ranks than the loader was made for, so that they would not share the events.
        """
        rank, world_size = get_dist_info()
        if (rank, world_size) != (self.rank, self.world_size):
            raise WrongValue(
                f'this is rank {rank} of {world_size}, but the loader of the stream was made for rank {self.rank} of '
                f'{self.world_size}: make it with build_dataloader when the ranks are known, and without dist=False'
            )
        self._work_dir = work_dir

    def acknowledge(self, state: Mapping[str, Any]) -> None:
        """A checkpoint with this state is on disk: tell the source."""
        offset = state['offset']
        if offset is None:
            return
        try:
            self.dataset.source.acknowledge(offset)
        except Exception as error:  # the checkpoint is on disk, and the run continues
            problem = printable(f'{type(error).__name__}: {error}', 300)
            logger.warning(
                'the events up to %s cannot be acknowledged to the source: %s', reprlib.repr(offset), problem
            )
        else:
            self._acknowledged = offset

    def close(self) -> None:
        """Stop reading. What was read and not trained on is read again when the loader continues."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.close()
            self._read, self._samples = dict(self._places[self._given]), []

    def counts(self) -> dict[str, Any]:
        """What the stream has given so far, for a status; may be called in any thread."""
        buffer = self._buffer
        waiting = 0 if buffer is None else len(buffer)
        return {**self._places.get(self._given, self._read), 'acknowledged': self._acknowledged, 'waiting': waiting}


class _Batches:
    """The batches of a loader; unlike a generator it continues after an exception."""

    def __init__(self, loader: StreamLoader) -> None:
        self._loader = loader

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._loader.next_batch()


def as_text(payload: Any) -> str:
    """An event's payload in the file for malformed records."""
    if isinstance(payload, str):
        return payload
    for form in (partial(json.dumps, default=repr), repr):
        with suppress(TypeError, ValueError, RecursionError):  # keys that JSON does not have, or too many levels
            return form(payload)
    return reprlib.repr(payload)


def _without_place(record: Event | Malformed, problem: str) -> Malformed:
    """A record whose offset cannot be used."""
    text = as_text(record.payload) if isinstance(record, Event) else record.text
    return Malformed(text, f'its offset {reprlib.repr(record.offset)}: {problem}')


def _is_told(number: int) -> bool:
    """Whether to log that something has happened so many times."""
    return number in (1, 10, 100) or number % 1000 == 0
