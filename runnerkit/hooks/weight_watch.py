"""Checks that the weights of a run have changed after its first epoch or 200 iterations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runnerkit.hooks.optimizer import OptimizerHook
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.bits import bit_words, has_bits, in_memory_order
from runnerkit.parallel.dtensors import local_part

#: After how many iterations of a run the weights are compared, if no epoch has ended before.
FIRST_LOOK = 200

_POINTS = ('before_train_epoch', 'after_train_iter')

#: How many updates a dynamic loss scale may skip until it is small enough.
_SKIPPED_FP16 = 24


class WeightWatch:
    """Logs an error if the weights of a run have not changed, as soon as they should have.

    That is the end of the first epoch or `FIRST_LOOK` iterations, whichever comes first, but not before the first
    accumulation cycle is complete. While all learning rates are 0 (a warm-up) or nothing is trainable, it waits.
    Weights are compared by checksums of all their bits, so any way to change them counts. It is a part of the engine,
    called at the points of a run until the comparison.

    Attributes:
        due: the number, from 1, of the iteration after which to compare; -1: never.
    """

    def __init__(self) -> None:
        self.due = -1
        self._begun = 0
        self._weights: list[nn.Parameter] = []
        self._before: list[Tensor] = []
        self._is_told = False

    def begin(self, runner: Any) -> None:
        """Note the weights with which the run begins."""
        self._weights = trainable(runner.model)
        self._before = checksums(self._weights)
        self._begun, self._is_told = runner.completed_iters, False
        # One more than that, because the runner asks before the hooks of that iteration have updated anything.
        self.due = self._begun + FIRST_LOOK + 1 if self._weights else -1
        for point in _POINTS:
            runner.hooks.unlisten(point, getattr(self, point))
            if self._weights:
                runner.hooks.listen(point, getattr(self, point))

    def before_train_epoch(self, runner: Any) -> None:
        """Look after an epoch and all its hooks, which may also update the weights."""
        self.look(runner, runner.completed_iters)

    def after_train_iter(self, runner: Any) -> None:
        """Look after the iteration that is due."""
        if runner.completed_iters == self.due:
            self.look(runner, runner.iter)

    def look(self, runner: Any, iters: int) -> None:
        """Compare after ``iters`` iterations; log an error if nothing has changed."""
        if self._is_told or not self._weights or iters <= self._begun:
            return
        wait = iters_to_first_update(runner)
        if iters - self._begun < wait:
            self.due = self._begun + wait + 1
        elif self._has_changed(runner):
            self._forget(runner)
        elif not trainable(runner.model) or (rates(runner) and not any(rates(runner))):
            self.due = iters + FIRST_LOOK + 1
        else:
            self._is_told, self.due = True, -1
            if runner.rank == 0:
                runner.logger.error('%s', self._text(runner, iters))

    def end(self, runner: Any) -> str | None:
        """The notice for the end of the run; None if the weights have changed, or the run was too short."""
        iters, begun, weights = runner.completed_iters, self._begun, self._weights
        is_due = bool(weights) and iters > begun and iters - begun >= iters_to_first_update(runner)
        is_told = is_due and bool(trainable(runner.model)) and not self._has_changed(runner)
        text = self._text(runner, iters) if is_told else None
        self._forget(runner)
        return text

    def _has_changed(self, runner: Any) -> bool:
        """Whether any weight has changed, or all of them are other objects than when the run began."""
        now = {id(parameter) for parameter in trainable(runner.model)}
        pairs = [pair for pair in zip(self._weights, self._before, strict=True) if id(pair[0]) in now]
        if now and not pairs:
            return True
        sums = checksums(weight for weight, _ in pairs)
        return any(bool(one != other) for one, (_, other) in zip(sums, pairs, strict=True))

    def _text(self, runner: Any, iters: int) -> str:
        done = iters - self._begun
        return (
            f'THE WEIGHTS HAVE NOT CHANGED in {done} iteration{"s" * (done > 1)} of this run: '
            f'{reason(runner, self._weights)}'
        )

    def _forget(self, runner: Any) -> None:
        self._weights, self._before, self.due = [], [], -1
        for point in _POINTS:
            runner.hooks.unlisten(point, getattr(self, point))


def trainable(model: Any) -> list[nn.Parameter]:
    """The model's parameters that are trained and whose bits can be read here."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return [each for each in parameters if each.requires_grad and not is_lazy(each) and has_bits(local_part(each))]


def checksums(weights: Iterable[Tensor]) -> list[Tensor]:
    """For each tensor the sum of its words, as integers of their size, on its device."""
    words = (bit_words(in_memory_order(local_part(weight))) for weight in weights)
    return [each.sum(dtype=each.dtype) for each in words]  # a sum in another type would be eighty times slower


def iters_to_first_update(runner: Any) -> int:
    """After how many iterations at most a working run has made an update; each optimizer has its own cycle."""
    updates = list(runner.updater.updates.values())
    cycles = [update.cumulative_iters for update in updates]
    cycles += [cycle for hook in runner.hooks if isinstance(cycle := getattr(hook, 'cumulative_iters', 1), int)]
    several = len(named_optimizers(runner.optimizer)) or 1
    return max(cycles, default=1) * several * (_SKIPPED_FP16 if any(update.scaler for update in updates) else 1)


def rates(runner: Any) -> list[float]:
    """The learning rates of all parameter groups of all optimizers."""
    groups = (group for each in named_optimizers(runner.optimizer).values() for group in each.param_groups)
    return [1.0 if group.get('lr') is None else float(group['lr']) for group in groups]  # None: computed


def reason(runner: Any, weights: Sequence[Tensor]) -> str:
    """The likely reason why the weights do not change, and a remedy."""
    optimizers = named_optimizers(runner.optimizer).values()
    if not optimizers:
        return "the runner has no optimizer. Give it one (optimizer=…), or do not use a 'train' workflow."
    held = {id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group['params']}
    if not any(id(each) in held for each in weights):
        return (
            "the optimizer holds none of the model's trainable parameters. Build it from the parameters of the model "
            'that the runner gets.'
        )
    if not runner.update_calls and not any(isinstance(hook, OptimizerHook) for hook in runner.hooks):
        return (
            'nothing steps the optimizer. Register an OptimizerHook (optimizer_config=dict() in the config or in '
            'register_training_hooks), or step in train_step (in an Experiment: self.update(loss) in train_batch).'
        )
    if not any(rates(runner)):
        return 'all learning rates are 0. Look at optimizer and lr_config.'
    gradients = [local_part(each.grad) for each in weights if each.grad is not None]
    if not gradients:
        return (
            'no parameter has a gradient. The loss that train_step returns must depend on them: look for detach(), '
            'torch.no_grad() and item().'
        )
    if not any(bool(each.count_nonzero()) for each in gradients):
        return 'all gradients are 0. Look at the loss, and for activations without a gradient.'
    return (
        'there are gradients, but the optimizer does not apply them, or its steps are too small for the precision of '
        'the weights.'
    )
