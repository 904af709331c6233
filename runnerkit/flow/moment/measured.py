"""One iteration in numbers: rates, loss, and for each part of the model its gradient and its update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from runnerkit.flow.moment.replay import Moment
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import named_parameters
from runnerkit.parallel.dtensors import all_of
from runnerkit.utils.exceptions import NonFiniteError
from runnerkit.utils.numbers import plain_number


@dataclass
class Part:
    """A part of the model.

    Attributes:
        name: a submodule, or a parameter that belongs to none.
        gradient: the norm of its gradient before clipping; None without one.
        largest: the largest absolute value in that gradient.
        non_finite: the share of its values that are NaN or infinite.
        update: the norm of the weights' change divided by that of the weights.
    """

    name: str
    gradient: float | None
    largest: float | None
    non_finite: float | None
    update: float


@dataclass
class Iteration:
    """An iteration, and what its step has done.

    Attributes:
        number: how many iterations were done before.
        epoch: from 1.
        values: learning rates, loss and log values by name.
        error: that of a run that has ended in it because it diverged.
        parts: of the model; the first one is the whole of it.
    """

    number: int
    epoch: int
    values: dict[str, float] = field(default_factory=dict)
    error: NonFiniteError | None = None
    parts: list[Part] = field(default_factory=list)


def measured_step(moment: Moment) -> Iteration:
    """Train the iteration that comes, and measure it; every rank calls it.

    With several optimizers, gradients are those at the end of the iteration.
    """
    run, found = moment.run, Iteration(moment.iter, moment.epoch + 1)
    parameters = named_parameters(moment.model)
    before = {name: all_of(parameter.detach()).clone() for name, parameter in parameters.items()}
    gradients: dict[str, Tensor] = {}

    def note(runner: Any) -> None:
        gradients.update(
            {name: all_of(p.grad).detach().clone() for name, p in parameters.items() if p.grad is not None}
        )

    def note_rates(runner: Any) -> None:  # an evaluation calls the point as well
        for name, optimizer in named_optimizers(runner.optimizer).items() if not found.values else ():
            found.values[f'lr {name}'.strip()] = optimizer.param_groups[0]['lr']

    points = {'after_forward': note_rates, 'after_backward': note}
    for point, call in points.items():
        run.hooks.listen(point, call)
    try:
        moment.step()
    except NonFiniteError as error:
        found.error = error
    finally:
        for point, call in points.items():
            run.hooks.unlisten(point, call)
    if not gradients or isinstance(run.optimizer, dict):
        note(run)
    outputs = dict(run.outputs)
    losses = outputs.get('loss')
    named: Mapping[str, Any] = losses if isinstance(losses, Mapping) else {'': losses}
    values = {**{f'loss {name}'.strip(): each for name, each in named.items()}, **outputs.get('log_vars', {})}
    values = {name: plain_number(each) for name, each in values.items()}
    found.values |= {name: float(each) for name, each in values.items() if isinstance(each, int | float)}
    change = {name: all_of(parameters[name].detach()) - before[name] for name in before}
    for name, inside in [('model', list(before)), *names_by_part(list(before)).items()]:
        own = [gradients[each] for each in inside if each in gradients]
        found.parts.append(
            Part(
                name,
                norm(own) if own else None,
                max(float(each.abs().max()) for each in own) if own else None,
                sum(int((~each.isfinite()).sum()) for each in own) / sum(each.numel() for each in own) if own else None,
                norm([change[each] for each in inside]) / max(norm([before[each] for each in inside]), 1e-30),
            )
        )
    return found


def names_by_part(names: list[str]) -> dict[str, list[str]]:
    """Parameters by part of the model: by the first piece of their names that is not the same for all."""
    pieces = [name.split('.') for name in names]
    depth = 0
    while len({tuple(each[: depth + 1]) for each in pieces}) == 1 and all(len(each) > depth + 2 for each in pieces):
        depth += 1
    found: dict[str, list[str]] = {}
    for name, each in zip(names, pieces, strict=True):
        found.setdefault('.'.join(each[: depth + 1]), []).append(name)
    return found


def norm(tensors: list[Tensor]) -> float:
    """The norm of all values together."""
    return float(nn.utils.get_total_norm(tensors))
