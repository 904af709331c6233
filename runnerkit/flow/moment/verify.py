"""Whether a work dir reproduces here: from one kept checkpoint to the next, both files are compared whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.integrity import reading
from runnerkit.checkpoint.loader import load_whole
from runnerkit.distributed import from_first_rank
from runnerkit.flow.look.dry_run import leaves
from runnerkit.flow.moment.history import History, Saved, history_of
from runnerkit.flow.moment.logs import is_of_machine
from runnerkit.flow.moment.replay import Moment, travel
from runnerkit.flow.moment.values import MISSING, difference_of
from runnerkit.hooks import HOOKS
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_buffer import LogBuffer

#: What is no state of the training: where it was, when, and the text of its config.
_OF_PLACE = ('time', 'env_info', 'config', 'runnerkit_version', 'mmcv_version')


@dataclass
class Stretch:
    """The iterations between two checkpoints.

    Attributes:
        begin: the completed iterations at the first one; 0: the beginning of the run.
        end: the same at the second one.
        checkpoint: the second one's name.
        is_equal: whether the replay ends with the same state.
        difference: the first thing that differs; empty if nothing does.
        compared: what was compared.
    """

    begin: int
    end: int
    checkpoint: str
    is_equal: bool = True
    difference: str = ''
    compared: str = 'everything'


@dataclass
class Verification:
    """What `verify` has found.

    Attributes:
        work_dir: of the run.
        is_equal: whether all that was replayed is equal.
        stretches: between which checkpoints it was replayed.
        doubts: what may keep it from being equal, as sentences.
        discarded: sentences about iterations that the run has trained and lost.
    """

    work_dir: str
    is_equal: bool = True
    stretches: list[Stretch] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)


def verify(
    work_dir: str | os.PathLike[str],
    all_stretches: bool = False,
    *,
    trust: bool = False,
    config: Any = None,
    device: str | None = None,
) -> Verification:
    """Replay a run from one kept checkpoint to the next, and compare all that both files hold."""
    history = history_of(Path(work_dir))
    found = Verification(os.fspath(work_dir), discarded=history.discarded)
    for begin, end in stretches_of(history, all_stretches):
        with travel(
            history, end.iterations, since=begin, is_end=True, trust=trust, config=config, device=device
        ) as moment:
            stretch = Stretch(moment.since, end.iterations, os.path.basename(end.path))
            twin = saved_again(moment, stretch)
            stretch.difference = from_first_rank(partial(first_difference, end.path, twin, stretch.compared))
            if not stretch.difference and (lines := from_first_rank(lambda: moment.differences)):
                stretch.difference = str(lines[0])
            stretch.is_equal = not stretch.difference
            found.doubts += [text for text in moment.doubts if text not in found.doubts]
        found.stretches.append(stretch)
        found.is_equal = found.is_equal and stretch.is_equal
    return found


def stretches_of(history: History, all_of_them: bool) -> Iterator[tuple[Saved | None, Saved]]:
    """Pairs of checkpoints, oldest first; None is the beginning of the run."""
    kept = {saved.iterations: saved for saved in reversed(list(history.checkpoints())) if saved.iterations > 0}
    folders = [folder.resolve() for folder in history.folders]
    own = [saved for saved in kept.values() if Path(saved.path).parent in folders]
    first = history.starts[0]
    begins: list[Saved | None] = list(kept.values())
    if first.begin == 0 and not first.entry.get('resumed_from'):
        begins.insert(0, None)
    ends = list(kept.values())[0 if begins[:1] == [None] else 1 :]
    pairs = [(begin, end) for begin, end in zip(begins, ends, strict=False) if end in own]
    if not pairs:
        raise FileNotFoundError(
            f'{history.run.folder} has no two intact checkpoints, nor one and the beginning of the run: there is '
            'nothing to compare with'
        )
    yield from pairs if all_of_them else pairs[-1:]


def saved_again(moment: Moment, stretch: Stretch) -> str:
    """The checkpoint of the replay: of the same name, where it has saved one. Else a new one: the run has then fetched
    one batch more, so that only weights and optimizer are compared."""
    if not moment.has_ended:
        moment.call(lambda runner: runner.finish_saving())
    path = moment.folder / stretch.checkpoint
    if from_first_rank(path.exists):
        return str(path)
    stretch.compared = 'weights and optimizer'
    return moment.save(moment.folder / 'twin.pth')


def first_difference(then: str, now: str, compared: str) -> str:
    """The first thing that differs between two checkpoints, as a sentence; empty if nothing does."""
    one, other = (state_of(path, compared) for path in (then, now))
    for place in dict.fromkeys([*one, *other]):
        if place.startswith(('hooks[', "settings['hooks']")) and not (place in one and place in other):
            continue  # a hook that was left out, or that was given from Python
        if text := difference_of(place, one.get(place, MISSING), other.get(place, MISSING)):
            return text
    return ''


def state_of(path: str, compared: str) -> dict[str, Any]:
    """All values in a checkpoint by their places, those first from which others follow; without what belongs to a
    machine or a place."""
    content = load_whole(path, 'cpu')
    with reading(path, 'compared'):
        return _state_in(content, compared)


def _state_in(content: Mapping[str, Any], compared: str) -> dict[str, Any]:
    """`state_of` the content of a checkpoint."""
    parts = {key: content[key] for key in ('state_dict', 'optimizer') if content.get(key) is not None}
    if compared == 'everything':
        state = dict(content['runnerkit'])
        parts = {'progress': state.pop('progress'), **parts}
        ranks = [dict(rank) for rank in state.pop('ranks')]
        for rank in ranks:
            rank['log_buffer'] = logged(rank['log_buffer'])
            rank['hooks'] = {name: each for name, each in rank['hooks'].items() if not is_logger(name)}
        keys = dict.fromkeys(['rng', 'readers', 'hooks', *(key for rank in ranks for key in rank)])
        parts |= {key: [rank.get(key) for rank in ranks] for key in keys} | state
        parts['meta'] = {key: value for key, value in content['meta'].items() if key not in _OF_PLACE}
    found = {}
    for name, part in parts.items():
        for place, value in leaves(part, name):
            is_path = place.startswith("meta['hook_msgs']") and isinstance(value, str)
            found[place] = os.path.basename(value) if is_path else value
    return found


def logged(state: Mapping[str, Any]) -> dict[str, Any]:
    """A saved log buffer by the names of its values, without times."""
    buffer = LogBuffer()
    buffer.load_state_dict(dict(state))
    parts: tuple[Mapping[str, Any], ...] = (buffer.val_history, buffer.n_history, buffer.output)
    return {name: [part.get(name) for part in parts] for part in parts for name in part if not is_of_machine(name)}


def is_logger(name: str) -> bool:
    """Whether a hook, by its name in a checkpoint, only logs; the log itself is compared."""
    kind = HOOKS.registered(name.partition('#')[0])
    return isinstance(kind, type) and issubclass(kind, LoggerHook)
