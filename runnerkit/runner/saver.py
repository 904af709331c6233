"""One save: collect, assemble, write, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import distributed as dist

from runnerkit.checkpoint.content import NO_FILE, plain_checkpoint, raw_checkpoint
from runnerkit.checkpoint.integrity import STATE_FORMAT
from runnerkit.checkpoint.plain import to_plain
from runnerkit.checkpoint.store import BY_EPOCH, BY_ITER, NON_FINITE, NotSavedError, Store, number_in
from runnerkit.distributed import from_first_rank, gather_objects, run_on_all_ranks
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.parallel.dtensors import is_sharded, local_part
from runnerkit.runner.changes import why_not_exact
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.seed import rng_state

if TYPE_CHECKING:
    from runnerkit.checkpoint.async_writer import AsyncWriter


class Request(NamedTuple):
    """What a save was asked for.

    Attributes:
        store: where the file goes.
        name: of the file, or of the folder of a sharded model.
        given: further arguments for ``save_checkpoint``.
        is_sharded: whether each rank writes its part of a folder.
        async_save: whether to write in the background.
        only_finite: whether values that are not finite are an error of the storage.
        alone: whether this rank saves without the others.
        is_direct: whether user code has called ``save_checkpoint``.
        not_exact: why a run could not continue exactly from here.
        messages: added to those of the hooks.
        former: messages of these names before.
        after_write: called when the file is in its place.
        on_error: called with the error of the storage.
        found: values that are not finite, by kind.
        latest: whether ``latest.pth`` moves to it; it stays at a finite one.
    """

    store: Store
    name: str
    given: dict[str, Any]
    is_sharded: bool = False
    async_save: bool = False
    only_finite: bool = False
    alone: bool = False
    is_direct: bool = False
    not_exact: str | None = None
    messages: Mapping[str, Any] = {}
    former: Mapping[str, Any] = {}
    after_write: Callable[[], None] | None = None
    on_error: Callable[[NotSavedError], None] | None = None
    found: Mapping[str, str] = {}
    latest: bool = False


class Saver:
    """Saves a run, one checkpoint at a time in the background.

    Args:
        runner: the run's runner.
        parts: objects that are saved on each rank, in their order.

    Attributes:
        is_saving: whether a checkpoint is being saved.
        seconds: how long saves have kept the training waiting.
    """

    def __init__(self, runner: Any, parts: list[Any]) -> None:
        self._runner, self._parts = runner, parts
        self.is_saving = False
        self.seconds = 0.0
        self._moved: list[Request] = []  # to the next boundary
        self._assembled: tuple[Any, Request] | None = None  # for `save_checkpoint`
        self._writer: AsyncWriter | None = None  # created by the first background save
        self._in_flight: Request | None = None  # until the end of a background save is reported
        self._events: Any = None  # the state of rank 0 in it
        self._group: Any = None  # of the ranks of a sharded run, created by the first save
        self._has_warned = False  # of a direct `save_checkpoint`

    def save(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        filename_tmpl: str | None = None,
        *,
        save_optimizer: bool = True,
        meta: Mapping[str, Any] | None = None,
        create_symlink: bool = True,
        file_client_args: dict[str, Any] | None = None,
        messages: Mapping[str, Any] | None = None,
        async_save: bool = False,
        after_write: Callable[[], None] | None = None,
        on_error: Callable[[NotSavedError], None] | None = None,
        only_finite: bool = False,
        caller: Any = None,
        alone: bool = False,
        **options: Any,
    ) -> str | None:
        """Save everything that resuming needs, of all ranks; every rank calls it, also in hooks.

        The first rank writes, by ``save_checkpoint``, which subclasses may override. If the model is sharded (FSDP2),
        every rank writes its part of a folder that has the name of the file. All ranks return when the checkpoint is
        written, or with ``async_save`` when the state is copied. An earlier save in the background is finished first.

        Where a run could not continue exactly, in the middle of an iteration, of an evaluation or of a nested run, or
        before other hooks of a point, the save moves to the next boundary: the end of the point ``after_train_iter`` or
        ``after_train_epoch``. The log says so.
        """
        runner = self._runner
        folder = runner.work_dir if out_dir is None else os.fspath(out_dir)
        if folder is None:
            raise ValueError('there is nowhere to save to: give save an out_dir, or the runner a work_dir')
        given = {'filename_tmpl': filename_tmpl, 'meta': meta, 'file_client_args': file_client_args, **options}
        given = {name: value for name, value in given.items() if value is not None}
        given['save_optimizer'] = save_optimizer
        if not create_symlink:
            given['create_symlink'] = False
        sharded = is_sharded(runner.model)
        if alone and sharded:
            raise RuntimeError(NO_FILE)
        why = why_not_exact(runner, caller)
        moves = why is not None and not alone and (caller is None or runner.lifecycle.inner is not None)
        alone = alone or (runner.world_size == 1 and not sharded)
        store, name = Store(folder, file_client_args), self._name(filename_tmpl, moves)
        options = {'messages': messages or {}, 'after_write': after_write, 'on_error': on_error}
        request = Request(store, name, given, sharded, async_save, only_finite, alone, not_exact=why, **options)
        if moves:
            self._move(request)
            return store.path(name)
        return self._save(request)

    def _save(self, request: Request) -> str | None:
        runner, here = self._runner, request.alone or request.is_sharded
        began, self.is_saving = time.monotonic(), True
        try:
            self.finish() if here else from_first_rank(self.finish)
            found, messages = runner.finiteness.look(request.alone), runner.meta.get('hook_msgs', {})
            latest = request.given.get('create_symlink', True) and not (found and runner.finiteness.last)
            former = {key: messages[key] for key in request.messages if key in messages}
            request = request._replace(found=found, latest=latest, former=former)
            if request.messages:
                runner.meta.setdefault('hook_msgs', {}).update(request.messages)
            if found and request.only_finite:
                error = NotSavedError(None, f'NaN or infinite values in {", ".join(found.values())}')
                self._fail(request, error)
                return None
            state = self.collect(request)
            put = partial(self._assemble_and_write, state, request)
            path = put() if here else from_first_rank(put)
            if isinstance(path, NotSavedError):
                self._fail(request, path)
                return None
            self.report(path, request, state)
            return path
        finally:
            self.is_saving = False
            self.seconds += time.monotonic() - began

    def _assemble_and_write(self, state: Any, request: Request) -> str | NotSavedError:
        """In the rings around a save, on the rank that writes, or on all ranks of a sharded model."""
        ring = self._runner.hooks.around['around_save']
        try:
            with ExitStack() as stack:
                if request.is_sharded:
                    run_on_all_ranks(partial(stack.enter_context, ring))
                    return self.write(run_on_all_ranks(partial(self.assemble, state, request)), request)
                stack.enter_context(ring)
                return self.write(self.assemble(state, request), request)
        except NotSavedError as error:
            return error

    # --- the four steps ----------------------------------------------------------------------------------------------

    def collect(self, request: Request) -> Any:
        """On every rank: the states of its parts; those of all ranks on the first one."""
        if request.is_sharded:
            return self._collect_shards(request)
        state = self.rank_state()
        return [state] if request.alone else gather_objects(state)

    def rank_state(self) -> dict[str, Any]:
        """The states of this rank's parts, also within an evaluation those of the training."""
        runner = self._runner
        with runner.evaluator.as_before():
            state: dict[str, Any] = {'rng': rng_state(), 'log_buffer': runner.train_log.state_dict()}
            for part in self._parts:
                for key, value in part.state_dict().items():
                    state[key] = {**state[key], **value} if key in state else value
        return state

    def assemble(self, state: Any, request: Request) -> Any:
        """On the rank that writes: weights, optimizers, meta and all ranks' states."""
        runner, given = self._runner, request.given
        optimizer = runner.optimizer if given.get('save_optimizer', True) else None
        counts = {'epoch': runner.completed_epochs, 'iter': runner.completed_iters}
        meta = {**(given.get('meta') or {}), **runner.meta, **counts, NON_FINITE: dict(request.found)}
        common = {
            'format': STATE_FORMAT,
            'world_size': runner.world_size,
            'progress': {**runner.progress.state_dict(), 'samples': runner.readers.samples()},
            **runner.changes.facts(),
            'gradient_orders': {} if runner.updater.orders is None else runner.updater.orders.state_dict(),
            'scores': {name: list(score) for name, score in runner.scores.items()},
            **({'not_exact': request.not_exact} if request.not_exact else {}),
            **({'nested': list(runner.unfinished)} if runner.unfinished else {}),
        }
        ranks, tensors, places = state if request.is_sharded else (state, {}, {})
        on_cpu = not (request.is_sharded or request.async_save)  # a copy for the background is there soon
        content = raw_checkpoint(runner.model, optimizer, meta, {**common, 'ranks': ranks}, on_cpu)
        if not request.is_sharded:
            return plain_checkpoint(content)
        from runnerkit.checkpoint.shards import PLACES, taken_apart

        large, rest = taken_apart(content)
        rest = plain_checkpoint(rest) if runner.rank == 0 else rest
        rest[PLACES].update(places)
        tensors.update(large)
        local = {key: local_part(tensor) for key, tensor in tensors.items()}
        return tensors, {'local': local, 'rest': rest if runner.rank == 0 else None}

    def write(self, content: Any, request: Request) -> str:
        """Write one file, or this rank's part of a folder, under a temporary name that is then changed; or start it."""
        if request.is_sharded or request.is_direct:
            return self._put(content, request)
        self._assembled = content, request
        try:
            path: str | None = self._runner.save_checkpoint(request.store.place, **request.given)
            if self._assembled is not None:  # a subclass has written the file itself
                self._written(request)
        finally:
            self._assembled = None
        return request.store.path(request.name) if path is None else path  # MMCV's returns None

    def report(self, path: str, request: Request, state: Any) -> None:
        """Log what is not finite, and call the hooks' ``after_save`` on the rank that has written, now or later."""
        runner = self._runner
        if not request.is_direct:
            runner.train_log.mark_losses()
        if runner.rank > 0 and not request.alone:
            return
        if request.found:
            runner.logger.warning('%s has NaN or infinite values in %s', path, ', '.join(request.found.values()))
        events = (state[0] if isinstance(state, tuple) else state)[0]
        if self._in_flight is None:
            self._reported(request, events)
        else:
            self._events = events

    # --- files and folders -------------------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        out_dir: str | os.PathLike[str],
        filename_tmpl: str,
        save_optimizer: bool,
        meta: Mapping[str, Any] | None,
        create_symlink: bool,
        file_client_args: dict[str, Any] | None,
    ) -> str:
        """MMCV's method of the runners: write what is assembled; called by user code, save this rank alone and now."""
        if meta is not None and not isinstance(meta, Mapping):
            raise TypeError(f'meta should be a dict or None, but got {type(meta)}')
        runner, (assembled, self._assembled) = self._runner, (self._assembled, None)
        given = dict(
            filename_tmpl=filename_tmpl, save_optimizer=save_optimizer, meta=meta, create_symlink=create_symlink
        )
        store, name = Store(out_dir, file_client_args), self._name(filename_tmpl)
        if assembled is not None:
            content, request = assembled
            if meta is not None:  # a subclass may have added to it
                content['meta'] = {**to_plain(meta, 'meta'), **content['meta']}
            if not save_optimizer:
                content.pop('optimizer', None)
            return self._put(
                content, request._replace(store=store, name=name, latest=create_symlink and request.latest)
            )
        if is_sharded(runner.model):
            raise RuntimeError(NO_FILE)
        why = why_not_exact(runner)
        if (why or runner.world_size > 1) and not self._has_warned:
            self._has_warned = True
            runner.logger.warning(
                'save_checkpoint writes at once and on one rank, so a run that resumes %s is not exact (%s): call '
                'runner.save() on every rank instead',
                store.path(name),
                why or 'the states of the other ranks are not in it',
                extra=NOT_EXACT,
            )
        path = self._save(Request(store, name, given, alone=True, is_direct=True, not_exact=why))
        return str(path)

    def _put(self, content: Any, request: Request) -> str:
        """Write the file or the folder now, or in the background from a copy."""
        tensors, content = content if request.is_sharded else (None, content)
        written = partial(self._written, request)

        def write(content: dict[str, Any]) -> None:
            if tensors is None:
                request.store.write(request.name, content, request.latest)
                written()
            else:
                parts = content['local'], content['rest']
                request.store.write_folder(request.name, tensors, *parts, request.latest, self._group, written)

        if request.async_save:
            from runnerkit.checkpoint.async_writer import AsyncWriter

            self._writer = self._writer or AsyncWriter()
            self._writer.start(content, write)
            self._in_flight = request
            self._runner.hooks.listen('before_train_iter', self.poll)
        else:
            write(content)
        return request.store.path(request.name)

    def _written(self, request: Request) -> None:
        """The checkpoint is in its place; of a background save, called in its thread."""
        if not request.found:
            self._runner.finiteness.note_saved(request.store.path(request.name))
        if request.after_write is not None:
            request.after_write()

    def _collect_shards(self, request: Request) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """The states of all ranks, without gradients of unfinished cycles that are sharded: these, and their places."""
        from runnerkit.checkpoint.shards import EACH, PLACES, taken_apart

        runner = self._runner
        request.store.check_takes_folders()
        if not type(runner).save_checkpoint.__module__.startswith('runnerkit.') and runner.rank == 0:
            runner.logger.warning(
                'save_checkpoint of %s is not called, as it would write what one rank has, and the model is sharded',
                type(runner).__name__,
            )
        if self._group is None and runner.world_size > 1:
            self._group = dist.new_group(backend='gloo')  # apart from the collectives of the training
        state, kept = run_on_all_ranks(self.rank_state), runner.updater.kept_gradients()
        for name, update in runner.updater.named().items():
            if not update.accumulated:
                continue
            if kept:
                state['updates'][name]['kept'] = [kept.get(id(parameter)) for parameter in update.parameters()]
            elif not any(parameter.grad is not None for parameter in update.parameters()):
                state['updates'][name]['is_without_gradients'] = True
                runner.logger.warning(
                    'the checkpoint is saved after %d of the losses of one update, whose gradients the model keeps '
                    'to itself until the update (no_sync): a resumed run makes that update without them. Save where '
                    'cumulative_iters (%d) ends',
                    update.accumulated,
                    update.cumulative_iters,
                    extra=NOT_EXACT,
                )
        tensors, updates = taken_apart({'updates': state['updates']}, ('runnerkit', 'ranks', EACH))
        places = updates.pop(PLACES)
        return gather_objects({**state, **updates}), tensors, places

    # --- when --------------------------------------------------------------------------------------------------------

    def _move(self, request: Request) -> None:
        """Save at the end of the running point, or of the running iteration."""
        runner, progress = self._runner, self._runner.progress
        point = 'after_train_epoch' if progress.epoch_is_done and not progress.iter_is_done else 'after_train_iter'
        runner.logger.info(
            'the save of %s moves to the end of this iteration or point, from which a run can continue exactly: it was '
            'asked for %s',
            request.name,
            request.not_exact,
        )
        self._moved.append(request._replace(not_exact=None))
        runner.hooks.at_end(point, self._save_moved)

    def drop_moved(self) -> None:
        """Forget the saves that wait for a boundary: the run goes back to an earlier checkpoint."""
        for request in self._moved:
            self._runner.logger.info('%s is not saved: the run has gone back before that', request.name)
        self._moved = []

    def _save_moved(self, runner: Any) -> None:
        moved, self._moved = self._moved, []
        for request in moved:
            self._save(request)

    def poll(self, runner: Any) -> None:
        """Report a background save that has ended, without waiting. Other ranks than the first call `finish`."""
        if runner.rank == 0 and self._writer is not None and self._writer.is_done:
            self.finish()

    def finish(self) -> None:
        """Wait for a checkpoint that is being written in the background, and report its end."""
        request, self._in_flight = self._in_flight, None
        if request is None or self._writer is None:
            return
        self._runner.hooks.unlisten('before_train_iter', self.poll)
        try:
            self._writer.wait()
        except Exception as error:
            self._fail(request, error)
            return
        if self._runner.rank == 0:
            self._reported(request, self._events)

    def after_run(self, runner: Any) -> None:
        """Make moved saves, and wait for the one in the background; then release its thread, memory and group."""
        if runner.outcome is not None and runner.outcome.ended_well:
            self._save_moved(runner)
        for request in self._moved:
            runner.logger.warning('%s is not saved: the run failed before the end of the iteration', request.name)
        self._moved = []
        try:
            self.finish()
        except Exception as error:
            error.add_note('the checkpoint that was being written in the background failed')
            raise
        finally:
            self._writer, self._has_warned = None, False
            group, self._group = self._group, None
            if group is not None and dist.is_initialized():
                dist.destroy_process_group(group)

    # --- what is said of it ------------------------------------------------------------------------------------------

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

    def _fail(self, request: Request, error: Exception) -> None:
        """Take back the messages of a checkpoint that was not written, and report or raise the error."""
        for key in request.messages:
            self._runner.meta['hook_msgs'].pop(key, None)
        self._runner.meta.get('hook_msgs', {}).update(request.former)
        if request.on_error is None or not isinstance(error, NotSavedError):
            raise error
        request.on_error(error)

    def _reported(self, request: Request, events: Any) -> None:
        """On the rank that has written: the events of streams up to a file that a resumed run would use are done."""
        runner = self._runner
        if runner.readers.streams() and self._is_resumed_from(request):
            runner.readers.acknowledge(events)
        runner.call_hook('after_save')

    def _is_resumed_from(self, request: Request) -> bool:
        if request.found or not (request.latest or number_in(request.name) is not None):
            return False
        hooks = [hook for hook in self._runner.hooks if isinstance(hook, CheckpointHook)]
        places: list[Any] = [hook.store(self._runner).place for hook in hooks]
        return request.store.place in (places or [self._runner.work_dir])

    def _name(self, template: str | None, moves: bool = False) -> str:
        """A file's name by the number, from 1, of the epoch (iteration) that is running or was completed last; of a
        save that moves, at the boundary."""
        runner, progress = self._runner, self._runner.progress
        ahead = moves and not progress.iter_is_done and not progress.epoch_is_done
        iters = number = progress.iters + ahead
        if runner.by_epoch:
            number = progress.epochs + (progress.epoch_is_open and progress.batches + ahead > 0)
        template = template or (BY_EPOCH if runner.by_epoch else BY_ITER)
        return template.format(max(1, number), epoch=progress.epochs, iter=iters)
