"""A torch DataLoader in which every sample is a function of (seed, epoch, position) and of nothing else."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.util import Finalize  # before this module's atexit: multiprocessing's own comes last then
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from runnerkit.data.sampler import EpochBatchSampler, EpochSampler, SeededBatchSampler
from runnerkit.data.seeding import Draws, NoStop, SeededSamples, SeededStream, WorkerInit, as_is, mix_seed
from runnerkit.utils.numbers import check_whole_number

#: Other arguments of a DataLoader than its data set, samplers and numbers of workers and samples.
LOADER_OPTIONS = (
    'collate_fn',
    'pin_memory',
    'timeout',
    'worker_init_fn',
    'multiprocessing_context',
    'generator',
    'prefetch_factor',
    'in_order',
)


class SeededLoader(DataLoader[Any]):
    """Loads the same batches, bit for bit, with any number of workers and from any point of an epoch.

    Randomness in the data set's ``__getitem__`` and in ``collate_fn`` is seeded for each sample and batch, in workers
    and in the main process alike, and an iteration draws nothing from the process's own generators. Call `set_epoch`
    before each epoch, or every epoch is the first one again (as with torch's DistributedSampler).

    Args:
        dataset: map-style; an iterable one is seeded too, but what it gives then depends on the number of workers.
        batch_size: samples a batch, at least 1.
        sampler: an `EpochSampler`, or any other, whose draws become a function of (seed, epoch). By default the
            data set's own order, every rank its share.
        batch_sampler: in place of ``batch_size``, ``sampler`` and ``drop_last``.
        drop_last: leave out a last batch that is smaller.
        seed: the same on every rank.
        rank: of this process.
        world_size: how many ranks share the data.
        generator: where seeds for the workers come from; by default the loader's own, a function of (seed, epoch,
            rank).
        prefetch_to: a GPU. Batches are handed out on it, each copied from pinned memory (``pin_memory=True``) while it
            works on the one before. With any other device, and by default, they are handed out as they are.
        max_batches: of a stream, how many batches a pass has at most. Other data sets are limited by their samplers,
            see `runnerkit.data.build_dataloader`.
        options: any other argument of torch's DataLoader.

    Raises:
        ValueError: ``batch_size`` is not a positive number, or torch refuses the combination of arguments.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        generator: torch.Generator | None = None,
        prefetch_to: torch.device | str | None = None,
        max_batches: int | None = None,
        **options: Any,
    ) -> None:
        use_torchs = 'for a data set that makes its batches itself use torch.utils.data.DataLoader'
        check_whole_number('batch_size', batch_size, hint=use_torchs)
        self.seed = seed
        self.rank = rank
        self.prefetch_to = None if prefetch_to is None else torch.device(prefetch_to)
        self.max_batches = max_batches
        self._reseed_generator = generator is None
        self._draws = Draws()
        if not isinstance(dataset, IterableDataset) and sampler is None and batch_sampler is None:
            sampler = EpochSampler(
                dataset,  # type: ignore[arg-type]
                shuffle=False,
                rank=rank,
                world_size=world_size,
                drop_last=drop_last,
            )
        super().__init__(
            dataset,
            batch_size,
            sampler=sampler,
            batch_sampler=batch_sampler,
            drop_last=drop_last,
            generator=torch.Generator() if generator is None else generator,
            **options,
        )
        #: What knows the epoch; for a map-style data set it is the batch sampler.
        self._source: EpochBatchSampler | SeededBatchSampler | SeededStream
        if isinstance(dataset, IterableDataset):
            self._source = SeededStream(dataset, seed, rank)
            return
        if batch_sampler is None and isinstance(sampler, EpochSampler):
            self._source = EpochBatchSampler(sampler, batch_size, drop_last)
        else:
            self._source = SeededBatchSampler(self.batch_sampler, seed, rank, world_size)  # type: ignore[arg-type]
        self._replace(batch_sampler=self._source)

    @property
    def epoch(self) -> int:
        """The epoch (0-based) of iterations that begin from now on."""
        return self._source.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on."""
        self._source.set_epoch(epoch)

    def enter(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of ``epoch`` after the first ``start`` ones, of which a map-style data set loads nothing."""
        self.set_epoch(epoch)
        if isinstance(self._source, SeededStream):
            batches = iter(self)
            for _ in islice(batches, start):
                pass
            return batches
        if isinstance(self._source, EpochBatchSampler):
            part: Any = self._source.sampler
            part.start = start * self._source.batch_size * part.world_size
        else:
            part = self._source
            part.start = start
        try:
            return iter(self)
        finally:
            part.start = 0

    def __len__(self) -> int:
        if self.max_batches is None:
            return super().__len__()
        try:
            return min(self.max_batches, super().__len__())
        except TypeError:  # a stream without a length
            return self.max_batches

    def __iter__(self) -> Any:
        if self._reseed_generator:
            self.generator.manual_seed(mix_seed(self.seed, self.epoch, self.rank))
        with self._seeded_parts():
            batches: Any = super().__iter__()
        keep_queues(batches)
        if self.prefetch_to is not None:
            from runnerkit.data.prefetch import prefetched

            batches = prefetched(batches, self.prefetch_to)
        return islice(batches, self.max_batches) if isinstance(self._source, SeededStream) else batches

    @contextmanager
    def _seeded_parts(self) -> Iterator[None]:
        """Show a new iterator the seeding wrappers where everybody else sees the user's own objects."""
        own = {'dataset': self.dataset, 'collate_fn': self.collate_fn, 'worker_init_fn': self.worker_init_fn}
        parts: dict[str, Any] = {}
        if self.num_workers:
            from runnerkit.data.worker_signals import OutlivingSignals

            parts['worker_init_fn'] = OutlivingSignals(WorkerInit(self.worker_init_fn))
        if isinstance(self._source, SeededStream):
            parts.update(dataset=self._source, collate_fn=NoStop(self.collate_fn, 'collate_fn'))
        else:
            # Collating in the wrapper puts it under the same streams and threads as the samples.
            samples = SeededSamples(self.dataset, self.seed, self.collate_fn, self._draws)
            parts.update(dataset=samples, collate_fn=as_is)
        self._replace(**parts)
        try:
            yield
        finally:
            self._replace(**own)

    def _replace(self, **attributes: Any) -> None:
        # DataLoader refuses assignments once it is built, as a guard against changes that would have no effect; these
        # have one.
        for name, value in attributes.items():
            object.__setattr__(self, name, value)


