"""Compares a run and its settings with the one that it resumes: the table of changes, and warnings of inexact ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.optim import Optimizer

from runnerkit.checkpoint.conditions import (
    Change,
    Settings,
    changes,
    general_conditions,
    hook_changes,
    loader_changes,
    only_looks_on,
    optimizer_changes,
    schedule_changes,
    setting_changes,
    table,
)
from runnerkit.data.kinds import doubts_about, loader_facts
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import Hook, listens, overrides
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.settings import (
    CYCLES,
    FUSED,
    check_same_kind,
    group_settings,
    optimizer_kinds,
    plain_settings,
    rescheduled,
    sets_own_rates,
    settled_group,
    why_not_settled,
    why_other_parameters,
    with_rates_of,
)
from runnerkit.parallel import unwrap
from runnerkit.parallel.dtensors import is_sharded, optimizer_state_like
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.torch_versions import shards_exactly

#: Arguments of hooks that are stored in attributes with other names.
_ELSEWHERE = {f'min_{key}{ratio}': f'minimum{ratio}' for key in ('lr', 'momentum') for ratio in ('', '_ratio')}


def hook_settings(hook: Hook) -> Settings:
    """The plain values that ``hook`` was built with, of arguments that have an attribute of the same name; without
    the folder that it writes to."""
    inits = [vars(kind).get('__init__') for kind in type(hook).__mro__]
    names = dict.fromkeys(
        name for init in inits if inspect.isfunction(init) for name in inspect.signature(init).parameters
    )
    attributes = {
        name: next((key for key in (name, f'_{name}', _ELSEWHERE.get(name)) if key in vars(hook)), None)
        for name in names
        if name != 'out_dir'
    }
    return plain_settings((name, vars(hook)[key]) for name, key in attributes.items() if key is not None)


def schedules(hooks: Iterable[Hook]) -> dict[str, list[list[str | None]]]:
    """The schedules of learning rates and momenta: for each quantity, pairs of a schedule's kind and the name of its
    optimizer (None: all)."""
    found: dict[str, list[list[str | None]]] = {'lr': [], 'momentum': []}
    for hook in hooks:
        if isinstance(hook, ScheduleHook):
            for quantity in ('lr', 'momentum') if hook.scheduler in CYCLES else (hook.key,):
                found[quantity].append([hook.scheduler or type(hook).__name__, hook.optimizer])
    return found


class Changes:
    """The part of the engine that compares this run with the one that it resumes.

    Args:
        runner: the run's runner.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._config: Any = None  # the text in the checkpoint
        # The settings of optimizers and hooks, with the object that they belong to.
        self._groups: dict[str, tuple[Optimizer, list[Settings]]] = {}
        self._hooks: dict[int, tuple[Hook, Settings]] = {}
        self._of_optimizers: list[Change] = []  # found by `resume`
        self._facts: tuple[Any, dict[str, Any]] | None = None

    def before_run(self, runner: Any) -> None:
        """Note the settings."""
        self.note_settings(runner.hooks)
        self._facts = None

    def note_settings(self, hooks: Iterable[Hook] = ()) -> None:
        """Note the settings of optimizers and ``hooks`` before a run or a checkpoint changes them."""
        model = unwrap(self._runner.model)
        for name, optimizer in named_optimizers(self._runner.optimizer).items():
            if self._groups.get(name, (None,))[0] is not optimizer:
                self._groups[name] = optimizer, group_settings(optimizer, model)
        for hook in hooks:
            self._hooks.setdefault(id(hook), (hook, hook_settings(hook)))

    def note_config(self, text: Any) -> None:
        """Keep the config in the resumed checkpoint, or None."""
        self._config = text

    def of_hook(self, hook: Hook) -> Settings:
        """The settings of ``hook``."""
        return self._hooks.get(id(hook), (hook, {}))[1]

    # --- in checkpoints ----------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """`conditions` and `settings` for a checkpoint, made once for the hooks and updates that there are."""
        runner = self._runner
        of = [*map(id, runner.hooks), *map(id, runner.updater.updates.values())]
        if self._facts is None or self._facts[0] != of:
            self._facts = of, {'conditions': self.conditions(), 'settings': self.settings()}
        return self._facts[1]

    def conditions(self) -> dict[str, Any]:
        """The conditions that a resumed run compares; see `runnerkit.checkpoint.conditions`."""
        runner, updates = self._runner, self._runner.updater.configured()
        return {
            **general_conditions(),
            **({'seed': runner.meta['seed']} if 'seed' in runner.meta else {}),
            'length': runner.plan.length,
            'runner': 'by epoch' if runner.by_epoch else 'by iteration',
            'workflow': [list(entry) for entry in runner.plan.workflow],
            'world size': runner.world_size,
            'optimizer': optimizer_kinds(runner.optimizer),
            'precision': {name: update.amp for name, update in updates.items() if update.amp is not None},
            'accumulation': {name: update.cumulative_iters for name, update in updates.items()},
        }

    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run compares with its own."""
        runner = self._runner
        known = {name: self._hooks.get(id(hook)) for name, hook in runner.snapshots.named_hooks()}
        return {
            'groups': {name: groups for name, (_, groups) in self._groups.items()},
            'hooks': {name: found[1] for name, found in known.items() if found is not None},
            'schedules': schedules(runner.hooks),
            'lr_scaled_for': runner.lr_scaled_for and runner.lr_scaled_for[0],
        }

    def tell_changes(self, own: Mapping[str, Any]) -> None:
        """Log a table of everything that has changed since the checkpoint was saved, with the state ``own`` of this
        rank."""
        from runnerkit.checkpoint.conditions import config_changes  # only resumed runs need it

        runner, resumed = self._runner, self._runner.snapshots.resumed
        names = dict(runner.snapshots.named_hooks())
        saved = (resumed.get('settings') or {}).get('hooks', {})
        found = changes(resumed['conditions'], self.conditions())
        found += self._of_optimizers
        found += hook_changes(own['hooks'], names)
        found += schedule_changes(own['hooks'], names)
        found += setting_changes(saved, self.settings()['hooks'], runner.config_wins)
        for reader, state in runner.readers.saved_in(own):
            number = runner.readers.entries.index(reader)
            found += loader_changes(number, state.about, loader_facts(reader.dataloader))
        found += config_changes(self._config, runner.meta.get('config'))
        texts = [f'Changed since the checkpoint was saved:\n{table(found)}'] if found else []
        if moment := resumed.get('not_exact') or (resumed.get('cut_points') and 'inside a point of the run'):
            texts.append(f'the checkpoint was saved {moment}: a resume is not exact')
        texts += self._doubts_of_epoch()
        for text in (*texts, *self._doubts_of_order(), *self._doubts_of_ranks(resumed)):
            runner.logger.warning('%s', text, extra=NOT_EXACT)

    def _doubts_of_epoch(self) -> Iterator[str]:
        """Users' hooks that begin an epoch a second time, with the state of its middle."""
        for hook in self._runner.hooks if self._runner.progress.batches else ():
            is_users = not type(hook).__module__.startswith('runnerkit.')
            if is_users and overrides(hook, 'state_dict') and listens(hook, 'before_train_epoch'):
                yield (
                    f'the run continues inside an epoch: {type(hook).__name__}.before_train_epoch is called a second '
                    'time for it, with the state of the checkpoint. If that must not change the state, let it return '
                    'where runner.progress.batches is above 0'
                )

    def _doubts_of_ranks(self, resumed: Mapping[str, Any]) -> Iterator[str]:
        """The effect of a different number of ranks on the ranks' states."""
        now, known, before = self._runner.world_size, len(resumed['ranks']), resumed['world_size']
        if known < min(before, now):
            yield (
                f'the checkpoint holds the state of {known} of {before} ranks, because one rank saved it alone '
                '(save_checkpoint). The others copy random states, hooks, data positions and unfinished '
                'gradients from rank 0. To save all, call runner.save() on every rank'
            )
        elif now > before:
            differ = self._runner.snapshots.draws_differ()
            derived, same = 'random states derived from those of rank 0 and their rank', 'the random states of rank 0'
            states = derived if differ else f'{same}, which all ranks had'
            yield f'new ranks start with {states}, and with the hook states of rank 0'
        elif now < before:
            yield f'the random states and hooks of the ranks from {now} on are dropped'

    def _doubts_of_order(self) -> Iterator[str]:
        """Hooks that a subclass's ``call_hook`` calls after the checkpoint of that moment is written."""
        runner = self._runner
        if runner.hooks.calls_parts or runner.hooks.entered is not None:
            return
        for point, by_epoch in (('after_train_iter', False), ('after_train_epoch', True)):
            calls = [hook for hook in runner.hooks if listens(hook, point)]
            saves = (
                hook for hook in calls if isinstance(hook, (CheckpointHook, EvalHook)) and hook.by_epoch == by_epoch
            )
            saving = next(saves, None)
            for hook in calls[calls.index(saving) + 1 :] if saving is not None else ():
                if not hook.runs_last and not only_looks_on(type(hook).__name__) and keeps_state(hook):
                    yield (
                        f'{type(runner).__name__}.call_hook calls {type(hook).__name__} after '
                        f'{type(saving).__name__}, so a checkpoint holds its state of the step before. Register it '
                        "with a lower priority number (priority='ABOVE_NORMAL'), or let call_hook call "
                        'super().call_hook'
                    )

    def tell_doubts(self) -> None:
        """At the first start, log what a resume may not restore exactly."""
        runner, orders = self._runner, self._runner.updater.orders
        texts = [text for reader in runner.readers.entries for text in doubts_about(reader.dataloader)]
        texts += [] if orders is None else orders.doubts()
        if is_sharded(runner.model) and not shards_exactly():
            texts.append('Before torch 2.13, a model sharded by fully_shard may compute other weights after it')
        for text in dict.fromkeys((*texts, *self._doubts_of_order())):
            runner.logger.info('A resume of this run may not be exact. %s', text, extra=NOT_EXACT)

    # --- optimizers --------------------------------------------------------------------------------------------------

    def load_optimizers(self, states: Mapping[str, Any], checkpoint: str, saved: Mapping[str, Any]) -> None:
        """Load the optimizers' states; `config_wins` decides which of changed settings holds."""
        runner, self._of_optimizers = self._runner, []
        problem = self._why_other_optimizers(saved) if runner.config_wins else None
        for name, optimizer in named_optimizers(runner.optimizer).items():
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
        """Why the states in a checkpoint are of other optimizers; None if they fit, or if it does not say."""
        if not saved.get('settings'):
            return None
        was, now = (
            {name: kind.removesuffix(FUSED) for name, kind in kinds.items()}
            for kinds in (saved['conditions']['optimizer'], optimizer_kinds(self._runner.optimizer))
        )
        if was != now:
            return f'it was {was.get("", was)} and is {now.get("", now)}'
        groups = {name: groups for name, (_, groups) in self._groups.items()}
        return why_other_parameters(saved['settings']['groups'], groups)

    def _settled(
        self, name: str, optimizer: Optimizer, state: Mapping[str, Any], saved: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The ``state`` of an optimizer with this run's settings where they differ from those of the saved run."""
        runner, settings = self._runner, saved.get('settings') or {}
        if name not in settings.get('groups', {}):
            return state  # a file without settings
        was, now = settings['groups'][name], self._groups[name][1]
        scaled_for, ranks = runner.lr_scaled_for and runner.lr_scaled_for[0], saved['world_size']
        # A changed number of ranks alone leaves the rates as they are.
        if scaled_for and settings.get('lr_scaled_for', scaled_for) == scaled_for and ranks != runner.world_size:
            now = with_rates_of(now, ranks / runner.world_size)
            runner.logger.info(
                'auto_scale_lr: the learning rates stay those of %d ranks, not %d', ranks, runner.world_size
            )
        scheduled = schedules(runner.hooks)
        replaced = sets_own_rates(name, scheduled)
        self._of_optimizers += optimizer_changes(name, was, now, runner.config_wins, replaced)
        if not runner.config_wins:
            self._groups[name] = optimizer, was  # in effect, and in the next checkpoint
            return state
        problems = [why_not_settled(optimizer, state, *each) for each in zip(was, now, strict=False)]
        if any(problems):
            raise ValueError(next(filter(None, problems)))
        replaced_schedules = rescheduled(name, settings['schedules'], scheduled)
        self._of_optimizers += [
            Change(
                f'optimizer{name and " " + name}: schedule of {key}',
                *kinds,
                'it begins with the setting of the optimizer',
            )
            for key, kinds in replaced_schedules.items()
        ]
        pairs = zip(state['param_groups'], was, now, optimizer.param_groups, strict=False)
        groups = [settled_group(*each, replaced_schedules) for each in pairs]
        return {**state, 'param_groups': [*groups, *state['param_groups'][len(groups) :]]}


def keeps_state(hook: Hook) -> bool:
    """Whether checkpoints hold data of ``hook``, in its state or, like averaged weights, in the model's."""
    return overrides(hook, 'state_dict') or hasattr(hook, 'around_save')
