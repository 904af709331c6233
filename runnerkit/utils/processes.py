"""Other processes of this machine."""

from __future__ import annotations

import os


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and is not yet missed by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process_state(pid) not in ('Z', 'X')


def process_state(pid: int) -> str | None:
    """The letter of a process's state, such as ``'T'`` for one that is stopped; None if this system does not say."""
    fields = _fields(pid)
    return fields[0] if fields else None


def start_of(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of the same number; None if it is not known."""
    fields = _fields(pid)
    return fields[19] if fields else None


def _fields(pid: int) -> list[str]:
    """What Linux says of a process after its number and name."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
            return file.read().rpartition(')')[2].split()
    except OSError:  # no Linux, or gone since
        return []
