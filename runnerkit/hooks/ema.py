"""Running averages of the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint import ema_name
from runnerkit.checkpoint.integrity import is_mmcv_file
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.hooks.hook import HOOKS, Hook, Priority, RunnerView, get_priority
from runnerkit.parallel import named_buffers, named_parameters, unwrap
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.numbers import check_finite, check_whole_number


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class EMAHook(Hook):
    """Keeps an exponential moving average of every parameter: ``average = (1 - m) * average + m * parameter``.

    Evaluation and checkpoints use the averages, whatever the hooks' priorities. A file holds the averages under the
    model's own names, and the raw weights as ``ema_<name>`` (MMCV's layout). Training continues from the raw weights,
    also after a resume. The averages of a model with lazy modules begin at its first batch.

    Args:
        momentum: the weight ``m`` of the newest parameters, in (0, 1).
        interval: iterations between two updates of the averages, at least 1; ``m`` is then ``1 - (1 - momentum) **
            interval``.
        warm_up: as in MMCV: in iteration ``k`` (from 0) ``m`` is at most ``(1 + k) / (warm_up + k)``, so that a large
            momentum starts smaller. This limit is never below 1 / warm_up, so it does not affect the default momentum.
        resume_from: a checkpoint to resume when the run starts; left out if the run itself is resumed.
        decay_warm_up: in iteration ``k`` the average keeps at most ``(1 + k) / (decay_warm_up + k)`` of itself, as in
            TensorFlow's ExponentialMovingAverage (which uses 10), so that the untrained first weights are forgotten
            quickly. 0 switches it off.
    """

    needs_training = True  # a file holds the averages under the model's own names

    momentum: float = 0.0002
    interval: int = 1
    warm_up: int = 100
    resume_from: str | None = None
    decay_warm_up: int = 0

    def __post_init__(self) -> None:
        check_whole_number('interval', self.interval)
        if not 0 < self.momentum < 1:
            raise WrongValue(f'momentum must lie between 0 and 1, but got {self.momentum!r}')
        for name in ('decay_warm_up', 'warm_up'):
            check_finite('EMAHook', {name: getattr(self, name)})
            if getattr(self, name) < 0:
                raise WrongValue(f'{name} must not be negative, but got {getattr(self, name)!r}')
        self.momentum = self.momentum if self.interval == 1 else 1 - (1 - self.momentum) ** self.interval
        self.checkpoint = self.resume_from
        self.param_ema_buffer: dict[str, str] = {}
        self._twins: dict[str, str] = {}  # by every name of a parameter that has several
        self._swapped = False

    def before_run(self, runner: RunnerView) -> None:
        if self.checkpoint is not None and runner.completed_iters:
            done = runner.completed_iters
            runner.logger.info('EMAHook does not resume %s: %d iterations of this run are done', self.checkpoint, done)
        elif self.checkpoint is not None:
            runner.resume(self.checkpoint)
            return
        if _lazy_parameters(runner):
            runner.hooks.listen('after_forward', self._begin_late)  # type: ignore[attr-defined]
        else:
            self._register_averages(runner)

    def _begin_late(self, runner: RunnerView) -> None:
        """Begin after the first batch, which has given lazy modules their weights."""
        runner.hooks.unlisten('after_forward', self._begin_late)  # type: ignore[attr-defined]
        if lazy := _lazy_parameters(runner):
            raise WrongValue(
                f'EMAHook has nothing to average in {", ".join(lazy)}: the first batch did not reach this lazy module, '
                'so it has no weights yet. Call the module once before the run, or remove it'
            )
        self._register_averages(runner)

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        """Swap averages and raw weights: our files hold the averages under the model's names."""
        state = checkpoint['state_dict']
        for name, parameter in _lazy_parameters(runner).items():
            if name in state:
                parameter.materialize(state[name].shape)
        self._register_averages(runner)
        swapped = not is_mmcv_file(checkpoint) or self._swapped_by_mmcv(runner)
        missing = [twin for twin in self.param_ema_buffer.values() if twin not in state]
        if missing:
            runner.logger.warning(
                'the checkpoint has no averages (%d parameters): they start at its weights', len(missing)
            )
        found: dict[str, Tensor] = {}
        for name, twin in self._twins.items():
            if name in state:
                own, other = state[name], state.get(twin, state[name])
                found[name] = other if swapped else own
                found[twin] = (own if swapped else other).clone()
        state.update(found)

    def _swapped_by_mmcv(self, runner: RunnerView) -> bool:
        """Whether MMCV saved the averages under the model's names.

        MMCV's hook swaps both halves at the end of an epoch. With a priority below NORMAL, that of its checkpoint hook,
        it does so before the file is written. Files saved by iteration are never swapped.
        """
        early = get_priority(getattr(self, 'priority', 'NORMAL')) < Priority.NORMAL.value
        return early and runner.by_epoch and saves_by_epoch(runner.hooks)

    def after_train_iter(self, runner: RunnerView) -> None:
        if runner.iter % self.interval:
            return
        m = self._momentum_at(runner.iter)
        with torch.no_grad():
            torch._foreach_mul_(self._averages, 1 - m)
            torch._foreach_add_(self._averages, self._parameters, alpha=m)

    def around_val(self, runner: RunnerView) -> AbstractContextManager[None]:
        return self._averaged()

    def around_save(self, runner: RunnerView) -> AbstractContextManager[None]:
        return self._averaged()

    def use_averages(self) -> None:
        """Put the averages in the place of the weights for good, after a run."""
        if self.param_ema_buffer and not self._swapped:
            self._swap_ema_parameters()

    def _momentum_at(self, k: int) -> float:
        m = self.momentum
        if self.warm_up > 1:
            m = min(m, (1 + k) / (self.warm_up + k))
        if self.decay_warm_up > 1:
            m = max(m, 1 - (1 + k) / (self.decay_warm_up + k))
        return m

    def _register_averages(self, runner: RunnerView) -> None:
        """Give the model a buffer for each parameter's average, once."""
        model = unwrap(runner.model)
        if not self.param_ema_buffer:
            outer = getattr(runner, 'parent', None)
            while outer is not None:
                if unwrap(outer.model) is model:
                    raise WrongValue(
                        'an EMAHook of a nested run cannot average the very model of the run around it: the averages '
                        "are buffers of the model, and would get into that run's checkpoints. Register the hook with "
                        'that run, or train a copy of the model (copy.deepcopy)'
                    )
                outer = outer.parent
            parameters = named_parameters(model)
            check_names(parameters)
            for name, parameter in parameters.items():
                self.param_ema_buffer[name] = ema_name(name)
                model.register_buffer(ema_name(name), parameter.detach().clone())
            twins = {id(parameter): ema_name(name) for name, parameter in parameters.items()}
            every = named_parameters(model, remove_duplicate=False)
            self._twins = {name: twins[id(parameter)] for name, parameter in every.items()}
        # By name, for subclasses written for MMCV.
        self.model_parameters, self.model_buffers = named_parameters(model), named_buffers(model)
        # By .data: autograd does not count the swaps of a save between a forward and its backward pass.
        self._parameters: list[Tensor] = [self.model_parameters[name].data for name in self.param_ema_buffer]
        self._averages: list[Tensor] = [self.model_buffers[twin] for twin in self.param_ema_buffer.values()]

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Put the averages in the place of the weights; nested spans change nothing more."""
        if self._swapped or not self.param_ema_buffer:  # a dry run has no averages yet
            yield
            return
        self._swap_ema_parameters()
        try:
            yield
        finally:
            self._swap_ema_parameters()

    def _swap_ema_parameters(self) -> None:
        """Swap weights and averages. The name is MMCV's; subclasses call and replace it."""
        with torch.no_grad():
            for parameter, average in zip(self._parameters, self._averages, strict=True):
                kept = average.clone()
                average.copy_(parameter)
                parameter.copy_(kept)
        self._swapped = not self._swapped


def _lazy_parameters(runner: RunnerView) -> dict[str, Any]:
    """The parameters of lazy modules that have had no input yet, by name."""
    return {name: each for name, each in named_parameters(runner.model).items() if is_lazy(each)}


def check_names(parameters: Iterable[str]) -> None:
    """Whether the averages of these parameters have names that differ."""
    owners: dict[str, str] = {}
    for name in parameters:
        other = owners.setdefault(ema_name(name), name)
        if other != name:
            raise WrongValue(
                f'EMAHook cannot tell the averages of {other} and {name} apart, since a checkpoint calls both '
                f'{ema_name(name)} (as in MMCV): rename one of these modules'
            )
