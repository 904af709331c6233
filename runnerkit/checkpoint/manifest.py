"""Checkpoints that are folders: how to recognise them, and whether they are intact."""

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

from runnerkit.checkpoint.atomic import BLOCK, DiskFile, flush_folder
from runnerkit.checkpoint.metadata import METADATA
from runnerkit.utils.logging import printable
from runnerkit.utils.small_files import open_regular, read_small

#: The list of a folder's files, with size and checksum of each. It is written last: without it, the save was not ended.
MANIFEST = 'MANIFEST'
#: The file with all that is no large tensor.
REST = 'rest.pth'
#: Where that file has the id of its save.
SAVE = 'runnerkit_save'

_FORMAT = 1
#: How many files are read at once to check them.
_READERS = 8
_OWN = re.compile(rf'{MANIFEST}|{re.escape(REST)}|{re.escape(METADATA)}(\.tmp)?|__\d+_\d+\.distcp')


class Listed(NamedTuple):
    """A file of a checkpoint.

    Attributes:
        size: in bytes.
        crc: the CRC-32 of its content.
    """

    size: int
    crc: int


class Files(dict[str, Listed]):
    """The files of a checkpoint by name.

    Attributes:
        save: the id of the save that has written all of them; None for folders that were written before there was one.
    """

    save: str | None = None


def is_checkpoint_folder(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is a folder that is one checkpoint, complete or not: of ours, or of
    `torch.distributed.checkpoint`."""
    return any(os.path.isfile(os.path.join(path, name)) for name in (MANIFEST, METADATA))


def write_manifest(folder: Path, files: Mapping[str, Listed], save: str | None = None) -> None:
    """List ``files`` of ``folder``, which are on the disk; the folder is an intact checkpoint from then on.

    Args:
        folder: the checkpoint.
        files: all of its files but the manifest.
        save: the id that each of them holds.

    Raises:
        OSError: writing failed.
    """
    content: dict[str, Any] = {'format': _FORMAT, 'files': {name: list(files[name]) for name in sorted(files)}}
    if save is not None:
        content['save'] = save
    text = _text(content)
    with DiskFile(folder / MANIFEST) as file:
        file.write(f'{text}{zlib.crc32(text.encode()):08x}\n'.encode())
        file.sync()


def read_manifest(folder: Path) -> Files:
    """The files of a checkpoint as they were written.

    Raises:
        ValueError: there is no list, or it is damaged.
    """
    try:
        data = read_small(folder / MANIFEST)
    except FileNotFoundError:
        why = 'its save was not ended' if (folder / REST).exists() else 'it is not of runnerkit, or not complete'
        raise ValueError(f'it has no {MANIFEST}: {why}') from None
    try:
        text, checksum = data[:-9].decode(), data[-9:].decode()
        content = json.loads(text)
        is_whole = checksum == f'{zlib.crc32(text.encode()):08x}\n' and text == _text(content)
        if is_whole and content['format'] == _FORMAT:
            files = Files({name: Listed(*numbers) for name, numbers in content['files'].items()})
            files.save = content.get('save')
            return files
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = False
    if is_whole:
        raise ValueError(f'its format is {content["format"]!r}, and this version of runnerkit reads {_FORMAT}')
    raise ValueError(f'its {MANIFEST} is damaged')


def why_folder_damaged(folder: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint in ``folder`` is incomplete or corrupt; None if it is intact. Every byte is read."""
    folder = Path(folder)
    try:
        files = read_manifest(folder)
        for name in (METADATA, REST):
            if name not in files:
                return f'its {name} is missing'
        for name, listed in files.items():
            if not _is_beside(name):
                return f'its {MANIFEST} names {printable(name, 80)}'
            check_size(folder / name, listed)
        with ThreadPoolExecutor(_READERS) as pool:  # reading and summing let other threads run
            found = pool.map(listed_as, [folder / name for name in files])
            for name, listed in zip(files, found, strict=True):
                if listed != files[name]:
                    return f'the checksum of its file {name} is wrong'
    except (OSError, ValueError) as error:
        return printable(error)
    return None


def check_size(path: Path, listed: Listed) -> None:
    """Whether a file is there, in its full length.

    Raises:
        ValueError: it is not.
    """
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise ValueError(f'its file {path.name} is missing') from None
    if size != listed.size:
        raise ValueError(f'its file {path.name} has {size} bytes instead of {listed.size}')


def mark(save: str) -> bytes:
    """The last bytes of a file with parts of tensors, behind what torch reads."""
    return f'\nrunnerkit save {save}'.encode()


def check_parts(folder: Path, files: Files) -> None:
    """Whether all files with parts of tensors are of the save that the manifest names.

    Raises:
        ValueError: one is not.
    """
    if files.save is None:
        return
    expected = mark(files.save)
    for name in files:
        if name not in (METADATA, REST):
            with (folder / name).open('rb') as file:
                file.seek(max(0, files[name].size - len(expected)))
                found = file.read()
            check_save(name, files.save if found == expected else None, files)


def check_save(name: str, save: Any, files: Files) -> None:
    """Whether the file ``name``, which holds the id ``save``, is of the save that the manifest names.

    Raises:
        ValueError: it is not.
    """
    if save != files.save:
        raise ValueError(f'its file {name} is of another save than its {MANIFEST}: files of two checkpoints are mixed')


def listed_as(path: Path) -> Listed:
    """Size and checksum of a file."""
    size = crc = 0
    with open(open_regular(path), 'rb') as file:
        while block := file.read(BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return Listed(size, crc)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a complete folder its name. A kill in between leaves it under its temporary name; see `Store.sweep`."""
    remove_checkpoint(path)
    os.replace(temporary, path)
    flush_folder(path.parent)


def remove_checkpoint(path: Path) -> bool:
    """Delete a checkpoint, file or folder; returns whether there was one. A half-deleted folder is not intact.

    Raises:
        OSError: it cannot be deleted, or the folder holds files that are none of a checkpoint's; then all of it stays.
    """
    if path.is_symlink() or not path.is_dir():
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True
    names = sorted(os.listdir(path))
    others = [name for name in names if not _OWN.fullmatch(name)]
    if others:
        told = f'it holds files that are none of a checkpoint, such as {printable(others[0], 80)}: move them elsewhere'
        raise OSError(errno.ENOTEMPTY, told, str(path))
    # The first to go is what makes it intact, the last what makes it a checkpoint.
    for name in sorted(names, key=lambda name: (name != MANIFEST, name == METADATA)):
        os.unlink(path / name)
    os.rmdir(path)
    return True


def _is_beside(name: str) -> bool:
    return os.path.basename(name) == name and name not in ('', '.', '..')


def _text(content: Any) -> str:
    return json.dumps(content, indent=1) + '\n'