#: The queues of live iterators with workers, by the iterator's id, and the iterators.
_queues: dict[int, Any] = {}
_with_workers: weakref.WeakSet[Any] = weakref.WeakSet()
_LAST_MOMENTS = 1.0  # seconds for a worker to be gone after its connection
_registered_in: set[int] = set()  # the processes of multiprocessing that send their workers home at their end


def keep_queues(batches: Any) -> Any:
    """Let an iterator's queues to its workers live as long as the iterator, also if it is part of a reference cycle.

    A garbage collection that finds queue and iterator together closes the queue first. The iterator's ``__del__`` can
    then not tell its workers to end, and waits ten seconds for each of them, at any moment. A runner that is dropped in
    the middle of an epoch is in such a cycle.

    Its errors say which loader has lost a worker, see `_WithWorkers`.
    """
    queues = getattr(batches, '_index_queues', None)
    if type(batches) is _MultiProcessingDataLoaderIter:
        batches.__class__ = _WithWorkers
    if queues and id(batches) not in _queues:
        _queues[id(batches)] = queues
        _with_workers.add(batches)
        weakref.finalize(batches, _queues.pop, id(batches), None).atexit = False
        if os.getpid() not in _registered_in:
            _registered_in.add(os.getpid())
            # A process that multiprocessing has started waits for its children before anything of atexit is called;
            # and before that, at priority 10, it closes the queues through which workers learn of it.
            Finalize(None, _send_workers_home, exitpriority=100)
    return batches


class _WithWorkers(_MultiProcessingDataLoaderIter):
    """Torch's iterator, whose error may be only that of a connection where a worker has ended, as with code 0."""

    def _get_data(self) -> Any:
        try:
            return super()._get_data()
        except Exception as error:
            ending = wait([worker.sentinel for worker in self._workers], timeout=_LAST_MOMENTS)
            for worker in self._workers:
                worker.join(_LAST_MOMENTS * (worker.sentinel in ending))
            codes = [worker.exitcode for worker in self._workers if worker.exitcode is not None]
            code = next(filter(None, codes), 0)
            if not codes or (code and isinstance(error, RuntimeError)):  # in which torch names a signal, or the code
                raise
            dataset = self._dataset
            name = type(dataset.dataset if isinstance(dataset, (SeededSamples, SeededStream)) else dataset).__name__
            raise RuntimeError(
                f'a worker of this loader ended with code {code}: that of the data set {name}. 0 comes of sys.exit, '
                'os._exit or KeyboardInterrupt in it, -9 of too little memory; set data.workers=0 to see where'
            ) from error


@atexit.register
def _send_workers_home() -> None:
    """When Python ends in the middle of a pass: multiprocessing would send SIGTERM to the workers and wait for them,
    which serve on for a while then (see `OutlivingSignals`)."""
    for batches in list(_with_workers):
        batches.__del__()  # as when it is no longer referenced


if hasattr(os, 'register_at_fork'):  # the workers of the parent are not this process's
    os.register_at_fork(after_in_child=_with_workers.clear)
