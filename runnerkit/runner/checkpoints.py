"""Saving and resuming a runner."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from runnerkit.checkpoint import NotSavedError, get_state_dict, load_checkpoint
from runnerkit.checkpoint.finite import why_not_finite
from runnerkit.checkpoint.integrity import STATE_FORMAT, training_state_problem
from runnerkit.checkpoint.loader import _load_checkpoint, load_folder
from runnerkit.checkpoint.manifest import is_checkpoint_folder
from runnerkit.checkpoint.mmcv_files import gpus_of_run, is_mmcv_file
from runnerkit.checkpoint.shards import layout_of, optimizer_state_like
from runnerkit.checkpoint.state_dict import ema_name, load_state_dict, revised
from runnerkit.checkpoint.store import checkpoint_meant, finite_beside
from runnerkit.data.reader import Reader
from runnerkit.data.reader_state import ReaderState
from runnerkit.distributed import all_gather_objects, together
from runnerkit.fileio.paths import is_url, lies_in, local_path
from runnerkit.hooks.hook import Hook
from runnerkit.hooks.storage import StoringHook
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.update import Update
from runnerkit.parallel import FSDP2, unwrap
from runnerkit.parallel.buckets import GradientOrders, own_buffers
from runnerkit.parallel.dtensors import is_sharded, stacked
from runnerkit.runner.settings import (
    group_settings,
    hook_settings,
    rescheduled,
    schedules,
    sets_own_rates,
    settled_group,
    why_not_settled,
    why_other_parameters,
    with_rates_of,
)
from runnerkit.runner.updates import Updates
from runnerkit.utils.seed import rng_state

#: ``extra`` for log records about inexact resumes.
EXACTNESS = {'exactness': True}


class Checkpoints(Updates):
    """The part of a runner that saves, loads and resumes.

    What resuming needs beyond MMCV's ``meta``, ``state_dict`` and ``optimizer`` stands under ``'runnerkit'``: the
    place in the workflow and hook states once; random states, data positions, log buffers and unfinished accumulation
    cycles per rank.
    """

    _go_to_counts: Callable[[], None]
    _orders: GradientOrders | None = None  # made at the first start
    _from_mmcv = False  # resumed from a file of MMCV's, which does not say where in the data its run was

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
        """Save everything that resuming needs, of all ranks; every rank calls it, in hooks too.

        The first rank writes, by ``save_checkpoint``, which subclasses may replace. If the model is sharded (FSDP2),
        every rank writes its part of a folder that has the name of the file. No rank goes on before the checkpoint is
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
                with ``async_save`` on the first one, and on the others of a sharded model when they wait for it.
            only_finite: save nothing, as if the storage could not take it, if weights, optimizer states or training
                losses are NaN or infinite. Otherwise the file says so in ``meta['non_finite']``, and ``latest.pth``
                stays at the newest finite one.
            **options: more keywords for a ``save_checkpoint`` of your own.

        Returns:
            The file's path; None if ``on_error`` was called.

        Raises:
            NotSavedError: on every rank: the storage could not take it; or ``only_finite`` refuses it.
        """
        given = {'filename_tmpl': filename_tmpl, 'meta': meta, 'file_client_args': file_client_args, **options}
        given = {name: value for name, value in given.items() if value is not None}
        given['save_optimizer'] = save_optimizer
        if not create_symlink:
            given['create_symlink'] = False
        self._is_saving = True
        try:
            return self._saver.save(out_dir, given, messages or {}, async_save, after_write, on_error, only_finite)
        finally:
            self._is_saving = False

    def non_finite(self, alone: bool = False) -> dict[str, str]:
        """What of weights, optimizer states and training losses since the last checkpoint is NaN or infinite, in words
        by kind (``weights``, ``optimizer``, ``loss``); empty if all is finite.

        It waits for the device. All ranks call it and get the same answer, unless one asks ``alone`` for itself.
        """
        return self._finiteness.look(self, alone)

    @property
    def last_finite(self) -> str | None:
        """On rank 0: the newest checkpoint, of this run or the one that it resumed, whose values are finite."""
        return self._finiteness.last

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

    def _common_state(self) -> dict[str, Any]:
        return {
            'format': STATE_FORMAT,
            'world_size': self._world_size,
            'progress': self.progress.state_dict(),
            'conditions': self._conditions(),
            'settings': self._settings(),
            'gradient_orders': {} if self._orders is None else self._orders.state_dict(),
            'scores': {name: list(score) for name, score in self.scores.items()},
        }

    def _rank_state(self) -> dict[str, Any]:
        updates = {name: update.state_dict() for name, update in self._named_updates().items()}
        return {
            'rng': rng_state(),
            **self._readers.state_dict(self._state_of),
            'updates': updates,
            'log_buffer': self._train_log.state_dict(),
            'hooks': {name: hook.state_dict() for name, hook in self._named_hooks()},
            'buffers': own_buffers(self.model) if self._rank else {},  # those of rank 0 are in the state dict
        }

    def _state_of(self, reader: Reader) -> ReaderState:
        """The state of a reader of the workflow's."""
        raise NotImplementedError

    def _conditions(self) -> dict[str, Any]:
        """What a resumed run compares, see `runnerkit.runner.conditions`."""
        from runnerkit.runner.conditions import general_conditions

        updates = self._named_updates()
        return {
            **general_conditions(),
            **({'seed': self.meta['seed']} if 'seed' in self.meta else {}),
            'length': self._length(),
            'runner': self._kind(),
            'workflow': [list(entry) for entry in self._workflow],
            'world size': self._world_size,
            'optimizer': optimizer_kinds(self.optimizer),
            'precision': {name: update.amp for name, update in updates.items() if update.amp is not None},
            'accumulation': {name: update.cumulative_iters for name, update in updates.items()},
        }

    def _note_settings(self, hooks: Iterable[Hook] = ()) -> None:
        """Write down what optimizers and ``hooks`` are configured with, before a run or a checkpoint changes it."""
        model = unwrap(self.model)
        for name, optimizer in named_optimizers(self.optimizer).items():
            if self._group_settings.get(name, (None,))[0] is not optimizer:
                self._group_settings[name] = optimizer, group_settings(optimizer, model)
        for hook in hooks:
            self._hook_settings.setdefault(id(hook), (hook, hook_settings(hook)))

    def _settings(self) -> dict[str, Any]:
        """What a run that resumes compares with its own settings, see `runnerkit.runner.settings`."""
        known = {name: self._hook_settings.get(id(hook)) for name, hook in self._named_hooks()}
        return {
            'groups': {name: groups for name, (_, groups) in self._group_settings.items()},
            'hooks': {name: found[1] for name, found in known.items() if found is not None},
            'schedules': schedules(self._hook_table),
            'lr_scaled_for': self.lr_scaled_for and self.lr_scaled_for[0],
        }

    def _kept_gradients(self) -> dict[int, Any]:
        """What FSDP2 has not summed over the ranks yet, by its parameters' ids; each rank's is a part of a `DTensor`.

        All ranks call it.
        """
        is_open = any(update.accumulated for update in self._updates.values())
        if not (is_open and isinstance(self.model, FSDP2)):
            return {}
        own = self.model.kept_gradients()
        names = dict.fromkeys(name for each in all_gather_objects(list(own)) for name in each)
        parameters = dict(self.model.module.named_parameters())
        found = {}
        for name in names:  # a rank may not have used a parameter
            parameter = parameters[name]
            value = own[name] if name in own else torch.zeros(parameter.shape, dtype=parameter.dtype)
            found[id(parameter)] = stacked(value, parameter)
        return found

    def _named_updates(self) -> dict[str, Update]:
        return {self._update_name(key): update for key, update in self._updates.items()}

    def _length(self) -> str:
        """How long the run is."""
        if self._stops_by_iters:
            return f'{self._max_iters} iterations'
        return 'as much as the stream has' if self._max_epochs is None else f'{self._max_epochs} epochs'

    def _kind(self) -> str:
        return 'by epoch' if self.by_epoch else 'by iteration'

    def _named_hooks(self) -> list[tuple[str, Hook]]:
        """Every hook under a name that is the same in the resumed run: its class, and a number if there are several."""
        named: dict[str, Hook] = {}
        for hook in self._hook_table:
            kind, n = type(hook).__name__, 0
            while f'{kind}#{n}' in named:
                n += 1
            named[f'{kind}#{n}'] = hook
        return list(named.items())

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
            checkpoint: a path or URL; a folder stands for its latest checkpoint.
            resume_optimizer: whether to load the optimizers' states.
            map_location: as in `torch.load`; by default the CPU, from where everything is copied to where it belongs.

        Raises:
            ValueError: the file holds no training state, or one of another model or optimizer.
        """
        self._saver.finish()
        checkpoint = checkpoint_meant(checkpoint)
        loaded = self._read_to_resume(checkpoint, 'cpu' if map_location == 'default' else map_location)
        problem = training_state_problem(loaded)
        if problem is not None:
            raise ValueError(
                f'{checkpoint} cannot be resumed: {problem}. To start from its weights: --load-from {checkpoint}'
            )
        if (reason := why_not_finite(loaded)) is not None:
            self.logger.warning(
                '%s has %s, from which training does not recover. Resume %s, with a smaller learning rate',
                checkpoint,
                reason,
                finite_beside(checkpoint) or 'an older one, or start over',
            )
        self._go_on_from(loaded, checkpoint, resume_optimizer)

    def _read_to_resume(self, checkpoint: str, map_location: Any) -> Any:
        """The content of a checkpoint; of a sharded one, only this rank's part where the model is sharded too."""
        if not is_checkpoint_folder(checkpoint):
            return _load_checkpoint(checkpoint, map_location)
        if not is_sharded(self.model):
            return load_folder(Path(checkpoint), checkpoint, map_location)
        layout = layout_of(get_state_dict(self.model), named_optimizers(self.optimizer), ema_name)
        return together(partial(load_folder, Path(checkpoint), checkpoint, None, layout))

    def _go_on_from(self, loaded: Mapping[str, Any], checkpoint: str, resume_optimizer: bool = True) -> None:
        """`resume` from what was read of ``checkpoint``."""
        self._note_settings()
        loaded = dict(loaded)
        loaded['state_dict'] = revised(loaded['state_dict'], [(r'^module\.', '')])
        self._finiteness.resume(loaded, checkpoint)  # before hooks add what the file does not have
        for hook in self._hook_table:
            hook.before_resume(self, loaded)  # type: ignore[arg-type]
        self._leave_averages_behind(loaded)
        try:
            load_state_dict(self.model, loaded['state_dict'], strict=True)
        except RuntimeError as error:
            raise ValueError(
                f'{checkpoint} is a checkpoint of another model and cannot be resumed (--load-from loads the '
                f'tensors that fit):\n{error}'
            ) from error
        if resume_optimizer and 'optimizer' in loaded:
            self._load_optimizers(loaded['optimizer'], checkpoint, loaded.get('runnerkit') or {})
        storing = [
            hook for hook in self._hook_table if isinstance(hook, StoringHook) and (hook.out_dir or self.work_dir)
        ]
        places = [hook.store(self).place for hook in storing]  # type: ignore[arg-type]
        messages = own_messages(loaded['meta'].get('hook_msgs', {}), checkpoint, places)
        self.meta.setdefault('hook_msgs', {}).update(messages)
        self._load_counters(loaded)
        self._resumed_config = loaded['meta'].get('config')
        if self._resumed is None:
            self.logger.warning(
                '%s holds no random states: shuffling and dropout start over, at the data position that the '
                'counters give',
                checkpoint,
                extra=EXACTNESS,
            )
        if resume_optimizer and self.optimizer is not None and 'optimizer' not in loaded:
            self.logger.warning(
                '%s holds no optimizer state (save_optimizer=False): momentum and similar values start over',
                checkpoint,
                extra=EXACTNESS,
            )
        self.logger.info('resumed from %s: %d epochs, %d iterations are done', checkpoint, self._epoch, self._iter)

    def _leave_averages_behind(self, loaded: dict[str, Any]) -> None:
        """Without an EMAHook, go on from the raw weights of a run that had one."""
        weights = loaded['state_dict']
        own = unwrap(self.model).state_dict()
        twins = {name: ema_name(name) for name in own if ema_name(name) in weights and ema_name(name) not in own}
        for name, twin in twins.items():
            raw = weights.pop(twin)
            weights[name] = weights[name] if is_mmcv_file(loaded) else raw
        state = loaded.get('runnerkit') or {}
        known = state['ranks'][0].get('hooks', {}) if state.get('ranks') else {}
        if twins and not any('EMAHook' in name for name in known):  # else the table of what has changed tells it
            from runnerkit.runner.conditions import AVERAGES_GONE

            self.logger.warning(
                'the run of the checkpoint had an EMAHook, and this one has none: %s', AVERAGES_GONE, extra=EXACTNESS
            )

    def _load_optimizers(self, states: Mapping[str, Any], checkpoint: str, saved: Mapping[str, Any]) -> None:
        """Load the optimizers' states; ``saved`` is what the checkpoint knows of its run."""
        self._optimizer_changes = []
        optimizers = named_optimizers(self.optimizer)
        problem = self._why_other_optimizers(saved) if self.config_wins else None
        for name, optimizer in optimizers.items():
            which = f'optimizer {name!r}' if name else 'optimizer'
            try:
                if problem is not None:
                    raise ValueError(problem)
                state = states[name] if name else dict(states)
                check_same_kind(optimizer, state)
                state = self._settled(name, optimizer, state, saved)
                optimizer.load_state_dict(optimizer_state_like(state, optimizer))
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f'the {which} in {checkpoint} does not fit this run ({error}); resume with the config it was '
                    f'trained with, or load only its weights (--load-from {checkpoint})'
                ) from error

    def _why_other_optimizers(self, saved: Mapping[str, Any]) -> str | None:
        """Why the states in a checkpoint are not of this run's optimizers; None if they are, or if it does not say."""
        if not saved.get('settings'):
            return None
        was, now = (
            {name: kind.removesuffix(FUSED) for name, kind in kinds.items()}
            for kinds in (saved['conditions']['optimizer'], optimizer_kinds(self.optimizer))
        )
        if was != now:
            return f'it was {was.get("", was)} and is {now.get("", now)}'
        groups = {name: groups for name, (_, groups) in self._group_settings.items()}
        return why_other_parameters(saved['settings']['groups'], groups)

    def _settled(
        self, name: str, optimizer: Optimizer, state: Mapping[str, Any], saved: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The ``state`` of an optimizer, with this run's settings where those of the saved run are others."""
        from runnerkit.runner.conditions import Change, optimizer_changes

        settings = saved.get('settings') or {}
        if name not in settings.get('groups', {}):
            return state  # a file that does not say what its run was configured with
        was, now = settings['groups'][name], self._group_settings[name][1]
        scaled_for, ranks = self.lr_scaled_for and self.lr_scaled_for[0], saved['world_size']
        # A changed number of ranks alone leaves the rates as they are.
        if scaled_for and settings.get('lr_scaled_for', scaled_for) == scaled_for and ranks != self._world_size:
            now = with_rates_of(now, ranks / self._world_size)
            self.logger.info(
                'auto_scale_lr: the learning rates stay those of %d ranks, not %d', ranks, self._world_size
            )
        replaced = sets_own_rates(name, schedules(self._hook_table))
        self._optimizer_changes += optimizer_changes(name, was, now, self.config_wins, replaced)
        if not self.config_wins:
            self._group_settings[name] = optimizer, was  # what is in effect, and what the next checkpoint says
            return state
        problems = [why_not_settled(optimizer, state, *each) for each in zip(was, now, strict=False)]
        if any(problems):
            raise ValueError(next(filter(None, problems)))
        anew = rescheduled(name, settings['schedules'], schedules(self._hook_table))
        self._optimizer_changes += [
            Change(
                f'optimizer{name and " " + name}: schedule of {key}',
                *kinds,
                'it begins with the setting of the optimizer',
            )
            for key, kinds in anew.items()
        ]
        pairs = zip(state['param_groups'], was, now, optimizer.param_groups, strict=False)
        groups = [settled_group(*each, anew) for each in pairs]
        return {**state, 'param_groups': [*groups, *state['param_groups'][len(groups) :]]}

    def _load_counters(self, loaded: Mapping[str, Any]) -> None:
        """Epochs and iterations that are done; in files of ours, `Progress` as it stood."""
        meta, state = loaded['meta'], loaded.get('runnerkit')
        self._from_mmcv = is_mmcv_file(loaded)
        if state is not None and state.get('format', 1) < STATE_FORMAT:
            from runnerkit.checkpoint.format_1 import from_format_1

            state = from_format_1(state, meta)
        self._resumed = state
        if state is not None:
            self._progress.load_state_dict(state['progress'])
        else:
            self._progress.load_state_dict({'epochs': int(meta['epoch']), 'iters': int(meta['iter'])})
        if self._from_mmcv:
            if not self.by_epoch:
                self._progress.iters += 1  # MMCV's iteration runner writes the index of the last one, not the count
            before = gpus_of_run(meta)
            if before and before != self._world_size:
                self._progress.iters = self._progress.iters * before // self._world_size
                self.logger.info('the iteration number is changed to %d: %d GPUs before', self._progress.iters, before)
        self._epoch, self._iter = self._progress.epochs, self._progress.iters


def own_messages(messages: Mapping[str, Any], checkpoint: str, places: Iterable[str]) -> dict[str, Any]:
    """The ``messages`` of hooks in ``checkpoint``, without paths of other checkpoints that lead elsewhere.

    The file may name any path or URL. One stays if it lies in the folder of ``checkpoint`` or in one of ``places``,
    where this run saves; if not, a local file of that name in one of them takes its place, if there is one.
    """
    path = local_path(checkpoint)
    folder = path.rpartition('/')[0] if is_url(path) else os.path.dirname(os.path.abspath(path))
    found, folders = dict(messages), (folder, *places)
    for key in ('best_ckpt', 'last_ckpt'):
        named = found.pop(key, None)
        if not isinstance(named, str):
            continue
        moved = [os.path.join(each, os.path.basename(named)) for each in folders]
        there = [path for path in moved if any(lies_in(path, each) for each in folders) and os.path.exists(path)]
        if any(lies_in(named, each) for each in folders):
            found[key] = named
        elif there:
            found[key] = there[0]
    return found


def check_same_kind(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Whether ``state`` is of an optimizer with the same hyper-parameters.

    Raises:
        ValueError: it lacks some that ``optimizer`` needs in every step.
    """
    needed = {key for group in optimizer.param_groups for key in group if key in _ESSENTIAL}
    for group in state['param_groups']:
        missing = sorted(needed - set(group))
        if missing:
            raise ValueError(
                f'it has no {", ".join(missing)}, which {type(optimizer).__name__} needs: it is of another kind'
            )


#: Behind the class of an optimizer in `optimizer_kinds`.
FUSED = ' (fused)'

#: Hyper-parameters that tell kinds of optimizers apart.
_ESSENTIAL = ('momentum', 'nesterov', 'betas', 'rho', 'alpha', 'lambd', 'etas', 'max_iter', 'lr_decay', 'ns_steps')


def optimizer_kinds(optimizer: Any) -> dict[str, str]:
    """Class and implementation of each optimizer (fused ones differ in the last bits), for the record."""
    return {
        name: type(each).__name__ + (FUSED if any(group.get('fused') for group in each.param_groups) else '')
        for name, each in named_optimizers(optimizer).items()
    }
