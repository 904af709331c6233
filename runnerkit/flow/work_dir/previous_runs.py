"""A work dir that an earlier run has used: which files in it are that run's, and how the folder gets out of the way.

A run that does not resume renames the folder to ``<work dir>.1`` (``.2`` …), right before it writes anything but its
log; a run that is refused before that changes nothing there.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import shutil
from collections.abc import Collection
from itertools import count
from pathlib import Path

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import flush_folder, temporary_name
from runnerkit.checkpoint.store import OWNER
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.work_dir.record import JSON_FILES, RECORD, STARTS, read_record
from runnerkit.hooks.storage import StoringHook, is_owned
from runnerkit.utils.logging import shortened

_LOG = re.compile(r'\d{8}_\d{6}\S*\.log(\.json(\.superseded)?)?')

#: The other files of every run: neither logs nor checkpoints, nor its config and code.
OTHER_FILES = {
    *JSON_FILES,
    'curve.png',
    'scores.png',
    'tf_logs',
    'tf_tracing_logs',
    '.eval_hook',
    'control.sock',
    'malformed.jsonl',
    'best_samples',
    'first_batch',
    'report.html',
    'reported_images',
    '.error_of_rank',
    RECORD,
    STARTS,
}


def files_of_a_run(work_dir: Path) -> list[str]:
    """The names of the files and folders in ``work_dir`` that a run has written there; empty if none has begun.

    The log of a start that was refused before its first iteration does not count by itself.
    """
    if not work_dir.is_dir():
        return []
    record = read_record(work_dir)
    names = os.listdir(work_dir)
    # A run notes its files when it ends; of one that was killed, all are that it has not found there.
    left = record.get('files', {*names} - {*record['others']} if 'others' in record else ())
    known = {*Store(work_dir).saved(), *OTHER_FILES, *left, record.get('config'), record.get('code')}
    found = sorted(name for name in names if name in known or _LOG.fullmatch(name))
    return [] if all(name.endswith('.log') for name in found) else found


def make_room(context: Context, reads: Collection[str] = ()) -> bool:
    """On rank 0: rename the work dir of an earlier run, and move its checkpoints elsewhere; returns whether there was
    such a work dir. This run ``reads`` files of these names in it."""
    work_dir, logger = context.work_dir, context.logger
    stores = [(store, is_owned(store, str(work_dir))) for store in other_stores(context)]
    names = files_of_a_run(work_dir)
    if names:
        others = sorted({*context.others} - {*names, '.lock', 'earlier'})  # the last one is of older versions
        if others and context.options.if_used != 'aside':
            raise FileExistsError(
                f'{_must_stay(work_dir)}: no run wrote {shortened(others)}. Move that elsewhere, rename it as well '
                f'(--if-used aside), {_WAYS_OUT}'
            )
        if reads:
            raise FileExistsError(
                f'{_must_stay(work_dir)}: this run reads {shortened(sorted(reads))} in it. Copy that elsewhere, '
                f'{_WAYS_OUT}'
            )
        folder = rename_aside(work_dir, context.others)
        logger.info(
            'moved the earlier run in %s to %s (continue it with --resume-from %s)',
            *map(shown, (work_dir, folder, folder)),
        )
    for store, is_ours in stores:
        set_checkpoints_aside(logger, store, is_ours)
    return bool(names)


_WAYS_OUT = 'choose another work dir (--work-dir), or continue that run (--auto-resume)'


def _must_stay(folder: Path) -> str:
    return f'{folder} holds an earlier run, and cannot be renamed to make room for this one'


def rename_aside(work_dir: Path, names: Collection[str]) -> Path:
    """Rename ``work_dir``, or what it leads to as a link, to the first free of ``<work dir>.1``, ``.2`` …

    The ``names`` move with it; the rest, which this run has written since its start, comes back to a new folder.
    """
    place = Path(os.path.realpath(work_dir))
    for is_so, what in (
        (os.path.ismount(place), 'a mount point'),
        (Path.cwd().is_relative_to(place), 'the current folder, or a parent of it'),
    ):
        if is_so:
            raise FileExistsError(f'{_must_stay(work_dir)}: it is {what}. Go elsewhere, {_WAYS_OUT}')
    aside = next(path for n in count(1) if not os.path.lexists(path := place.with_name(f'{place.name}.{n}')))
    fresh = place.with_name(temporary_name(place.name))  # of a run that is killed here, the next start deletes it
    try:
        fresh.mkdir(0o700)
        try:
            os.rename(place, aside)
        except OSError:
            fresh.rmdir()
            raise
    except OSError as error:
        raise type(error)(f'{_must_stay(work_dir)} ({aside}: {error.strerror}): {_WAYS_OUT}') from error
    for name in os.listdir(aside):
        if name == '.lock' or name not in names:
            os.rename(aside / name, fresh / name)
    shutil.copymode(aside, fresh)
    os.rename(fresh, place)
    flush_folder(place.parent)
    return aside


def other_stores(context: Context) -> list[Store]:
    """Where the run saves, apart from the work dir."""
    hooks = [hook for hook in getattr(context.runner, 'hooks', []) if isinstance(hook, StoringHook)]
    stores = [hook.store(context.runner) for hook in hooks]
    # One folder may have several names (relative ones, links).
    places = {os.path.realpath(store.place) if store.is_local else store.place: store for store in stores}
    places.pop(os.path.realpath(context.work_dir), None)
    return list(places.values())


def set_checkpoints_aside(logger: logging.Logger, store: Store, is_ours: bool) -> None:
    """Move an earlier run's checkpoints from ``store`` to ``<store>.1``, ``.2`` …, if they are of this work dir."""
    names = sorted(store.saved(), key=OWNER.__eq__)  # the file that says whose they are is the last
    saved = sum(name.endswith('.pth') for name in names)
    if not saved:
        return
    to, number, why = '', 0, '' if is_ours else 'they may belong to another work dir'
    if is_ours and store.is_local:
        to = str(rename_aside(Path(store.place), os.listdir(store.place)))
    elif is_ours:
        other = copy.copy(store)
        while not to or other.saved():
            number += 1
            to = other.place = f'{store.place}.{number}'
        why = f'{store.client.name} cannot move files' if store.move(names, to) else ''
    if why:
        logger.warning('%s holds %d checkpoints of an earlier run, which stay there: %s', store, saved, why)
    else:
        logger.info("moved the earlier run's %d checkpoints in %s to %s", saved, store, to)
