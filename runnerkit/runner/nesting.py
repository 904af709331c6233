"""The span of runs inside a run."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from runnerkit.distributed import from_first_rank
from runnerkit.optim.update import device_type_of
from runnerkit.runner.lifecycle import INNERMOST
from runnerkit.utils.seed import rng_state, seed_generators, set_rng_state


@contextmanager
def nested(runner: Any, name: str) -> Iterator[None]:
    """See `BaseRunner.nested`."""
    if INNERMOST.get() is not runner:
        raise RuntimeError(
            f'nested({name!r}) is the span of a run inside this one: open it in a hook, while this runner runs'
        )
    rng, gradients = rng_state(), [(parameter, parameter.grad) for parameter in runner.model.parameters()]
    modes = [(module, module.training) for module in runner.model.modules()]

    def seed() -> int:
        return zlib.crc32(f'{name} {runner.completed_iters}'.encode(), zlib.crc32(rng['torch'].numpy().tobytes()))

    try:
        seed_generators(from_first_rank(seed))
        for parameter, _ in gradients:
            parameter.grad = None
        # Hooks are called under the autocast of an iteration, and under no_grad in a validation.
        autocast = torch.autocast(device_type_of(runner.model.parameters()), enabled=False)
        with runner.lifecycle.nesting(name), torch.enable_grad(), autocast:
            yield
    finally:
        set_rng_state(rng)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode
