"""What a run goes on under: compared between the run that saved a checkpoint and the one that resumes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

#: Hooks that change nothing of what is trained.
_ONLOOKERS = (
    'LoggerHook',
    'HistoryHook',
    'ProgressBarHook',
    'CheckpointHook',
    'TimerHook',
    'ProfilerHook',
    'MemoryHook',
    'EmptyCacheHook',
)


#: What follows from an EMAHook that is gone.
AVERAGES_GONE = 'its averages are dropped, and training goes on from the raw weights'


class Change(NamedTuple):
    """One thing that is not as it was.

    Attributes:
        what: its name.
        was: what it was when the checkpoint was saved.
        now: what it is.
        follows: what follows from it.
    """

    what: str
    was: Any
    now: Any
    follows: str


#: What follows from a change of each condition.
_FOLLOWS = {
    'runner': 'the loaders begin anew: epochs and iterations keep their places in the data in other ways',
    'workflow': 'it begins with its first entry',
    'world size': 'batches, gradients and the number of iterations of an epoch are others',
    'optimizer': 'the state of the former one is taken over, but another formula uses it',
    'precision': 'losses and gradients are rounded in another way',
    'accumulation': 'updates are made of other numbers of batches',
    'torch': 'results may differ in the last bits',
    'threads': 'large sums may differ in the last bits; num_threads in the config sets their number',
}

_LOADER_FOLLOWS = {
    'kind': 'its batches may be others, or come in another order',
    'dataset': 'its samples are others',
    'length': 'the order is another one: some samples of the open epoch come twice or not at all',
    'batch_size': 'it goes on with the same sample, in other batches',
    'batches': 'an epoch has another number of iterations',
    'seed': 'the order is another one: some samples of the open epoch come twice or not at all',
    'shuffle': 'the order is another one: some samples of the open epoch come twice or not at all',
}


def hook_changes(was: Iterable[str], now: Iterable[str]) -> list[Change]:
    """Hooks that are gone or new, but for those that only look on.

    Args:
        was: their names then, ``<class>#<number>``.
        now: their names.
    """
    gone, new = set(was) - set(now), set(now) - set(was)
    follows = {name: AVERAGES_GONE if 'EMAHook' in name else 'its state is dropped' for name in gone}
    changes = [Change(f'hook {name}', 'registered', 'gone', follows[name]) for name in sorted(gone)]
    changes += [Change(f'hook {name}', 'absent', 'registered', 'it begins without a state') for name in sorted(new)]
    return [each for each in changes if not any(kind in each.what for kind in _ONLOOKERS)]


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What differs of two runs' conditions."""
    found = []
    for what, follows in _FOLLOWS.items():
        if what in was and what in now and was[what] != now[what]:
            found.append(Change(what, was[what], now[what], follows))
    return found


def loader_changes(number: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What differs of a loader, see `runnerkit.data.kinds.about`.

    Args:
        number: of its workflow entry, from 0.
        was: what was said of it then.
        now: what is said of it now.
    """
    found: list[Change] = []
    for what, follows in _LOADER_FOLLOWS.items():
        if what in was and what in now and was[what] != now[what]:
            if what == 'batches' and any(each.what.endswith(('length', 'batch_size')) for each in found):
                continue
            if what == 'batches' and was.get('world_size') != now.get('world_size'):
                continue
            if what == 'batch_size' and 'seed' not in now and 'is_stream' not in now:
                follows = 'the open epoch begins anew: only the order of a loader made by build_dataloader is known'
            found.append(Change(f'loader {number}: {what}', was[what], now[what], follows))
    return found


def general_conditions() -> dict[str, Any]:
    """What the machine has a part in."""
    return {'torch': torch.__version__.split('+')[0], 'threads': torch.get_num_threads()}


def table(found: Iterable[Change]) -> str:
    """The changes, a line each."""
    rows = [('', 'was', 'is', ''), *((each.what, str(each.was), str(each.now), each.follows) for each in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ('  '.join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows)
    return '\n'.join(lines)
