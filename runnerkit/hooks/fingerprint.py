"""Hashes of a run's state in its log lines: two runs whose hashes are equal are in the same state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint import get_state_dict
from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.bits import bit_sums, bit_words, placed_words
from runnerkit.parallel.wrappers import held_by_optimizer
from runnerkit.utils.seed import rng_state

#: Their names in log lines.
HASHES = ('weights_hash', 'optimizer_hash', 'random_hash')


class FingerprintHook(Hook):
    """Adds hashes of weights and buffers, optimizer states and random states to each log line.

    ``log_config=dict(fingerprint=True)`` registers it. They are computed on the device, and read together with the
    logged values. Equal weights and optimizer states have equal hashes on any number of ranks, sharded or not; each
    flipped bit, name, shape and dtype changes them. What is not sharded is that of rank 0. Random states are those of
    all ranks.
    """

    needs_training = True

    def before_run(self, runner: RunnerView) -> None:
        """Let the log buffer ask for the hashes whenever it averages."""
        runner.log_buffer.hashes = partial(fingerprint, runner)


def fingerprint(runner: RunnerView) -> dict[str, list[int | Tensor]]:
    """For each of `HASHES` the numbers whose sum over all ranks, modulo 2**64, is the hash; every rank calls it."""
    weights = get_state_dict(runner.model, keep_vars=True) if isinstance(runner.model, nn.Module) else {}
    numbers: list[list[int | Tensor]] = [
        _sums_of(weights, runner.rank),
        _sums_of(states_of(runner.optimizer), runner.rank),
        [_digest(rng_state(), runner.rank)],
    ]
    return dict(zip(HASHES, numbers, strict=True))


def states_of(optimizer: Any) -> dict[str, Any]:
    """The states of all optimizers by name, number of the parameter and key, in an order that follows from these."""
    found: dict[str, Any] = {}
    for name, each in named_optimizers(optimizer).items():
        for number, parameter in enumerate(held_by_optimizer(each)):
            state = each.state.get(parameter, {})
            found.update(
                {f'{key} of parameter {number}{name and f" of {name}"}': state[key] for key in sorted(state, key=str)}
            )
    return found


def _sums_of(values: dict[str, Any], rank: int) -> list[int | Tensor]:
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor) and not is_lazy(value)}
    others = {name: value for name, value in values.items() if not isinstance(value, Tensor | None)}
    facts = [(name, tuple(each.shape), str(each.dtype)) for name, each in tensors.items()]
    sums: list[int | Tensor] = [*bit_sums(placed_words(tensors.values(), is_first=rank == 0))]
    return [*sums, _digest([facts, others])] if rank == 0 else [*sums, 0]


def _digest(value: Any, *more: Any) -> int:
    """A hash of 64 bits of plain values and tensors; waits for the device of tensors that are not in main memory."""
    digest = hashlib.blake2b(repr(more).encode(), digest_size=8)
    for piece in _bytes_of(value):
        digest.update(piece)
    return int.from_bytes(digest.digest(), 'little')


def _bytes_of(value: Any) -> Iterable[bytes]:
    if isinstance(value, Tensor):
        yield bit_words(value.detach().cpu()).numpy().tobytes()
    elif isinstance(value, dict | list | tuple):
        for each in value.items() if isinstance(value, dict) else value:
            yield from _bytes_of(each)
    else:
        yield repr(value).encode() + b'\0'
