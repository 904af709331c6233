"""Seeds of the parts of a study."""

from __future__ import annotations


def derived_seed(seed: int, number: int) -> int:
    """The seed of trial ``number`` in a study with ``seed``, below ``2**31``: mixed by `numpy.random.SeedSequence`."""
    import numpy as np

    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) % 2**31
