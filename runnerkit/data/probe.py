"""Reads a sample twice, to see whether it depends on something that no checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.held import Held, same_state
from runnerkit.data.kinds import dataset_of, is_cheap_to_enter, is_pure
from runnerkit.data.reader_state import ReaderState
from runnerkit.utils.seed import rng_state, set_rng_state


def can_be_probed(loader: Any) -> bool:
    """Whether a sample of ``loader`` can be read here, and may depend on something that is not known."""
    return is_cheap_to_enter(loader) and not loader.num_workers and not is_pure(dataset_of(loader))


def probe(dataset: Any, held: Held, state: ReaderState) -> list[str]:
    """See whether a sample depends on something that nobody sees: read from equal states it must be equal, and leave
    equal states behind. Everything is as it was afterwards.

    Args:
        dataset: of the loader.
        held: what the loader holds.
        state: what a resumed run begins with.

    Returns:
        What is wrong, a sentence each.
    """
    before, seen, lost = _states(held), [], []
    try:
        for _ in range(2):
            seen.append((batch_checksums(dataset[0]), _states(held)))
            _go_back(held, before)
        if not state.of_files:
            lost = _lost(dataset, held, state, before)
    except Exception:  # it may have other keys, or other ways
        return []
    finally:
        _go_back(held, before)
    found = []
    if lost:
        found.append(
            f'its samples depend on {", ".join(lost)}, which starts over: an earlier version of runnerkit saved the '
            'checkpoint, without attributes of classes in user files'
        )
    if not same_state(seen[0], seen[1]):
        found.append(
            f'a sample read twice differs, though no generator moved in between: {type(dataset).__name__} has '
            'state that checkpoints do not hold (a cache, a file position): give it state_dict() and '
            'load_state_dict()'
        )
    return found


def _lost(dataset: Any, held: Held, state: ReaderState, before: Mapping[str, Any]) -> list[str]:
    """The attributes that a sample depends on, and that are not in ``state`` because it is an earlier version's."""
    samples = []
    for _ in range(2):
        set_rng_state(before['rng'])
        held.restore(before['held'])  # and no more: what a sample has changed else stays
        samples.append(batch_checksums(dataset[0]))
    lost = held.of_files(set(held.states()) - set(state.held))
    return [] if same_state(*samples) else sorted(lost)


def _states(held: Held) -> dict[str, Any]:
    return {'rng': rng_state(), 'held': held.states()}


def _go_back(held: Held, states: Mapping[str, Any]) -> None:
    set_rng_state(states['rng'])
    held.go_back(states['held'])
