"""The conditions of a run: compared between the run that saved a checkpoint and the one that resumes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from runnerkit.utils.logging import printable

#: Settings by name; of a parameter group, of a hook.
Settings = dict[str, Any]

#: Hooks that change nothing of what is trained.
_ONLOOKERS = (
    'LoggerHook',
    'HistoryHook',
    'JournalHook',
    'PredictionsHook',
    'ProgressBarHook',
    'CheckpointHook',
    'TimerHook',
    'ProfilerHook',
    'MemoryHook',
    'EmptyCacheHook',
    'StopAfterHook',
    'FingerprintHook',
    'LossJumpHook',
)


#: What follows from an EMAHook that is gone.
AVERAGES_GONE = 'its averages are dropped; training continues from the raw weights'


#: What follows from a changed setting of an optimizer where the checkpoint's stay.
STATE_WINS = (
    'no effect: the value of the checkpoint stays, as in MMCV; to change it, set runner.config_wins = True before '
    'runner.resume, or use runnerkit train … --resume-from'
)


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
    'runner': 'the loaders start over: the two kinds of runner count positions differently',
    'workflow': 'starts over with its first entry',
    'length': 'the run ends there; schedules follow the new length',
    'seed': 'the data comes in another order; random states continue as saved',
    'world size': 'batches, gradients and iterations per epoch differ',
    'optimizer': 'its state is kept, but another formula uses it',
    'precision': 'losses and gradients are rounded differently',
    'accumulation': 'updates use another number of batches; gradients of an unfinished cycle are dropped',
    'torch': 'results may differ in the last bits',
    'threads': 'large sums may differ in the last bits; set num_threads in the config',
}

_LOADER_FOLLOWS = {
    'kind': 'batches or their order may differ',
    'dataset': 'the samples differ',
    'length': 'the order changes: some samples of the open epoch come twice or not at all',
    'batch_size': 'continues with the same sample, in other batches',
    'batches': 'the number of iterations per epoch changes',
    'seed': 'the order changes: some samples of the open epoch come twice or not at all',
    'shuffle': 'the order changes: some samples of the open epoch come twice or not at all',
}


@cache
def only_looks_on(hook_class: str) -> bool:
    """Whether hooks of the class of that name change nothing of what is trained."""
    return any(kind in hook_class for kind in _ONLOOKERS)


def hook_changes(was: Iterable[str], now: Iterable[str]) -> list[Change]:
    """Hooks that are gone or new, but for those that only look on."""
    gone, new = set(was) - set(now), set(now) - set(was)
    follows = {name: AVERAGES_GONE if 'EMAHook' in name else 'its state is dropped' for name in gone}
    changes = [Change(f'hook {name}', 'registered', 'gone', follows[name]) for name in sorted(gone)]
    changes += [Change(f'hook {name}', 'absent', 'registered', 'starts without a state') for name in sorted(new)]
    return [each for each in changes if not only_looks_on(each.what)]


#: What follows from a changed setting of an optimizer, if it is more than that it takes effect.
_OPTIMIZER_FOLLOWS = {'lr': 'the learning rate and its schedule are rescaled'}

#: The same of hooks' settings.
_HOOK_FOLLOWS = {
    **dict.fromkeys(('save_best', 'rule', 'monitor'), 'the best score so far is forgotten'),
    'loss_scale': 'the loss scale starts with it',
}

#: Settings of hooks that have their own line, among the conditions or as ``schedule``.
_TOLD_ELSEWHERE = ('cumulative_iters', 'amp')


def optimizer_changes(
    name: str, was: list[Settings], now: list[Settings], takes_effect: bool, replaced: bool = False
) -> list[Change]:
    """What differs of the settings of an optimizer's parameter groups: one line for each setting."""
    own = {**_OPTIMIZER_FOLLOWS, 'lr': 'no effect: the schedule sets the rate by its own arguments'}
    names = dict.fromkeys(key for each in zip(was, now, strict=False) for key in changed(*each) if key != 'parameters')
    found = []
    for key in names:
        pairs = dict.fromkeys(
            (str(b[key]), str(a[key])) for b, a in zip(was, now, strict=False) if key in changed(b, a)
        )
        before, after = (', '.join(texts[:3]) + (' …' if len(texts) > 3 else '') for texts in zip(*pairs, strict=True))
        follows = (own if replaced else _OPTIMIZER_FOLLOWS).get(key, 'takes effect') if takes_effect else STATE_WINS
        found.append(Change(f'optimizer{name and " " + name}: {key}', before, after, follows))
    return found


def schedule_changes(was: Mapping[str, Mapping[str, Any]], now: Mapping[str, Any]) -> list[Change]:
    """The schedules of torch that are others, from the states of hooks then and the hooks now, by name."""
    pairs = ((name, was.get(name, {}).get('schedule'), getattr(hook, 'schedule', None)) for name, hook in now.items())
    return [
        Change(f'hook {name}: schedule', before, after, 'continues at the position of the run')
        for name, before, after in pairs
        if isinstance(before, str) and isinstance(after, str) and before != after
    ]


