"""Where checkpoints lie and what their files are called; nothing else knows."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from runnerkit.checkpoint.atomic import replace_link, sweep, write_atomically
from runnerkit.checkpoint.integrity import why_damaged
from runnerkit.fileio.backends import HardDiskBackend
from runnerkit.fileio.file_client import FileClient
from runnerkit.fileio.paths import is_url, local_path

#: What the files of an epoch and of an iteration are called, and the link to the newest one.
BY_EPOCH, BY_ITER, LATEST = 'epoch_{}.pth', 'iter_{}.pth', 'latest.pth'
#: The file that says which run a folder belongs to.
OWNER = '.run.json'

_BEST = re.compile(r'best_[\w.@-]+\.pth', re.ASCII)
_NUMBERED = re.compile(r'(?:epoch|iter)_(\d+)\.pth')
_CLOUD = 'pavi://'

logger = logging.getLogger('runnerkit')


class NotSavedError(OSError):
    """A checkpoint could not be written: the disk is full, its folder is gone …. What was there before still is."""


class Stored(NamedTuple):
    """A checkpoint file. The newest one is the largest: the youngest, and of those the one with the highest number.

    Attributes:
        written: when, in seconds since 1970; 0 where the storage does not tell.
        number: the n of ``epoch_<n>.pth`` and ``iter_<n>.pth``, 0 for other names.
        path: a local path or a URL.
    """

    written: float
    number: int
    path: str


class Store:
    """A folder of checkpoints: on this machine, at a URL, in a storage of the user's, or in the model cloud.

    The model cloud, ``pavi://``, can only be written to.

    Args:
        place: the folder or its URL.
        file_client_args: for `FileClient`; by default ``place`` says which storage it is.

    Attributes:
        place: the folder or its URL; of a ``file://`` URL the path.
        client: what reads and writes there; None for the model cloud.
        is_local: whether it is an ordinary folder, where writing is atomic and files may be links.

    Raises:
        ValueError: ``file_client_args`` for the model cloud, or an unknown storage.
    """

    def __init__(self, place: str | os.PathLike[str], file_client_args: dict[str, Any] | None = None) -> None:
        self.place = local_path(place)
        if self.place.startswith(_CLOUD):
            if file_client_args is not None:
                raise ValueError(
                    f'file_client_args should be "None" if filename starts with "pavi://", but got {file_client_args}'
                )
            self.client: Any = None
            self.is_local = False
            return
        self.client = FileClient.infer_client(file_client_args, self.place)
        self.is_local = type(self.client.client) is HardDiskBackend and not is_url(self.place)

    @classmethod
    def of(cls, path: str | os.PathLike[str], file_client_args: dict[str, Any] | None = None) -> tuple[Store, str]:
        """The store that the file ``path`` lies in, and the file's name there."""
        folder, name = os.path.split(local_path(path))
        return cls(folder + '//' if folder.endswith(':') else folder, file_client_args), name

    def __str__(self) -> str:
        return self.place

    def path(self, name: str) -> str:
        """The path or URL of the file called ``name``."""
        return os.path.join(self.place, name) if self.client is None else str(self.client.join_path(self.place, name))

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, name: str, checkpoint: Mapping[str, Any], latest: bool = False) -> str:
        """Write a checkpoint, whole or not at all.

        Args:
            name: of the file.
            checkpoint: what `torch.save` is given.
            latest: whether ``latest.pth`` is to lead to it afterwards, where files can be links or where there are
                local folders at all.

        Returns:
            The file's path or URL.

        Raises:
            NotSavedError: the storage could not take it.
        """
        path = self.path(name)
        if self.client is None:
            _into_cloud(checkpoint, path)
        elif self.is_local:
            with _naming(path, OSError):
                write_atomically(path, lambda file: torch.save(checkpoint, file))
                if latest:
                    replace_link(Path(path).with_name(LATEST), Path(path).name)
        else:
            buffer = io.BytesIO()
            torch.save(checkpoint, buffer)
            with _naming(path, Exception):  # every storage has errors of its own
                self.client.put(buffer.getvalue(), path)
        return path

    def delete(self, name: str) -> bool:
        """Delete a file if there is one; returns whether there was."""
        path = self.path(name)
        is_there = bool(self.client.isfile(path))
        if is_there:
            self.client.remove(path)
        return is_there

    def sweep(self) -> list[str]:
        """Delete what killed runs have left half-written, and return the names.

        In an ordinary folder, files of processes that are alive are kept; elsewhere nobody can tell. A storage that
        cannot list or delete is left as it is.
        """
        try:
            if self.is_local:
                return sweep(self.place)
            names = [name for name in self._names() if name.startswith('.') and name.endswith('.pth.tmp')]
            for name in names:
                self.client.remove(self.path(name))
        except (OSError, NotImplementedError, AttributeError):
            return []
        return names

    # --- reading -----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether the folder is there. Elsewhere than on this machine, folders come with their files."""
        return not self.is_local or os.path.isdir(self.place)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A path on this machine where the file called ``name`` can be read: its own, or that of a copy."""
        with self.client.get_local_path(self.path(name)) as path:
            yield Path(path)

    def is_whole(self, name: str) -> bool:
        """Whether there is a file of that name, and it is intact."""
        if not self.client.isfile(self.path(name)):
            return False
        with self.local(name) as path:
            return why_damaged(path) is None

    def numbered(self) -> list[Stored]:
        """The checkpoints that a run saves at its intervals, newest first; not the best ones."""
        return self._stored(lambda name: number_in(name) is not None)

    def best(self) -> list[Stored]:
        """The checkpoints with a best score, newest first."""
        return self._stored(is_best)

    def newest(self, problem: Callable[[Path], str | None] = why_damaged) -> Stored | None:
        """The newest checkpoint without a ``problem``: the one that ``latest.pth`` names, else the youngest.

        A younger one with a higher number goes before the named one: a run died before it could name it, or names none
        (``create_symlink=False``). Age alone says little, as copies are not made in order. At a URL there is no
        ``latest.pth``, and every candidate is fetched. What is skipped is logged with the reason.

        Args:
            problem: tells why a file, given by a path on this machine, must not be taken; None if it may.
        """
        for stored in self._candidates():
            with self.client.get_local_path(stored.path) as path:
                reason = problem(Path(path))
            if reason is None:
                return stored
            logger.warning('%s is skipped: %s', stored.path, reason)
        return None

    def meant(self, best: bool = False) -> str | None:
        """The checkpoint that is meant where this folder is given in place of one; None if there is none.

        Args:
            best: whether the newest of the best ones goes before the latest.
        """
        found = self.best() if best else []
        if not found and self.is_local and os.path.exists(self.path(LATEST)):
            return self.path(LATEST)
        return next((stored.path for stored in found or self.numbered()), None)

    def _candidates(self) -> list[Stored]:
        found = self.numbered()
        latest = Path(self.place, LATEST)
        if not self.is_local:
            return found
        found = [stored._replace(path=str(Path(stored.path).resolve())) for stored in found]
        if not latest.exists():
            return found
        named = self._described(str(behind_link(latest).resolve()))
        younger = found[: found.index(named)] if named in found else []
        beyond = [stored for stored in younger if stored.number > named.number]
        return list(dict.fromkeys([*beyond, named, *found]))

    def _stored(self, wanted: Callable[[str], bool]) -> list[Stored]:
        found = [self._described(self.path(name)) for name in self._names() if wanted(name)]
        return sorted(found, reverse=True)

    def _described(self, path: str) -> Stored:
        if self.is_local:
            written = os.stat(path).st_mtime
        else:  # a storage that does not tell the time has at least the numbers in the names
            written = getattr(self.client.client, 'modified', lambda path: 0.0)(path)
        return Stored(written, number_in(os.path.basename(path)) or 0, path)

    def _names(self) -> list[str]:
        try:
            if self.is_local:
                return [path.name for path in Path(self.place).iterdir() if path.is_file()]
            return [os.path.basename(name) for name in self.client.list_dir_or_file(self.place, list_dir=False)]
        except (FileNotFoundError, NotADirectoryError):  # nothing has been saved yet
            return []

    # --- whose it is -------------------------------------------------------------------------------------------------

    def owner(self) -> dict[str, Any] | None:
        """What `set_owner` has left here; None where there is nothing, or nothing can be left."""
        path = self.path(OWNER)
        try:
            found = json.loads(self.client.get_text(path)) if self.client.isfile(path) else None
        except (ValueError, AttributeError, NotImplementedError):
            return None
        return found if isinstance(found, dict) else None

    def set_owner(self, owner: Mapping[str, Any]) -> None:
        """Leave a note of whose this folder is.

        Raises:
            OSError: the storage could not take it.
        """
        content = json.dumps(owner).encode()
        if self.is_local:
            write_atomically(self.path(OWNER), lambda file: file.write(content))
        elif hasattr(self.client.client, 'isfile'):
            self.client.put(content, self.path(OWNER))


def number_in(name: str) -> int | None:
    """The n of ``epoch_<n>.pth`` and ``iter_<n>.pth``; None for any other name."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def best_name(score: str, unit: str, number: int) -> str:
    """What the best checkpoint is called.

    Args:
        score: the name of the score that it is best in; other signs than ``A-Z a-z 0-9 _ . @ -`` become ``_``.
        unit: ``'epoch'`` or ``'iter'``.
        number: which one, from 1.
    """
    return f'best_{re.sub(r"[^A-Za-z0-9_.@-]", "_", score)}_{unit}_{number}.pth'


