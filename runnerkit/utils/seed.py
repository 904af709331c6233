"""Seeding the random generators of python, numpy and torch, and saving and restoring their states."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runnerkit.utils.env import process_rank

#: NumPy takes seeds below this.
MAX_SEED = 2**32


def draw_seed() -> int:
    """A random seed in ``[0, 2**31)`` from the operating system; no generator is advanced."""
    return random.SystemRandom().randrange(2**31)


def set_random_seed(seed: int, deterministic: bool = False, use_rank_shift: bool = False) -> None:
    """Seed python, numpy and torch with all its devices.

    Args:
        seed: in ``[0, 2**32)``.
        deterministic: allow only deterministic algorithms in cuDNN, and switch off its benchmark mode. This affects the
            whole process; a `Flow` restores it at its end.
        use_rank_shift: add the rank to the seed, so that processes differ.

    Raises:
        ValueError: ``seed`` is out of range.
    """
    import torch

    if use_rank_shift:
        seed += process_rank()
    if not 0 <= seed < MAX_SEED:
        raise ValueError(
            f'a seed must be a whole number in [0, 2**32), but got {seed}: take {abs(seed) % MAX_SEED}, for example'
        )
    seed_generators(seed)
    # For child processes; the hash seed of this process was fixed at its start.
    os.environ['PYTHONHASHSEED'] = str(seed)
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def seed_generators(seed: int) -> None:
    """Seed the generators of python, numpy and torch, and do nothing else."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def worker_init_fn(worker_id: int, num_workers: int, rank: int, seed: int) -> None:
    """Seed a data loader's worker differently from all other workers and ranks.

    Loaders made by `runnerkit.data.build_dataloader` do not need it: they seed every sample.

    Args:
        worker_id: the worker's index, from 0.
        num_workers: the number of workers per rank.
        rank: the rank of this process.
        seed: the run's seed.
    """
    import numpy as np
    import torch

    own = num_workers * rank + worker_id + seed
    np.random.seed(own)
    random.seed(own)
    torch.manual_seed(own)


def rng_state() -> dict[str, Any]:
    """The states of all generators, including CUDA's if CUDA is in use, as tensors and plain values."""
    import numpy as np
    import torch

    # Reading CUDA's state would initialise CUDA, which takes seconds and memory.
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, words, pair = random.getstate()
    return {
        'python': (
            version,
            torch.from_numpy(np.array(words, dtype=np.int64)),
            pair,
        ),  # 625 numbers: a tensor is saved faster
        'numpy': (
            kind,
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ),
        'torch': torch.get_rng_state(),
        'cuda': cuda,
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the states that `rng_state` returned.

    Args:
        state: its tensors may be on any device. States of CUDA devices that do not exist here are ignored.

    Raises:
        ValueError: it is not such a state.
    """
    try:
        _set_rng_state(state)
    except (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f'the random states in the checkpoint are not as a run saves them: {error}') from error


def _set_rng_state(state: dict[str, Any]) -> None:
    import numpy as np
    import torch

    version, keys, gauss = state['python']
    random.setstate((version, tuple(keys.tolist()), gauss))
    kind, words, position, has_gauss, cached = state['numpy']
    np.random.set_state((kind, words.cpu().numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state['torch'].cpu())
    devices = torch.cuda.device_count() if state['cuda'] else 0
    for device, each in enumerate(state['cuda'][:devices]):
        torch.cuda.set_rng_state(each.cpu(), device)


def same_rng_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states of `rng_state` are equal, CUDA's aside."""
    import torch

    def parts(state: dict[str, Any]) -> list[Any]:
        return [*state['python'], *state['numpy'], state['torch']]

    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(parts(one), parts(other), strict=True)
    )


def set_derived_rng_state(state: dict[str, Any], number: int) -> None:
    """Seed all generators with what follows from ``state``, of `rng_state`, and ``number`` alone."""
    digest = hashlib.sha256(state['torch'].cpu().numpy().tobytes() + str(number).encode()).digest()
    seed_generators(int.from_bytes(digest[:4], 'little'))


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Restore all generators on leaving the context."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
