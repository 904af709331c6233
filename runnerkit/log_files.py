"""The files of a work dir: those of its run, the starts in its ``run.json``, and the lines of its ``*.log.json``, which
are parsed, and moved away if a resumed run writes them again. They are read without torch."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.checkpoint.integrity import NUMBER, misfit
from runnerkit.utils.paths import scandir
from runnerkit.utils.small_files import open_own, read_json

ENDING = '.superseded'

#: The file with an entry for each start of a run; written by `runnerkit.flow.work_dir.journal`.
JOURNAL = 'run.json'

#: The folders of the pictures that hooks and steps report, and of those of the first training batch.
IMAGES, FIRST_BATCH = 'reported_images', 'first_batch'

#: The file with the predictions of the best evaluation, and the folder of the pictures of samples.
PREDICTIONS, SAMPLES = 'best_predictions.json', 'best_samples'

#: The most columns of a table whose rows are kept.
MOST_COLUMNS = 32

#: The kinds of the entries of a start, see `misfit`; others are left out, since another user may have written the file.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(('begin', 'end'), NUMBER),
    **dict.fromkeys(('number', 'iterations', 'epochs', 'iterations_at_end', 'process', 'ranks', 'threads'), int),
    **dict.fromkeys(('max_iterations', 'max_epochs', 'parameters', 'seed'), int | None),
    **dict.fromkeys(('outcome', 'reason', 'folder', 'host', 'device', 'model'), str),
    **dict.fromkeys(('config_file', 'resumed_from'), str | None),
    'options': dict,
    'data': {...: {...: int | None}},
    'command': [str],
    'versions': {...: str},
    'first_batch': {...: int},
    'first_samples': [dict],
    'exactness': [str],
    'rules': {...: str},
    'rolled_back': [int],
    'seconds': {...: NUMBER},
    'settings': [(str, None, str | None, None)],
    'modules': [dict],
}


def files_of_run(work_dir: str | os.PathLike[str], endings: str | tuple[str, ...]) -> list[str]:
    """The files in ``work_dir`` and below with one of ``endings``, as relative paths."""
    return sorted(scandir(work_dir, endings, recursive=True))


def replay_command(work_dir: str | os.PathLike[str] | None, done: int) -> str:
    """The command that trains the run in ``work_dir`` again up to the moment after ``done`` iterations; empty if only a
    program in Python can do that."""
    if work_dir is None or not (Path(work_dir) / JOURNAL).is_file():
        return ''
    from runnerkit.distributed import get_dist_info  # imports torch

    ranks = get_dist_info()[1]
    words = ['runnerkit', 'replay', os.fspath(work_dir), '--to', str(max(0, done))]
    if ranks > 1:
        words = ['torchrun', '--nproc_per_node', str(ranks), '-m', *words, '--launcher', 'pytorch']
    return shlex.join(words)


def number_of_starts(starts: Sequence[dict[str, Any]]) -> int:
    """How many starts a run has had, of which ``starts`` are recorded."""
    return max(len(starts), starts[-1].get('number', 0)) if starts else 0


def starts_in(path: Path) -> list[dict[str, Any]]:
    """The entries of a ``run.json``; empty if it is missing or damaged."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return []
    starts = content.get('starts') if isinstance(content, dict) else None
    plain = [start for start in starts if isinstance(start, dict)] if isinstance(starts, list) else []
    return [{key: each for key, each in start.items() if misfit(each, _KINDS.get(key)) is None} for start in plain]


def logs_in(work_dir: str | os.PathLike[str]) -> list[Path]:
    """The ``*.log.json`` files of ``work_dir``, oldest first."""
    return sorted(path for path in Path(work_dir).glob('*.log.json') if path.is_file())


def free_timestamp(work_dir: Path, timestamp: str) -> str:
    """``timestamp``, with a number if a log in ``work_dir`` has that name."""
    number, name = 1, timestamp
    while any(os.path.lexists(work_dir / f'{name}{ending}') for ending in ('.log', '.log.json')):
        number += 1
        name = f'{timestamp}_{number}'
    return name


def set_aside(work_dir: str | os.PathLike[str], done: int = 0, lines_at_done: int | None = 0) -> list[Path]:
    """Keep in each ``*.log.json`` of ``work_dir`` only what was logged up to a point of the run.

    Later lines, which the run will log again, are moved to ``<name>.superseded``, as are incomplete lines of a killed
    run. Lines that belong to no iteration (the run's meta), or have no ``step``, stay.
    """
    changed = []
    for path in logs_in(work_dir):
        kept: list[bytes] = []
        moved: list[bytes] = []
        for line in path.read_bytes().splitlines():
            parsed = parsed_line(line)
            step = None if parsed is None else step_of(parsed)
            stays = parsed is not None and (step is None or step <= done)
            if step == done and lines_at_done is not None:
                stays = lines_at_done > 0
                lines_at_done -= 1
            (kept if stays else moved).append(line + b'\n')
        if moved:
            # In this order, a kill in between leaves lines in both files instead of losing them.
            with open_own(f'{path}{ENDING}', 'ab') as aside:
                aside.writelines(moved)
                aside.flush()
                os.fsync(aside.fileno())
            write_atomically(path, b''.join(kept))
            changed.append(path)
    return changed


def step_of(line: dict[str, Any]) -> int | None:
    """The completed iterations when ``line`` was logged; None if it has no ``step``, or belongs to no iteration."""
    step = line.get('step')
    return step if isinstance(step, int) and 'mode' in line else None


def parsed_line(line: bytes | str) -> dict[str, Any] | None:
    """A parsed log line; None if it is not valid, such as an incomplete line of a killed run."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: nested very deeply
        return None
    return parsed if isinstance(parsed, dict) else None
