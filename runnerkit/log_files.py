"""The ``*.log.json`` files of a work dir: parsing lines, and moving those aside that a resumed run writes again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically

ENDING = '.superseded'


def set_aside(work_dir: str | os.PathLike[str], done: int = 0, lines_at_done: int | None = 0) -> list[Path]:
    """Leave in each ``*.log.json`` of ``work_dir`` what was logged up to a point of the run.

    The other lines, which the run is about to log again, are appended to ``<name>.superseded``, as are lines that a
    kill has torn. Lines that are about no moment of the run (its meta) stay, and so do those that say no ``step``.

    Args:
        work_dir: the folder with the logs of one run, which may have been interrupted several times.
        done: how many iterations are done at that point; 0 stands for the beginning.
        lines_at_done: how many lines about that very moment had been written by then; None: all of them.

    Returns:
        The logs from which something was moved.
    """
    changed = []
    for path in sorted(Path(work_dir).glob('*.log.json')):
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
            # In this order: a kill in between leaves lines in both files, never in none.
            with open(f'{path}{ENDING}', 'ab') as aside:
                aside.writelines(moved)
                aside.flush()
                os.fsync(aside.fileno())
            _rewrite(path, kept)
            changed.append(path)
    return changed


def _rewrite(path: Path, lines: list[bytes]) -> None:
    write_atomically(path, lambda file: file.write(b''.join(lines)))


def step_of(line: dict[str, Any]) -> int | None:
    """How many iterations were done when ``line`` was logged; None if it does not say, or is about no moment."""
    step = line.get('step')
    return step if isinstance(step, int) and 'mode' in line else None


def parsed_line(line: bytes | str) -> dict[str, Any] | None:
    """A line of a log; None for what is none, such as a line that was torn when its process was killed."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):  # the latter: nested a thousand times or more
        return None
    return parsed if isinstance(parsed, dict) else None
