"""Take over a work dir: move an earlier run's files aside, and write the config and its code."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.ownership import is_owned
from runnerkit.checkpoint.store import OWNER
from runnerkit.config.objects import objects_in
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.work_dir.journal import number_of_starts, starts_in
from runnerkit.flow.work_dir.previous_runs import (
    EARLIER,
    STARTS,
    earlier_run,
    left_behind,
    move_aside,
)
from runnerkit.flow.work_dir.record import (
    CODE,
    RECORD,
    config_of,
    is_made_here,
    read_record,
    seal,
    write_record,
)
from runnerkit.flow.work_dir.snapshot import copies_of, files_needed, sources_in, write_snapshot
from runnerkit.hooks.storage import StoringHook
from runnerkit.log_files import JOURNAL
from runnerkit.utils.logging import shortened
from runnerkit.utils.small_files import own_folder


def take_over(context: Context) -> None:
    """Make the work dir this run's, on rank 0."""
    work_dir, cfg = context.work_dir, context.cfg
    record, before = read_record(work_dir), config_of(work_dir)
    was_own = before is not None and is_made_here(before)
    if not context.continues:
        set_run_aside(context)
    former = keep_former(work_dir, before) if context.continues and before is not None else None
    written = write_snapshot(work_dir, cfg, record)
    its_jobs = sorted({*read_record(work_dir).get('jobs', []), *context.jobs})
    noted = {**read_record(work_dir), **written}
    # In a work dir from elsewhere, the code of others stays unsealed, so that the work dir counts as one from there.
    own = None if was_own else [f'{noted.get("code") or CODE}/{copy}' for copy in copies_of(cfg)]
    sealed = seal(work_dir, noted, own)
    write_record(work_dir, **written, seal=sealed, seed=context.seed, jobs=its_jobs, process=os.getpid())
    if former is not None and sealed is not None and sealed == record.get('seal'):
        shutil.rmtree(former)  # nothing has changed
    if sealed is None:
        context.logger.info(
            'your key cannot be stored (XDG_STATE_HOME, else ~/.local/state), so the work dir is not sealed: to '
            'run its code later, add --trust'
        )
    objects = list(objects_in(cfg._cfg_dict))
    if objects:
        context.logger.info(
            'the work dir alone is not enough to use the model elsewhere: its config cannot hold the Python '
            'objects %s. To load the model or to resume, give this config again',
            shortened(objects),
        )
    for file in files_needed(cfg):
        context.logger.info(
            'using the work dir elsewhere needs %s, which registers classes of the config and is not copied. To '
            'copy it: custom_imports=dict(imports=[%r])',
            shown(file),
            str(file),
        )


def keep_former(work_dir: Path, config: Path) -> Path:
    """Keep the config and the code of the starts so far, which this one may replace, in ``starts/<how many>``: a replay
    trains each iteration as the start did that trained it. The seal is kept as well. Returns the folder."""
    folder = own_folder(work_dir / STARTS) / str(number_of_starts(starts_in(work_dir / JOURNAL)))
    if not folder.exists():  # else a start was killed that replaced them, before it trained anything
        half = folder.with_name(f'.{folder.name}.tmp')
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for name in (config.name, RECORD):
            shutil.copy2(work_dir / name, half / name, follow_symlinks=False)
        code = read_record(work_dir).get('code')
        if code is not None and (work_dir / code).is_dir():
            ignored = shutil.ignore_patterns('__pycache__')
            shutil.copytree(work_dir / code, half / code, symlinks=True, ignore=ignored)
        os.rename(half, folder)
    return folder


def set_run_aside(context: Context) -> None:
    """Move the files of an earlier run to ``earlier/<timestamp>``, in the work dir and wherever it has saved."""
    work_dir, logger = context.work_dir, context.logger
    copied = sources_in(work_dir, context.cfg)
    names, to = earlier_run(work_dir, context.timestamp, copied)
    # The work dir comes last: until then, a resume after a kill finds the earlier run.
    for store in other_stores(context):
        set_checkpoints_aside(context, store, f'{EARLIER}/{to}')
    if names:
        folder = move_aside(work_dir, names, to, copied)
        stay = left_behind(work_dir, names)
        logger.info(
            'moved the earlier run in %s to %s (continue it with --resume-from %s)%s',
            shown(work_dir),
            shown(folder),
            shown(folder),
            f'; left in place, because no run wrote it: {shortened(stay)}' if stay else '',
        )


def set_checkpoints_aside(context: Context, store: Store, to: str) -> None:
    """Move the earlier run's checkpoints in ``store`` to the folder ``to`` below it."""
    names = sorted(store.saved(), key=OWNER.__eq__)  # the file that says whose they are is the last
    count = sum(name.endswith('.pth') for name in names)
    if not count:
        return
    if not is_owned(store, str(context.work_dir)):
        why = 'they may belong to another work dir'
    elif store.move(names, to):
        why = f'{store.client.name} cannot move files'
    else:
        context.logger.info("moved the earlier run's %d checkpoints in %s to %s there", count, store, to)
        return
    context.logger.warning('%s holds %d checkpoints of an earlier run, which stay there: %s', store, count, why)


def other_stores(context: Context) -> list[Store]:
    """Where the run saves, apart from the work dir."""
    hooks = [hook for hook in getattr(context.runner, 'hooks', []) if isinstance(hook, StoringHook)]
    stores = {real_place(store): store for store in (hook.store(context.runner) for hook in hooks)}
    stores.pop(os.path.realpath(context.work_dir), None)
    return list(stores.values())


def real_place(store: Store) -> str:
    """Where a store is: one folder may have several names (relative ones, links)."""
    return os.path.realpath(store.place) if store.is_local else store.place
