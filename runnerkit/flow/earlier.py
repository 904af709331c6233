"""A work dir that an earlier run has used: what is that run's, and how it is kept apart from the next one.

A run begins by moving the earlier run's files to ``<work_dir>/earlier/<timestamp>/``, unless it resumes that run. A
kill in the middle of the move is no danger: the folder is called ``….unfinished`` and holds a plan until everything is
in it, and the next start does the rest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import flush_folder, write_atomically
from runnerkit.distributed import all_gather_objects
from runnerkit.log_files import EARLIER, logs_in
from runnerkit.utils.small_files import read_json

#: What ``--if-used`` may be.
IF_USED = ('resume', 'aside', 'refuse')

#: The file with what a run notes about itself: the names of its config and of the folder with the user's files, and the
#: jobs that it belongs to.
RECORD = '.flow.json'

#: How the name of a process of torchrun begins.
AGENT = 'torchrun process '

_LOG = re.compile(r'(\d{8}_\d{6}\S*)\.log(\.json(\.superseded)?)?')
_OTHERS = {
    'curve.png',
    'scores.json',
    'scores.png',
    'tf_logs',
    'tf_tracing_logs',
    '.eval_hook',
    'malformed.jsonl',
    'report.html',
    'run.json',
    RECORD,
}
_UNFINISHED, _PLAN = '.unfinished', '.plan.json'


def files_of_a_run(work_dir: Path) -> list[str]:
    """The names of the files and folders in ``work_dir`` that a run has written there; empty if none has begun.

    The log of a start that was refused before its first iteration does not count on its own.
    """
    if not work_dir.is_dir():
        return []
    names = {entry.name for entry in os.scandir(work_dir)}
    logs = {name for name in names if _LOG.fullmatch(name)}
    record = read_record(work_dir)
    found = logs | names & {*Store(work_dir).saved(), *_OTHERS, record.get('config'), record.get('code')}
    return sorted(found) if any(not name.endswith('.log') for name in found) else []


def read_record(work_dir: Path) -> dict[str, Any]:
    """What `write_record` has written; of a run of an older version, the config that its log names.

    What is of another kind than that is left out: the file may be anybody's, and files are written where it says.
    """
    try:
        found = read_json(work_dir / RECORD)
    except (OSError, ValueError):
        logs = logs_in(work_dir)
        found = {'config': name} if logs and (name := _config_in(logs[-1])) else {}
    kinds = {'config': _is_name, 'code': _is_name, 'jobs': _are_texts}
    found = found if isinstance(found, dict) else {}
    return {key: value for key, value in found.items() if key not in kinds or kinds[key](value)}


def _is_name(value: Any) -> bool:
    """Whether ``value`` is the name of a file in a folder, and leads nowhere else."""
    return isinstance(value, str) and re.fullmatch(r'[^/\\\0]+', value) is not None and value not in ('.', '..')


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def write_record(work_dir: Path, **items: Any) -> None:
    """Note ``items`` about the run in ``work_dir``."""
    content = json.dumps({**read_record(work_dir), **items}, indent=1).encode()
    write_atomically(work_dir / RECORD, methodcaller('write', content))


def timestamp_of(names: Collection[str]) -> str | None:
    """The timestamp of the run that has written ``names``: that of its first log; None if it has none."""
    found = {name: match[1] for name in names if (match := _LOG.fullmatch(name))}
    began = [stamp for name, stamp in found.items() if '.log.json' in name]
    return min(began or found.values(), default=None)


def free_name(work_dir: Path, timestamp: str) -> str:
    """``timestamp``, with a number if ``earlier`` has a folder of that name."""
    taken = {path.name for path in (work_dir / EARLIER).glob('*')}
    number, name = 1, timestamp
    while name in taken or name + _UNFINISHED in taken:
        number += 1
        name = f'{timestamp}_{number}'
    return name


def move_aside(work_dir: Path, names: Sequence[str], to: str, copied: Collection[str] = ()) -> Path:
    """Move ``names`` to ``<work_dir>/earlier/<to>``; what a kill leaves undone is for `finish_move`.

    Args:
        work_dir: the folder.
        names: files and folders in it.
        to: the name of the new folder.
        copied: which of them also stay, because the next run reads them.

    Raises:
        OSError: one cannot be moved, for example because it is a mount point.
    """
    folder = work_dir / EARLIER / (to + _UNFINISHED)
    folder.mkdir(parents=True, exist_ok=True)
    flush_folder(folder.parent)
    write_atomically(
        folder / _PLAN, methodcaller('write', json.dumps({name: name in copied for name in names}).encode())
    )
    return _carry_out(work_dir, folder)


def finish_move(work_dir: Path) -> Path | None:
    """Finish the move that a killed run has begun; the folder, or None if there was none."""
    folder = next((work_dir / EARLIER).glob('*' + _UNFINISHED), None)
    if folder is None:
        return None
    if any(not path.name.startswith('.' + _PLAN) for path in folder.iterdir()):  # more than half a plan
        return _carry_out(work_dir, folder)
    shutil.rmtree(folder)  # nothing has been moved yet: it is for the next run to decide
    return None


def _carry_out(work_dir: Path, folder: Path) -> Path:
    """Do what the plan in ``folder`` says and is not done yet; without a plan, all is done."""
    plan = folder / _PLAN
    for name, stays in _read_plan(plan).items() if plan.exists() else ():
        source, target = work_dir / name, folder / name
        if not os.path.lexists(source):
            continue
        if stays:
            copy = partial(shutil.copytree, dirs_exist_ok=True) if source.is_dir() else shutil.copy2
            copy(source, target)
            continue
        try:
            os.rename(source, target)
        except OSError as error:
            raise type(error)(
                f'{source}, of an earlier run, cannot be moved to {folder} ({error.strerror}): move it, or choose '
                'another work dir (--work-dir)'
            ) from error
    plan.unlink(missing_ok=True)
    name = folder.name.removesuffix(_UNFINISHED)
    final = folder.with_name(free_name(work_dir, name) if folder.with_name(name).exists() else name)
    os.rename(folder, final)
    for changed in (final, folder.parent, work_dir):
        flush_folder(changed)
    return final


def _read_plan(plan: Path) -> dict[str, bool]:
    """What `move_aside` has written; it may move nothing but what lies in the work dir.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = read_json(plan)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(_is_name, found)):
        raise ValueError(
            f'{plan} does not list files of the work dir, so no run has written it: remove {plan.parent}, or choose '
            'another work dir (--work-dir)'
        )
    return found


