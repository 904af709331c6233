"""Private random streams: randomness inside a sample as a function of its position, and of nothing else.

Python's, numpy's and torch's global generators are seeded for every sample, from (seed, epoch, position). In the
main process the same generators also belong to the run (dropout, a user's own draws), so they are saved before a
batch and put back after it. The generators of accelerators and those that a data set owns are left alone.

What a seeded loader's workers see of a data set are wrappers that do this. They live only inside the loader's
iterators; the user's data set stays as it is.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from runnerkit.utils.logging import shortened

T = TypeVar('T')

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

#: Bit generators that no open `private_streams` uses: making one takes longer than seeding a sample.
_spare: list[np.random.MT19937] = []

#: numpy's global generator, which the functions of np.random belong to.
_numpy: Any = np.random.mtrand._rand


class _NoBits:
    """In the place of numpy's bit generator while only the normal that waits is read or written: converting 624 words
    takes longer than seeding six samples."""

    state = property(lambda self: {'bit_generator': '', 'state': {}}, lambda self, state: None)


_no_bits = _NoBits()


def _finalize(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix_seed(*parts: int) -> int:
    """One seed of 64 bits from several numbers, whose order counts; near numbers give unrelated seeds.

    Each part is one step of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
    """
    seed = 0
    for part in parts:
        seed = _finalize(((seed ^ part) + _GOLDEN) & _MASK)
    return seed


def sample_seed(base: int, position: int) -> int:
    """The seed of the sample at ``position``: that number of the SplitMix64 sequence that starts at ``base``."""
    return _finalize((base + (position + 1) * _GOLDEN) & _MASK)


def seed_streams(seed: int) -> None:
    """Seed the global generators of python, numpy and torch (CPU). Only for use inside `private_streams`."""
    # torch.manual_seed would reseed every accelerator as well, which is slow and changes the run's streams there.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed >> 32)
    random.seed(seed)


class private_streams:
    """A context in which the global generators are private, and torch computes with one thread as loader workers do.

    On leaving it, also by an exception, the generators go on as if nothing had been drawn inside. Contexts may be
    nested; two threads must not be inside at the same time, since the generators are the process's.
    """

    def __enter__(self) -> None:
        # Sums over large tensors differ in their last bits with the number of threads.
        self._threads = torch.get_num_threads()
        if self._threads != 1:
            torch.set_num_threads(1)
        self._torch = torch.default_generator.get_state()
        self._python = random.getstate()
        self._numpy = _numpy._bit_generator
        # numpy draws normals in pairs; a waiting second one is dropped with the bits.
        _numpy._bit_generator = _no_bits
        self._waiting = _numpy.get_state(legacy=False)
        self._own = _spare.pop() if _spare else np.random.MT19937(0)
        np.random.set_bit_generator(self._own)  # type: ignore[attr-defined]

    def __exit__(self, *exc_info: object) -> None:
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        if self._waiting['has_gauss']:
            _numpy._bit_generator = _no_bits
            _numpy.set_state(self._waiting)
            _numpy._bit_generator = self._numpy
        _spare.append(self._own)
        random.setstate(self._python)
        torch.default_generator.set_state(self._torch)
        if self._threads != 1:
            torch.set_num_threads(self._threads)


def seeded_iteration(iterable: Iterable[T], base: int, block: int = 1) -> Iterator[T]:
    """Iterate with private streams, seeded from ``base`` and a number before every item, or every ``block`` of them.

    Nothing of the private streams is visible between two items, however long the consumer keeps the iterator.
    """
    with private_streams():
        seed_streams(base)
        iterator = iter(iterable)
    for number in itertools.count():
        with private_streams():
            seed_streams(sample_seed(base, number))
            items = list(itertools.islice(iterator, block))
        yield from items
        if len(items) < block:
            return


# --- what a loader's workers see --------------------------------------------------------------------------------------


def as_is(batch: Any) -> Any:
    """Return ``batch``: in place of the collate function where the batch is collated already."""
    return batch


def stopped(what: str) -> RuntimeError:
    """The error in place of a StopIteration of ``what``, which would end a loader's pass as if it were complete."""
    return RuntimeError(
        f'{what}: StopIteration, probably from next() of an empty iterator. Use next(iterator, default)'
    )


