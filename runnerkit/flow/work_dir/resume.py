"""Which checkpoint a run resumes or starts from, and checks of its paths before data and model are built."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runnerkit.checkpoint import Store, find_checkpoint
from runnerkit.distributed import all_gather_objects, from_first_rank
from runnerkit.fileio.paths import is_url, join, local_path
from runnerkit.flow.context import Context
from runnerkit.flow.work_dir.record import read_record
from runnerkit.registry import placed_errors
from runnerkit.utils.env import start_of
from runnerkit.utils.suggest import did_you_mean

#: What ``--if-used`` may be.
IF_USED = ('resume', 'aside', 'refuse')

#: How the name of a process of torchrun begins.
AGENT = 'torchrun process '


def resume_from(context: Context) -> Any:
    """The checkpoint to resume from: ``--resume-from``, else the config's; None if there is none."""
    return context.options.resume_from or context.cfg.get('resume_from')


def load_from(context: Context) -> Any:
    """The checkpoint whose weights to start from: ``--load-from``, else the config's; None if there is none."""
    return context.options.load_from or context.cfg.get('load_from')


def resumes(context: Context) -> bool:
    """Whether to resume the run in the work dir, if there is one."""
    used = context.options.if_used
    return context.options.auto_resume or used == 'resume' or (used is None and bool(context.cfg.get('auto_resume')))


def restarts(context: Context) -> bool:
    """Whether torchrun or Slurm has restarted the job that began the run in the work dir."""
    return from_first_rank(lambda: is_restarted(context.work_dir, context.jobs))


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
    """Whether the run in ``work_dir`` was begun by one of the `jobs_of_all_ranks`, which was restarted since."""
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


def seed_of_resumed(context: Context) -> int | None:
    """The seed of the run that will be resumed, as its work dir notes it; None if there is none, or it is not known."""
    explicit = resume_from(context)
    if restarts(context) or (resumes(context) and not explicit):
        folder = context.work_dir
    elif explicit and not is_url(local_path(explicit)):
        folder = Path(local_path(find_checkpoint(explicit))).expanduser().parent
    else:
        return None
    found = read_record(folder).get('seed')
    return found if isinstance(found, int) else None


def is_in(path: str, folder: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint lies directly in ``folder``; or, if it is a folder, whether it is that one."""
    folder, path = os.fspath(folder), local_path(path)
    if is_url(path) or is_url(folder):
        return folder.rstrip('/') in (path.rstrip('/'), path.rpartition('/')[0])
    given = Path(path).expanduser()
    return Path(folder).resolve() == (given if given.is_dir() else given.parent).resolve()


def is_below(path: str, folder: Path) -> bool:
    """Whether a local checkpoint lies in ``folder``, at any depth."""
    path = local_path(path)
    return not is_url(path) and folder.resolve() in Path(path).expanduser().resolve().parents


def is_of_this_run(path: str, context: Context) -> bool:
    """Whether a checkpoint lies where the run saves: in its work dir, or in its folder in an ``out_dir``."""
    below = (join(local_path(out_dir), context.work_dir.name) for _, out_dir, _ in out_dirs(context.cfg))
    return any(is_in(path, folder) for folder in (str(context.work_dir), *below))


def used_files(context: Context) -> list[str]:
    """The files in the work dir that a run has written there; empty if none has begun."""
    if not context.others:
        return []
    from runnerkit.flow.work_dir.previous_runs import files_of_a_run  # a new work dir needs none of it

    return files_of_a_run(context.work_dir)


def check_start(context: Context) -> None:
    """Check the paths in flags and config, and that the work dir may be used; note what lies in it.

    Only rank 0 looks, since it may go on to move files while others still look.
    """
    used = context.options.if_used
    if used is not None and used not in IF_USED:
        raise ValueError(f'if_used must be one of {", ".join(IF_USED)}, but got {used!r}')
    for section, out_dir, args in out_dirs(context.cfg):
        with placed_errors(context.cfg, section.partition('.')[0]):
            check_out_dir(section, out_dir, args)
    goes_on = is_restarted(context.work_dir, context.jobs)
    context.others = os.listdir(context.work_dir) if context.work_dir.is_dir() else []
    names = used_files(context)
    explicit = resume_from(context)
    if explicit and not goes_on:
        with placed_errors(None if context.options.resume_from else context.cfg, 'resume_from'):
            found = find_checkpoint(explicit)
        is_here = is_of_this_run(found, context)
        if used == 'aside' if is_here else names and is_below(found, context.work_dir):
            raise would_move('resume_from', explicit, context.work_dir)
        goes_on = is_here
    elif not goes_on and not (resumes(context) and names):
        weights = load_from(context)
        with placed_errors(None if context.options.load_from else context.cfg, 'load_from'):
            found = find_checkpoint(weights, best=True) if weights else ''
        if weights and names and (is_of_this_run(found, context) or is_below(found, context.work_dir)):
            raise would_move('load_from', weights, context.work_dir)
    if used == 'refuse' and names and not goes_on:
        raise FileExistsError(
            f'the work dir {context.work_dir} holds the files of an earlier run ({", ".join(names[:4])} …), and '
            '--if-used refuse is given: choose another --work-dir, --if-used aside to rename its folder, or '
            '--if-used resume to continue that run'
        )


def would_move(what: str, path: str, work_dir: Path) -> FileExistsError:
    """Why a run cannot start from the checkpoint ``path`` of the earlier run in the same work dir."""
    return FileExistsError(
        f'{what}={path} belongs to the earlier run in {work_dir}, whose folder this run would rename: choose another '
        '--work-dir, or continue that run with --auto-resume'
    )


def out_dirs(cfg: Any) -> Iterator[tuple[str, Any, Any]]:
    """The ``out_dir`` of each section of a config that has one, after its name, and its ``file_client_args``."""
    hooks = (cfg.get('log_config') or {}).get('hooks') or []
    sections = {name: cfg.get(name) for name in ('checkpoint_config', 'evaluation')}
    sections |= {f'log_config.hooks[{number}]': hook for number, hook in enumerate(hooks)}
    for name, section in sections.items():
        if isinstance(section, Mapping) and section.get('out_dir') is not None:
            yield name, section['out_dir'], section.get('file_client_args')


def check_out_dir(section: str, out_dir: Any, file_client_args: Any = None) -> None:
    """Check that ``out_dir`` of a section can be written to, as far as can be known without writing."""
    if not isinstance(out_dir, (str, os.PathLike)):
        raise TypeError(f'out_dir of {section} must be a folder or a URL, but got {out_dir!r}')
    try:
        store = Store(out_dir, file_client_args)
    except (ValueError, ImportError) as error:
        raise type(error)(f'out_dir={out_dir!r} of {section} cannot be used: {error}') from error
    if not store.is_local:
        return
    path = Path(store.place).absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    why = 'is not writable' if there.is_dir() else 'is a file'
    near = [each.name for each in there.parent.iterdir() if each.is_dir()] if not there.is_dir() else []
    raise OSError(
        f'out_dir={out_dir!r} of {section} cannot be used: {there} {why}; {did_you_mean(there.name, near)}'.rstrip('; ')
    )
