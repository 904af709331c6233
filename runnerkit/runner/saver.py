"""One save: collect, assemble, write, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import distributed as dist

from runnerkit.checkpoint.content import NO_FILE, raw_checkpoint
from runnerkit.checkpoint.integrity import STATE_FORMAT
from runnerkit.checkpoint.plain import plain_checkpoint, to_plain
from runnerkit.checkpoint.store import BY_EPOCH, BY_ITER, NON_FINITE, NotSavedError, Store, number_in
from runnerkit.distributed import from_first_rank, gather_objects, run_on_all_ranks
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import RunnerView
from runnerkit.parallel.dtensors import is_sharded
from runnerkit.runner.exactness import boundary, in_entry, why_not_exact
from runnerkit.utils.logging import DETAIL, NOT_EXACT
from runnerkit.utils.seed import rng_state
from runnerkit.utils.torch_versions import destroy_group

if TYPE_CHECKING:
    from runnerkit.checkpoint.async_writer import AsyncWriter
    from runnerkit.hooks.hook_table import HookTable
    from runnerkit.hooks.weights import Finiteness
    from runnerkit.log_buffer import LogBuffer
    from runnerkit.runner.changes import Changes
    from runnerkit.runner.evaluator import Evaluator
    from runnerkit.runner.progress import Progress
    from runnerkit.runner.readers import Readers
    from runnerkit.runner.updater import Updater


class Request(NamedTuple):
    """What a save was asked for.

    Attributes:
        store: where the file goes.
        name: of the file, or of the folder of a sharded model.
        options: further arguments of ``save_checkpoint``.
        messages: added to those of the hooks.
        in_parts: whether the model is sharded, and each rank writes its part of a folder.
        async_save: whether to write in the background.
        only_finite: whether values that are not finite are an error of the storage.
        alone: whether this rank saves without the others.
        is_direct: whether user code has called ``save_checkpoint``.
        not_exact: why a run could not continue exactly from here.
        after_write: called when the file is in its place.
        on_error: called with the error of the storage.
    """

    store: Store
    name: str
    options: Mapping[str, Any]
    messages: Mapping[str, Any] = {}
    in_parts: bool = False
    async_save: bool = False
    only_finite: bool = False
    alone: bool = False
    is_direct: bool = False
    not_exact: str | None = None
    after_write: Callable[[], None] | None = None
    on_error: Callable[[NotSavedError], None] | None = None


class State(NamedTuple):
    """What a save has collected.

    Attributes:
        ranks: the state of each rank; on other ranks than the first, none.
        found: values that are not finite, by kind.
        tensors: of a sharded model, sharded gradients of unfinished updates by name.
        places: where these belong in the checkpoint.
    """

    ranks: list[dict[str, Any]]
    found: Mapping[str, str]
    tensors: Mapping[str, Any] = {}
    places: Mapping[str, Any] = {}


class SavedRun(RunnerView, Protocol):
    """What a save reads of a runner, beyond what hooks do."""

    train_log: LogBuffer
    progress: Progress
    changes: Changes
    updater: Updater
    evaluator: Evaluator
    readers: Readers
    finiteness: Finiteness
    hooks: HookTable
    world_size: int

    def call_hook(self, fn_name: str) -> None:
        """Call the hooks at a point."""


class Saver:
    """Saves a run, one checkpoint at a time in the background.

    Args:
        runner: the run.
        parts: objects that are saved on each rank, in their order.

    Attributes:
        is_saving: whether a checkpoint is being saved.
        seconds: how long saves have kept the training waiting.
    """

    def __init__(self, runner: SavedRun, parts: list[Any]) -> None:
        self._runner, self._parts = runner, parts
        self.is_saving = False
        self.seconds = 0.0
        self._moved: list[Request] = []  # to the next boundary
        self._former: dict[str, Any] = {}  # the hooks' messages that those of the running save replace
        self._open: tuple[Any, State, Request] | None = None  # what `save_checkpoint` of a subclass is to write
        self._is_written = False  # by the latter
        self._writer: AsyncWriter | None = None  # created by the first background save
        self._in_flight: tuple[State, Request] | None = None  # until the end of a background save is reported
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
        ``after_train_epoch``, that of an evaluation of the workflow, or in a resumed run that of ``before_run``. The
        log says so.
        """
        runner = self._runner
        folder = runner.work_dir if out_dir is None else os.fspath(out_dir)
        if folder is None:
            raise ValueError('there is nowhere to save to: give save an out_dir, or the runner a work_dir')
        in_parts = is_sharded(runner.model)
        if alone and in_parts:
            raise RuntimeError(NO_FILE)
        given = {'filename_tmpl': filename_tmpl, 'meta': meta, 'file_client_args': file_client_args, **options}
        given = {name: value for name, value in given.items() if value is not None}
        given['save_optimizer'] = save_optimizer
        if not create_symlink:
            given['create_symlink'] = False
        why = why_not_exact(runner, caller)
        point = boundary(runner, caller) if why is not None and not alone else None
        request = Request(
            store=Store(folder, file_client_args),
            name=self._name(filename_tmpl, point),
            options=given,
            messages=messages or {},
            in_parts=in_parts,
            async_save=async_save,
            only_finite=only_finite,
            alone=alone or runner.world_size == 1,
            not_exact=why,
            after_write=after_write,
            on_error=on_error,
        )
        return self._make(request) if point is None else self._move(request, point)

    def _make(self, request: Request) -> str | None:
        """One save: every rank makes it, or one alone; the first rank writes, or each one its part."""
        runner, began, self.is_saving = self._runner, time.monotonic(), True
        each_writes = request.alone or request.in_parts

        def put() -> str | NotSavedError:
            try:
                with ExitStack() as rings:
                    swap = partial(rings.enter_context, runner.hooks.around['around_save'])
                    run_on_all_ranks(swap) if request.in_parts else swap()
                    content = self.assemble(state, request)
                    return self.write(content, state, request)
            except NotSavedError as error:
                return error  # to all ranks

        try:
            self.finish() if request.alone else self.finish_together()
            messages = runner.meta.setdefault('hook_msgs', {}) if request.messages else {}
            self._former = {key: messages[key] for key in request.messages if key in messages}
            messages.update(request.messages)
            try:
                state = self.collect(request)
                path = put() if each_writes else from_first_rank(put)
                if isinstance(path, NotSavedError):
                    raise path
            except BaseException as error:
                self._fail(error, request)
                return None
            if not request.is_direct:
                runner.train_log.mark_losses()
            if self._in_flight is None and self._reports(request):
                self.report(path, state, request)
            return path
        finally:
            self.is_saving = False
            self.seconds += time.monotonic() - began

    # --- the four steps ----------------------------------------------------------------------------------------------

    def collect(self, request: Request) -> State:
        """On every rank: look for values that are not finite; gather the ranks' states on the first one."""
        found = self._runner.finiteness.look(request.alone)
        if found and request.only_finite:
            raise NotSavedError(None, f'NaN or infinite values in {", ".join(found.values())}')
        if request.in_parts:
            return self._collect_in_parts(request, found)
        state = self.rank_state()
        return State([state] if request.alone else gather_objects(state), found)

    def rank_state(self) -> dict[str, Any]:
        """The states of this rank's parts, also within an evaluation those of the training."""
        runner = self._runner
        with runner.evaluator.as_before():
            state: dict[str, Any] = {'rng': rng_state(), 'log_buffer': runner.train_log.state_dict()}
            for part in self._parts:
                for key, value in part.state_dict().items():
                    state[key] = {**state[key], **value} if key in state else value
        return state

    def assemble(self, state: State, request: Request) -> Any:
        """On the rank that writes: weights, optimizers, meta, all ranks' states; of a sharded model, parts."""
        runner, options = self._runner, request.options
        optimizer = runner.optimizer if options.get('save_optimizer', True) else None
        counts = {'epoch': runner.completed_epochs, 'iter': runner.completed_iters}
        meta = {**(options.get('meta') or {}), **runner.meta, **counts, NON_FINITE: dict(state.found)}
        of_run = {
            'format': STATE_FORMAT,
            'world_size': runner.world_size,
            'progress': {**runner.progress.state_dict(), 'samples': runner.readers.samples()},
            **runner.changes.facts(),
            'gradient_orders': {} if runner.updater.orders is None else runner.updater.orders.state_dict(),
            'scores': {name: list(score) for name, score in runner.scores.items()},
            **({'not_exact': request.not_exact} if request.not_exact else {}),
            **({'nested': list(runner.unfinished)} if runner.unfinished else {}),
            'ranks': state.ranks,
        }
        on_cpu = not (request.in_parts or request.async_save)  # a copy for the background is there soon
        content = raw_checkpoint(runner.model, optimizer, meta, of_run, on_cpu)
        if not request.in_parts:
            return plain_checkpoint(content)
        from runnerkit.checkpoint.shards import parts_to_write

        return run_on_all_ranks(partial(parts_to_write, content, state.tensors, state.places, runner.rank == 0))

    def write(self, content: Any, state: State, request: Request) -> str:
        """Write one file, or this rank's part of a folder, under a temporary name that is then changed; or start it."""
        if request.in_parts or request.is_direct:
            return self._put(content, state, request)
        self._open, self._is_written = (content, state, request), False
        try:
            path: str | None = self._runner.save_checkpoint(request.store.place, **request.options)
            if not self._is_written:  # a subclass has written the file itself
                self._written(state, request)
        finally:
            self._open = None
        return request.store.path(request.name) if path is None else path  # MMCV's returns None

    def report(self, path: str, state: State, request: Request) -> None:
        """On the rank that has written, when the checkpoint is in its place: log what is not finite, acknowledge the
        events of streams up to a file that a resumed run would use, and call the hooks' ``after_save``."""
        runner = self._runner
        if state.found:
            runner.logger.warning('%s has NaN or infinite values in %s', path, ', '.join(state.found.values()))
        elif runner.readers.streams() and self._is_resumed_from(request):
            runner.readers.acknowledge(state.ranks[0])
        runner.call_hook('after_save')

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
        """MMCV's method of the runners: write what a save has assembled; called by user code, save this rank now."""
        if meta is not None and not isinstance(meta, Mapping):
            raise TypeError(f'meta should be a dict or None, but got {type(meta)}')
        runner, store, name = self._runner, Store(out_dir, file_client_args), self._name(filename_tmpl)
        options = {'save_optimizer': save_optimizer, 'meta': meta, 'create_symlink': create_symlink}
        if self._open is not None:
            content, state, request = self._open
            content = {key: value for key, value in content.items() if save_optimizer or key != 'optimizer'}
            content['meta'] = {**to_plain(meta or {}, 'meta'), **content['meta']}  # a subclass may have added to it
            options['create_symlink'] = create_symlink and request.options.get('create_symlink', True)
            request = request._replace(store=store, name=name, options=options)
            if self._is_written:  # a subclass writes another file
                return store.write(name, content, self._moves_latest(state, request))
            self._is_written = True
            return self._put(content, state, request)
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
        return str(self._make(Request(store, name, options, alone=True, is_direct=True, not_exact=why)))

    def _put(self, content: Any, state: State, request: Request) -> str:
        """Write the file or the part of a folder now, or in the background from a copy."""
        store, name, runner = request.store, request.name, self._runner
        latest = self._moves_latest(state, request)
        written = partial(self._written, state, request)

        def write_file(content: Mapping[str, Any]) -> None:
            store.write(name, content, latest)
            written()

        def write_part(copied: tuple[Any, Any]) -> None:
            local, rest = copied
            store.write_folder(name, content.tensors, local, rest, latest, self._group, written)

        write, memory = (write_part, content[1:]) if request.in_parts else (write_file, content)
        if request.async_save:
            from runnerkit.checkpoint.async_writer import AsyncWriter

            self._writer = self._writer or AsyncWriter()
            self._writer.start(memory, write)
            self._in_flight = state, request
            runner.hooks.listen('before_train_iter', self.poll)
        else:
            write(memory)
        return store.path(name)

    def _moves_latest(self, state: State, request: Request) -> bool:
        """Whether ``latest.pth`` moves to it; it stays at a finite one."""
        return request.options.get('create_symlink', True) and not (state.found and self._runner.finiteness.last)

    def _written(self, state: State, request: Request) -> None:
        """The checkpoint is in its place; of a background save, called in its thread."""
        if not state.found:
            self._runner.finiteness.note_saved(request.store.path(request.name))
        if request.after_write is not None:
            request.after_write()

    def _collect_in_parts(self, request: Request, found: Mapping[str, str]) -> State:
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
        state = run_on_all_ranks(self.rank_state)
        runner.updater.add_kept(state['updates'])
        tensors, updates = taken_apart({'updates': state['updates']}, ('runnerkit', 'ranks', EACH))
        places = updates.pop(PLACES)
        return State(gather_objects({**state, **updates}), found, tensors, places)

    # --- when --------------------------------------------------------------------------------------------------------

    def _move(self, request: Request, point: str) -> str:
        """Save at the end of ``point``, which is running or comes next."""
        self._runner.logger.info(
            'the save of %s moves to the end of %s, from which a run can continue exactly: it was asked for %s',
            request.name,
            point if point == 'before_run' else 'this iteration, evaluation or point',
            request.not_exact,
            extra=DETAIL if self._runner.progress.waits_for_epoch else None,
        )
        self._moved.append(request._replace(not_exact=None))
        self._runner.hooks.at_end(point, self.make_moved)
        return request.store.path(request.name)

    def drop_moved(self) -> None:
        """Forget the saves that wait for a boundary: the run goes back to an earlier checkpoint."""
        for request in self._moved:
            self._runner.logger.info('%s is not saved: the run has gone back before that', request.name)
        self._moved = []

    def make_moved(self, runner: Any) -> None:
        """Make the saves that have waited for a boundary."""
        for _ in range(len(self._moved)):
            self._make(self._moved.pop(0))  # if it fails, the others are still known

    def poll(self, runner: Any) -> None:
        """Report a background save that has ended, without waiting. Other ranks than the first call `finish`."""
        if self._in_flight and self._writer and self._writer.is_done and self._reports(self._in_flight[1]):
            self.finish()

    def finish(self) -> None:
        """Wait for a checkpoint that is being written in the background, and report its end."""
        if self._in_flight is None or self._writer is None:
            return
        state, request = self._in_flight
        failure: Exception | None = None
        try:
            self._writer.wait()  # an interrupt leaves it in flight
        except Exception as error:
            failure = error
        self._in_flight = None
        self._runner.hooks.unlisten('before_train_iter', self.poll)
        if failure is not None:
            if 'loss' in state.found:  # which no file has
                self._runner.train_log.mark_losses(are_finite=False)
            self._fail(failure, request)
        elif self._reports(request):
            self.report(request.store.path(request.name), state, request)

    def finish_together(self) -> None:
        """`finish`, on all ranks: they go on when the checkpoint is in its place."""
        self.finish() if is_sharded(self._runner.model) else from_first_rank(self.finish)

    def _reports(self, request: Request) -> bool:
        """Whether this rank reports the end of the save."""
        return self._runner.rank == 0 or request.alone

    def after_run(self, runner: Any) -> None:
        """Make moved saves, and wait for the one in the background; then release its thread, memory and group."""
        if runner.outcome is not None and runner.outcome.ended_well:
            self.make_moved(runner)
        for request in self._moved:
            runner.logger.warning('%s is not saved: the run failed before the end of the iteration', request.name)
        self._moved = []
        try:
            self.finish()
        except Exception as error:
            error.add_note('the checkpoint that was being written in the background failed')
            raise
        finally:
            self._has_warned = False
            if self._in_flight is None:  # else an interrupt has ended the wait: the next run, or save, reports the file
                self._writer = None
            group, self._group = self._group, None
            if group is not None and dist.is_initialized():
                destroy_group(group)

    # --- what is said of it ------------------------------------------------------------------------------------------

    def last(self) -> str | None:
        """The newest intact checkpoint of this run or of the run that it resumes; None without one. Every rank calls
        it; it waits for a checkpoint that is being written."""
        self.finish_together()
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

    def _fail(self, error: BaseException, request: Request) -> None:
        """Take back the messages of a checkpoint that was not written, and report or raise the error."""
        for key in request.messages:
            self._runner.meta['hook_msgs'].pop(key, None)
        self._runner.meta.get('hook_msgs', {}).update(self._former)
        if request.on_error is None or not isinstance(error, NotSavedError):
            raise error
        request.on_error(error)

    def _is_resumed_from(self, request: Request) -> bool:
        if not request.options.get('create_symlink', True) and number_in(request.name) is None:
            return False
        hooks = [hook for hook in self._runner.hooks if isinstance(hook, CheckpointHook)]
        places: list[Any] = [hook.store(self._runner).place for hook in hooks]
        return request.store.place in (places or [self._runner.work_dir])

    def _name(self, template: str | None, point: str | None = None) -> str:
        """A file's name by the number, from 1, of the epoch (iteration) that is running or was completed last, or
        will be at the end of ``point``."""
        runner, progress = self._runner, self._runner.progress
        ahead = point == 'after_train_iter' and not progress.iter_is_done and not in_entry(runner)
        iters = number = progress.iters + ahead
        if runner.by_epoch:
            number = progress.epochs + (progress.epoch_is_open and progress.batches + ahead > 0)
        template = template or (BY_EPOCH if runner.by_epoch else BY_ITER)
        return template.format(max(1, number), epoch=progress.epochs, iter=iters)
