"""What a seeded loader's workers see of a data set: the same samples, each made under its own seed.

These wrappers live only inside the loader's iterators; the user's data set stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from runnerkit.data.sampler import SampleBatch
from runnerkit.data.seeding import mix_seed, private_streams, sample_seed, seed_streams, seeded_iteration
from runnerkit.utils.logging import shortened


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


class SeededSamples(Dataset[Any]):
    """A map-style data set that is asked for whole batches, and gives them collated.

    Samples are always made one by one with ``__getitem__``, also where the data set has a ``__getitems__``: in one call
    for a batch, what a sample is would depend on its neighbours. ``collate_fn`` draws from the last sample's streams,
    so that a random one (mixup) depends on the batch only.

    Args:
        dataset: the user's own.
        seed: of the run.
        collate_fn: makes a batch of a list of samples.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.dataset = dataset
        self.seed = seed
        self.collate_fn = collate_fn

    def __getitems__(self, batch: SampleBatch) -> Any:
        base = mix_seed(self.seed, batch.epoch)
        samples: list[Any] = []
        with private_streams():
            try:
                for index, position in zip(batch, batch.positions, strict=True):
                    seed_streams(sample_seed(base, position))
                    samples.append(self.dataset[index])
                return self.collate_fn(samples)
            except Exception as error:
                at = len(samples)
                which = f'sample {batch[at]}' if at < len(batch) else f'a batch of the samples {shortened(list(batch))}'
                which += f' of the data set {type(self.dataset).__name__}'
                if isinstance(error, StopIteration):
                    raise stopped(which) from error
                error.add_note(which)
                raise


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
