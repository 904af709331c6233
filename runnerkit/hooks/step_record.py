"""What a model's step has returned, and where in the run, as one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runnerkit.parallel.steps import required_output


@dataclass(frozen=True, eq=False)
class StepRecord:
    """The result of one step and the counters of its iteration: ``runner.step_record()``.

    It is made when it is asked for. Tensors in it are detached: it may be kept, and holds no graph (the loss with its
    graph is ``runner.outputs['loss']``). Nothing waits for the device before a number is read: `cost`,
    `numbers`.

    Attributes:
        epoch: the running epoch, from 0, as ``runner.epoch``.
        iter: the running training iteration, from 0, as ``runner.iter``; in an evaluation, the one that comes next, or
            that is not over yet.
        mode: ``'train'``, ``'val'``, or the name of another workflow mode.
        model_name: the class of the model.
        values: what of it the step has returned: ``loss``, ``log_vars`` and ``num_samples``.
    """

    epoch: int
    iter: int
    mode: str
    model_name: str
    values: Mapping[str, Any] = field(repr=False)

    @property
    def loss(self) -> Tensor:
        """The loss, a tensor of one element; the sum where the step has returned several.

        Raises:
            KeyError: the step has returned none, as one may that updates the weights itself.
        """
        losses = list(self.losses.values())
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    @property
    def cost(self) -> float:
        """The loss as a number, for which the device is waited for.

        Raises:
            KeyError: as `loss`.
        """
        return float(self.loss)

    @property
    def losses(self) -> dict[str, Tensor]:
        """The losses by the names of their optimizers; a single one has the name ``''``.

        Raises:
            KeyError: as `loss`.
        """
        loss = required_output('loss', self.values, self.model_name)
        return {name: torch.as_tensor(each) for name, each in (loss if isinstance(loss, dict) else {'': loss}).items()}

    @property
    def log_vars(self) -> dict[str, Tensor | float]:
        """What the step has given to the log; empty if there is nothing."""
        return self.values.get('log_vars', {})

    @property
    def numbers(self) -> dict[str, float]:
        """`log_vars` as numbers, an error rate among them; the device is waited for."""
        return {name: float(value) for name, value in self.log_vars.items()}

    @property
    def num_samples(self) -> int:
        """How many samples the values are averages of.

        Raises:
            KeyError: the step does not say.
        """
        return required_output('num_samples', self.values, self.model_name)


def record_of(outputs: Mapping[str, Any], model_name: str, epoch: int, iter: int, mode: str) -> StepRecord:
    """Make the record of a step that has returned ``outputs``."""
    values = {key: _without_graph(outputs[key]) for key in ('loss', 'log_vars', 'num_samples') if key in outputs}
    return StepRecord(epoch, iter, mode, model_name, values)


def _without_graph(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    return {name: _without_graph(each) for name, each in value.items()} if isinstance(value, Mapping) else value
