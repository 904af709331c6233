"""Collects a run's logged values between two log lines.

Every iteration adds values, and loggers read their averages. Tensors stay on their device until then and are read all
at once, so an iteration that is not logged does not wait for the device.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.distributed import get_dist_info
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import names_a_loss, plain_number

#: Names of what the timer logs.
_TIMES = ('time', 'data_time')

#: Bits of each of the three parts of a hash: their sums over ranks are exact, also as floats of 32 bits.
_BITS = 22

#: For each name: the sum of the values times their weights, and the sum of the weights.
Sums = dict[str, tuple[float, float]]

#: Adds these sums over all ranks; also returns the names that some ranks lack.
Reduce = Callable[[Sums], tuple[Sums, set[str]]]


class LogBuffer:
    """Values by name, their sample counts, and their averages.

    Attributes:
        val_history: the latest values of each name: numbers, or 0-dimensional tensors without a graph. When there are
            more than twice `window`, the first one becomes the average of all older ones.
        n_history: the sample counts of these values, which are their weights in averages.
        output: the latest averages, and what hooks add for the loggers, such as an evaluation's scores.
        ready: whether ``output`` waits to be logged.
        averaged: whether ``output`` contains averages, not only what hooks have added.
        averaged_at: the moment of the last averages, as the loggers call it, until the output is cleared: one average
            serves all of them.
        window: how many of the latest values of each name are kept individually, at least.
        remarks: texts for the text log to write below its next line.
        hashes: called for the averages of the logged iterations; returns hashes by name: integers, or 0-dimensional
            int64 tensors, whose sum over all ranks is put into ``output``. None: there are none.
    """

    def __init__(self, window: int = 256) -> None:
        self.val_history: dict[str, list[float | Tensor]] = {}
        self.n_history: dict[str, list[float]] = {}
        self.output: dict[str, Any] = {}
        self.ready = False
        self.averaged = False
        self.averaged_at: tuple[Any, ...] | None = None
        self.window = window
        self.remarks: list[str] = []
        self.hashes: Callable[[], dict[str, list[int | Tensor]]] | None = None
        self._lengths: dict[str, int] | None = None  # of the histories when the epoch's last iteration was over
        self._seen: dict[str, int] = {}  # how many of the kept values of each loss came before `mark_losses`
        self._were_finite: bool | Tensor = True  # the losses since then that are kept no longer
        self._warned_of: set[str] = set()  # names logged by some ranks only, about which a warning was given

    def clear(self) -> None:
        """Forget everything."""
        for name, values in self.val_history.items():
            self._leave(name, len(values))
        self.val_history.clear()
        self.n_history.clear()
        self._seen.clear()
        self._lengths = None
        self.clear_output()

    def clear_output(self) -> None:
        """Forget the averages, but keep the values."""
        self.output.clear()
        self.ready = False
        self.averaged = False
        self.averaged_at = None

    def update(self, vars: dict[str, Any], count: float = 1) -> None:
        """Add ``vars`` without moving anything from the device to the host.

        Args:
            vars: numbers or one-element tensors by name. Tensors are copied on their device. All ranks together give
                a DTensor.
            count: the number of samples that they are averages of.

        Raises:
            TypeError: ``vars`` is not a dict, or a value is neither a number nor a one-element tensor.
        """
        # Called several times in every iteration, so floats and ordinary tensors take no further Python calls.
        if not isinstance(vars, dict):
            raise WrongType(f'log values must be a dict of numbers by name, but got {type(vars)}: {vars!r}')
        for name, value in vars.items():
            if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
                if type(value) is not Tensor and hasattr(value, 'full_tensor'):
                    value = value.full_tensor()  # of a DTensor: a collective, on all ranks
                value = value.detach().clone()
                if value.dim():
                    value = value.reshape(())
            elif type(value) is not float:
                value = _log_value(name, value)
            if name in self.val_history:
                history = self.val_history[name]
                history.append(value)
                self.n_history[name].append(count)
                if len(history) > 2 * self.window:
                    self._fold(name)
            else:
                self.val_history[name], self.n_history[name] = [value], [count]

    def add_prefix(self, prefix: str) -> None:
        """Rename all values that were added, but for times, to ``<prefix><name>``."""
        for history in (self.val_history, self.n_history):
            renamed = {name if name in _TIMES else prefix + name: values for name, values in history.items()}
            history.clear()
            history.update(renamed)  # type: ignore[arg-type]

    def average(self, n: int = 0, reduce: Reduce | None = None, tells: bool = True) -> None:
        """Put the averages of the last ``n`` values of each name into ``output``, and mark it as ready.

        Args:
            n: how many values, at most `window`; 0 means all since the buffer was cleared.
            reduce: for averages over all ranks, `runnerkit.distributed.reduce_named_sums`. All ranks must then call
                this together, whatever each has logged. A name that some ranks lack is averaged over the others, with
                a warning.
            tells: False leaves that warning out.

        Raises:
            ValueError: ``n`` is negative, or greater than the number of values that are kept individually.
        """
        if n < 0 or (n > self.window and any(len(values) > self.window for values in self.val_history.values())):
            raise WrongValue(
                f'n must be in [0, {self.window}], the number of values that the log buffer keeps one by one, but got '
                f'{n}: set a larger window on it before the run'
            )
        hashes = {} if self.hashes is None else self.hashes()
        # The numbers of each hash in three parts, whose sums stay exact.
        parts = {
            f'{name} {i}': [number >> _BITS * i & 2**_BITS - 1 for number in numbers]
            for name, numbers in hashes.items()
            for i in range(3)
        }
        self._read(n, parts.values())
        sums = {name: self._sum(name, n) for name in self.val_history}
        sums |= {name: (float(sum(numbers)), 1.0) for name, numbers in parts.items()}
        if reduce is not None:
            sums = self._over_ranks(sums, reduce, tells)
        joined = _joined_hashes({name: int(sums.pop(name)[0]) for name in parts})
        # Right after an evaluation by iteration there is nothing but this iteration's time, which is not of its scores.
        is_over = self.ready and self.val_history.keys() <= set(_TIMES)
        averages = {name: total / weight for name, (total, weight) in sums.items() if weight and not is_over}
        self.output.update({**averages, **joined})
        self.ready = True
        self.averaged = self.averaged or bool(averages)

    def mark(self) -> None:
        """The epoch's iterations are over: what is added from now on is `late`."""
        self._lengths = {name: len(values) for name, values in self.val_history.items()}

    @property
    def late(self) -> dict[str, int]:
        """How many values of each name were added since `mark`, where there are any, and not averaged since."""
        if self._lengths is None:
            return {}
        added = {name: len(values) - self._lengths.get(name, 0) for name, values in self.val_history.items()}
        return {name: max(n, 1) for name, n in added.items() if n}  # a history that was folded has become shorter

    def average_late(self, reduce: Reduce | None = None) -> None:
        """Put the averages of what is `late` into ``output``, next to the results of hooks if there are any.

        Args:
            reduce: as in `average`; all ranks must then call this together.
        """
        if self._lengths is None:
            return
        self._read()
        sums = {name: self._sum(name, n) for name, n in self.late.items()}
        if reduce is not None:
            sums = self._over_ranks(sums, reduce)
        averages = {name: total / weight for name, (total, weight) in sums.items() if weight}
        if averages:
            self.averaged = self.averaged or not self.ready
            self.output.update(averages)
            self.ready = True
        self.mark()

    def losses_are_finite(self) -> bool:
        """Whether all losses since `mark_losses` were finite; waits for the device."""
        for name, values in self.val_history.items():
            self._leave(name, len(values))
        return bool(self._were_finite)

    def mark_losses(self, are_finite: bool = True) -> None:
        """`losses_are_finite` is about what is added from now on; what was before counts as ``are_finite``."""
        self._seen, self._were_finite = {name: len(values) for name, values in self.val_history.items()}, are_finite

    def _leave(self, name: str, n: int) -> None:
        """Note, without waiting for the device, whether those of the first ``n`` values of a loss are finite that were
        not looked at before."""
        new = self.val_history[name][self._seen.get(name, 0) : n] if names_a_loss(name) else []
        tensors = [value for value in new if isinstance(value, Tensor)]
        if tensors:
            self._were_finite = _stack(tensors).isfinite().all() & self._were_finite
        if not all(math.isfinite(value) for value in new if not isinstance(value, Tensor)):
            self._were_finite = False
        self._seen[name] = max(n, self._seen.get(name, 0))

    def _read(self, n: int = 0, more: Iterable[list[Any]] = ()) -> None:
        """Replace the tensors in ``more`` and among the last ``n`` values of each name by numbers, with one read per
        device."""
        places: dict[torch.device, list[tuple[list[Any], int]]] = {}
        histories = [(values, max(len(values) - n, 0) if n else 0) for values in self.val_history.values()]
        for values, first in histories + [(values, 0) for values in more]:
            for i in range(first, len(values)):
                if isinstance(value := values[i], Tensor):
                    places.setdefault(value.device, []).append((values, i))
        for found in places.values():
            numbers = _stack([values[i] for values, i in found]).tolist()
            for (values, i), number in zip(found, numbers, strict=True):
                values[i] = number

    def _sum(self, name: str, n: int) -> tuple[float, float]:
        """Return the sum of the last ``n`` values times their weights, and the sum of the weights."""
        values: Sequence[Any] = self.val_history[name][-n:]
        weights = self.n_history[name][-n:]
        products = [*map(operator.mul, values, weights)]
        try:
            total = math.fsum(products)  # rounded once
        except (ValueError, OverflowError):  # infinite or NaN, if a run diverges
            total = sum(products)
        return total, float(sum(weights))

    def _over_ranks(self, sums: Sums, reduce: Reduce, tells: bool = True) -> Sums:
        sums, partial = reduce(sums)
        if tells and not partial <= self._warned_of and get_dist_info()[0] == 0:
            warnings.warn(
                f'not all ranks log {", ".join(map(repr, sorted(partial)))}: averages are over those that do',
                RuntimeWarning,
                stacklevel=3,
            )
        self._warned_of |= partial
        return sums

    def _fold(self, name: str) -> None:
        """Replace the oldest values by their average, on the device they are on, so that memory stays bounded."""
        values, weights = self.val_history[name], self.n_history[name]
        self._leave(name, len(values) - self.window)
        self._seen[name] -= len(values) - self.window - 1
        old, old_weights = values[: -self.window], weights[: -self.window]
        weight = sum(old_weights)
        weights[: -self.window] = [weight]
        values[: -self.window] = [_mean(old, old_weights) if weight else 0.0]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is not logged yet: plain numbers, texts, and tensors of numbers."""
        self._read()
        output = {name: plain_number(value) for name, value in self.output.items()}
        return {
            'lengths': {name: len(values) for name, values in self.val_history.items()},
            # One tensor each, because a list would be pickled number by number.
            'values': torch.tensor([x for values in self.val_history.values() for x in values], dtype=torch.float64),
            'counts': torch.tensor([x for counts in self.n_history.values() for x in counts], dtype=torch.float64),
            'output': {name: value for name, value in output.items() if isinstance(value, (int, float, str))},
            'ready': self.ready,
            'averaged': self.averaged,
            'window': self.window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.clear()
        values, counts = iter(state['values'].tolist()), iter(state['counts'].tolist())
        for name, length in state['lengths'].items():
            self.val_history[name] = list(islice(values, length))
            self.n_history[name] = list(islice(counts, length))
        for name, (total, count) in state.get('prefix', {}).items():  # older files store the sum of the older values
            self.val_history[name].insert(0, total / count if count else 0.0)
            self.n_history[name].insert(0, count)
        self.output.update(state['output'])
        self.ready, self.averaged = state['ready'], state['averaged']
        self.window = max(self.window, state['window'])
        self.mark_losses()


def _joined_hashes(sums: Mapping[str, int]) -> dict[str, str]:
    """The hashes by name, modulo 2**64, from the sums of their parts."""
    names = dict.fromkeys(part[:-2] for part in sums)
    numbers = {name: sum(sums[f'{name} {i}'] << _BITS * i for i in range(3)) for name in names}
    return {name: f'{number % 2**64:016x}' for name, number in numbers.items()}


def _log_value(name: str, value: Any) -> float:
    if isinstance(value, Tensor):
        raise TypeError(
            f'the log value {name!r} must be a number or a tensor of one element, but got one of shape '
            f'{tuple(value.shape)} and type {value.dtype}: log its mean, for example'
        )
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(
            f'the log value {name!r} must be a number or a tensor of one element, but got {type(value)}: {value!r}'
        )
    return value


def _mean(values: Sequence[float | Tensor], weights: Sequence[float]) -> float | Tensor:
    """Return the weighted average in double precision, on the device of the values, without waiting for it.

    The products are added in pairs, then the sums of these, and so on. This gives the same bits for tensors and for
    numbers, so a resumed run, in which tensors have become numbers, logs the same averages as an uninterrupted one.
    """
    device = next((value.device for value in values if isinstance(value, Tensor)), None)
    if device is None:
        device = torch.device('cpu')
    parts = []
    for (dtype, weight), pairs in groupby(zip(values, weights, strict=True), key=_type_and_weight):
        run: list[Any] = [value for value, _ in pairs]
        if dtype is None:
            numbers = torch.tensor(run, dtype=torch.float64, pin_memory=device.type == 'cuda')
            part = numbers.to(device, _wide(device), non_blocking=True)
        else:
            part = torch.stack(run).to(device, _wide(device))
        parts.append(part * weight)
    products = torch.cat(parts)
    while (half := len(products) // 2) > 0:
        products = torch.cat([products[:half] + products[half : 2 * half], products[2 * half :]])
    return products[0] / sum(weights)


def _type_and_weight(pair: tuple[float | Tensor, float]) -> tuple[torch.dtype | None, float]:
    """What values must have in common to be stacked and weighed at once."""
    value, weight = pair
    return (value.dtype if isinstance(value, Tensor) else None), weight


def _stack(tensors: list[Tensor]) -> Tensor:
    """Stack ``tensors`` to a vector; several types become double, since torch would turn int64 into float32."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        tensors = [tensor.to(_wide(tensor.device)) for tensor in tensors]
    return torch.stack(tensors)


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == 'mps' else torch.float64