def left_behind(work_dir: Path, names: Collection[str]) -> list[str]:
    """What in ``work_dir`` is neither among ``names``, nor runnerkit's."""
    found = (entry.name for entry in os.scandir(work_dir))
    return sorted(name for name in found if name not in {*names, EARLIER, '.lock'} and not _LOG.fullmatch(name))


def jobs(variables: Mapping[str, str] = os.environ) -> dict[str, bool]:
    """The jobs of torchrun and Slurm that this process belongs to: their names, and whether each was restarted.

    The process of torchrun on this machine is a job as well; whether it has restarted this one, `is_restarted` finds.
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

    Rank 0 alone may know too little: it may be on a machine that has just come, whose torchrun has restarted nothing.
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
    # after another, is one job; unless it was this process that began the run, too.
    if any(name in begun_by for name in now if name.startswith(AGENT)):
        return bool(record.get('process') != os.getpid())
    return any(restarted and name in begun_by for name, restarted in now.items())


def agent(run_id: str) -> str:
    """The process of torchrun that has started this one: its id is unique together with the moment of its start."""
    try:
        started = Path(f'/proc/{os.getppid()}/stat').read_text(errors='replace').rpartition(')')[2].split()[19]
    except (OSError, IndexError):  # no Linux
        started = ''
    return f'{AGENT}{run_id} of {socket.gethostname()} {os.getppid()} {started}'.rstrip()


def _config_in(log: Path) -> str | None:
    with open(log, encoding='utf-8', errors='replace') as file:
        named = re.search(r'"exp_name": "([^"/\\]+)"', file.readline())
    return named and named[1]


def free_timestamp(folder: Path, timestamp: str) -> str:
    """``timestamp``, with a number if a log in ``folder`` has that name."""
    number, name = 1, timestamp
    while (folder / f'{name}.log').exists():
        number += 1
        name = f'{timestamp}_{number}'
    return name
