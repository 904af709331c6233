"""How a runner writes down where it is, and goes on from there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.optim import Optimizer

from runnerkit.checkpoint import NotSavedError, load_checkpoint
from runnerkit.checkpoint.async_writer import AsyncWriter
from runnerkit.checkpoint.loader import _load_checkpoint
from runnerkit.checkpoint.old_files import gpus_of_run, is_mmcv_file
from runnerkit.checkpoint.save import checkpoint_of, save_latest_link, write_checkpoint
from runnerkit.checkpoint.state_dict import load_state_dict, revised
from runnerkit.distributed import from_first_rank, gather_objects
from runnerkit.fileio.paths import is_url, join
from runnerkit.hooks.hook import Hook, Score
from runnerkit.utils.seed import rng_state, set_rng_state

if TYPE_CHECKING:
    from runnerkit.optim.update import Update
    from runnerkit.runner.hook_table import HookTable
    from runnerkit.runner.log_buffer import LogBuffer

STATE_FORMAT = 1


class _Beside(NamedTuple):
    """What `Checkpoints.saving_beside` was given."""

    after_write: Callable[[], None] | None
    on_error: Callable[[Exception], None] | None


class Checkpoints:
    """The part of a runner that saves, loads and resumes.

    What resuming needs beyond MMCV's ``meta``, ``state_dict`` and ``optimizer`` stands under ``'runnerkit'``: the
    place in the workflow and hook states once; random states, data positions, log buffers and unfinished accumulation
    cycles per rank.
    """

    model: Any
    optimizer: Optimizer | dict[str, Optimizer] | None
    meta: dict[str, Any]
    logger: logging.Logger
    scores: dict[str, Score]
    _train_log: LogBuffer
    call_hook: Callable[[str], None]
    save_checkpoint: Callable[..., str]
    by_epoch: bool
    _hook_table: HookTable
    _updates: dict[Any, Update]
    _default_update: Callable[[Any], Update]
    _rings: Callable[[str], Any]
    _rank: int
    _world_size: int
    _epoch: int
    _iter: int
    _workflow: list[tuple[str, int]]
    _cursor: tuple[int, int]
    _unit_done: bool
    _gathered: list[Any] | None = None
    _writer: AsyncWriter | None = None  # made by the first checkpoint that is written beside the training
    _beside: _Beside | None = None  # set while checkpoints are asked to be written so
    _in_flight: _Beside | None = None  # the one that is being written, until somebody has heard of its end
    _resumed: dict[str, Any] | None
    _entering: Any
    _from_mmcv = False  # resumed from a file of MMCV's, which does not say where in the data its run was

    @property
    def completed_epochs(self) -> int:
        """How many training epochs are done."""
        raise NotImplementedError

    @property
    def completed_iters(self) -> int:
        """How many training iterations are done."""
        raise NotImplementedError

    # --- saving ------------------------------------------------------------------------------------------------------

    def _save(
        self,
        out_dir: str | os.PathLike[str],
        filename_tmpl: str,
        save_optimizer: bool,
        meta: Mapping[str, Any] | None,
        create_symlink: bool,
        file_client_args: dict[str, Any] | None,
    ) -> str:
        """Write one checkpoint; see the runners' ``save_checkpoint``."""
        self.finish_saving()
        if meta is not None and not isinstance(meta, Mapping):
            raise TypeError(f'meta should be a dict or None, but got {type(meta)}')
        ranks, self._gathered = self._gathered or [self._rank_state()], None
        filename = filename_tmpl.format(self._number(), epoch=self.completed_epochs, iter=self.completed_iters)
        path = join(os.fspath(out_dir), filename)
        counts = {'epoch': self.completed_epochs, 'iter': self.completed_iters}

        def write(checkpoint: Mapping[str, Any]) -> None:
            write_checkpoint(checkpoint, path, file_client_args)
            if create_symlink and not is_url(path):
                save_latest_link(path)

        with self._rings('around_save'):
            checkpoint = checkpoint_of(
                self.model,
                optimizer=self.optimizer if save_optimizer else None,
                meta={**(meta or {}), **self.meta, **counts},
                state={**self._common_state(), 'ranks': ranks},
            )
            if self._beside is None:
                write(checkpoint)
            else:
                self._write_beside(self._beside, checkpoint, write)
        if self._beside is None:
            self.call_hook('after_save')
        return path

    def save(self, out_dir: str, filename_tmpl: str, **options: Any) -> str:
        """Save a checkpoint together with all ranks; ``options`` go to ``save_checkpoint``.

        Raises:
            NotSavedError: the storage could not take it; on every rank.
        """
        self.gather_rank_states()

        def attempt() -> str | NotSavedError:
            try:
                return self.save_checkpoint(out_dir, filename_tmpl, **options)
            except NotSavedError as error:
                return error

        saved = from_first_rank(attempt)
        if isinstance(saved, NotSavedError):
            raise saved
        return saved

    @contextmanager
    def saving_beside(
        self, after_write: Callable[[], None] | None = None, on_error: Callable[[Exception], None] | None = None
    ) -> Iterator[None]:
        """Checkpoints that are saved inside are written beside the training, which waits only for a copy in memory.

        ``save_checkpoint`` then gives the path of a file that is not there yet. When it is, the hooks' ``after_save``
        is called, before the next training iteration begins, another checkpoint is saved, or the run ends.

        Args:
            after_write: called in the writing thread after the file, and ``latest.pth``, are there.
            on_error: called with what went wrong, at the moment at which ``after_save`` would be; by default it is
                raised there.
        """
        former, self._beside = self._beside, _Beside(after_write, on_error)
        try:
            yield
        finally:
            self._beside = former

    def finish_saving(self) -> None:
        """Wait for the checkpoint that is being written beside the training, if there is one.

        Raises:
            Exception: what went wrong with it, if nobody has asked to be told otherwise.
        """
        if self._in_flight is None or self._writer is None:
            return
        error: Exception | None = None
        try:
            self._writer.wait()
        except Exception as caught:
            error = caught
        (_, on_error), self._in_flight = self._in_flight, None
        if error is None:
            self.call_hook('after_save')
        elif on_error is None:
            raise error
        else:
            on_error(error)

    def _write_beside(
        self, asked: _Beside, checkpoint: dict[str, Any], write: Callable[[Mapping[str, Any]], None]
    ) -> None:
        def write_all(copy: Mapping[str, Any]) -> None:
            write(copy)
            if asked.after_write is not None:
                asked.after_write()

        if self._writer is None:
            self._writer = AsyncWriter()
        self._writer.start(checkpoint, write_all)
        self._in_flight = asked

    def _hear_of_saving(self) -> None:
        """At the boundary of an iteration: no waiting."""
        if self._writer is not None and self._writer.is_done:
            self.finish_saving()

    def gather_rank_states(self) -> None:
        """Let the next checkpoint hold what every rank needs to go on. All ranks call it, then rank 0 saves."""
        if self._world_size > 1:
            self._gathered = gather_objects(self._rank_state()) or None

    def _number(self) -> int:
        """What the file is called after: the epoch (iteration) that is running or was completed last, from 1."""
        if self.by_epoch:
            inside = self.completed_epochs == self._epoch and self._position() != 0
            return max(1, self.completed_epochs + inside)
        return max(1, self.completed_iters)

    def _position(self) -> int:
        """How many batches of the running epoch are consumed."""
        raise NotImplementedError

    def _loader_states(self) -> Any:
        """Where this rank's loaders are."""
        raise NotImplementedError

    def _next_unit(self) -> tuple[int, int]:
        """The workflow entry and the number of its units done with which a resumed run begins."""
        entry, done = self._cursor
        return entry, done + self._unit_done

    def _common_state(self) -> dict[str, Any]:
        return {
            'format': STATE_FORMAT,
            'world_size': self._world_size,
            'workflow': [list(entry) for entry in self._workflow],
            'cursor': list(self._next_unit()),
            'hooks': {name: hook.state_dict() for name, hook in self._named_hooks()},
            'optimizers': optimizer_kinds(self.optimizer),
            'scores': {name: list(score) for name, score in self.scores.items()},
        }

    def _rank_state(self) -> dict[str, Any]:
        updates = {self._update_name(key): update.state_dict() for key, update in self._updates.items()}
        return {
            'rng': rng_state(),
            'loaders': self._loader_states(),
            'updates': updates,
            'log_buffer': self._train_log.state_dict(),
        }

    def _named_hooks(self) -> list[tuple[str, Hook]]:
        """Every hook under a name that is the same in the resumed run: its class, and a number if there are several."""
        named: dict[str, Hook] = {}
        for hook in self._hook_table:
            kind, n = type(hook).__name__, 0
            while f'{kind}#{n}' in named:
                n += 1
            named[f'{kind}#{n}'] = hook
        return list(named.items())

    def _update_name(self, key: Any) -> str:
        named = self.optimizer if isinstance(self.optimizer, dict) else {}
        return next((name for name, each in named.items() if each is key), key if isinstance(key, str) else '')

    # --- loading -----------------------------------------------------------------------------------------------------

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = 'cpu',
        strict: bool = False,
        revise_keys: list[tuple[str, str]] = [(r'^module.', '')],  # noqa: B006 (never changed)
    ) -> Any:
        """Load a checkpoint's weights, and nothing else of it; see `runnerkit.checkpoint.load_checkpoint`."""
        return load_checkpoint(self.model, filename, map_location, strict, self.logger, revise_keys=revise_keys)

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = 'default') -> None:
        """Go on from a checkpoint: weights, optimizer, counters now; the rest when the run starts.

        Register the hooks before, so that theirs is restored too.

        Args:
            checkpoint: a path or URL.
            resume_optimizer: whether to load the optimizers' states.
            map_location: as in `torch.load`; by default the CPU, from where everything is copied to where it belongs.

        Raises:
            ValueError: the file holds no training state, or one of another model or optimizer.
        """
        self.finish_saving()
        loaded = _load_checkpoint(checkpoint, 'cpu' if map_location == 'default' else map_location, self.logger)
        meta = loaded.get('meta') if isinstance(loaded, Mapping) else None
        if not isinstance(meta, Mapping) or not {'epoch', 'iter'} <= set(meta) or 'state_dict' not in loaded:
            raise ValueError(
                f'{checkpoint} holds no training state to resume; to start from its weights, load it (--load-from)'
            )
        loaded = dict(loaded)
        loaded['state_dict'] = revised(loaded['state_dict'], [(r'^module\.', '')])
        for hook in self._hook_table:
            hook.before_resume(self, loaded)  # type: ignore[arg-type]
        try:
            load_state_dict(self.model, loaded['state_dict'], strict=True)
        except RuntimeError as error:
            raise ValueError(
                f'{checkpoint} is a checkpoint of another model and cannot be resumed (--load-from takes what '
                f'fits):\n{error}'
            ) from error
        if resume_optimizer and 'optimizer' in loaded:
            self._load_optimizers(loaded['optimizer'], checkpoint)
        self._load_counters(loaded)
        hook_msgs = loaded['meta'].get('hook_msgs', {})
        self.meta.setdefault('hook_msgs', {}).update(hook_msgs)
        self._resumed, self._from_mmcv = loaded.get('runnerkit'), is_mmcv_file(loaded)
        if self._resumed is None:
            self.logger.warning(
                '%s does not hold random states: shuffling and dropout start anew, at the place in the data that the '
                'counters give',
                checkpoint,
            )
        self.logger.info('resumed from %s: %d epochs, %d iterations are done', checkpoint, self._epoch, self._iter)

    def _load_optimizers(self, states: Mapping[str, Any], checkpoint: str) -> None:
        named = self.optimizer if isinstance(self.optimizer, dict) else {'': self.optimizer}
        for name, optimizer in named.items():
            if optimizer is None:
                continue
            try:
                optimizer.load_state_dict(states[name] if name else dict(states))
            except (KeyError, ValueError) as error:
                which = f'optimizer {name!r}' if name else 'optimizer'
                raise ValueError(
                    f'the {which} in {checkpoint} does not fit this run ({error}); resume with the config it was '
                    'trained with, or load only its weights (--load-from)'
                ) from error

    def _load_counters(self, loaded: Mapping[str, Any]) -> None:
        meta = loaded['meta']
        self._epoch, self._iter = int(meta['epoch']), int(meta['iter'])
        if is_mmcv_file(loaded):
            if not self.by_epoch:
                self._iter += 1  # MMCV's iteration runner writes the index of the last iteration, not the count
            before = gpus_of_run(meta)
            if before and before != self._world_size:
                self._iter = self._iter * before // self._world_size
                self.logger.info('the iteration number is changed to %d: %d GPUs before', self._iter, before)

    def _restore_hooks(self) -> None:
        """Give hooks, updates and log buffer back what the checkpoint remembers of them; called when ``before_run``
        is over."""
        if self._resumed is None:
            return
        self.scores = {name: Score(*score) for name, score in self._resumed.get('scores', {}).items()}
        hooks = self._resumed['hooks']
        for name, hook in self._named_hooks():
            if hooks.get(name):
                hook.load_state_dict(hooks[name])
        for name, state in self._own_rank()['updates'].items():
            key = name or None
            (self._updates.get(key) or self._default_update(key)).load_state_dict(state)
        if self._resumed['workflow'] == [list(entry) for entry in self._workflow]:
            self._cursor = (self._resumed['cursor'][0], self._resumed['cursor'][1])
        self._entering = self._own_rank()['loaders']
        self._restore_moment()

    def _restore_moment(self) -> None:
        """Random states and log buffer as they were when the checkpoint was written."""
        if self._resumed is not None:
            own = self._own_rank()
            self._train_log.load_state_dict(own['log_buffer'])
            set_rng_state(own['rng'])

    def _own_rank(self) -> dict[str, Any]:
        ranks = (self._resumed or {})['ranks']
        if self._rank < len(ranks):
            return ranks[self._rank]
        self.logger.warning('the checkpoint has no random state of rank %d: that of rank 0 is taken', self._rank)
        return {**ranks[0], 'updates': {}}


def optimizer_kinds(optimizer: Any) -> dict[str, str]:
    """Class and implementation of each optimizer (fused ones differ in the last bits), for the record."""
    named = optimizer if isinstance(optimizer, dict) else {'': optimizer} if optimizer is not None else {}
    return {
        name: type(each).__name__ + (' (fused)' if any(group.get('fused') for group in each.param_groups) else '')
        for name, each in named.items()
    }