class NoStop:
    """Calls ``function``; its StopIteration becomes an error.

    Args:
        function: called with any arguments.
        name: what it is called in the error.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name

    def __call__(self, *args: Any) -> Any:
        """Call ``function``."""
        try:
            return self.function(*args)
        except StopIteration as error:
            raise stopped(self.name) from error


class SampleBatch(list[Any]):
    """The indices of one batch, an ordinary list, with the epoch and the positions at which they stand.

    Args:
        indices: what the data set's ``__getitem__`` gets, one after the other.
        epoch: 0-based.
        positions: one for each index, in the epoch's order over all ranks.
    """

    __slots__ = ('epoch', 'positions')

    def __init__(self, indices: Iterable[Any], epoch: int, positions: Sequence[int]) -> None:
        super().__init__(indices)
        self.epoch = epoch
        self.positions = positions

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.epoch, self.positions)


#: torch's functions that make a batch, and draw nothing.
TORCHS_COLLATE = (default_collate, default_convert)


#: Ways to make a sample of nothing but its index.
_LOOKS_UP = tuple(each.__getitem__ for each in (list, tuple, range, TensorDataset))


def is_pure(dataset: Any) -> bool:
    """Whether a sample of ``dataset`` is known to depend on nothing but its index."""
    if getattr(type(dataset), '__getitem__', None) in _LOOKS_UP:
        return True
    if type(dataset) is Subset:
        return is_pure(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(is_pure, dataset.datasets))
    return False


#: So many samples of a loader must have drawn nothing from python's and numpy's generators before these are left alone.
ENOUGH = 16


@dataclass
class Draws:
    """Whether the samples of a loader draw from python's or numpy's generator, as far as it is known.

    To seed these two takes longer than everything else here, so they are left alone where nothing draws from them.
    """

    are_seen: bool = False
    silent: int = 0  # samples that have drawn nothing, of the first

    @property
    def are_unlikely(self) -> bool:
        """Whether enough samples were looked at, and none has drawn."""
        return self.silent >= ENOUGH and not self.are_seen

    def look(self, seed: int) -> None:
        """See whether a sample has drawn since `seed_streams`, if it is one of the first."""
        if self.silent < ENOUGH and not self.are_seen:
            self.are_seen = _next_numbers() != _first_numbers(seed)
            self.silent += 1


def _next_numbers() -> tuple[float, float]:
    return random.random(), np.random.random()


def _first_numbers(seed: int) -> tuple[float, float]:
    """What `_next_numbers` gives after `seed_streams`."""
    return random.Random(seed).random(), np.random.RandomState(seed >> 32).random()


#: The seed of generators that are left alone, and what they give next if nothing was drawn.
_IDLE = 0
_IDLE_NUMBERS = _first_numbers(_IDLE)


class SeededSamples(Dataset[Any]):
    """A map-style data set that is asked for whole batches, and gives them collated.

    Samples are always made one by one with ``__getitem__``, also where the data set has a ``__getitems__``: in one call
    for a batch, what a sample is would depend on its neighbours. Only the rows of a TensorDataset are taken at once, as
    they are the same then. ``collate_fn`` draws from the last sample's streams, so that a random one (mixup) depends on
    the batch only.

    Where `Draws` says so, the samples of a batch are made without seeding python's and numpy's generators. If these do
    not give the numbers afterwards that they would have given before, a sample has drawn: the batch is made again, as
    are all later ones from the start, with a seed for each sample. So what is drawn does not depend on what has been
    found out, unless a sample draws and changes its data set as well, or hides its draws by putting a generator's state
    back. That is why the first samples of a loader are only looked at.

    Args:
        dataset: the user's own.
        seed: of the run.
        collate_fn: makes a batch of a list of samples.
        draws: of the loader, which keeps them from epoch to epoch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        seed: int,
        collate_fn: Callable[[list[Any]], Any],
        draws: Draws | None = None,
    ) -> None:
        self.dataset = dataset
        self.seed = seed
        self.collate_fn = collate_fn
        self.draws = draws or Draws()
        self._can_draw = not is_pure(dataset) or collate_fn not in TORCHS_COLLATE
        self._at_once: Callable[..., Any] | None = None
        if type(dataset) is TensorDataset and collate_fn is default_collate:
            from runnerkit.data.rows import rows

            self._at_once = rows

    def __getitems__(self, batch: SampleBatch) -> Any:
        samples: list[Any] = []
        try:
            if not self._can_draw:
                if self._at_once is not None and (found := self._at_once(self.dataset, batch)) is not None:
                    return found
                for index in batch:
                    samples.append(self.dataset[index])  # noqa: PERF401 # an error finds those before it
                return self.collate_fn(samples)
            base = mix_seed(self.seed, batch.epoch)
            seeds = [sample_seed(base, position) for position in batch.positions]
            with private_streams():
                self._make(samples, list(zip(batch, seeds, strict=True)))
                return self.collate_fn(samples)
        except Exception as error:
            at = len(samples)
            which = f'sample {batch[at]}' if at < len(batch) else f'a batch of the samples {shortened(list(batch))}'
            which += f' of the data set {type(self.dataset).__name__}'
            if isinstance(error, StopIteration):
                raise stopped(which) from error
            error.add_note(which)
            raise

    def _make(self, samples: list[Any], batch: list[tuple[Any, int]]) -> None:
        """Add the samples of ``batch``, indices and seeds; the generators are where ``collate_fn`` continues."""
        last = len(batch) if self.collate_fn in TORCHS_COLLATE else len(batch) - 1
        if self.draws.are_unlikely and not self._make_idle(samples, batch[:last]):
            self.draws.are_seen = True
            samples.clear()
        for index, seed in batch[len(samples) :]:
            seed_streams(seed)
            samples.append(self.dataset[index])
            if len(samples) <= last:
                self.draws.look(seed)

    def _make_idle(self, samples: list[Any], batch: list[tuple[Any, int]]) -> bool:
        """Add samples while python's and numpy's generators are left alone; whether none has drawn from them."""
        seed_streams(_IDLE)
        try:
            for index, seed in batch:
                torch.default_generator.manual_seed(seed)
                samples.append(self.dataset[index])
        except Exception:
            if _next_numbers() == _IDLE_NUMBERS:
                raise
            return False
        return _next_numbers() == _IDLE_NUMBERS


