"""Checkpoint files: written whole or not at all, checked before they are believed."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

TEMPORARY = '.{name}.{pid}.tmp'
_TEMPORARY_NAME = re.compile(r'^\..+\.(\d+)\.tmp$')

logger = logging.getLogger('runnerkit')


def write_atomically(path: str | os.PathLike[str], write: Callable[[str], Any]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to the disk and only then give it its name.

    Whatever happens on the way, ``path`` is afterwards what it was before or the whole new file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(TEMPORARY.format(name=path.name, pid=os.getpid()))
    try:
        write(str(temporary))
        _flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)  # the new name is safe only when the folder is


def point_latest(target: Path, latest: Path) -> None:
    """Make the link ``latest`` lead to ``target``, a file of the same folder, without a moment in which it leads
    nowhere.

    Where the file system has no links, ``latest`` becomes a small text file with the target's name.
    """
    temporary = latest.with_name(TEMPORARY.format(name=latest.name, pid=os.getpid()))
    temporary.unlink(missing_ok=True)
    try:
        os.symlink(target.name, temporary)
    except (OSError, NotImplementedError):
        temporary.write_text(target.name, encoding='utf-8')
    os.replace(temporary, latest)
    _flush(latest.parent)


def sweep_temporaries(folder: str | os.PathLike[str]) -> list[str]:
    """Delete what killed runs have left half-written in ``folder``; files of processes that still live are kept."""
    swept = []
    for path in Path(folder).glob('.*.tmp'):
        found = _TEMPORARY_NAME.match(path.name)
        if found and not _is_alive(int(found[1])):
            path.unlink(missing_ok=True)
            swept.append(path.name)
    return swept


def why_damaged(path: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint file cannot be believed, or None if it is whole.

    `torch.save` stores a CRC-32 with every record, which `torch.load` never looks at: a flipped bit would be trained
    on. Old files that are no zip archives carry no checksums; they count as whole when torch can read them.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
            return None if bad is None else f'the checksum of its record {bad!r} is wrong'
        if Path(path).stat().st_size == 0:
            return 'it is empty'
        torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:  # a damaged file can fail in any way; every one of them is the answer here
        return f'{type(error).__name__}: {error}'.splitlines()[0]
    return None


def resolve_latest(path: Path) -> Path:
    """The file that ``latest.pth`` stands for: itself, or the one whose name it holds where there are no links."""
    if path.name != 'latest.pth' or path.is_symlink() or not path.is_file() or path.stat().st_size > 255:
        return path
    named = re.fullmatch(rb'[\w.@-]+\.pth', path.read_bytes())
    return path if named is None else path.with_name(named[0].decode())


def checkpoints_in(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """The run's own checkpoints in ``folder``, newest first: ``epoch_<n>.pth`` and ``iter_<n>.pth``, not the best
    ones."""
    found = []
    for path in Path(folder).glob('*.pth'):
        match = re.fullmatch(r'(?:epoch|iter)_(\d+)\.pth', path.name)
        if match:
            found.append((path.stat().st_mtime_ns, int(match[1]), path))
    yield from (path for *_, path in sorted(found, reverse=True))


def find_latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint of ``folder`` that is whole: the one ``latest.pth`` names, else the youngest one; None if
    none is.

    Damaged files are skipped, and said so in the log.
    """
    latest = Path(folder) / 'latest.pth'
    candidates = [resolve_latest(latest).resolve()] if latest.exists() else []
    candidates += [path.resolve() for path in checkpoints_in(folder)]
    for path in dict.fromkeys(candidates):
        damage = why_damaged(path)
        if damage is None:
            return path
        logger.warning('%s is skipped: %s', path, damage)
    return None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flush(path: Path) -> None:
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
