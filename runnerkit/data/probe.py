"""Reads a sample twice, to see whether it depends on something that no checkpoint holds."""

from __future__ import annotations

from typing import Any

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.kinds import dataset_of, is_cheap_to_enter, is_pure
from runnerkit.data.loader_state import LoaderState, same_state
from runnerkit.utils.seed import rng_state, set_rng_state


def can_be_probed(loader: Any) -> bool:
    """Whether a sample of ``loader`` can be read here, and may depend on something unknown."""
    return is_cheap_to_enter(loader) and not loader.num_workers and not is_pure(dataset_of(loader))


def samples_repeat(dataset: Any, state: LoaderState) -> bool:
    """Whether a sample read twice from equal states is equal and leaves equal states, which are restored afterwards.

    Args:
        dataset: of the loader.
        state: of the loader.
    """
    rng, before, seen = rng_state(), state.states(), []
    try:
        for _ in range(2):
            set_rng_state(rng)
            state.restore(before)
            seen.append((batch_checksums(dataset[0]), rng_state(), state.states()))
    except Exception:  # it may have other keys, or other ways
        return True
    finally:
        set_rng_state(rng)
        state.restore(before)
    return same_state(seen[0], seen[1])
