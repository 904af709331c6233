"""A resume: read, check, split, load; and the parts of a run, restored in their order when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn, Protocol

from runnerkit.checkpoint import get_state_dict
from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.checkpoint.conditions import AVERAGES_GONE, changed
from runnerkit.checkpoint.integrity import gpus_of_run, is_mmcv_file, reading, training_state_problem
from runnerkit.checkpoint.names import ema_name
from runnerkit.checkpoint.store import finite_beside, own_messages, resolve_checkpoint, why_not_finite
from runnerkit.distributed import run_on_all_ranks
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.hooks.hook import Hook, Score
from runnerkit.hooks.logger import LoggerHook
from runnerkit.hooks.storage import StoringHook
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.dtensors import is_sharded
from runnerkit.parallel.wrappers import name_cleaner, named_buffers
from runnerkit.runner.saver import SavedRun, Saver
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.seed import same_rng_state, set_derived_rng_state, set_rng_state


class _ResumedRunner(SavedRun, Protocol):
    """What `Snapshots` reads of its runner, and restores in it, in addition to what a save reads."""

    lifecycle: Any
    outputs_of: int | str | None

    def start_readers(self) -> None: ...


class RollBackRequest(Exception):
    """The run of ``runner`` continues from ``checkpoint``; its loop catches this."""

    def __init__(self, runner: Any, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.runner, self.checkpoint = runner, checkpoint


class Snapshots:
    """The part of the engine that resumes a run.

    Beyond MMCV's ``meta``, ``state_dict`` and ``optimizer``, a checkpoint holds under ``'runnerkit'`` the run's
    counters and conditions, and for each rank what each of ``parts`` returns.

    Args:
        runner: the run's runner.

    Attributes:
        parts: objects that are saved on each rank, in the order in which they are restored. The keys of their
            ``state_dict`` become keys of the rank's state; ``load_state_dict`` gets the whole state of the rank.
        resumed: the ``'runnerkit'`` content of the resumed checkpoint until the run ends, or None.
        is_waiting: whether the rest of a resumed checkpoint waits for the start of the run.
        saver: writes the checkpoints.
    """

    def __init__(self, runner: _ResumedRunner) -> None:
        self._runner = runner
        self.parts: list[Any] = [
            HookStates(runner),
            Buffers(runner),
            runner.updater,
            runner.readers,
        ]
        self.resumed: dict[str, Any] | None = None
        self.is_waiting = False
        self.saver = Saver(runner, self.parts)
        self._loaded: list[Any] = []  # parts that have their states before the run starts
        self._from_mmcv = False  # resumed from a file of MMCV, which has no data position

    def add(self, name: str, part: Any) -> None:
        """Also save and restore ``part``."""
        if any(isinstance(each, _Added) and each.name == name for each in self.parts):
            raise ValueError(f'there is a part {name!r} already: give this one another name')
        self.parts.append(_Added(name, part))

    def load_added(self) -> None:
        """Give the added parts their states of the resumed checkpoint now, not when the run starts."""
        self._loaded = [part for part in self.parts if isinstance(part, _Added)]
        for part in self._loaded:
            part.load_state_dict(self.own)

    # --- loading -----------------------------------------------------------------------------------------------------

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = 'default') -> None:
        """Resume from a checkpoint: load weights, optimizer and counters now, the rest when the run starts.

        Register the hooks first, so that their states are restored.
        """
        self.saver.finish()
        checkpoint = resolve_checkpoint(checkpoint)
        loaded = self.read(checkpoint, 'cpu' if map_location == 'default' else map_location)
        self.check(loaded, checkpoint)
        with reading(checkpoint):
            self.load(self.split(loaded, checkpoint), checkpoint, resume_optimizer)

    def read(self, checkpoint: str, map_location: Any) -> Any:
        """The content of a checkpoint; if it and the model are sharded, only this rank's part."""
        from runnerkit.checkpoint.loader import load_folder, load_to_resume

        model = self._runner.model
        if not (is_sharded(model) and is_checkpoint_folder(checkpoint)):
            return load_to_resume(checkpoint, map_location)
        from runnerkit.checkpoint.shards import layout_of

        layout = layout_of(get_state_dict(model), named_optimizers(self._runner.optimizer), ema_name)
        return run_on_all_ranks(partial(load_folder, checkpoint, layout=layout))

    def check(self, loaded: Any, checkpoint: str) -> None:
        """Refuse what is no state of a training; warn about values that are not finite."""
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

    def split(self, loaded: Mapping[str, Any], checkpoint: str) -> dict[str, Any]:
        """What of a checkpoint is this run's: its hooks may change it, averages without a hook are left behind."""
        from runnerkit.checkpoint.state_dict import revised

        runner, loaded = self._runner, dict(loaded)
        runner.changes.note_settings()
        loaded['state_dict'] = revised(loaded['state_dict'], [(r'^module\.', '')])
        runner.finiteness.resume(loaded, checkpoint)
        for hook in runner.hooks:
            hook.before_resume(runner, loaded)
        self._leave_averages_behind(loaded)
        return loaded

    def load(self, loaded: Mapping[str, Any], checkpoint: str, resume_optimizer: bool) -> None:
        """Load weights, optimizers, the hooks' messages and the counters; the rest waits for the start of the run."""
        from runnerkit.checkpoint.state_dict import load_state_dict

        runner = self._runner
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
        self.resumed, self.is_waiting = state, True
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

    def restore(self) -> None:
        """Restore the parts; called after ``before_run``."""
        runner, self.is_waiting = self._runner, False
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
            if part not in self._loaded:
                part.load_state_dict(own)
        self._loaded = []
        saved, now = own.get('parts', {}).keys(), {each.name for each in self.parts if isinstance(each, _Added)}
        for name in sorted(saved ^ now):
            lacks = 'the checkpoint has a state of the part %r, which this run lacks'
            text = lacks if name in saved else 'the checkpoint has no state of the part %r'
            runner.logger.warning(text, name, extra=NOT_EXACT)
        self.restore_moment()
        if self.resumed['ranks'][0]['log_buffer']['ready']:
            self._log_pending(own)
        runner.lifecycle.note_unfinished(self.resumed.get('nested', ()))

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
        self.resumed, self.is_waiting = None, False
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
        """Restore the state of a run that has just resumed the checkpoint."""
        runner = self._runner
        if asked.runner is not runner:
            raise asked
        runner.data_batch, runner.outputs, runner.outputs_of = None, {}, None
        runner.updater.forget_cycles()
        self.saver.drop_moved()
        for reader in runner.readers.entries:
            reader.close()
        self.saver.finish_together()
        runner.meta.get('hook_msgs', {}).clear()  # the checkpoint has those of its moment
        runner.resume(asked.checkpoint)
        runner.readers.rescale()
        self.restore()
        runner.call_hook('after_roll_back')
        runner.lifecycle.resume_hooks()
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
        """Restore the hooks that have a state; changed settings keep their new values."""
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
        if self._runner.rank == 0:
            return {'buffers': {}}
        from runnerkit.parallel.buckets import own_buffers

        return {'buffers': own_buffers(self._runner.model)}

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
            try:
                self._part.load_state_dict(own['parts'][self.name])
            except Exception as error:
                error.add_note(f'when the state of the part {self.name!r} was loaded')
                raise
