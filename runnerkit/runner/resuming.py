"""How a resumed run gets back to where it was, and what it tells of what is not as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.utils.data import SequentialSampler

from runnerkit.data.kinds import WAY_OUT, about, is_unbounded, length_of, named, order_of
from runnerkit.data.reader import Reader
from runnerkit.data.reader_state import ReaderState
from runnerkit.hooks import CheckpointHook, EvalHook
from runnerkit.hooks.hook import Hook, Score, listens, overrides
from runnerkit.parallel import FSDP2
from runnerkit.parallel.buckets import GradientOrders
from runnerkit.parallel.dtensors import is_sharded, laid_out_like, own_of_stacked
from runnerkit.runner.checkpoints import EXACTNESS, Checkpoints
from runnerkit.runner.settings import changed
from runnerkit.utils.seed import same_rng_state, set_derived_rng_state, set_rng_state


class Resuming(Checkpoints):
    """The part of a runner that restores what `resume` has read, when the run starts."""

    _apart: Callable[[], AbstractContextManager[None]]
    #: Whether a subclass's ``call_hook`` calls the hooks itself.
    _has_own_dispatch = False

    def restore_hooks(self, checkpoint: Mapping[str, Any]) -> None:
        """Give the hooks their states in the content of a checkpoint file, as far as it has them."""
        ranks = (checkpoint.get('runnerkit') or {}).get('ranks') or [{}]
        states = ranks[min(self._rank, len(ranks) - 1)].get('hooks') or {}
        for name, hook in self._named_hooks():
            if states.get(name):
                self._restore_hook(name, hook, states[name])

    def _restore(self) -> None:
        """Be where the resumed run was: called when ``before_run`` is over."""
        if self._from_mmcv:
            self._from_mmcv = False
            self._go_to_counts()
        if self._resumed is None:
            return
        self.scores = {name: Score(*score) for name, score in self._resumed.get('scores', {}).items()}
        own = self._own_rank()
        names = dict(self._named_hooks())
        for name, hook in names.items():
            if own['hooks'].get(name):
                self._restore_hook(name, hook, own['hooks'][name])
        if self._rank < len(self._resumed['ranks']):
            buffers = dict(self.model.named_buffers())
            for name, value in own.get('buffers', {}).items():
                if name in buffers:
                    buffers[name].copy_(value)
        self._restore_updates()
        self._tell_changes(own, names)
        progress = self._progress
        if self._counted_otherwise():
            progress.epoch_is_open, progress.batches = False, 0
        if self._resumed['conditions'].get('workflow') != [list(entry) for entry in self._workflow]:
            progress.entry = progress.units = 0
        for reader, state in self._readers.entries_in(own):
            self._load_reader(reader, state)
        for reader, state in self._readers.evaluations_in(own):
            self._load_evaluation(reader, state)
        self._tell_cut_validation()
        self._is_inside = progress.epoch_is_open
        self._restore_moment()

    def _counted_otherwise(self) -> bool:
        """Whether the resumed run counted by epochs and this one by iterations, or the other way round."""
        resumed: Mapping[str, Any] = self._resumed or {}
        return resumed['conditions'].get('runner', self._kind()) != self._kind()

    def _follow_orders(self) -> None:
        """Sum gradients in the order in which the resumed run did; what is new is recorded."""
        if self._orders is None or self._orders.model is not self.model:
            self._orders = GradientOrders(self.model)
        resumed = self._resumed or {}
        if resumed:
            for text in self._orders.doubts():
                self.logger.warning('%s', text, extra=EXACTNESS)
        self._orders.start(resumed.get('gradient_orders', {}))

    def _restore_hook(self, name: str, hook: Hook, state: dict[str, Any]) -> None:
        settings = ((self._resumed or {}).get('settings') or {}).get('hooks', {}).get(name, {})
        others = changed(settings, self._hook_settings.get(id(hook), (hook, {}))[1])
        own = {key: value for key, value in vars(hook).items() if key in others}
        try:
            hook.load_state_dict(state)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f'the state of the hook {name} in the checkpoint does not fit ({type(error).__name__}: {error}): '
                'resume with the hook that saved it, or remove the hook'
            ) from error
        for key, value in own.items():  # a state may hold what was a setting then
            setattr(hook, key, value)

    def _restore_updates(self) -> None:
        """Loss scales, and the gradients of an unfinished cycle: a rank's own, or the mean where ranks are others."""
        ranks = self._resumed['ranks']  # type: ignore[index]
        updates = dict(self._own_rank()['updates'])
        if len(ranks) != self._world_size or is_sharded(self.model):
            for name in dict.fromkeys(name for rank in ranks for name in rank['updates']):  # alike on all ranks
                means = mean_gradients([rank['updates'].get(name, {'accumulated': 0}) for rank in ranks])
                updates[name] = {'accumulated': 0, **updates.get(name, {}), 'grads': means}
        if any(state.get('is_without_gradients') for state in updates.values()):
            self.logger.warning(
                'the checkpoint lacks the gradients of an unfinished accumulation cycle: the next update is made '
                'without them',
                extra=EXACTNESS,
            )
        for name, state in updates.items():
            key = name or None
            if not self.config_wins:  # the loss scale is the checkpoint's, as in MMCV
                state = {key: value for key, value in state.items() if key != 'first_scale'}
            (self._updates.get(key) or self._default_update(key)).load_state_dict(state)
        self._restore_kept({name: state.get('kept', ()) for name, state in updates.items()})

    def _restore_kept(self, kept: Mapping[str, Sequence[Any]]) -> None:
        """The gradients of an unfinished cycle that FSDP2 had not summed over the ranks: a rank's own where it will sum
        them, the mean where it cannot, or where the ranks are others."""
        wrapper = self.model if isinstance(self.model, FSDP2) and self.model.keeps_gradients else None
        ranks = 0 if wrapper is None and is_sharded(self.model) else self._world_size
        found: dict[Any, Any] = {}
        for name, values in kept.items():
            update = self._updates.get(name or None) or self._default_update(name or None)
            if update.accumulated:
                found.update(zip(update.parameters(), values, strict=False))
        found = {key: own_of_stacked(each, self._rank, ranks) for key, each in found.items() if each is not None}
        if wrapper is not None:
            wrapper.keep_gradients({name: found[p] for name, p in wrapper.module.named_parameters() if p in found})
            return
        for parameter, value in found.items():
            parameter.grad = laid_out_like(value, parameter).to(parameter.device, parameter.dtype, copy=True)

    def _load_reader(self, reader: Reader, state: ReaderState) -> None:
        """Let ``reader`` enter where the one was that ``state`` is of; a pass that cannot be entered begins anew."""
        progress = self._progress
        was, now = state.about, about(reader.dataloader)
        other_ranks = self._resumed['world_size'] != self._world_size  # type: ignore[index]
        other_batches = was.get('batch_size') != now.get('batch_size') and 'batch_size' in was
        if self._counted_otherwise():
            state.begin_anew()
        elif state.begun and (other_ranks or other_batches) and not is_unbounded(reader.dataloader):
            if state.samples is None or order_of(reader.dataloader) is None:
                state.begin_anew()
                if progress.epoch_is_open:
                    progress.batches, progress.samples = 0, 0
                self.logger.warning(
                    '%s: the open epoch starts over: ranks or batch size changed, and the order of the loader is '
                    'unknown. Loaders of runnerkit.data.build_dataloader continue with the same sample, without a '
                    'sampler or with one of torch that the config names',
                    named(reader.dataloader),
                    extra=EXACTNESS,
                )
            else:
                state.batches = self._batches_done(reader, state)
                if progress.epoch_is_open:
                    progress.batches = state.batches
        reader.load(state)
        self._tell_found(reader)

    def _start_readers(self) -> None:
        """Begin the loaders' first passes, or enter those that were open."""
        is_resumed = any(reader.is_to_enter for reader in self._readers.entries)
        for i, reader in enumerate(self._readers.entries):
            validates = i < len(self._workflow) and self._workflow[i][0] == 'val'
            with self._apart() if validates and self.keeps_random_states else nullcontext():
                reader.start()
        if is_resumed:
            self._restore_moment()

    def _reader_of(self, loader: Any) -> Reader:
        """The reader of a training loader. One that a loop of a subclass's own brings goes where it was when it was
        saved."""
        number = len(self._readers.entries)
        reader = self._readers.find_or_add(loader, self._progress.entry)
        if len(self._readers.entries) > number:
            self._load_admitted(reader)
        return reader

    def _load_admitted(self, reader: Reader) -> None:
        """`_load_reader` of a reader that is found while the run goes on."""
        if self._resumed is not None:
            for each, state in self._readers.entries_in(self._own_rank()):
                if each is reader:
                    self._load_reader(reader, state)

    def _enter_by_count(self, reader: Reader) -> None:
        """Let ``reader`` enter the open epoch, of which nothing but `Progress` is known: its loader is another one than
        before, or another entry's."""
        progress, loader = self._progress, reader.dataloader
        state = ReaderState.at(loader, self._epoch, progress.batches)
        if order_of(loader) is None:
            if not isinstance(loader, Sequence) and type(getattr(loader, 'sampler', None)) is not SequentialSampler:
                self.logger.warning(
                    '%s: the open epoch continues after %d batches, but it began with another loader: the order '
                    'may differ; %s',
                    named(loader),
                    progress.batches,
                    WAY_OUT,
                    extra=EXACTNESS,
                )
        else:
            state.samples = progress.samples or state.samples
            progress.batches = state.batches = self._batches_done(reader, state)
        reader.load(state)

    @staticmethod
    def _batches_done(reader: Reader, state: ReaderState) -> int:
        """How many batches of its own size ``reader`` would have given up to the place of ``state``."""
        return max(0, (length_of(reader.dataloader) or 0) - (reader.batches_left(state) or 0))

    def _load_evaluation(self, reader: Reader, state: ReaderState) -> None:
        """Let a validation begin again within which the checkpoint was saved, as it began then."""
        entry = self._progress.entry
        repeats = self.by_epoch and entry < len(self._workflow) and self._workflow[entry][0] == 'val'
        if state.begun and not (repeats and self._readers.entries[entry].dataloader is reader.dataloader):
            state.begun = False
            self.logger.warning(
                'the checkpoint was saved inside an evaluation, which is not repeated: the resume is not exact. '
                'Save before or after it',
                extra=EXACTNESS,
            )
        reader.load(state)
        self._tell_found(reader)

    def _tell_cut_validation(self) -> None:
        """A validation of the iteration runner goes on after the batches that are done, of which nothing is left."""
        progress = self._progress
        mode, n = self._workflow[progress.entry] if progress.entry < len(self._workflow) else ('', 0)
        if mode == 'val' and not self.by_epoch and 0 < progress.units < n:
            self.logger.warning(
                'the checkpoint was saved inside a validation: its scores cover the remaining batches only. The '
                'training is exact'
            )

    def _tell_late_evaluation(self, number: int, loader: Any) -> None:
        """A loader that nobody knew when the run was resumed: its generators are where they were built."""
        states = [] if self._resumed is None else self._own_rank().get('evaluations', [])
        if number < len(states) and (states[number]['held'] or states[number]['workers_live']):
            self.logger.warning(
                'the random states of %s, used in an evaluation, cannot be restored this late: keep it as the '
                'attribute "dataloader" of the hook that evaluates',
                named(loader),
                extra=EXACTNESS,
            )

    def _restore_moment(self) -> None:
        """Random states, log buffer and what loaders hold as they were when the checkpoint was written."""
        if self._resumed is not None:
            own = self._own_rank()
            self._train_log.load_state_dict(own['log_buffer'])
            self._readers.restore_held(own)
            for reader in self._readers.entries:
                self._tell_found(reader)
            if self._rank >= len(self._resumed['ranks']) and self._draws_differ():
                set_derived_rng_state(own['rng'], self._rank)
            else:
                set_rng_state(own['rng'])

    def _draws_differ(self) -> bool:
        """Whether the ranks of the resumed run drew different random numbers."""
        resumed: Mapping[str, Any] = self._resumed or {}
        first, *others = [rank['rng'] for rank in resumed['ranks']]
        return not all(same_rng_state(first, other) for other in others)

    def _own_rank(self) -> dict[str, Any]:
        """What the checkpoint remembers of this rank; of one that it does not know, what it remembers of rank 0. Of a
        workflow's entries that have another mode now, it remembers nothing."""
        resumed: Mapping[str, Any] = self._resumed or {}
        ranks = resumed['ranks']
        own = ranks[self._rank] if self._rank < len(ranks) else ranks[0]
        was, now = resumed['conditions'].get('workflow', []), [list(entry) for entry in self._workflow]
        if was == now:
            return own
        same = [one[0] == other[0] for one, other in zip(was, now, strict=False)]
        readers = [state if i >= len(same) or same[i] else None for i, state in enumerate(own['readers'])]
        return {**own, 'readers': readers}

    # --- what is told ------------------------------------------------------------------------------------------------

    def _tell_changes(self, own: Mapping[str, Any], names: Mapping[str, Hook]) -> None:
        """One table of what has changed since the checkpoint was saved."""
        from runnerkit.runner.conditions import (
            changes,
            held_rates,
            hook_changes,
            loader_changes,
            schedule_changes,
            setting_changes,
            table,
        )
        from runnerkit.runner.config_changes import config_changes

        resumed: Mapping[str, Any] = self._resumed or {}
        found = changes(resumed['conditions'], self._conditions())
        found += self._optimizer_changes
        found += held_rates({name: own['hooks'].get(name) or {'lrs': None} for name in names}, found)
        found += hook_changes(own['hooks'], names)
        found += schedule_changes(own['hooks'], names)
        found += setting_changes(
            (resumed.get('settings') or {}).get('hooks', {}), self._settings()['hooks'], self.config_wins
        )
        for reader, state in self._readers.entries_in(own):
            entry = self._readers.entries.index(reader)
            found += loader_changes(entry, state.about, about(reader.dataloader))
        found += config_changes(self._resumed_config, self.meta.get('config'))
        if found:
            self.logger.warning('Changed since the checkpoint was saved:\n%s', table(found), extra=EXACTNESS)
        for text in self._doubts_of_order():
            self.logger.warning('%s', text, extra=EXACTNESS)
        known, before = len(resumed['ranks']), resumed['world_size']
        if known < min(before, self._world_size):
            self.logger.warning(
                'the checkpoint holds the state of %d of %d ranks, because one rank saved it alone '
                '(save_checkpoint). The others copy random states, hooks, data positions and unfinished '
                'gradients from rank 0. To save all, call runner.save() on every rank',
                known,
                before,
                extra=EXACTNESS,
            )
        elif self._world_size > before:
            derived = 'random states derived from those of rank 0 and their rank'
            states = derived if self._draws_differ() else 'the random states of rank 0, which all ranks had'
            self.logger.warning('new ranks start with %s, and with the hook states of rank 0', states, extra=EXACTNESS)
        elif self._world_size < before:
            self.logger.warning(
                'the random states and hooks of the ranks from %d on are dropped', self._world_size, extra=EXACTNESS
            )

    def _doubts_of_order(self) -> Iterator[str]:
        """Hooks that a ``call_hook`` of a subclass's own calls after the checkpoint of that moment was written."""
        if not self._has_own_dispatch:
            return
        from runnerkit.runner.conditions import only_looks_on

        for point, by_epoch in (('after_train_iter', False), ('after_train_epoch', True)):
            calls = [hook for hook in self.hooks if listens(hook, point)]
            saves = (
                hook for hook in calls if isinstance(hook, (CheckpointHook, EvalHook)) and hook.by_epoch == by_epoch
            )
            saving = next(saves, None)
            for hook in calls[calls.index(saving) + 1 :] if saving is not None else ():
                if not hook.runs_last and not only_looks_on(hook) and keeps_state(hook):
                    yield (
                        f'{type(self).__name__}.call_hook calls {type(hook).__name__} after {type(saving).__name__}, '
                        'so a checkpoint holds its state of the step before. Register it with a lower priority number '
                        "(priority='ABOVE_NORMAL'), or let call_hook call super().call_hook"
                    )

    def _tell_found(self, reader: Reader) -> None:
        """Warn of what a resumed reader has found not to be exact; of each once."""
        for text in dict.fromkeys(reader.found):
            self.logger.warning('%s', text, extra=EXACTNESS)
        reader.found.clear()

    def _tell_doubts(self) -> None:
        """At the first start: what would not be known to be exact after a resume."""
        texts = dict.fromkeys(text for reader in self._readers.entries for text in reader.doubts())
        texts.update(dict.fromkeys([] if self._orders is None else self._orders.doubts()))
        texts.update(dict.fromkeys(self._doubts_of_order()))
        for text in texts:
            self.logger.info('A resume of this run may not be exact. %s', text, extra=EXACTNESS)


def keeps_state(hook: Hook) -> bool:
    """Whether checkpoints hold something of ``hook``, in its state or, as averaged weights, in the model's."""
    return overrides(hook, 'state_dict') or hasattr(hook, 'around_save')


def mean_gradients(states: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The mean over ranks of the gradients that wait in an unfinished cycle.

    Args:
        states: of the same update on all ranks that there were.

    Raises:
        ValueError: the ranks are not at the same place of the cycle.
    """
    if len({state['accumulated'] for state in states}) > 1:
        raise ValueError(
            'the checkpoint was saved inside an accumulation cycle in which the ranks are at different places; '
            'resume it with the same number of ranks'
        )
    means = []
    for column in zip(*(state.get('grads', ()) for state in states), strict=True):
        given = [grad for grad in column if grad is not None]  # a rank may not have used the parameter
        if given and all(grad is given[0] for grad in column):  # of a sharded model: it is the mean
            means.append(given[0])
            continue
        means.append(sum(given[1:], given[0]) / len(column) if given else None)
    return means
