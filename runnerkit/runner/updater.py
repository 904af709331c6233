"""How a runner changes weights: one `Update` per optimizer, or one for all of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from runnerkit.distributed import all_gather_objects
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.settings import FUSED
from runnerkit.optim.update import Update, mean_gradients
from runnerkit.parallel.dtensors import is_sharded, laid_out_like, own_of_stacked, stacked
from runnerkit.parallel.steps import check_loss
from runnerkit.parallel.wrappers import is_fsdp2
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.suggest import suggestion

if TYPE_CHECKING:
    from runnerkit.parallel.buckets import GradientOrders


class _UpdatedRunner(Protocol):
    """What `Updater` reads of its runner. Model, optimizer and logger may be replaced before a run."""

    model: Any
    optimizer: Optimizer | dict[str, Optimizer] | None
    logger: logging.Logger
    snapshots: Any
    config_wins: bool
    rank: int
    world_size: int


class Updater:
    """The part of the engine that changes weights.

    Args:
        runner: the run's runner.

    Attributes:
        updates: the `Update` of each optimizer by its name or the optimizer itself; None: all of them together.
        calls: how often `update` was called.
        losses_by_optimizer: how many losses each of several optimizers got, by name.
        orders: the order in which gradients are summed over the ranks; created at the first start on several.
    """

    def __init__(self, runner: _UpdatedRunner) -> None:
        self._runner = runner
        self.updates: dict[Any, Update] = {}
        self.calls = 0
        self.losses_by_optimizer: Counter[str] = Counter()
        self.orders: GradientOrders | None = None
        self._options: dict[str, Any] = {}  # the default for updates that are not configured
        self._options_of: dict[Any, dict[str, Any]] = {}  # what each update was configured with
        self._averaged_before: bool | None = None  # the model's averages_each_backward before the run

    def configure(self, optimizer: Optimizer | str | None = None, **options: Any) -> Update:
        """Configure `update` of ``optimizer``; ``options`` are those of `runnerkit.optim.update.Update`.

        With several optimizers, None means all of them together, and sets the default of each. Calling it again with
        the same options, as when a runner runs again, changes nothing: an unfinished cycle continues.
        """
        former, optimizers = self.updates.get(optimizer), self._optimizers(optimizer)
        if former is not None and former.optimizers == optimizers and self._options_of.get(optimizer) == options:
            return former
        if former is not None:
            former.retire()
        if optimizer is None:
            self._options = options
        self._options_of[optimizer] = options
        update = self.updates[optimizer] = self._new_update(optimizer, options)
        return update

    def named(self) -> dict[str, Update]:
        """The updates by name."""
        return {self.name_of(key): update for key, update in self.updates.items()}

    def configured(self) -> dict[str, Update]:
        """Those of `named` that `configure` made; the others follow the default, and come with their first loss."""
        return {self.name_of(key): self.updates[key] for key in self._options_of}

    # --- as a part ---------------------------------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """With several optimizers or modes, let each backward pass average only the gradients that it computes."""
        model, has_several = runner.model, len(named_optimizers(runner.optimizer)) > 1
        if hasattr(model, 'averages_each_backward'):
            if self._averaged_before is None:
                self._averaged_before = model.averages_each_backward
            model.averages_each_backward = has_several or runner.plan.has_modes
        elif has_several and isinstance(model, DistributedDataParallel):
            runner.logger.warning(
                '%s expects that each backward pass reaches all parameters, which losses for one of several optimizers '
                'do not: wrap the model in MMDistributedDataParallel, which runs without that',
                type(model).__name__,
            )

    def after_run(self, runner: Any) -> None:
        """Restore the model's setting: a nested run may train the same model."""
        if self._averaged_before is not None:
            runner.model.averages_each_backward, self._averaged_before = self._averaged_before, None

    def follow_orders(self) -> None:
        """Sum gradients in the order of the resumed run; record new orders."""
        model, resumed = self._runner.model, self._runner.snapshots.resumed or {}
        if self._runner.world_size == 1:
            return
        from runnerkit.parallel.buckets import GradientOrders

        if self.orders is None or self.orders.model is not model:
            self.orders = GradientOrders(model)
        for text in self.orders.doubts() if resumed else ():
            self._runner.logger.warning('%s', text, extra=NOT_EXACT)
        self.orders.start(resumed.get('gradient_orders', {}))

    def forget_cycles(self) -> None:
        """Discard the gradients of unfinished cycles."""
        for update in self.updates.values():
            update.accumulated = 0

    # --- in checkpoints ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Loss scales, and the gradients of unfinished cycles."""
        updates = ((self.name_of(key) if key else '', update) for key, update in self.updates.items())
        return {'updates': {name: update.state_dict() for name, update in updates}}

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Restore loss scales and the gradients of an unfinished cycle: this rank's, or the mean of all if their number
        has changed."""
        runner, ranks = self._runner, self._runner.snapshots.resumed['ranks']
        updates = dict(own['updates'])
        if len(ranks) != runner.world_size or is_sharded(runner.model):
            for name in dict.fromkeys(name for rank in ranks for name in rank['updates']):  # alike on all ranks
                means = mean_gradients([rank['updates'].get(name, {'accumulated': 0}) for rank in ranks])
                updates[name] = {'accumulated': 0, **updates.get(name, {}), 'grads': means}
        if any(state.get('is_without_gradients') for state in updates.values()):
            runner.logger.warning(
                'the checkpoint lacks the gradients of an unfinished accumulation cycle: the next update is made '
                'without them',
                extra=NOT_EXACT,
            )
        for name, state in updates.items():
            if not runner.config_wins:  # the loss scale is the checkpoint's, as in MMCV
                state = {key: value for key, value in state.items() if key != 'first_scale'}
            self._of(name).load_state_dict(state)
        self._restore_kept({name: state.get('kept', ()) for name, state in updates.items()})

    def add_kept(self, states: dict[str, Any]) -> None:
        """Add to the ``states`` of the updates what FSDP2 has not summed over the ranks yet, or warn that it is lost.
        All ranks call it."""
        kept = self.kept_gradients()
        for name, update in self.named().items():
            if not update.accumulated:
                continue
            if kept:
                states[name]['kept'] = [kept.get(id(parameter)) for parameter in update.parameters()]
            elif not any(parameter.grad is not None for parameter in update.parameters()):
                states[name]['is_without_gradients'] = True
                self._runner.logger.warning(
                    'the checkpoint is saved after %d of the losses of one update, whose gradients the model keeps '
                    'to itself until the update (no_sync): a resumed run makes that update without them. Save where '
                    'cumulative_iters (%d) ends',
                    update.accumulated,
                    update.cumulative_iters,
                    extra=NOT_EXACT,
                )

    def kept_gradients(self) -> dict[int, Any]:
        """Gradients that FSDP2 has not summed over the ranks yet, by parameter id; each is a `DTensor` with one part
        per rank. All ranks call it.
        """
        model = self._runner.model
        if not (is_fsdp2(model) and any(update.accumulated for update in self.updates.values())):
            return {}
        own = model.kept_gradients()
        names = dict.fromkeys(name for each in all_gather_objects(list(own)) for name in each)
        parameters = dict(model.module.named_parameters())
        found = {}
        for name in names:  # a rank may not have used a parameter
            parameter = parameters[name]
            value = own[name] if name in own else torch.zeros(parameter.shape, dtype=parameter.dtype)
            found[id(parameter)] = stacked(value, parameter)
        return found

    def _restore_kept(self, kept: Mapping[str, Sequence[Any]]) -> None:
        """Restore gradients that FSDP2 had not summed over the ranks: this rank's if FSDP2 will sum them; the mean if
        it cannot, or if the number of ranks has changed."""
        model, world_size = self._runner.model, self._runner.world_size
        wrapper = model if is_fsdp2(model) and model.keeps_gradients else None
        ranks = 0 if wrapper is None and is_sharded(model) else world_size
        found: dict[Any, Any] = {}
        for name, values in kept.items():
            update = self._of(name)
            if update.accumulated:
                found.update(zip(update.parameters(), values, strict=False))
        rank = self._runner.rank
        found = {key: own_of_stacked(each, rank, ranks) for key, each in found.items() if each is not None}
        if wrapper is not None:
            wrapper.keep_gradients({name: found[p] for name, p in wrapper.module.named_parameters() if p in found})
            return
        for parameter, value in found.items():
            parameter.grad = laid_out_like(value, parameter).to(parameter.device, parameter.dtype, copy=True)

    def _of(self, name: str) -> Update:
        return self.updates.get(name or None) or self.default(name or None)

    def default(self, optimizer: Optimizer | str | None) -> Update:
        """The update of an optimizer without an entry in `updates`: that of its name, of the only one, or a new one."""
        key = optimizer
        if isinstance(optimizer, Optimizer):
            named = named_optimizers(self._runner.optimizer)
            key = next((name or None for name, each in named.items() if each is optimizer), optimizer)
        if key not in self.updates:
            self.updates[key] = self._new_update(key, self._options)
        self.updates[optimizer] = self.updates[key]
        return self.updates[key]

    def name_of(self, key: Any) -> str:
        """The name of the optimizer with the key ``key`` in `updates`; empty for all optimizers together."""
        named = named_optimizers(self._runner.optimizer).items()
        return next((name for name, each in named if each is key), key if isinstance(key, str) else '')

    def _new_update(self, key: Optimizer | str | None, options: Mapping[str, Any]) -> Update:
        named = named_optimizers(self._runner.optimizer)
        if options.get('fused') == 'auto' and self._resumes_default():
            options = {**options, 'fused': None}
        is_one_of_several = len(named) > 1 and any(key == name or key is each for name, each in named.items())
        return Update(self._optimizers(key), is_one_of_several=is_one_of_several, **options)

    def _resumes_default(self) -> bool:
        """Whether the resumed run had torch's default implementations."""
        kinds = (self._runner.snapshots.resumed or {}).get('conditions', {}).get('optimizer', {})
        return bool(kinds) and not any(kind.endswith(FUSED) for kind in kinds.values())

    def _optimizers(self, optimizer: Optimizer | str | None) -> list[Optimizer]:
        if isinstance(optimizer, Optimizer):
            return [optimizer]
        named = named_optimizers(self._runner.optimizer)
        if not named:
            raise RuntimeError('the runner has no optimizer: give it one (optimizer=…), or do not call update')
        if optimizer is None:
            return list(named.values())
        if not optimizer or optimizer not in named:
            known = sorted(name for name in named if name)
            raise KeyError(
                f'unknown optimizer {optimizer!r}; available: {known or "no named ones"}'
                f'{suggestion(str(optimizer), known)}. Name each loss after its optimizer in the config'
            )
        return [named[optimizer]]


