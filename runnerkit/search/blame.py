"""Whether the machine is to blame for a failed run: it refuses room on a disk, open files, processes …"""

from __future__ import annotations

import errno
import os
import re

_CODES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,  # of fork: too many processes
)
# Where the number is lost, as in an error that was raised again in another process, or one of torch's writers in C++.
_TEXTS = (
    *(os.strerror(code) for code in _CODES if code != errno.EAGAIN),
    'PytorchStreamWriter failed writing',
    'iostream error',
    'unexpected pos',  # torch.save on a full disk
    'insufficient shared memory',
    'received 0 items of ancdata',  # a tensor of a loader's worker, for which there was no descriptor
    "can't start new thread",
)
_NUMBER = re.compile(r'\[Errno (\d+)\]')


def is_machine_error(error: BaseException) -> bool:
    """Whether the machine is to blame for ``error``, or for an error that has caused it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if (isinstance(found, OSError) and found.errno in _CODES) or is_text_of_machine(str(found)):
            return True
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return False


def is_text_of_machine(text: str) -> bool:
    """The same of a message, or of what a process has printed before its end."""
    return any(int(number) in _CODES for number in _NUMBER.findall(text)) or any(part in text for part in _TEXTS)
