"""The numbers between two log events: kept where they are, averaged when a logger is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Reduce = Callable[[list[float]], list[float]]


class LogBuffer:
    """Collects numbers and tensors by name; an average weighs each with its count of samples.

    Tensors are kept detached on their device: nothing is moved before `average`, which moves all of them at once. Memory is bounded:
    what is older than ``window`` entries is folded into one sum.

    Args:
        window: how many entries of a name can be averaged by themselves, at least; a logger raises it to its interval.

    Attributes:
        val_history: the newest values by name.
        n_history: how many samples each stands for.
        output: what the last `average` gave, and what evaluations have put there.
        ready: whether ``output`` waits to be logged.
        averaged: whether ``output`` holds what `average` gave, rather than only what an evaluation has put there.
    """

    def __init__(self, window: int = 1024) -> None:
        self.window = window
        self.val_history: dict[str, list[Any]] = {}
        self.n_history: dict[str, list[int]] = {}
        self.output: dict[str, Any] = {}
        self.ready = False
        self.averaged = False
        self._folded: dict[str, tuple[Any, int]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.val_history.clear()
        self.n_history.clear()
        self._folded.clear()
        self.clear_output()

    def clear_output(self) -> None:
        """Forget the output, which has been logged."""
        self.output.clear()
        self.ready = self.averaged = False

    def update(self, vars: Mapping[str, Any], count: int = 1) -> None:
        """Add a number or one-element tensor to each name.

        Args:
            vars: values by name.
            count: how many samples they are the mean of.

        Raises:
            TypeError: ``vars`` is no mapping, or a value is neither a number nor a tensor of one element.
        """
        if not isinstance(vars, Mapping):
            raise TypeError(f'a log buffer takes numbers by name, but got {vars!r}')
        for name, value in vars.items():
            if isinstance(value, Tensor):
                if value.numel() != 1:
                    raise TypeError(f'{name!r} cannot be logged: it is a tensor of shape {tuple(value.shape)}, not one number')
                value = value.detach()
            elif not isinstance(value, (int, float, np.number)):
                raise TypeError(f'{name!r} cannot be logged: it is a {type(value).__name__}, not a number')
            history = self.val_history.get(name)
            if history is None:
                history, self.n_history[name] = self.val_history.setdefault(name, []), []
            history.append(value)
            self.n_history[name].append(count)
            if len(history) >= 2 * self.window:
                self._fold(name)

    def average(self, n: int = 0, reduce: Reduce | None = None) -> None:
        """Put the weighted mean of each name's last ``n`` values (0: of all) into ``output``.

        Args:
            n: how many, at least 0.
            reduce: sums a list of numbers over all processes; the means are then over all of them.

        Raises:
            ValueError: ``n`` is negative.
        """
        if n < 0:
            raise ValueError(f'n must be at least 0 (0: all values), but got {n}')
        names = sorted(self.val_history)
        counts = [self._counts(name, n) for name in names]
        sums = self._sums(names, n)
        if reduce is not None and names:
            flat = reduce([*sums, *(float(sum(count)) for count in counts)])
            self.output.update({name: flat[i] / flat[len(names) + i] for i, name in enumerate(names)})
        else:
            self.output.update({name: total / np.sum(count) for name, total, count in zip(names, sums, counts, strict=True)})
        self.ready = self.averaged = True

    def state_dict(self) -> dict[str, Any]:
        """A half-filled buffer, for a checkpoint."""
        return {
            'values': {name: list(values) for name, values in self.val_history.items()},
            'counts': {name: list(counts) for name, counts in self.n_history.items()},
            'folded': dict(self._folded),
            'output': {name: value for name, value in self.output.items() if isinstance(value, (int, float, Tensor))},
            'ready': self.ready,
            'averaged': self.averaged,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.val_history = {name: list(values) for name, values in state['values'].items()}
        self.n_history = {name: list(counts) for name, counts in state['counts'].items()}
        self._folded = {name: (folded[0], folded[1]) for name, folded in state['folded'].items()}
        self.output = dict(state['output'])
        self.ready, self.averaged = state['ready'], state['averaged']

    def _counts(self, name: str, n: int) -> list[int]:
        counts = self.n_history[name][-n:]
        return counts if n or name not in self._folded else [self._folded[name][1], *counts]

    def _sums(self, names: list[str], n: int) -> list[float]:
        """Each name's weighted sum, with one transfer for all tensors of one device."""
        values: list[list[Any]] = []
        for name in names:
            part = self.val_history[name][-n:]
            # The folded part is a sum already: as a value it is divided by its own count.
            folded = self._folded.get(name) if n == 0 else None
            values.append(part if folded is None else [folded[0] / folded[1], *part])
        numbers = moved_to_host([value for part in values for value in part])
        sums, start = [], 0
        for name, part in zip(names, values, strict=True):
            own = np.array(numbers[start : start + len(part)])
            sums.append(np.sum(own * np.array(self._counts(name, n))))
            start += len(part)
        return sums

    def _fold(self, name: str) -> None:
        """Sum up the oldest ``window`` values of ``name``, on their device."""
        old, counts = self.val_history[name][: self.window], self.n_history[name][: self.window]
        del self.val_history[name][: self.window]
        del self.n_history[name][: self.window]
        total, number = self._folded.get(name, (0.0, 0))
        if all(isinstance(value, Tensor) for value in old):
            weights = torch.tensor(counts, dtype=torch.float64).to(old[0].device, non_blocking=True)
            total = total + torch.sum(torch.stack([value.reshape(()) for value in old]).double() * weights)
        else:
            total = total + sum(float(value) * count for value, count in zip(old, counts, strict=True))
        self._folded[name] = (total, number + sum(counts))


def moved_to_host(values: list[Any]) -> list[float]:
    """``values``, numbers and one-element tensors, as numbers: one transfer for each device that has any."""
    by_device: dict[torch.device, list[int]] = {}
    for i, value in enumerate(values):
        if isinstance(value, Tensor):
            by_device.setdefault(value.device, []).append(i)
    numbers = list(values)
    for indices in by_device.values():
        stacked = torch.stack([values[i].reshape(()).double() for i in indices])
        for i, number in zip(indices, stacked.tolist(), strict=True):
            numbers[i] = number
    return numbers
