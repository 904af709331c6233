"""The numbers of a run between two log lines.

Values come in at every iteration and go out as averages when a logger is due. Tensors stay where they are until then,
and are then brought to the host all at once: an iteration that nobody logs waits for no device.
"""

from __future__ import annotations

import math
import operator
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.utils.exceptions import WrongType, WrongValue

Reduce = Callable[[Sequence[float]], Sequence[float]]

_NUMBERS = {float, int, bool}

# Read of all values at each log line, by C code.
_device, _dtype, _version = map(operator.attrgetter, ('device', 'dtype', '_version'))

#: How many values wait, at most, for being sorted in.
_MOST_NEW = 300

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
        output: the averages last made, and whatever else hooks put in for the loggers, such as an evaluation's scores.
        ready: whether ``output`` waits to be logged.
        averaged: whether there are averages among ``output``, rather than only what hooks put in.
        window: how many of the latest updates of each name are kept one by one, at least; beyond twice as many, the
            oldest ones are summed up.
        copies: whether every tensor is copied. Else those are kept as they are that a step has just computed; say so
            where their memory is used again for the next step's, as CUDA graphs do.
    """

    def __init__(self, window: int = 256, copies: bool = False) -> None:
        self._values: dict[str, list[float | Tensor]] = {}
        self._counts: dict[str, list[int]] = {}
        self._new: list[tuple[str, float | Tensor, int]] = []  # came in, and are not sorted into these yet
        self.output: dict[str, Any] = {}
        self.ready = False
        self.averaged = False
        self.window = window
        self.copies = copies
        self._prefix: dict[str, _Prefix] = {}
        self._computed: set[str] = set()  # names of tensors that are kept and not copied
        self._made: tuple[Any, dict[str, float]] | None = None  # what was averaged last, and how, unless updated since
        self._warned: set[str] = set()  # of what, already

    @property
    def val_history(self) -> dict[str, list[float | Tensor]]:
        """By name, the values of the latest updates: numbers, or tensors of no dimension without a graph."""
        self._sort()
        return self._values

    @property
    def n_history(self) -> dict[str, list[int]]:
        """By name, the sample counts that belong to these values."""
        self._sort()
        return self._counts

    def clear(self) -> None:
        """Forget everything."""
        self._new.clear()
        self._values.clear()
        self._counts.clear()
        self._prefix.clear()
        self._computed.clear()
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
            vars: numbers or tensors of one element, by name. Tensors that a step has just computed are kept as they
                are, others copied: do not write to the former later (it is told if that is seen).
            count: how many samples they stand for, their weight in averages.

        Raises:
            TypeError: ``vars`` is no dict, or one of its values is no number and no tensor of one element.
        """
        # This is called several times in every iteration.
        if type(vars) is not dict and not isinstance(vars, Mapping):
            raise WrongType(f'log values must be a dict of numbers by name, but got {type(vars)}: {vars!r}')
        for key, value in vars.items():
            if (
                type(value) is Tensor
                and key in self._computed
                # A step has just computed it: what is a parameter, or was written to before, may change again.
                and not (value.dim() or (value.is_leaf and value.requires_grad) or value.is_inference())
                and not value._version
            ):
                value = value.detach()
            elif type(value) is not float:
                value = self._entry(key, value)
            self._new.append((key, value, count))
        self._made = None
        if len(self._new) > _MOST_NEW:
            self._sort()

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
        self._sort()
        names = sorted(self._values)
        latest = {name: self._values[name][-n:] for name in names}
        chosen = _to_host(latest, self._warn_of_change)
        prefixes = {name: self._prefix[name] for name in names if n == 0 and name in self._prefix}
        before = _to_host({name: [prefix.total] for name, prefix in prefixes.items()}) if prefixes else {}
        sums, weights = [], []
        for name in names:
            counts = self._counts[name][-n:]
            sums.append(_sum(map(operator.mul, chosen[name], counts)))
            weights.append(float(sum(counts)))
            if name in prefixes:
                sums[-1] += before[name][0]
                weights[-1] += prefixes[name].count
        if reduce is not None:
            sums, weights = self._over_ranks(names, sums, weights, reduce)
        made = {name: total / weight for name, total, weight in zip(names, sums, weights, strict=True) if weight}
        return {name: made[name] for name in self._values if name in made}  # in the order in which names came up

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
        self._warn_once(
            'names',
            f'the ranks log different names (this one: {", ".join(names)}), so that averages are of this rank '
            f'only: log the same ones everywhere, with 0 and a count of 0 where a rank has nothing to say',
        )
        return sums, weights

    def _warn_of_change(self, name: str) -> None:
        self._warn_once(
            'change',
            f'the log value {name!r} was changed in place after it was logged, and it is what it is now that goes into '
            f'the average: log a copy, {name}.clone()',
        )

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(message, RuntimeWarning, stacklevel=5)

    def _entry(self, key: str, value: Any) -> float | Tensor:
        """``value`` as the history keeps it: a number, or a copy of a tensor.

        Of the tensors under a name, the first is copied, and with `copies` all are. If it was none of a larger tensor's
        elements, which would keep all of that alive, those that follow are kept as they are if a step has just computed
        them.
        """
        if isinstance(value, Tensor):
            if value.numel() != 1 or value.is_complex():
                raise TypeError(
                    f'the log value {key!r} must be a number or a tensor of one element, but got one of shape '
                    f'{tuple(value.shape)} and type {value.dtype}: log its mean, for example'
                )
            if not self.copies and value.untyped_storage().nbytes() == value.element_size():
                self._computed.add(key)
            with torch.inference_mode(False):
                # A copy that can be used anywhere; a clone of an inference tensor would count as changed.
                return torch.stack([value.detach().reshape(())])[0]
        if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
            value = value.item()
        if not isinstance(value, (int, float)):
            raise TypeError(
                f'the log value {key!r} must be a number or a tensor of one element, but got {type(value)}: {value!r}'
            )
        return value

    def _sort(self) -> None:
        """Put what came in under its names. What is beyond the window is summed up, always the same parts of it
        together, whenever that is done."""
        values, counts = self._values, self._counts
        for key, value, count in self._new:
            if key in values:
                values[key].append(value)
                counts[key].append(count)
            else:
                values[key], counts[key] = [value], [count]
        self._new.clear()
        for key, each in values.items():
            while len(each) > 2 * self.window:
                self._fold(key)

    def _fold(self, key: str) -> None:
        """Sum up the oldest `window` entries under ``key``, on the device they are on."""
        values, counts = self._values[key], self._counts[key]
        if any(value._version for value in values[: self.window] if isinstance(value, Tensor)):
            self._warn_of_change(key)
        old, weights = values[: self.window], counts[: self.window]
        del values[: self.window], counts[: self.window]
        prefix = self._prefix.setdefault(key, _Prefix())
        prefix.total = prefix.total + _weighted_sum(old, weights)
        prefix.count += sum(weights)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is not logged yet: plain numbers and texts, and tensors of numbers."""
        sums = _to_host({name: [prefix.total] for name, prefix in self._prefix.items()})
        values = _to_host(self.val_history)
        return {
            'lengths': {name: len(each) for name, each in values.items()},
            # One tensor each: a list would be pickled number by number.
            'values': torch.tensor([value for each in values.values() for value in each], dtype=torch.float64),
            'counts': torch.tensor([count for name in values for count in self._counts[name]], dtype=torch.float64),
            'prefix': {name: (sums[name][0], prefix.count) for name, prefix in self._prefix.items()},
            'output': _to_host_where_possible(self.output),
            'ready': self.ready,
            'averaged': self.averaged,
            'window': self.window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.clear()
        values, counts = iter(state['values'].tolist()), iter(state['counts'].tolist())
        for name, length in state['lengths'].items():
            self._values[name] = list(islice(values, length))
            self._counts[name] = list(islice(counts, length))
        self._prefix.update({name: _Prefix(total, count) for name, (total, count) in state['prefix'].items()})
        self.output.update(state['output'])
        self.ready, self.averaged = state['ready'], state['averaged']
        self.window = max(self.window, state['window'])


def _weighted_sum(values: Sequence[float | Tensor], counts: Sequence[int]) -> float | Tensor:
    devices = {getattr(value, 'device', None) for value in values}
    if len(devices) > 1:
        pairs = list(zip(values, counts, strict=True))
        parts = [[pair for pair in pairs if getattr(pair[0], 'device', None) == device] for device in devices]
        return sum(_weighted_sum(*zip(*part, strict=True)) for part in parts)
    device = devices.pop()
    if device is None:
        return sum(map(operator.mul, values, counts))
    wide = torch.float32 if device.type == 'mps' else torch.float64
    weights = torch.tensor(counts, dtype=wide)
    # Not waiting is safe in this direction, and what must not be done here is wait for the device.
    return (_stack(values).to(wide) * weights.to(device, non_blocking=True)).sum()


def _sum(values: Iterable[float]) -> float:
    """Their exact sum, rounded once; of a run that diverges, infinite or no number."""
    values = list(values)
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(values)


def _are_numbers(values: Sequence[float | Tensor]) -> bool:
    return _NUMBERS.issuperset(map(type, values))


def _to_host(
    values: Mapping[str, Sequence[float | Tensor]], tell_changed: Callable[[str], None] | None = None
) -> dict[str, list[float]]:
    """The same with numbers in the place of tensors, by one transfer for each device.

    Args:
        values: what to read.
        tell_changed: called with each name of which a tensor was written to since it was logged.
    """
    found: dict[str, list[Any]] = {name: list(each) for name, each in values.items()}
    own = {name: _tensors(each) for name, each in found.items() if not _are_numbers(each)}
    if tell_changed is not None:
        for name, tensors in own.items():
            if any(map(_version, tensors)):
                tell_changed(name)
    numbers = iter(_read([tensor for tensors in own.values() for tensor in tensors]))
    for name, tensors in own.items():
        each = found[name]
        if len(tensors) == len(each):
            found[name] = list(islice(numbers, len(each)))
        else:
            found[name] = [next(numbers) if isinstance(value, Tensor) else value for value in each]
    return found


def _tensors(values: list[Any]) -> list[Tensor]:
    """Those among ``values``."""
    if all(type(value) is Tensor for value in values):
        return values
    return [value for value in values if isinstance(value, Tensor)]


def _read(tensors: list[Tensor]) -> list[float]:
    """The numbers in them."""
    devices = set(map(_device, tensors))
    if len(devices) > 1:
        parts = {device: [value for value in tensors if value.device == device] for device in devices}
        read = {device: iter(_stack(part).tolist()) for device, part in parts.items()}
        return [next(read[value.device]) for value in tensors]
    return _stack(tensors).tolist() if tensors else []


def _stack(values: Sequence[Any]) -> Tensor:
    """A vector of them; stacking alone would take the widest of their types, and a whole number may not fit into it."""
    if len(set(map(_dtype, values))) > 1:
        wide = torch.float32 if values[0].device.type == 'mps' else torch.float64
        values = [value.to(wide) for value in values]
    return torch.stack(list(values))


def _to_host_where_possible(output: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and texts of ``output``."""
    kept: dict[str, Any] = {}
    for name, value in output.items():
        if isinstance(value, (Tensor, np.generic, np.ndarray)):
            value = value.item() if np.prod(value.shape) == 1 else None
        if isinstance(value, (int, float, str)):
            kept[name] = value
    return kept
