"""Whether a failed run is to blame for its failure, or the machine that it ran on."""

from __future__ import annotations

import errno
import os
import re

#: What is to blame: the machine refuses something (room on a disk, open files, processes); it has too little memory;
#: it lacks a package. A failure of none of these kinds is the run's own: ``''``.
MACHINE, MEMORY, PACKAGE = 'machine', 'memory', 'package'

_CODES: dict[int, str] = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE),
        MACHINE,
    ),
    errno.EAGAIN: MACHINE,  # of fork: too many processes
    errno.ENOMEM: MEMORY,
}

# Where the number is lost, as in an error that was raised again in another process, or one of torch's writers in C++.
_TEXTS: tuple[tuple[str, str], ...] = (
    *((os.strerror(code), kind) for code, kind in _CODES.items() if code != errno.EAGAIN),
    ('PytorchStreamWriter failed writing', MACHINE),
    ('iostream error', MACHINE),
    ('unexpected pos', MACHINE),  # torch.save on a full disk
    ('insufficient shared memory', MACHINE),
    ('received 0 items of ancdata', MACHINE),  # a tensor of a loader's worker, for which there was no descriptor
    ("can't start new thread", MACHINE),
    ('out of memory', MEMORY),
    ("can't allocate memory", MEMORY),
    ('std::bad_alloc', MEMORY),
    ('MemoryError', MEMORY),
    ('is killed by signal: Killed', MEMORY),
)
_NUMBER = re.compile(r'\[Errno (\d+)\]')


def blame_of(error: BaseException) -> str:
    """What is to blame for ``error``, or for an error that has caused it: one of the kinds above, or ``''``."""
    packages, seen = False, set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        kind = _CODES.get(getattr(found, 'errno', None) or 0) if isinstance(found, OSError) else None
        kind = kind or (MEMORY if isinstance(found, MemoryError) else blame_of_text(str(found)))
        if kind:
            return kind
        packages = packages or isinstance(found, ImportError)
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return PACKAGE if packages else ''


def blame_of_text(text: str) -> str:
    """The same of a message, or of what a process has printed before its end."""
    numbers = (_CODES.get(int(number)) for number in _NUMBER.findall(text))
    words = (kind for part, kind in _TEXTS if part in text)
    return next((kind for kind in (*numbers, *words) if kind), '')
