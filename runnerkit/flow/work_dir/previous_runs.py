"""A work dir that an earlier run has used: which files are that run's, and how they move out of the next run's way.

A run begins by moving the earlier run's files to ``<work_dir>/earlier/<timestamp>/``, unless it resumes that run. The
log that gives the folder its name moves last, so the start after a kill moves the rest to the same folder.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import flush_folder
from runnerkit.checkpoint.store import LATEST, OWNER
from runnerkit.distributed import all_gather_objects
from runnerkit.flow.work_dir.record import JSON_FILES, RECORD, read_record
from runnerkit.log_files import EARLIER
from runnerkit.utils.processes import start_of
from runnerkit.utils.small_files import own_folder

#: What ``--if-used`` may be.
IF_USED = ('resume', 'aside', 'refuse')

#: The folder with configs and code of earlier starts of the run, where a later one has replaced them.
STARTS = 'starts'

#: How the name of a process of torchrun begins.
AGENT = 'torchrun process '

_LOG = re.compile(r'(\d{8}_\d{6}\S*)\.log(\.json(\.superseded)?)?')
_TELLING = (RECORD, OWNER, LATEST)
#: The other files of a run: neither logs nor checkpoints, nor its config and code.
OTHER_FILES = {
    *JSON_FILES,
    'curve.png',
    'scores.png',
    'tf_logs',
    'tf_tracing_logs',
    '.eval_hook',
    'malformed.jsonl',
    'best_samples',
    'report.html',
    'reported_images',
    RECORD,
    STARTS,
}


def files_of_a_run(work_dir: Path) -> list[str]:
    """The names of the files and folders in ``work_dir`` that a run has written there; empty if none has begun.

    What says whose the others are comes last: the record, the link to the latest checkpoint, and the logs that name the
    run. The log of a start that was refused before its first iteration does not count by itself.
    """
    if not work_dir.is_dir():
        return []
    names = {entry.name for entry in os.scandir(work_dir)}
    logs = {name for name in names if _LOG.fullmatch(name)}
    record = read_record(work_dir)
    found = logs | names & {*Store(work_dir).saved(), *OTHER_FILES, record.get('config'), record.get('code')}
    if all(name.endswith('.log') for name in found):
        return []
    first = f'{timestamp_of(found)}.log'
    return sorted(found, key=lambda name: (name.startswith(first), name in _TELLING, name))


def timestamp_of(names: Collection[str]) -> str | None:
    """The timestamp of the run that has written ``names``: that of its first log; None if it has none."""
    found = {name: match[1] for name in names if (match := _LOG.fullmatch(name))}
    began = [stamp for name, stamp in found.items() if '.log.json' in name]
    return min(began or found.values(), default=None)


def earlier_run(work_dir: Path, timestamp: str, copied: Collection[str] = ()) -> tuple[list[str], str]:
    """The files of an earlier run in ``work_dir``, and the name of the folder that `move_aside` moves them to.

    Args:
        work_dir: the folder.
        timestamp: of the run that begins, whose logs do not count.
        copied: which of them also stay.
    """
    names = [name for name in files_of_a_run(work_dir) if not name.startswith(f'{timestamp}.log')]
    return names, free_name(work_dir, timestamp_of(names) or timestamp, [name for name in names if name not in copied])


def free_name(work_dir: Path, timestamp: str, names: Sequence[str]) -> str:
    """The name of a folder in ``earlier``: ``timestamp``, with a number if that is taken.

    Args:
        work_dir: the folder.
        timestamp: of the run.
        names: the files that move. A folder with none of them may be half filled, by a start that was killed; one that
            has some belongs to another run, or to this one before it was resumed.
    """
    number, name = 1, timestamp
    while any(os.path.lexists(work_dir / EARLIER / name / each) for each in names or ['']):
        number += 1
        name = f'{timestamp}_{number}'
    return name


def move_aside(work_dir: Path, names: Sequence[str], to: str, copied: Collection[str] = ()) -> Path:
    """Move ``names``, in this order, to ``<work_dir>/earlier/<to>``, and return that folder.

    Args:
        work_dir: the folder.
        names: files and folders in it.
        to: the name of the new folder.
        copied: which of them also stay, because the next run reads them.

    Raises:
        OSError: one cannot be moved, for example because it is a mount point.
    """
    folder = own_folder(own_folder(work_dir / EARLIER) / to)
    for name in names:
        source = work_dir / name
        if name in copied and source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, dirs_exist_ok=True)
        elif name in copied:
            shutil.copy2(source, folder / name, follow_symlinks=False)
        else:
            try:
                os.rename(source, folder / name)
            except OSError as error:
                raise type(error)(
                    f'{source}, of an earlier run, cannot be moved to {folder} ({error.strerror}): move it, or choose '
                    'another work dir (--work-dir)'
                ) from error
    for changed in (folder, folder.parent, work_dir):
        flush_folder(changed)
    return folder


def left_behind(work_dir: Path, names: Collection[str]) -> list[str]:
    """What in ``work_dir`` is neither among ``names``, nor runnerkit's."""
    found = (entry.name for entry in os.scandir(work_dir))
    return sorted(name for name in found if name not in {*names, EARLIER, '.lock'} and not _LOG.fullmatch(name))


