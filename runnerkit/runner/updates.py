"""How a runner changes weights: one `Update` for each optimizer, or for all of them together."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.optim.named import learning_rates, momenta, named_optimizers
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.runner.state import RunnerState


def check_loss(loss: Any, model: nn.Module) -> None:
    """Whether gradients can be computed of what the step of ``model`` returned as its loss.

    Raises:
        TypeError: it is no tensor.
        ValueError: it has several elements, or no gradient.
    """
    name = type(unwrap(model)).__name__
    if not isinstance(loss, Tensor):
        raise TypeError(f"the loss of {name}'s step must be a tensor with a gradient, but got {loss!r}")
    if loss.numel() != 1:
        raise ValueError(
            f"the loss of {name}'s step must be one number, but has the shape {tuple(loss.shape)}: return its mean"
        )
    if not loss.requires_grad:
        raise ValueError(
            f"the loss of {name}'s step has no gradient: it does not depend on a parameter that requires one, or was "
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
        update = self._updates[optimizer] = Update(optimizers, **options)
        return update

    def update(self, loss: Tensor, optimizer: Optimizer | str | None = None) -> None:
        """Take one step down the gradient of ``loss``: the only way by which runnerkit changes weights.

        Args:
            loss: a tensor of one element with a graph.
            optimizer: one of several, by name or itself; None takes the only one, or all of them together.

        Zero at the start of a cycle, scale, backward, unscale, clip, step: see `runnerkit.optim.update.Update`.
        """
        update = self._updates.get(optimizer) or self._default_update(optimizer)
        self.update_calls += 1
        try:
            update.backward(loss, self._iter, self._max_iters, self.model, self.logger)
        except (AttributeError, RuntimeError):
            check_loss(loss, self.model)
            raise
        listeners = self._hook_table.calls
        if listeners['after_backward']:
            self.call_hook('after_backward')
        if update.cumulative_iters == 1 or update.is_due(self._iter, self._max_iters):
            norm = update.step()
            if norm is not None:
                self.log_buffer.update({'grad_norm': norm}, self.outputs.get('num_samples', 1))
            if listeners['after_step']:
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
            self._updates[key] = Update(self._optimizers(key), **self._update_options)
        self._updates[optimizer] = self._updates[key]
        return self._updates[key]

    def _optimizers(self, optimizer: Optimizer | str | None) -> list[Optimizer]:
        if isinstance(optimizer, Optimizer):
            return [optimizer]
        named = named_optimizers(self.optimizer)
        if not named:
            raise RuntimeError('the runner has no optimizer: give it one (optimizer=…), or do not update')
        if optimizer is None:
            return list(named.values())
        if not optimizer or optimizer not in named:
            known = sorted(name for name in named if name)
            raise KeyError(f'there is no optimizer {optimizer!r}; there are {known or "no named ones"}')
        return [named[optimizer]]
