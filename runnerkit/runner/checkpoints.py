"""How a runner writes down where it is, and goes on from there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from runnerkit.checkpoint import NotSavedError, load_checkpoint
from runnerkit.checkpoint.loader import _load_checkpoint
from runnerkit.checkpoint.old_files import gpus_of_run, is_mmcv_file
from runnerkit.checkpoint.state_dict import load_state_dict, revised
from runnerkit.hooks.hook import Hook
from runnerkit.runner.saver import Saver
from runnerkit.utils.seed import rng_state, set_rng_state

if TYPE_CHECKING:
    from runnerkit.optim.update import Update
    from runnerkit.runner.hook_table import HookTable
    from runnerkit.runner.log_buffer import LogBuffer

STATE_FORMAT = 1


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
    _train_log: LogBuffer
    by_epoch: bool
    _hook_table: HookTable
    _updates: dict[Any, Update]
    _default_update: Callable[[Any], Update]
    _rank: int
    _world_size: int
    _epoch: int
    _iter: int
    _workflow: list[tuple[str, int]]
    _cursor: tuple[int, int]
    _unit_done: bool
    _saver: Saver
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
        **options: Any,
    ) -> str | None:
        """Save everything that resuming needs, of all ranks; every rank calls it, in hooks too.

        The first rank writes, by ``save_checkpoint``, which subclasses may replace. No rank goes on before the file is
        there; with ``async_save``: before the state is copied. A save that is still being written in the background is
        waited for and reported first.

        Args:
            out_dir: a folder or a URL; by default the work dir.
            filename_tmpl: as in ``save_checkpoint``, and so are the others that are not named here.
            save_optimizer: whether the optimizers' states are part of it.
            meta: what to remember beside the runner's own meta.
            create_symlink: whether ``latest.pth`` leads to it.
            file_client_args: for `runnerkit.fileio.FileClient`; by default ``out_dir`` says where it goes.
            messages: what becomes true of ``meta['hook_msgs']`` with this file, and is part of it; taken back if it
                cannot be written.
            async_save: write in the background. Hooks hear of the file (``after_save``), and errors come up, before the
                next training iteration begins, another checkpoint is saved, or the run ends.
            after_write: called on the first rank when the file and ``latest.pth`` are there; with ``async_save`` in the
                writing thread.
            on_error: called with the error if the storage cannot take the file, instead of raising it: on every rank,
                with ``async_save`` on the first one.
            **options: more keywords for a ``save_checkpoint`` of your own.

        Returns:
            The file's path; None if ``on_error`` was called.

        Raises:
            NotSavedError: on every rank: the storage could not take it.
        """
        given = {'filename_tmpl': filename_tmpl, 'meta': meta, 'file_client_args': file_client_args, **options}
        given = {name: value for name, value in given.items() if value is not None}
        given['save_optimizer'] = save_optimizer
        if not create_symlink:
            given['create_symlink'] = False
        return self._saver.save(out_dir, given, messages or {}, async_save, after_write, on_error)

    def finish_saving(self) -> None:
        """Wait for the checkpoint that is being written in the background, if there is one, and report its end.

        Raises:
            Exception: what went wrong with it, unless its ``on_error`` takes that.
        """
        self._saver.finish()

    def last_checkpoint(self) -> str | None:
        """The newest intact checkpoint that this run, or the one that it goes on from, has saved; None if there is
        none. Every rank calls it; one that is being written is waited for."""
        return self._saver.last()

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
        self._saver.finish()
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
