"""Writes checkpoints, with all ranks, at once or in the background.

The first rank writes a file. If the model is sharded, every rank writes its part of a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import distributed as dist

from runnerkit.checkpoint import NotSavedError
from runnerkit.checkpoint.content import NO_FILE, checkpoint_of, plain_checkpoint, raw_checkpoint, weights_on_cpu
from runnerkit.checkpoint.store import BY_EPOCH, BY_ITER, NON_FINITE, Store, number_in
from runnerkit.distributed import from_first_rank, gather_objects, run_on_all_ranks
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.parallel.dtensors import is_sharded, local_part
from runnerkit.utils.logging import NOT_EXACT

if TYPE_CHECKING:
    from runnerkit.checkpoint.async_writer import AsyncWriter


class _Request(NamedTuple):
    """Options of the next write that ``save_checkpoint`` has no parameters for.

    Attributes:
        ranks: the states of all ranks.
        async_save: whether to write in the background.
        after_write: called when the file is written.
        on_failure: called with an exception of the background write.
        found: values that are not finite, by kind.
    """

    ranks: list[Any]
    async_save: bool
    after_write: Callable[[], None]
    on_failure: Callable[[Exception], None]
    found: Mapping[str, str]


class Saver:
    """Writes a runner's checkpoints, one at a time in the background.

    Args:
        runner: the run's runner.

    Attributes:
        in_flight: the background save until its end is reported.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._request: _Request | None = None
        self._writer: AsyncWriter | None = None  # created by the first background save
        self.in_flight: _Request | None = None
        self._group: Any = None  # of the ranks of a sharded run, created by the first save
        self._to_acknowledge: Any = None  # the state of rank 0 in it, if a resumed run would continue from it

    def save(
        self,
        out_dir: str | os.PathLike[str] | None,
        given: dict[str, Any],
        messages: Mapping[str, Any],
        async_save: bool,
        after_write: Callable[[], None] | None,
        on_error: Callable[[NotSavedError], None] | None,
        only_finite: bool,
    ) -> str | None:
        """See `Snapshots.save`; ``given`` are the arguments of ``save_checkpoint``."""
        runner = self._runner
        folder = runner.work_dir if out_dir is None else os.fspath(out_dir)
        if folder is None:
            raise ValueError('there is nowhere to save to: give save an out_dir, or the runner a work_dir')
        is_in_parts = is_sharded(runner.model)
        if is_in_parts:
            self.finish()
        else:
            from_first_rank(self.finish)
        take_back = _nothing

        def failed(error: Exception) -> None:
            take_back()
            if on_error is None or not isinstance(error, NotSavedError):
                raise error
            on_error(error)

        # On every rank, so that all of them have the result.
        found = runner.finiteness.look()
        if found and only_finite:
            failed(NotSavedError(None, f'NaN or infinite values in {", ".join(found.values())}'))
            return None
        path, take_back = self._path(folder, given), self._set_messages(messages)
        self._warn(path, found)

        def written() -> None:
            if not found:
                runner.finiteness.note_saved(path)
            if after_write is not None:
                after_write()

        saved: str | NotSavedError
        if is_in_parts:
            request = _Request([], async_save, written, failed, found)
            saved = self._save_in_parts(folder, given, request)
        else:
            ranks = gather_objects(runner.snapshots.rank_state())
            request = _Request(ranks, async_save, written, failed, found)
            saved = from_first_rank(partial(self._save_on_first_rank, request, folder, given))
        if isinstance(saved, str):
            runner.train_log.mark_losses()
            return saved
        failed(saved)
        return None

    def _save_on_first_rank(self, request: _Request, out_dir: str, given: dict[str, Any]) -> str | NotSavedError:
        """Returns the file's path, or the error of the storage."""
        self._request = request
        try:
            path = self._runner.save_checkpoint(out_dir, **given)
            if self._request is not None:  # a subclass has written the file itself
                request.after_write()
                self._runner.call_hook('after_save')
        except NotSavedError as error:
            return error
        finally:
            self._request = None
        return self._path(out_dir, given) if path is None else path  # MMCV's returns None

    def _path(self, out_dir: str, given: Mapping[str, Any]) -> str:
        """The path to which ``save_checkpoint`` writes."""
        template = given.get('filename_tmpl', BY_EPOCH if self._runner.by_epoch else BY_ITER)
        return Store(out_dir, given.get('file_client_args')).path(self._name(template))

    def _save_in_parts(self, out_dir: str, given: dict[str, Any], request: _Request) -> str | NotSavedError:
        """Save a sharded model, on every rank; returns the folder's path, or the error of the storage."""
        from runnerkit.checkpoint.shards import PLACES

        runner = self._runner
        store = Store(out_dir, given.get('file_client_args'))
        store.check_takes_folders()
        if not type(runner).save_checkpoint.__module__.startswith('runnerkit.') and runner.rank == 0:
            runner.logger.warning(
                'save_checkpoint of %s is not called, as it would write what one rank has, and the model is sharded',
                type(runner).__name__,
            )
        name = self._name(given.get('filename_tmpl', BY_EPOCH if runner.by_epoch else BY_ITER))
        latest = self._moves_latest(given.get('create_symlink', True), request.found)
        if self._group is None and runner.world_size > 1:
            self._group = dist.new_group(backend='gloo')  # apart from the collectives of the training
        state = run_on_all_ranks(runner.snapshots.rank_state)
        tensors, places, own = self._own_part(state, runner.updater.kept_gradients())
        ranks = gather_objects(own)
        with ExitStack() as stack:
            run_on_all_ranks(partial(stack.enter_context, runner.hooks.around['around_save']))
            large, rest = run_on_all_ranks(partial(self._large_and_rest, given, request.found, ranks))
            tensors.update(large)
            counts_as_done = runner.rank == 0 and self._is_resumed_from(store, name, latest, request.found)
            rest[PLACES].update(places)
            local = {key: local_part(tensor) for key, tensor in tensors.items()}
            content: dict[str, Any] = {'local': local, 'rest': rest if runner.rank == 0 else None}
            write = partial(self._write_in_parts, store, name, tensors, latest, request)
            if request.async_save:
                self._to_acknowledge = ranks[0] if counts_as_done else None
                self._start(request, content, write)
                return store.path(name)
            try:
                write(content)
            except NotSavedError as error:
                return error
        if runner.rank == 0:
            if counts_as_done:
                runner.readers.acknowledge(ranks[0])
            runner.call_hook('after_save')
        return store.path(name)

    def _own_part(
        self, state: dict[str, Any], kept: Mapping[int, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The state of this rank: sharded gradients of unfinished cycles, their keys, and the rest."""
        from runnerkit.checkpoint.shards import EACH, PLACES, taken_apart

        for name, update in self._runner.updater.named().items():
            if not update.accumulated:
                continue
            if kept:
                state['updates'][name]['kept'] = [kept.get(id(parameter)) for parameter in update.parameters()]
            elif not any(parameter.grad is not None for parameter in update.parameters()):
                state['updates'][name]['is_without_gradients'] = True
                self._runner.logger.warning(
                    'the checkpoint is saved after %d of the losses of one update, whose gradients the model keeps '
                    'to itself until the update (no_sync): a resumed run makes that update without them. Save where '
                    'cumulative_iters (%d) ends',
                    update.accumulated,
                    update.cumulative_iters,
                    extra=NOT_EXACT,
                )
        tensors, updates = taken_apart({'updates': state['updates']}, ('runnerkit', 'ranks', EACH))
        return tensors, updates.pop(PLACES), {**state, **updates}

    def _large_and_rest(
        self, given: Mapping[str, Any], found: Mapping[str, str], ranks: list[Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The checkpoint's large tensors and the rest, which is complete on the first rank only."""
        from runnerkit.checkpoint.shards import taken_apart

        runner = self._runner
        checkpoint = raw_checkpoint(
            runner.model,
            optimizer=runner.optimizer if given.get('save_optimizer', True) else None,
            meta={**(given.get('meta') or {}), **self._meta(found)},
            state={**runner.snapshots.common_state(), 'ranks': ranks},
        )
        large, rest = taken_apart(checkpoint)
        return large, plain_checkpoint(rest) if runner.rank == 0 else rest

    def _write_in_parts(
        self, store: Store, name: str, tensors: dict[str, Any], latest: bool, request: _Request, content: dict[str, Any]
    ) -> None:
        store.write_folder(name, tensors, content['local'], content['rest'], latest, self._group, request.after_write)

    def _meta(self, found: Mapping[str, str]) -> dict[str, Any]:
        runner = self._runner
        counts = {'epoch': runner.completed_epochs, 'iter': runner.completed_iters}
        return {**runner.meta, **counts, NON_FINITE: dict(found)}

    def _moves_latest(self, wanted: bool, found: Mapping[str, str]) -> bool:
        """Whether ``latest.pth`` moves to the checkpoint; it stays at a finite one."""
        return wanted and not (found and self._runner.finiteness.last)

    def _warn(self, path: str, found: Mapping[str, str]) -> None:
        if found and self._runner.rank == 0:
            self._runner.logger.warning('%s has NaN or infinite values in %s', path, ', '.join(found.values()))

    def write(
        self,
        out_dir: str | os.PathLike[str],
        filename_tmpl: str,
        save_optimizer: bool,
        meta: Mapping[str, Any] | None,
        create_symlink: bool,
        file_client_args: dict[str, Any] | None,
    ) -> str:
        """Write one checkpoint on this rank; see the runners' ``save_checkpoint``."""
        request, self._request = self._request, None
        self.finish()
        if meta is not None and not isinstance(meta, Mapping):
            raise TypeError(f'meta should be a dict or None, but got {type(meta)}')
        runner = self._runner
        if is_sharded(runner.model):
            raise RuntimeError(NO_FILE)
        store, name = Store(out_dir, file_client_args), self._name(filename_tmpl)
        found = request.found if request else runner.finiteness.look(alone=True)
        if request is None:
            self._warn(store.path(name), found)
        latest = self._moves_latest(create_symlink, found)
        ranks = request.ranks if request else [runner.snapshots.rank_state()]
        # A file of one rank alone lacks the other ranks' states, and says how many. The state is taken before the
        # rings, in which averages may replace weights that a nested run shares.
        state = {**runner.snapshots.common_state(), 'ranks': ranks}
        with runner.hooks.around['around_save']:
            checkpoint = checkpoint_of(
                runner.model,
                optimizer=runner.optimizer if save_optimizer else None,
                meta={**(meta or {}), **self._meta(found)},
                state=state,
            )
            counts_as_done = self._is_resumed_from(store, name, latest, found)
            if request is not None and request.async_save:
                self._to_acknowledge = ranks[0] if counts_as_done else None
                self._start(request, checkpoint, partial(self._write_file, store, name, latest, request))
                return store.path(name)
            store.write(name, weights_on_cpu(checkpoint), latest)
        if request is not None:
            request.after_write()
        elif not found:
            runner.finiteness.note_saved(store.path(name))
        if counts_as_done:
            runner.readers.acknowledge(ranks[0])
        runner.call_hook('after_save')
        return store.path(name)

    def _is_resumed_from(self, store: Store, name: str, latest: bool, found: Mapping[str, str]) -> bool:
        """Whether a resumed run would use that file, so that its events of streams count as done."""
        if found or not (latest or number_in(name) is not None):
            return False
        hooks = [hook for hook in self._runner.hooks if isinstance(hook, CheckpointHook)]
        places: list[Any] = [hook.store(self._runner).place for hook in hooks]
        places = places or [self._runner.work_dir]
        return store.place in places

    @staticmethod
    def _write_file(store: Store, name: str, latest: bool, request: _Request, copy: dict[str, Any]) -> None:
        store.write(name, copy, latest)
        request.after_write()

    def _start(self, request: _Request, content: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
        if self._writer is None:
            from runnerkit.checkpoint.async_writer import AsyncWriter

            self._writer = AsyncWriter()
        self._writer.start(content, write)
        self.in_flight = request
        self._runner.hooks.listen('before_train_iter', self.poll)

    def poll(self, runner: Any) -> None:
        """Report a background save that has ended, without waiting. Other ranks than the first call `finish`."""
        if runner.rank == 0 and self._writer is not None and self._writer.is_done:
            self.finish()

    def finish(self) -> None:
        """Wait for a checkpoint that is being written in the background, and report its end.

        Raises:
            Exception: it could not be written, and its ``on_error`` does not handle that.
        """
        if self.in_flight is None or self._writer is None:
            return
        failure: Exception | None = None
        try:
            self._writer.wait()
        except Exception as error:
            failure = error
        request, self.in_flight = self.in_flight, None
        self._runner.hooks.unlisten('before_train_iter', self.poll)
        done, self._to_acknowledge = self._to_acknowledge, None
        if failure is not None:
            request.on_failure(failure)
        elif self._runner.rank == 0:
            if done is not None:
                self._runner.readers.acknowledge(done)
            self._runner.call_hook('after_save')

    def close(self) -> None:
        """`finish`, and release the thread, the memory of its copies and the process group."""
        try:
            self.finish()
        finally:
            self._writer = None
            group, self._group = self._group, None
            if group is not None and dist.is_initialized():
                dist.destroy_process_group(group)

    def last(self) -> str | None:
        """The newest intact checkpoint of this run or of the run that it resumes; None without one. Every rank calls
        it; it waits for a checkpoint that is being written."""
        if is_sharded(self._runner.model):
            self.finish()
        else:
            from_first_rank(self.finish)
        return from_first_rank(self._last)

    def _last(self) -> str | None:
        last: str | None = self._runner.meta.get('hook_msgs', {}).get('last_ckpt')
        if last is None:
            return None
        store, name = Store.of(last)
        if store.is_whole(name):
            return last
        found = store.newest()
        return None if found is None else found.path

    def _set_messages(self, messages: Mapping[str, Any]) -> Callable[[], None]:
        """Add ``messages`` to those of the hooks; returns a function that removes them."""
        if not messages:
            return _nothing
        current = self._runner.meta.setdefault('hook_msgs', {})
        former = {key: current[key] for key in messages if key in current}
        current.update(messages)

        def take_back() -> None:
            for key in messages:
                current.pop(key, None)
            current.update(former)

        return take_back

    def _name(self, template: str) -> str:
        """A file's name by the number, from 1, of the epoch (iteration) that is running or was completed last."""
        runner, number = self._runner, self._runner.completed_iters
        if runner.by_epoch:
            progress = runner.progress
            number = progress.epochs + (progress.epoch_is_open and progress.batches > 0)
        return template.format(max(1, number), epoch=runner.completed_epochs, iter=runner.completed_iters)


def _nothing() -> None:
    pass
