"""Saving and resuming a runner: a list of parts, restored in its order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from runnerkit.checkpoint import NotSavedError, get_state_dict
from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.checkpoint.conditions import AVERAGES_GONE, changed
from runnerkit.checkpoint.finite import why_not_finite
from runnerkit.checkpoint.integrity import STATE_FORMAT, reading, training_state_problem
from runnerkit.checkpoint.loader import load_folder, load_whole
from runnerkit.checkpoint.mmcv_files import gpus_of_run, is_mmcv_file
from runnerkit.checkpoint.state_dict import ema_name, load_state_dict, revised
from runnerkit.checkpoint.store import finite_beside, own_messages, resolve_checkpoint
from runnerkit.distributed import run_on_all_ranks
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.hooks.hook import Hook, Score
from runnerkit.hooks.logger import LoggerHook
from runnerkit.hooks.storage import StoringHook
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.buckets import own_buffers
from runnerkit.parallel.dtensors import is_sharded
from runnerkit.parallel.names import name_cleaner, named_buffers
from runnerkit.runner.changes import cut_points
from runnerkit.runner.saver import Saver
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.seed import rng_state, same_rng_state, set_derived_rng_state, set_rng_state


class RollBackRequest(Exception):
    """The run of ``runner`` continues from ``checkpoint``; its loop catches this."""

    def __init__(self, runner: Any, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.runner, self.checkpoint = runner, checkpoint


class Snapshots:
    """The part of the engine that saves and resumes a run.

    Beyond MMCV's ``meta``, ``state_dict`` and ``optimizer``, a checkpoint holds under ``'runnerkit'`` the run's
    counters and conditions, and for each rank what each of ``parts`` returns.

    Args:
        runner: the run's runner.

    Attributes:
        parts: objects that are saved on each rank, in the order in which they are restored. The keys of their
            ``state_dict`` become keys of the rank's state; ``load_state_dict`` gets the whole state of the rank.
        resumed: the ``'runnerkit'`` content of the resumed checkpoint until the run ends, or None.
        saver: writes the checkpoints.
        is_saving: whether a checkpoint is being saved.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.parts: list[Any] = [
            HookStates(runner),
            Buffers(runner),
            runner.updater,
            runner.readers,
        ]
        self.resumed: dict[str, Any] | None = None
        self.saver = Saver(runner)
        self.is_saving = False
        self._from_mmcv = False  # resumed from a file of MMCV, which has no data position

    def add(self, name: str, part: Any) -> None:
        """Also save and restore ``part``.

        Raises:
            ValueError: the name is taken.
        """
        if any(isinstance(each, _Added) and each.name == name for each in self.parts):
            raise ValueError(f'there is a part {name!r} already: give this one another name')
        self.parts.append(_Added(name, part))

    # --- points ------------------------------------------------------------------------------------------------------

    def after_run(self, runner: Any) -> None:
        """Wait for the save in the background."""
        try:
            self.saver.close()
        except Exception as error:
            error.add_note('the checkpoint that was being written in the background failed')
            raise

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
        only_finite: bool = False,
        **options: Any,
    ) -> str | None:
        """Save everything that resuming needs, of all ranks; every rank calls it, also in hooks.

        The first rank writes, by ``save_checkpoint``, which subclasses may override. If the model is sharded (FSDP2),
        every rank writes its part of a folder that has the name of the file. All ranks return when the checkpoint is
        written, or with ``async_save`` when the state is copied. An earlier save in the background is finished first.

        Args:
            out_dir: a folder or a URL; by default the work dir.
            filename_tmpl: as in ``save_checkpoint``.
            save_optimizer: whether the optimizers' states are part of it.
            meta: stored in addition to the runner's meta.
            create_symlink: whether ``latest.pth`` leads to it.
            file_client_args: for `runnerkit.fileio.FileClient`; by default ``out_dir`` says where it goes.
            messages: added to ``meta['hook_msgs']`` and to the file; removed if the file cannot be written.
            async_save: write in the background. The hooks' ``after_save`` is called, and errors are raised, before the
                next training iteration, the next save or the end of the run.
            after_write: called on the first rank when the file and ``latest.pth`` are written; with ``async_save`` in
                the writing thread.
            on_error: called with the error if the storage fails, instead of raising it: on every rank; with
                ``async_save`` on the first one, and on the others of a sharded model when they wait for it.
            only_finite: treat NaN or infinite values in weights, optimizer states or training losses as a failure of
                the storage. By default the file lists them in ``meta['non_finite']``, and ``latest.pth`` stays at the
                newest finite checkpoint.
            **options: more keywords for an overridden ``save_checkpoint``.

        Returns:
            The file's path; None if ``on_error`` was called.

        Raises:
            NotSavedError: on every rank: the storage failed, or ``only_finite`` refuses the values.
        """
        given = {'filename_tmpl': filename_tmpl, 'meta': meta, 'file_client_args': file_client_args, **options}
        given = {name: value for name, value in given.items() if value is not None}
        given['save_optimizer'] = save_optimizer
        if not create_symlink:
            given['create_symlink'] = False
        self.is_saving = True
        try:
            return self.saver.save(out_dir, given, messages or {}, async_save, after_write, on_error, only_finite)
        finally:
            self.is_saving = False

    def common_state(self) -> dict[str, Any]:
        """The part of a checkpoint that all ranks share."""
        runner = self._runner
        return {
            'format': STATE_FORMAT,
            'world_size': runner.world_size,
            'progress': {**runner.progress.state_dict(), 'samples': runner.readers.samples()},
            'conditions': runner.changes.conditions(),
            'settings': runner.changes.settings(),
            'gradient_orders': {} if runner.updater.orders is None else runner.updater.orders.state_dict(),
            'scores': {name: list(score) for name, score in runner.scores.items()},
            **({'cut_points': points} if (points := cut_points(runner)) else {}),
            **runner.nest.common_state(),
        }

    def rank_state(self) -> dict[str, Any]:
        """The part of a checkpoint of this rank: the state of the training, even within an evaluation or nested run."""
        runner = self._runner
        nested = runner.nest.state_dict()
        with runner.nest.as_before(), runner.evaluator.as_before():
            state = {'rng': rng_state(), 'log_buffer': runner.train_log.state_dict()}
            for part in self.parts:
                _add_up(state, part.state_dict())
        return {**state, **nested}

    # --- loading -----------------------------------------------------------------------------------------------------

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = 'default') -> None:
        """Resume from a checkpoint: load weights, optimizer and counters now, the rest when the run starts.

        Register the hooks first, so that their states are restored.

        Args:
            checkpoint: a path or URL; of a folder, its latest checkpoint.
            resume_optimizer: whether to load the optimizers' states.
            map_location: as in `torch.load`; by default the CPU, from where tensors are copied to their devices.

        Raises:
            ValueError: the file has no training state, or that of another model or optimizer.
        """
        self.saver.finish()
        checkpoint = resolve_checkpoint(checkpoint)
        loaded = self._read(checkpoint, 'cpu' if map_location == 'default' else map_location)
        problem = training_state_problem(loaded)
        if problem is not None:
            raise ValueError(
                f'{checkpoint} cannot be resumed: {problem}. To start from its weights: --load-from {checkpoint}'
            )
        if (reason := why_not_finite(loaded)) is not None:
            self._runner.logger.warning(
                '%s has %s, from which training does not recover. Resume %s, with a smaller learning rate',
                checkpoint,
                reason,
                finite_beside(checkpoint) or 'an older one, or start over',
            )
        with reading(checkpoint):
            self.continue_from(loaded, checkpoint, resume_optimizer)

    def _read(self, checkpoint: str, map_location: Any) -> Any:
        """The content of a checkpoint; if it and the model are sharded, only this rank's part."""
        model = self._runner.model
        if not (is_sharded(model) and is_checkpoint_folder(checkpoint)):
            return load_whole(checkpoint, map_location)
        from runnerkit.checkpoint.shards import layout_of

        layout = layout_of(get_state_dict(model), named_optimizers(self._runner.optimizer), ema_name)
        return run_on_all_ranks(partial(load_folder, checkpoint, layout=layout))

    def continue_from(self, loaded: Mapping[str, Any], checkpoint: str, resume_optimizer: bool = True) -> None:
        """`resume` from ``loaded``, the content of ``checkpoint``."""
        runner, loaded = self._runner, dict(loaded)
        runner.changes.note_settings()
        loaded['state_dict'] = revised(loaded['state_dict'], [(r'^module\.', '')])
        runner.finiteness.resume(loaded, checkpoint)  # before hooks add what the file does not have
        for hook in runner.hooks:
            hook.before_resume(runner, loaded)
        self._leave_averages_behind(loaded)
        try:
            load_state_dict(runner.model, loaded['state_dict'], strict=True)
        except RuntimeError as error:
            raise ValueError(
                f'{checkpoint} is a checkpoint of another model and cannot be resumed (--load-from loads the '
                f'tensors that fit):\n{error}'
            ) from error
        if resume_optimizer and 'optimizer' in loaded:
            runner.changes.load_optimizers(loaded['optimizer'], checkpoint, loaded.get('runnerkit') or {})
        storing = [hook for hook in runner.hooks if isinstance(hook, StoringHook) and (hook.out_dir or runner.work_dir)]
        places = [hook.store(runner).place for hook in storing]
        messages = own_messages(loaded['meta'].get('hook_msgs', {}), checkpoint, places)
        runner.meta.setdefault('hook_msgs', {}).update(messages)
        self._load_counters(loaded)
        runner.changes.note_config(loaded['meta'].get('config'))
        if self.resumed is None:
            runner.logger.warning(
                '%s holds no random states: shuffling and dropout start over, at the data position that the '
                'counters give',
                checkpoint,
                extra=NOT_EXACT,
            )
        if resume_optimizer and runner.optimizer is not None and 'optimizer' not in loaded:
            runner.logger.warning(
                '%s holds no optimizer state (save_optimizer=False): momentum and similar values start over',
                checkpoint,
                extra=NOT_EXACT,
            )
        runner.logger.info('resumed from %s: %d epochs, %d iterations are done', checkpoint, runner.epoch, runner.iter)

    def _leave_averages_behind(self, loaded: dict[str, Any]) -> None:
        """Without an EMAHook, continue from the raw weights of a run that had one."""
        weights = loaded['state_dict']
        own = get_state_dict(self._runner.model, keep_vars=True)
        twins = {name: ema_name(name) for name in own if ema_name(name) in weights and ema_name(name) not in own}
        raw = {id(own[name]): weights.pop(twin) for name, twin in twins.items()}
        for name, each in own.items():  # every name of a shared parameter
            if id(each) in raw and name in weights and not is_mmcv_file(loaded):
                weights[name] = raw[id(each)]
        state = loaded.get('runnerkit') or {}
        known = state['ranks'][0].get('hooks', {}) if state.get('ranks') else {}
        if twins and not any('EMAHook' in name for name in known):  # else the table of what has changed says it
            self._runner.logger.warning(
                'the run of the checkpoint had an EMAHook, and this one has none: %s', AVERAGES_GONE, extra=NOT_EXACT
            )

    def _load_counters(self, loaded: Mapping[str, Any]) -> None:
        """Restore the counters: `Progress`, or from MMCV's files the counts of epochs and iterations."""
        runner, meta, state = self._runner, loaded['meta'], loaded.get('runnerkit')
        self._from_mmcv = is_mmcv_file(loaded)
        self.resumed = state
        runner.readers.expect(state)
        counts = {'epochs': int(meta['epoch']), 'iters': int(meta['iter'])} if state is None else state['progress']
        if self._from_mmcv:
            iters = counts['iters'] + (not runner.by_epoch)  # MMCV stores the index of the last iteration
            before = gpus_of_run(meta)
            if runner.by_epoch and before and before != runner.world_size:
                iters = iters * before // runner.world_size
                runner.logger.info('the iteration number is changed to %d: %d GPUs before', iters, before)
            counts = {**counts, 'iters': iters}
        runner.progress.load_state_dict(counts)

    # --- restoring ---------------------------------------------------------------------------------------------------

    @property
    def own(self) -> dict[str, Any]:
        """The state of this rank in the resumed checkpoint; of a new rank, that of rank 0."""
        resumed: Mapping[str, Any] = self.resumed or {}
        ranks, rank = resumed['ranks'], self._runner.rank
        own: dict[str, Any] = ranks[rank] if rank < len(ranks) else ranks[0]
        return own

    def condition(self, name: str, default: Any = None) -> Any:
        """A condition of the resumed run by name; see `Changes.conditions`."""
        return (self.resumed or {}).get('conditions', {}).get(name, default)

    def restore(self) -> None:
        """Restore the parts; called after ``before_run``."""
        runner = self._runner
        if self._from_mmcv:
            self._from_mmcv = False
            runner.readers.go_to_counts(saves_by_epoch(runner.hooks))
        if self.resumed is None:
            return
        scores = self.resumed.get('scores', {})
        runner.scores.clear()
        runner.scores.update({name: Score(*score) for name, score in scores.items()})
        own = self.own
        runner.changes.tell_changes(own)
        for part in self.parts:
            part.load_state_dict(own)
        saved, now = own.get('parts', {}).keys(), {each.name for each in self.parts if isinstance(each, _Added)}
        for name in sorted(saved ^ now):
            lacks = 'the checkpoint has a state of the part %r, which this run lacks'
            text = lacks if name in saved else 'the checkpoint has no state of the part %r'
            runner.logger.warning(text, name, extra=NOT_EXACT)
        self.restore_moment()
        if self.resumed['ranks'][0]['log_buffer']['ready']:
            self._log_pending(own)
        runner.nest.load_state_dict(own)

    def _log_pending(self, own: dict[str, Any]) -> None:
        """Log the line that was ready when the checkpoint was saved: a best one is saved before the loggers are called.
        All ranks call it."""
        runner, point = self._runner, self._runner.progress.last_point
        with runner.progress.as_at(point):
            for hook in runner.hooks:
                if isinstance(hook, LoggerHook):
                    getattr(hook, point)(runner)
        own['log_buffer'] = runner.train_log.state_dict()  # which is restored once more

    def restore_moment(self) -> None:
        """Restore random states, log buffer and the state of loaders."""
        if self.resumed is None:
            return
        runner, own = self._runner, self.own
        runner.train_log.load_state_dict(own['log_buffer'])
        runner.readers.restore_held(own)
        if runner.rank >= len(self.resumed['ranks']) and self.draws_differ():
            set_derived_rng_state(own['rng'], runner.rank)
        else:
            set_rng_state(own['rng'])

    def draws_differ(self) -> bool:
        """Whether the ranks of the resumed run drew different random numbers."""
        resumed: Mapping[str, Any] = self.resumed or {}
        first, *others = [rank['rng'] for rank in resumed['ranks']]
        return not all(same_rng_state(first, other) for other in others)

    def forget(self) -> None:
        """The run is over: the next run of this runner continues from its current state."""
        self.resumed = None
        self._runner.readers.expect(None)

    # --- rolling back ------------------------------------------------------------------------------------------------

    def roll_back(self, checkpoint: str) -> NoReturn:
        """Leave the running iteration or epoch at once and continue from ``checkpoint``, a file of this run; for hooks.

        In a distributed run all ranks call it at the same point. It raises an exception that `run` catches, so the
        rest of the hook and the later hooks are skipped. Do not call it inside an update (``after_backward``,
        ``after_step``), which would stay incomplete.
        """
        raise RollBackRequest(self._runner, checkpoint)

    def return_to(self, asked: RollBackRequest) -> None:
        """Restore the state of a run that has just resumed the checkpoint.

        Raises:
            RollBackRequest: the request is for a run around this one.
        """
        runner = self._runner
        if asked.runner is not runner:
            raise asked
        runner.data_batch, runner.outputs, runner.outputs_of = None, {}, None
        runner.updater.forget_cycles()
        for reader in runner.readers.entries:
            reader.close()
        runner.resume(asked.checkpoint)
        runner.readers.rescale()
        self.restore()
        runner.call_hook('after_roll_back')
        runner.nest.resume_inner()
        if not runner.by_epoch:
            runner.start_readers()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def named_hooks(self) -> list[tuple[str, Hook]]:
        """The hooks by names that a resumed run also has: the class name and a number."""
        named: dict[str, Hook] = {}
        for hook in self._runner.hooks:
            kind, n = type(hook).__name__, 0
            while f'{kind}#{n}' in named:
                n += 1
            named[f'{kind}#{n}'] = hook
        return list(named.items())

    def restore_hooks(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the states of the hooks that the content of a checkpoint file has."""
        with reading('the checkpoint', 'used'):
            ranks = (checkpoint.get('runnerkit') or {}).get('ranks') or [{}]
            own = ranks[min(self._runner.rank, len(ranks) - 1)]
            HookStates(self._runner).load_state_dict({'hooks': {}, **own})


class HookStates:
    """The states of the hooks in checkpoints."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def state_dict(self) -> dict[str, Any]:
        """All states by the hooks' names."""
        return {'hooks': {name: hook.state_dict() for name, hook in self._runner.snapshots.named_hooks()}}

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Restore the hooks that have a state; changed settings keep their new values.

        Raises:
            ValueError: a state does not fit its hook.
        """
        runner = self._runner
        saved = ((runner.snapshots.resumed or {}).get('settings') or {}).get('hooks', {})
        for name, hook in runner.snapshots.named_hooks():
            if not own['hooks'].get(name):
                continue
            others = changed(saved.get(name, {}), runner.changes.of_hook(hook))
            kept = {key: value for key, value in vars(hook).items() if key in others}
            try:
                hook.load_state_dict(own['hooks'][name])
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ValueError(
                    f'the state of the hook {name} in the checkpoint does not fit ({type(error).__name__}: {error}): '
                    'resume with the hook that saved it, or remove the hook'
                ) from error
            for key, value in kept.items():  # an old state may hold a setting
                setattr(hook, key, value)


class Buffers:
    """The model's buffers of all ranks but the first in checkpoints; the state dict has the first one's."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def state_dict(self) -> dict[str, Any]:
        """The buffers by name."""
        return {'buffers': own_buffers(self._runner.model) if self._runner.rank else {}}

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Restore the buffers of this rank."""
        runner = self._runner
        if runner.rank < len(runner.snapshots.resumed['ranks']):
            buffers, clean = named_buffers(runner.model), name_cleaner(runner.model)
            for name, value in own.get('buffers', {}).items():
                if clean(name) in buffers:  # old files have the names of the wrapped model
                    buffers[clean(name)].copy_(value)


class _Added:
    """A user's part: its state is under its name."""

    def __init__(self, name: str, part: Any) -> None:
        self.name, self._part = name, part

    def state_dict(self) -> dict[str, Any]:
        return {'parts': {self.name: self._part.state_dict()}}

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        if self.name in own.get('parts', {}):
            self._part.load_state_dict(own['parts'][self.name])


def _add_up(state: dict[str, Any], added: Mapping[str, Any]) -> None:
    """Add the keys of a part to a rank's state."""
    for key, value in added.items():
        state[key] = {**state[key], **value} if key in state else value