class SeededStream(IterableDataset[Any]):
    """An iterable data set whose n-th item is made under a seed from (seed, epoch, rank, worker, n).

    This is weaker than what map-style data sets get: what an iterable gives depends on how many workers share it.

    Args:
        dataset: the user's own.
        seed: of the run.
        rank: of this process.
    """

    def __init__(self, dataset: Iterable[Any], seed: int, rank: int) -> None:
        self.dataset = dataset
        self.seed = seed
        self.rank = rank
        # Persistent workers are not told of a new epoch, but they share this memory.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch (0-based) of iterations that begin from now on, in this process and in running workers."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        base = mix_seed(self.seed, self.epoch, self.rank, 0 if worker is None else worker.id)
        return seeded_iteration(self.dataset, base)


class WorkerInit:
    """Prepares a loader worker: the user's function runs, and ``get_worker_info().dataset`` is the user's data set.

    Args:
        user_init: the user's ``worker_init_fn``, called with the worker's 0-based number.
    """

    def __init__(self, user_init: Callable[[int], None] | None) -> None:
        self.user_init = user_init

    def __call__(self, worker_id: int) -> None:
        """Run in the worker ``worker_id``, before it makes its first sample."""
        info: Any = get_worker_info()
        # WorkerInfo refuses assignment, to keep users from mistakes; here the wrapper gives way to what users expect
        # in it.
        object.__setattr__(info, 'dataset', info.dataset.dataset)
        if self.user_init is not None:
            NoStop(self.user_init, 'worker_init_fn')(worker_id)