def is_best(name: str) -> bool:
    """Whether `best_name` may have given that name."""
    return _BEST.fullmatch(name) is not None


def find_latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint of ``folder`` that is intact, or None; see `Store.newest`."""
    found = Store(folder).newest()
    return None if found is None else Path(found.path)


def checkpoint_meant(path: str, best: bool = False) -> str:
    """``path`` itself, or, of a local folder, the checkpoint in it that is meant.

    Args:
        path: a checkpoint or a folder.
        best: whether the newest of the best ones goes before the latest.

    Raises:
        FileNotFoundError: a folder without checkpoints.
    """
    if not os.path.isdir(local_path(path)):
        return path
    found = Store(path).meant(best)
    if found is None:
        raise FileNotFoundError(f'there is no checkpoint in {path} (neither best_*.pth nor {LATEST})')
    return found


def behind_link(path: Path) -> Path:
    """The file that ``latest.pth`` stands for: itself, or the one whose name it holds where there are no links."""
    if path.name != LATEST or path.is_symlink() or not path.is_file() or path.stat().st_size > 255:
        return path
    named = re.fullmatch(rb'[\w.@-]+\.pth', path.read_bytes())
    return path if named is None else path.with_name(named[0].decode())


@contextmanager
def _naming(path: str, errors: type[Exception]) -> Iterator[None]:
    """Turn ``errors`` into a `NotSavedError` that names the file."""
    try:
        yield
    except errors as error:
        if isinstance(error, OSError):
            raise NotSavedError(error.errno, error.strerror or str(error), path) from error
        raise NotSavedError(None, f'{type(error).__name__}: {error}', path) from error


def _into_cloud(checkpoint: Mapping[str, Any], path: str) -> None:
    try:
        from pavi import exception, modelcloud  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError('Please install pavi to save checkpoint to modelcloud: pip install pavi') from error
    folder, name = os.path.split(path.removeprefix(_CLOUD))
    root = modelcloud.Folder()
    try:
        model = modelcloud.get(folder)
    except exception.NodeNotFoundError:
        model = root.create_training_model(folder)
    with tempfile.TemporaryDirectory() as temporary:
        copy = os.path.join(temporary, name)
        torch.save(checkpoint, copy)
        model.create_file(copy, name=name)
