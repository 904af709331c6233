"""How a runner changes weights: one `Update` for each optimizer, or for all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.optim.named import learning_rates, momenta, named_optimizers
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.runner.state import RunnerState
from runnerkit.utils.suggest import suggestion


def check_loss(loss: Any, model: nn.Module, optimizer: str = '') -> None:
    """Whether gradients can be computed of what the step of ``model`` returned as its loss.

    Raises:
        TypeError: it is no tensor.
        ValueError: it has several elements, or no gradient.
    """
    name = type(unwrap(model)).__name__
    which = f'the loss[{optimizer!r}]' if optimizer else 'the loss'
    if not isinstance(loss, Tensor):
        raise TypeError(f"{which} of {name}'s step must be a tensor with a gradient, but got {loss!r}")
    if loss.numel() != 1:
        raise ValueError(
            f"{which} of {name}'s step must be one number, but has the shape {tuple(loss.shape)}: return its mean"
        )
    if not loss.requires_grad:
        raise ValueError(
            f"{which} of {name}'s step has no gradient: it does not depend on a parameter that requires one, or was "
            'computed with detach(), item() or no_grad()'
        )


class Updates(RunnerState):
    """The part of a runner that owns the update primitive."""

    #: How often `update` was called, by whomever.
    update_calls = 0

    def configure_update(self, optimizer: Optimizer | str | None = None, **options: Any) -> Update:
        """Say how `update` of ``optimizer`` works; ``options`` are those of `runnerkit.optim.update.Update`.

        With several optimizers, None means all of them together, and sets the default of each. Said again in the same
        words, as when a runner runs again, it changes nothing: an unfinished cycle goes on.
        """
        former, optimizers = self._updates.get(optimizer), self._optimizers(optimizer)
        if former is not None and former.optimizers == optimizers and self._options_of.get(optimizer) == options:
            return former
        if former is not None:
            former.retire()
        if optimizer is None:
            self._update_options = options
        self._options_of[optimizer] = options
        update = self._updates[optimizer] = self._new_update(optimizer, options)
        return update

    def update(self, loss: Tensor | Mapping[str, Tensor], optimizer: Optimizer | str | None = None) -> None:
        """Take one step down the gradient of ``loss``: the only way by which runnerkit changes weights.

        Zero at the start of a cycle, scale, backward, unscale, clip, step: see `runnerkit.optim.update.Update`.

        Several losses by optimizer are one update: first all backward passes, then all steps. One of several
        optimizers, by name or itself, steps with the gradients of its own loss only: a backward pass for it computes
        none of parameters of others.

        Args:
            loss: a tensor of one element with a graph; or several, by the names of the optimizers that each of them is
                for.
            optimizer: one of several, by name or itself; None takes the only one, or all of them together.
        """
        is_single = isinstance(loss, Tensor) or not isinstance(loss, Mapping)
        losses: dict[Any, Any] = {optimizer: loss} if is_single else dict(loss)
        updates = {key: self._updates.get(key) or self._default_update(key) for key in losses}
        self.update_calls += 1
        waiting = len(losses)
        for key, update in updates.items():
            waiting -= 1
            if isinstance(self.optimizer, dict):
                self.losses_by_optimizer.update(list(self.optimizer) if key is None else [self._update_name(key)])
            try:
                update.backward(losses[key], self._iter, self._max_iters, self.model, self.logger, waiting > 0)
            except (AttributeError, RuntimeError):
                check_loss(losses[key], self.model, '' if is_single else key)
                raise
        listeners = self._hook_table.calls
        if listeners['after_backward']:
            self.call_hook('after_backward')
        has_stepped = False
        for key, update in updates.items():
            if update.cumulative_iters == 1 or update.is_due(self._iter, self._max_iters):
                norm = update.step()
                has_stepped = True
                if norm is not None:
                    name = f'grad_norm_{self._update_name(key)}' if update.is_one_of_several else 'grad_norm'
                    self.log_buffer.update({name: norm}, self.outputs.get('num_samples', 1))
        if has_stepped and listeners['after_step']:
            self.call_hook('after_step')

    def current_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rate of every parameter group; by optimizer name where there are several."""
        return learning_rates(self.optimizer)

    def current_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momentum (or first beta) of every parameter group, 0 where there is none; by name for several
        optimizers."""
        return momenta(self.optimizer)

    def _default_update(self, optimizer: Optimizer | str | None) -> Update:
        """The update of an optimizer that was not configured by this name: its name's, the only one's, or a new one."""
        key = optimizer
        if isinstance(optimizer, Optimizer):
            named = named_optimizers(self.optimizer)
            key = next((name or None for name, each in named.items() if each is optimizer), optimizer)
        if key not in self._updates:
            self._updates[key] = self._new_update(key, self._update_options)
        self._updates[optimizer] = self._updates[key]
        return self._updates[key]

    def _update_name(self, key: Any) -> str:
        named = named_optimizers(self.optimizer).items()
        return next((name for name, each in named if each is key), key if isinstance(key, str) else '')

    def _new_update(self, key: Optimizer | str | None, options: Mapping[str, Any]) -> Update:
        named = named_optimizers(self.optimizer)
        is_one_of_several = len(named) > 1 and any(key == name or key is each for name, each in named.items())
        return Update(self._optimizers(key), is_one_of_several=is_one_of_several, **options)

    def _optimizers(self, optimizer: Optimizer | str | None) -> list[Optimizer]:
        if isinstance(optimizer, Optimizer):
            return [optimizer]
        named = named_optimizers(self.optimizer)
        if not named:
            raise RuntimeError('the runner has no optimizer: give it one (optimizer=…), or do not call update')
        if optimizer is None:
            return list(named.values())
        if not optimizer or optimizer not in named:
            known = sorted(name for name in named if name)
            raise KeyError(
                f'unknown optimizer {optimizer!r}; available: {known or "no named ones"}'
                f'{suggestion(str(optimizer), known)}'
            )
        return [named[optimizer]]