def update(runner: Any, loss: Tensor | Mapping[str, Tensor], optimizer: Optimizer | str | None = None) -> None:
    """Take one step down the gradient of ``loss``. runnerkit changes weights in no other way.

    Zero at the start of a cycle, scale, backward, unscale, clip, step: see `runnerkit.optim.update.Update`.

    Several losses by optimizer are one update: first all backward passes, then all steps. One of several optimizers
    steps with the gradients of its loss only: its backward pass computes no gradients of other parameters.
    """
    is_single = isinstance(loss, Tensor) or not isinstance(loss, Mapping)
    losses: dict[Any, Any] = {optimizer: loss} if is_single else dict(loss)
    updater, progress, max_iters = runner.updater, runner.progress, runner.plan.max_iters
    updates = {}
    for key in losses:
        updates[key] = updater.updates.get(key) or updater.default(key)
    updater.calls += 1
    waiting = len(losses)
    for key, update in updates.items():
        waiting -= 1
        if isinstance(runner.optimizer, dict):
            updater.losses_by_optimizer.update(list(runner.optimizer) if key is None else [updater.name_of(key)])
        try:
            update.backward(losses[key], progress.iter, max_iters, runner.model, runner.logger, waiting > 0)
        except (AttributeError, RuntimeError):
            check_loss(losses[key], runner.model, '' if is_single else key)
            raise
    listeners = runner.hooks.calls
    if listeners['after_backward']:
        runner.call_hook('after_backward')
    has_stepped = False
    for key, update in updates.items():
        if update.cumulative_iters == 1 or update.is_due(progress.iter, max_iters):
            norm = update.step(runner.model)
            has_stepped = True
            if norm is not None:
                name = f'grad_norm_{updater.name_of(key)}' if update.is_one_of_several else 'grad_norm'
                runner.log_buffer.update({name: norm}, runner.outputs.get('num_samples', 1))
    if has_stepped and listeners['after_step']:
        runner.call_hook('after_step')
