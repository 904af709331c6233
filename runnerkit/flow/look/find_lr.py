"""``runnerkit find-lr``: the range test of Smith (2017), which looks for a good learning rate in some iterations."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from runnerkit.data.reader import epoch_batches
from runnerkit.flow.context import Context
from runnerkit.flow.look.dry_run import sketch
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.hooks import Fp16OptimizerHook, OptimizerHook
from runnerkit.hooks.torch_scheduler import multipliers
from runnerkit.nn.amp import wrap_fp16_model
from runnerkit.optim.update import Update
from runnerkit.runner.workflow import trains

#: The weight of the earlier losses in the smoothed one.
_SMOOTHING = 0.9

#: The test ends when the smoothed loss is so many times the smallest one.
_DIVERGED = 4.0


@dataclass(frozen=True)
class RangeTest:
    """What a range test has found.

    Attributes:
        rates: the learning rate of each iteration, growing by a constant factor.
        losses: the smoothed loss of each iteration.
        diverged: whether the test ended because the loss exploded.
    """

    rates: Sequence[float]
    losses: Sequence[float]
    diverged: bool

    @property
    def steepest(self) -> float | None:
        """The learning rate at which the loss fell fastest (over the logarithm of the rate) on its way to the lowest.

        What comes after the lowest loss does not count: a loss that explodes also falls, and faster. ``None`` if the
        loss rose as fast before, so that the fall is noise, or if it did not fall over three iterations.
        """
        to_lowest = self.losses[: self.losses.index(min(self.losses)) + 1]
        changes = [after - before for before, after in zip(to_lowest, to_lowest[2:], strict=False)]
        if not changes or max(changes[: changes.index(min(changes)) + 1]) >= -min(changes):
            return None
        return self.rates[changes.index(min(changes)) + 1]

    @property
    def lowest(self) -> float:
        """The learning rate at which the loss was lowest."""
        return self.rates[self.losses.index(min(self.losses))]

    def __str__(self) -> str:
        lowest = self.losses.index(min(self.losses))
        # What lies above the first loss says only that it explodes; it would flatten the rest.
        top = max(self.losses[: lowest + 1])
        *plot, _ = sketch([min(loss, top) for loss in self.losses]).splitlines()
        end = 'there the loss explodes' if self.diverged else 'the loss does not explode: try a larger --to'
        advice = 'The loss is too noisy to find a rate: use more --iters, larger batches, or a larger --from.'
        if self.steepest is not None:
            advice = (
                f'fastest fall at {self.steepest:.2g}, lowest loss at {self.lowest:.2g}\n'
                f'Try optimizer.lr={self.steepest:.2g}; the peak of a one-cycle policy lies below {self.lowest:.2g}.'
            )
        head = f'Smoothed loss over the learning rate, {len(self.rates)} iterations:'
        scale = f'            from {self.rates[0]:.3g} to {self.rates[-1]:.3g} on a logarithmic scale; {end}'
        return '\n'.join([head, *plot, scale, advice])


def range_test(runner: Any, loader: Any, low: float, high: float, iters: int, mode: str = 'train') -> RangeTest:
    """Train with a learning rate that grows from ``low`` to ``high``; then the model and optimizer are as before.

    Leslie N. Smith: Cyclical Learning Rates for Training Neural Networks, WACV 2017, section 3.3. Parameter groups keep
    the ratios of their learning rates. An update is what the runner's `OptimizerHook` says: clipping, mixed precision
    and accumulation, for which an iteration of the test takes several batches.

    Args:
        runner: a runner with one optimizer. Its hooks are not called.
        loader: batches to train on, over and over.
        low: the first learning rate, above 0.
        high: the last one, above ``low``.
        iters: how many iterations, at least 3.
        mode: the mode of the workflow that is tested.

    Raises:
        TypeError: the runner has no optimizer, or several.
        ValueError: the numbers are out of their range, or no loss of the first iterations is finite.
    """
    if not 0 < low < high or iters < 3:
        raise ValueError(f'a range test needs 0 < from < to and at least 3 iterations, but got {low}, {high}, {iters}')
    optimizer = runner.optimizer
    if not isinstance(optimizer, Optimizer):
        found = 'none' if optimizer is None else f'several ({", ".join(optimizer)})'
        raise TypeError(f'a range test needs one optimizer, but the runner has {found}')
    kept = copy.deepcopy((runner.model.state_dict(), optimizer.state_dict()))
    factors, batches = multipliers(optimizer), chain.from_iterable(epoch_batches(loader, epoch) for epoch in count())
    update, forward = _update_of(runner, optimizer)
    rates: list[float] = []
    losses: list[float] = []
    average, diverged = 0.0, False
    runner.mode = mode
    modes = [(module, module.training) for module in runner.model.modules()]
    runner.model.train()
    try:
        for index in range(iters):
            rate = low * (high / low) ** (index / (iters - 1))
            for group, factor in zip(optimizer.param_groups, factors, strict=True):
                group['lr'] = rate * factor
            value = 0.0
            for batch in range(update.cumulative_iters):
                value += _take(runner, next(batches), update, forward, batch) / update.cumulative_iters
            average = _SMOOTHING * average + (1 - _SMOOTHING) * value
            smoothed = average / (1 - _SMOOTHING ** (index + 1))
            diverged = not math.isfinite(smoothed) or (len(losses) > 2 and smoothed > _DIVERGED * min(map(abs, losses)))
            if diverged:
                break
            rates.append(rate)
            losses.append(smoothed)
            if update.accumulated:
                update.step(runner.model)
    finally:
        update.retire()
        runner.model.load_state_dict(kept[0])
        optimizer.load_state_dict(kept[1])
        optimizer.zero_grad()
        for module, training in modes:
            module.training = training
    if len(losses) < 3:
        raise ValueError(f'the loss explodes at once, at {low:g}: use a smaller --from')
    return RangeTest(rates, losses, diverged)


def _update_of(runner: Any, optimizer: Optimizer) -> tuple[Update, AbstractContextManager[Any]]:
    """The update that the runner's `OptimizerHook` would configure, and the context for the model's steps."""
    hook = next((hook for hook in runner.hooks if isinstance(hook, OptimizerHook)), OptimizerHook())
    names = ('grad_clip', 'cumulative_iters', 'amp', 'loss_scale')
    update = Update([optimizer], **{name: getattr(hook, name) for name in names})
    if isinstance(hook, Fp16OptimizerHook):
        wrap_fp16_model(runner.model)
        return update, nullcontext()
    return update, update.autocast()


def _take(runner: Any, batch: Any, update: Update, forward: AbstractContextManager[Any], index: int) -> float:
    """Take the ``index``-th step of a cycle, and the gradients of its loss, which is returned."""
    before = update.steps
    with forward:
        runner.run_iter(batch, train_mode=True)
    loss = runner.required('loss')
    if update.steps == before:  # else the model's step has updated the weights itself
        update.backward(loss, index)
    return float(loss.detach()) if isinstance(loss, Tensor) else float(loss)


class FindLr(RunnerBase):
    """The runner stage of ``runnerkit find-lr``: tests the first entry of the workflow that trains.

    ``context['range_test']`` is what it has found; there is none if the workflow does not train.
    """

    def __init__(self, context: Context, low: float, high: float, iters: int) -> None:
        self.low, self.high, self.iters = low, high, iters

    def run(self, context: Context) -> None:
        """Test."""
        for (mode, _), loader in zip(context.workflow, context.loaders, strict=True):
            if trains(mode, context.runner):
                context['range_test'] = range_test(context.runner, loader, self.low, self.high, self.iters, mode)
                return
