"""The numbers of a run between two log lines.

Values come in at every iteration and go out as averages when a logger is due. Tensors stay where they are until then,
and are then brought to the host all at once: an iteration that nobody logs waits for no device.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.utils.exceptions import WrongType, WrongValue

Reduce = Callable[[Sequence[float]], Sequence[float]]

#: The vector that ranks sum up first has this many elements, whatever their names are.
_FIRST = 64


@dataclass
class _Prefix:
    """Entries that are no longer kept one by one: the sum of value times count, and the sum of counts."""

    total: float | Tensor = 0.0
    count: int = 0


class LogBuffer:
    """Values by name, each with the number of samples it stands for, and their averages.

    Attributes:
        val_history: by name, the values of the latest updates; copies of tensors, on their devices, or numbers.
        n_history: by name, the sample counts that belong to them.
        output: the averages last made, and whatever else hooks put in for the loggers, such as an evaluation's scores.
        ready: whether ``output`` waits to be logged.
        averaged: whether there are averages among ``output``, rather than only what hooks put in.
        window: how many of the latest updates of each name are kept one by one, at least; beyond twice as many, the
            oldest ones are summed up.
    """

    def __init__(self, window: int = 1024) -> None:
        self.val_history: dict[str, list[float | Tensor]] = {}
        self.n_history: dict[str, list[int]] = {}
        self.output: dict[str, Any] = {}
        self.ready = False
        self.averaged = False
        self.window = window
        self._prefix: dict[str, _Prefix] = {}
        self._made: tuple[Any, dict[str, float]] | None = None  # what was averaged last, and how, unless updated since
        self._warned = False

    def clear(self) -> None:
        """Forget everything."""
        self.val_history.clear()
        self.n_history.clear()
        self._prefix.clear()
        self._made = None
        self.clear_output()

    def clear_output(self) -> None:
        """Forget the averages, not what they were made of."""
        self.output.clear()
        self.ready = False
        self.averaged = False

    def update(self, vars: dict[str, Any], count: int = 1) -> None:
        """Take in ``vars``; nothing is brought to the host.

        Args:
            vars: numbers or tensors of one element, by name. What happens to the tensors later changes nothing here.
            count: how many samples they stand for, their weight in averages.

        Raises:
            TypeError: ``vars`` is no dict, or one of its values is no number and no tensor of one element.
        """
        if not isinstance(vars, Mapping):
            raise WrongType(f'log values must be a dict of numbers by name, but got {type(vars)}: {vars!r}')
        for key, value in vars.items():
            values = self.val_history.setdefault(key, [])
            values.append(value if type(value) is float else _entry(key, value))
            self.n_history.setdefault(key, []).append(count)
            if len(values) > 2 * self.window:
                self._fold(key)
        self._made = None

    def average(self, n: int = 0, reduce: Reduce | None = None) -> None:
        """Put the averages of the last ``n`` updates of each name into ``output``, and mark it as ready.

        Args:
            n: how many updates, at most `window`; 0 means all since the buffer was cleared.
            reduce: sums a vector over the ranks of a distributed run, where averages are to be over all of them. It is
                called once, with values and counts of all names, or twice if there are more than 29 of them. All ranks
                must come here, and with the same names: else each has its own averages, with a warning.

        Raises:
            ValueError: ``n`` is negative, or more than are kept one by one.
        """
        if n < 0 or (n > self.window and self._prefix):
            raise WrongValue(
                f'n must be in [0, {self.window}], the window of updates that are kept one by one, but got {n}: '
                f'set a larger window on the log buffer'
            )
        if self._made is None or self._made[0] != (n, reduce):
            self._made = (n, reduce), self._averages(n, reduce)
        self.output.update(self._made[1])
        self.ready = True
        self.averaged = self.averaged or bool(self._made[1])

    def _averages(self, n: int, reduce: Reduce | None) -> dict[str, float]:
        names = sorted(self.val_history)
        chosen = _to_host({name: self.val_history[name][-n:] for name in names})
        counts = {name: self.n_history[name][-n:] for name in names}
        prefixes = {name: self._prefix[name] for name in names if n == 0 and name in self._prefix}
        before = _to_host({name: [prefix.total] for name, prefix in prefixes.items()})
        sums, weights = [], []
        for name in names:
            sums.append(float(np.sum(np.array(chosen[name]) * np.array(counts[name]))))
            weights.append(float(np.sum(counts[name])))
            if name in prefixes:
                sums[-1] += before[name][0]
                weights[-1] += prefixes[name].count
        if reduce is not None:
            sums, weights = self._over_ranks(names, sums, weights, reduce)
        made = {name: total / weight for name, total, weight in zip(names, sums, weights, strict=True) if weight}
        return {name: made[name] for name in self.val_history if name in made}  # in the order in which names came up

    def _over_ranks(
        self, names: list[str], sums: list[float], weights: list[float], reduce: Reduce
    ) -> tuple[list[float], list[float]]:
        # Vectors of different lengths must never meet. So the first is equally long everywhere, and says whether the
        # names are the same; only then may a second one follow, as long as there are names. The sums over the ranks of
        # a number and of its square tell whether it is the same on all of them. A checksum can match by chance, and
        # the number of names, which lengths depend on, is compared by itself.
        number, checksum = len(names), zlib.crc32('\n'.join(names).encode()) & 0xFFFFF  # 20 bits: squares stay exact
        check = [1.0, *(float(each) for each in (number, number**2, checksum, checksum**2))]
        values = [*sums, *weights]
        room = _FIRST - len(check)
        first = list(reduce(check + values[:room] + [0.0] * (room - len(values))))
        ranks, *pairs = (int(each) for each in first[: len(check)])
        if all(total**2 == ranks * squares for total, squares in zip(pairs[::2], pairs[1::2], strict=True)):
            reduced = first[len(check) :][: len(values)]
            if len(values) > room:
                reduced += reduce(values[room:])
            return reduced[:number], reduced[number:]
        if not self._warned:
            self._warned = True
            warnings.warn(
                f'the ranks log different names (this one: {", ".join(names)}), so that averages are of this rank '
                f'only: log the same ones everywhere, with 0 and a count of 0 where a rank has nothing to say',
                RuntimeWarning,
                stacklevel=4,
            )
        return sums, weights

    def _fold(self, key: str) -> None:
        """Sum up the older half of the entries under ``key``, on the device they are on."""
        values, counts = self.val_history[key], self.n_history[key]
        old, weights = values[: self.window], counts[: self.window]
        del values[: self.window], counts[: self.window]
        prefix = self._prefix.setdefault(key, _Prefix())
        prefix.total = prefix.total + _weighted_sum(old, weights)
        prefix.count += sum(weights)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is not logged yet, as plain numbers and texts."""
        sums = _to_host({name: [prefix.total] for name, prefix in self._prefix.items()})
        return {
            'values': _to_host(self.val_history),
            'counts': {name: list(counts) for name, counts in self.n_history.items()},
            'prefix': {name: (sums[name][0], prefix.count) for name, prefix in self._prefix.items()},
            'output': _to_host_where_possible(self.output),
            'ready': self.ready,
            'averaged': self.averaged,
            'window': self.window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.clear()
        self.val_history.update({name: list(values) for name, values in state['values'].items()})
        self.n_history.update({name: list(counts) for name, counts in state['counts'].items()})
        self._prefix.update({name: _Prefix(total, count) for name, (total, count) in state['prefix'].items()})
        self.output.update(state['output'])
        self.ready, self.averaged = state['ready'], state['averaged']
        self.window = max(self.window, state['window'])


def _entry(key: str, value: Any) -> float | Tensor:
    """``value`` as the history keeps it."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise TypeError(
                f'the log value {key!r} must be a number or a tensor of one element, but got one of shape '
                f'{tuple(value.shape)} and type {value.dtype}: log its mean, for example'
            )
        # A copy: a Parameter or a running metric may change in place, and an element keeps its whole tensor alive.
        value = value.detach().clone()
        return value.reshape(()) if value.dim() else value
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(
            f'the log value {key!r} must be a number or a tensor of one element, but got {type(value)}: {value!r}'
        )
    return value


def _weighted_sum(values: list[float | Tensor], counts: list[int]) -> float | Tensor:
    by_device: dict[torch.device, list[int]] = {}
    total: float | Tensor = 0.0
    for i, value in enumerate(values):
        if isinstance(value, Tensor):
            by_device.setdefault(value.device, []).append(i)
        else:
            total = total + value * counts[i]
    for device, indices in by_device.items():
        stacked = _stack([values[i] for i in indices])
        weights = torch.tensor([counts[i] for i in indices], dtype=stacked.dtype)
        # Not waiting is safe in this direction, and what must not be done here is wait for the device.
        total = total + (stacked * weights.to(device, non_blocking=True)).sum()
    return total


def _to_host(values: Mapping[str, Sequence[float | Tensor]]) -> dict[str, list[float]]:
    """The same with numbers in the place of tensors, by one transfer for each device."""
    found = {name: list(each) for name, each in values.items()}
    places: dict[torch.device, list[tuple[list[Any], int]]] = {}
    for each in found.values():
        for i, value in enumerate(each):
            if isinstance(value, Tensor):
                places.setdefault(value.device, []).append((each, i))
    for tensors in places.values():
        numbers = _stack([each[i] for each, i in tensors]).tolist()
        for (each, i), number in zip(tensors, numbers, strict=True):
            each[i] = number
    return found  # type: ignore[return-value]


def _stack(values: Sequence[Any]) -> Tensor:
    """A vector in double precision, where the device has it."""
    kinds = {value.dtype for value in values}
    wide = torch.float32 if values[0].device.type == 'mps' else torch.float64
    if len(kinds) > 1:  # stacking would take the widest of these types, and a whole number may not fit into it
        values = [value.to(wide) for value in values]
    return torch.stack(list(values)).to(wide)


def _to_host_where_possible(output: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and texts of ``output``."""
    kept: dict[str, Any] = {}
    for name, value in output.items():
        if isinstance(value, (Tensor, np.generic, np.ndarray)):
            value = value.item() if np.prod(value.shape) == 1 else None
        if isinstance(value, (int, float, str)):
            kept[name] = value
    return kept