def jobs(variables: Mapping[str, str] = os.environ) -> dict[str, bool]:
    """The jobs of torchrun and Slurm that this process belongs to: their names, and whether each was restarted.

    The process of torchrun on this machine is also a job; `is_restarted` finds whether it has restarted this one.
    """
    found = {}
    if 'TORCHELASTIC_RESTART_COUNT' in variables:
        name = variables.get('TORCHELASTIC_RUN_ID', 'none')
        found[agent(name)] = False
        if name not in ('', 'none'):
            found[f'torchrun {name}'] = variables['TORCHELASTIC_RESTART_COUNT'] != '0'
    if 'SLURM_JOB_ID' in variables:
        found[f'slurm {variables["SLURM_JOB_ID"]}'] = variables.get('SLURM_RESTART_COUNT', '0') not in ('', '0')
    return found


def jobs_of_all_ranks() -> dict[str, bool]:
    """The `jobs` of all ranks; one counts as restarted where it was for any of them. A collective.

    Rank 0 alone may know too little: it may run on a new machine, whose torchrun has restarted nothing.
    """
    found: dict[str, bool] = {}
    for its in all_gather_objects(jobs()):
        for name, restarted in its.items():
            found[name] = restarted or found.get(name, False)
    return found


def is_restarted(work_dir: Path, now: Mapping[str, bool]) -> bool:
    """Whether the run in ``work_dir`` was begun by this very job, which torchrun or Slurm has restarted since.

    Args:
        work_dir: of the run.
        now: the `jobs_of_all_ranks`.
    """
    record = read_record(work_dir)
    begun_by = record.get('jobs', [])
    # Torchrun does not count the restarts by which machines come or go. But all that one process of it starts, one
    # after another, is one job; unless this very process began the run.
    if any(name in begun_by for name in now if name.startswith(AGENT)):
        return bool(record.get('process') != os.getpid())
    return any(restarted and name in begun_by for name, restarted in now.items())


def agent(run_id: str) -> str:
    """The process of torchrun that has started this one: its id is unique together with the moment of its start."""
    started = start_of(os.getppid()) or ''
    return f'{AGENT}{run_id} of {socket.gethostname()} {os.getppid()} {started}'.rstrip()


def free_timestamp(folder: Path, timestamp: str) -> str:
    """``timestamp``, with a number if a log in ``folder`` has that name."""
    number, name = 1, timestamp
    while any(os.path.lexists(folder / f'{name}{ending}') for ending in ('.log', '.log.json')):
        number += 1
        name = f'{timestamp}_{number}'
    return name
