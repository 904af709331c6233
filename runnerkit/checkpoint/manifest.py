"""Sharded checkpoints are folders with a list of their files: whether they are intact, and how they are removed."""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.checkpoint.atomic import BLOCK, MANIFEST, METADATA, DiskFile, flush_folder
from runnerkit.utils.logging import printable
from runnerkit.utils.small_files import open_regular, read_small

#: The file with all that is no large tensor.
REST = 'rest.pth'

_FORMAT = 1
#: How many files are read at once to check them.
_READERS = 8
_OWN = re.compile(rf'{MANIFEST}|{re.escape(REST)}|{re.escape(METADATA)}(\.tmp)?|__\d+_\d+\.distcp')


class ListedFile(NamedTuple):
    """A file of a checkpoint: its size in bytes, and the CRC-32 of its content."""

    size: int
    crc: int


def write_manifest(folder: Path, files: Mapping[str, ListedFile]) -> None:
    """List ``files`` of ``folder``, which are on the disk; the folder is an intact checkpoint from then on."""
    text = _as_json({'format': _FORMAT, 'files': {name: list(files[name]) for name in sorted(files)}})
    with DiskFile(folder / MANIFEST) as file:
        file.write(f'{text}{zlib.crc32(text.encode()):08x}\n'.encode())


def read_manifest(folder: Path) -> dict[str, ListedFile]:
    """The files of a checkpoint as they were written; a ValueError if there is no list, or if it is damaged."""
    try:
        data = read_small(folder / MANIFEST)
    except FileNotFoundError:
        why = 'its save was not ended' if (folder / REST).exists() else 'it is not of runnerkit, or not complete'
        raise ValueError(f'it has no {MANIFEST}: {why}') from None
    try:
        text, checksum = data[:-9].decode(), data[-9:].decode()
        content = json.loads(text)
        if checksum != f'{zlib.crc32(text.encode()):08x}\n' or text != _as_json(content):
            raise ValueError
        number = content['format']
        files = {name: ListedFile(*numbers) for name, numbers in content['files'].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f'its {MANIFEST} is damaged') from None
    if number != _FORMAT:
        raise ValueError(f'its format is {number!r}, and this version of runnerkit reads {_FORMAT}')
    for name in (METADATA, REST):
        if name not in files:
            raise ValueError(f'its {name} is missing')
    for name in files:
        if os.path.basename(name) != name or name in ('', '.', '..'):
            raise ValueError(f'its {MANIFEST} names {printable(name, 80)}')
    return files


def check_sizes(folder: Path, files: Mapping[str, ListedFile]) -> None:
    """Raise a ValueError unless each of ``files`` is there, in its full length."""
    for name, listed in files.items():
        try:
            size = os.stat(folder / name).st_size
        except FileNotFoundError:
            raise ValueError(f'its file {name} is missing') from None
        if size != listed.size:
            raise ValueError(f'its file {name} has {size} bytes instead of {listed.size}')


def check_content(folder: Path, name: str, files: Mapping[str, ListedFile]) -> None:
    """Raise a ValueError unless the file ``name`` is listed, and every byte of it as it was written."""
    if name not in files:
        raise ValueError(f'its {MANIFEST} does not list {printable(name, 80)}')
    if listed_as(folder / name) != files[name]:
        raise ValueError(f'the checksum of its file {name} is wrong')


def why_folder_damaged(folder: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint in ``folder`` is incomplete or corrupt; None if it is intact. Every byte is read."""
    folder = Path(folder)
    try:
        files = read_manifest(folder)
        check_sizes(folder, files)
        with ThreadPoolExecutor(_READERS) as pool:  # reading and summing let other threads run
            for _ in pool.map(lambda name: check_content(folder, name, files), files):
                pass
    except (OSError, ValueError) as error:
        return printable(error)
    return None


def listed_as(path: Path) -> ListedFile:
    """Size and checksum of a file."""
    size = crc = 0
    with open(open_regular(path), 'rb') as file:
        while block := file.read(BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return ListedFile(size, crc)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a complete folder its name. A kill in between leaves it under its temporary name; see `Store.sweep`."""
    remove_checkpoint(path)
    os.replace(temporary, path)
    flush_folder(path.parent)


def remove_checkpoint(path: Path) -> bool:
    """Delete a checkpoint, file or folder; returns whether there was one. A half-deleted folder is not intact."""
    if path.is_symlink() or not path.is_dir():
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True
    names = sorted(os.listdir(path))
    others = [name for name in names if not _OWN.fullmatch(name)]
    if others:
        text = f'it holds files that are none of a checkpoint, such as {printable(others[0], 80)}: move them elsewhere'
        raise OSError(errno.ENOTEMPTY, text, str(path))
    # The first to go is what makes it intact, the last what makes it a checkpoint.
    for name in sorted(names, key=lambda name: (name != MANIFEST, name == METADATA)):
        os.unlink(path / name)
    os.rmdir(path)
    return True


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=1) + '\n'