def setting_changes(was: Mapping[str, Settings], now: Mapping[str, Settings], scale: bool = True) -> list[Change]:
    """What differs of the settings of the hooks that both runs have, but for those that only look on."""
    follows = _HOOK_FOLLOWS if scale else {**_HOOK_FOLLOWS, 'loss_scale': STATE_WINS}
    return [
        Change(f'hook {name}: {key}', was[name][key], now[name][key], follows.get(key, 'takes effect'))
        for name in now
        if name in was and (name.startswith('CheckpointHook') or not any(kind in name for kind in _ONLOOKERS))
        for key in changed(was[name], now[name])
        if key not in _TOLD_ELSEWHERE
    ]


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What differs of two runs' conditions."""
    found = []
    for what, follows in _FOLLOWS.items():
        if what in was and what in now and was[what] != now[what]:
            found.append(Change(what, was[what], now[what], follows))
    return found


def loader_changes(number: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What differs of a loader, see `runnerkit.data.kinds.loader_facts`."""
    found: list[Change] = []
    for what, follows in _LOADER_FOLLOWS.items():
        if what in was and what in now and was[what] != now[what]:
            if what == 'batches' and any(each.what.endswith(('length', 'batch_size')) for each in found):
                continue
            if what == 'batches' and was.get('world_size') != now.get('world_size'):
                continue
            if what == 'batch_size' and 'seed' not in now and 'is_stream' not in now:
                follows = 'the open epoch starts over: only loaders made by build_dataloader have a known order'
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


def differs(was: Any, now: Any) -> bool:
    """Whether two plain values are other settings; rounding is no difference, and NaN equals itself."""
    if isinstance(was, float) and isinstance(now, float):
        return not (math.isclose(was, now, rel_tol=1e-12) or (was != was and now != now))
    return bool(was != now)


def changed(was: Settings, now: Settings) -> list[str]:
    """The names of the settings that both have, with other values."""
    return [name for name in now if name in was and differs(was[name], now[name])]


#: The sections that are compared, by their keys.
_SECTIONS = (('data', 'train'), ('data', 'val'), ('model',))

#: Arguments with the first weights, which those of the checkpoint replace.
_REPLACED = ('init_cfg', 'pretrained')

_ABSENT = object()

_WIDEST = 60  # characters of a value in the table


def config_changes(was: Any, now: Any) -> list[Change]:
    """A line for each argument of ``data.train``, ``data.val`` and ``model`` that differs.

    A path that has moved together with the work dir is the same path, and so is a file of code in another folder.
    """
    if was == now or not (isinstance(was, str) and isinstance(now, str)):
        return []
    from runnerkit.config.settings import NoLiteral, read_literals  # only resumed runs with another config need it

    try:
        before, after = read_literals(was), read_literals(now)
    except NoLiteral:  # a text of the user's own, not that of a config
        return []
    moved = _moved_folder(str(before.get('work_dir', '')), str(after.get('work_dir', '')))
    return [
        Change(key, _shown(one), _shown(other), 'it takes effect now')
        for section in _SECTIONS
        for key, one, other in _differing('.'.join(section), _value_at(before, section), _value_at(after, section))
        if not _is_same_place(one, other, moved)
    ]


def _value_at(values: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        values = values.get(key, _ABSENT) if isinstance(values, dict) else _ABSENT
    return values


def _differing(key: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys of the differing values in ``was`` and ``now``, which stand at ``key``, with both values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            if name not in _REPLACED:
                yield from _differing(f'{key}.{name}', was.get(name, _ABSENT), now.get(name, _ABSENT))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple) and len(was) == len(now):
        for index, pair in enumerate(zip(was, now, strict=True)):
            yield from _differing(f'{key}[{index}]', *pair)
    elif differs(was, now):
        yield key, was, now


def _moved_folder(was: str, now: str) -> tuple[str, str]:
    """What has become what, where the folder ``was`` has become ``now``: both without the end that they share."""
    before, after = was.split('/'), now.split('/')
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return '/'.join(before), '/'.join(after)


def _is_same_place(was: Any, now: Any, moved: tuple[str, str]) -> bool:
    if not (isinstance(was, str) and isinstance(now, str)):
        return False
    if '.py:' in was and '.py:' in now:
        return was.rpartition('/')[2] == now.rpartition('/')[2]
    if not (was.startswith(moved[0]) and now.startswith(moved[1])):
        return False
    rest = was.removeprefix(moved[0])
    return rest.startswith('/') and rest == now.removeprefix(moved[1])


def _shown(value: Any) -> str:
    return 'absent' if value is _ABSENT else printable(str(value), _WIDEST)
