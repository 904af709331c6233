"""The only code that knows where checkpoints are stored, and how their files are named."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.checkpoint.atomic import (
    MANIFEST,
    is_abandoned,
    is_checkpoint_folder,
    replace_link,
    save_with_checksums,
    sweep,
    temporary_files,
    write_atomically,
)
from runnerkit.checkpoint.integrity import why_damaged
from runnerkit.fileio.paths import is_url, lies_in, local_path
from runnerkit.utils.logging import printable, shortened
from runnerkit.utils.small_files import read_json

#: File names of checkpoints by epoch and by iteration, and of the link to the newest one.
BY_EPOCH, BY_ITER, LATEST = 'epoch_{}.pth', 'iter_{}.pth', 'latest.pth'
#: In ``meta``: what is not finite, in words by kind (``weights``, ``optimizer``, ``loss``); empty if all is. Files
#: without it count as finite.
NON_FINITE = 'non_finite'
#: The file that tells which run a folder belongs to.
OWNER = '.run.json'

_BEST = re.compile(r'best_[\w.@-]+\.pth', re.ASCII)
_NUMBERED = re.compile(r'(?:epoch|iter)_(\d+)\.pth')
_HALF_WRITTEN = re.compile(r'\..+\.pth(\.\d+(-\d+)?)?\.tmp')
_CLOUD = 'pavi://'
#: Characters of a score in a file's name. Most file systems allow 255 bytes, and a temporary name has about 40 more.
_MOST_OF_SCORE = 200

logger = logging.getLogger('runnerkit')


class NotSavedError(OSError):
    """A checkpoint could not be written: the disk is full, the folder is gone …. Earlier checkpoints are intact."""


class CheckpointFile(NamedTuple):
    """A checkpoint, a file or a folder. They sort by age, the newest last; equally old ones by number.

    Attributes:
        written: the modification time in seconds since 1970; 0 if the storage does not tell.
        number: the n of ``epoch_<n>.pth`` and ``iter_<n>.pth``; 0 for other names.
        path: a local path or a URL.
    """

    written: float
    number: int
    path: str


class Store:
    """A folder of checkpoints: local, at a URL, in a registered storage, or in the model cloud (``pavi://``).

    The model cloud can only be written to.

    Args:
        place: the folder or its URL.
        file_client_args: for `FileClient`; by default ``place`` decides which storage is used.

    Attributes:
        place: the folder or its URL; the path of a ``file://`` URL.
        is_local: whether it is a local folder, where writing is atomic and files may be links.

    Raises:
        ValueError: ``file_client_args`` is given for the model cloud, or the storage is not known.
    """

    def __init__(self, place: str | os.PathLike[str], file_client_args: dict[str, Any] | None = None) -> None:
        self.place = local_path(place)
        if self.place.startswith(_CLOUD):
            if file_client_args is not None:
                raise ValueError(
                    f'file_client_args should be "None" if filename starts with "pavi://", but got {file_client_args}'
                )
            self.is_local = False
            return
        self._client_args, is_path = file_client_args, '://' not in self.place
        self.is_local = is_path and (file_client_args is None or self.client.name == 'HardDiskBackend')
        if not is_path:
            self.client  # noqa: B018 (an unknown storage is refused at once)

    @cached_property
    def client(self) -> Any:
        """The `FileClient` that reads and writes there; None for the model cloud."""
        if self.place.startswith(_CLOUD):
            return None
        from runnerkit.fileio.file_client import FileClient

        return FileClient.infer_client(self._client_args, self.place)

    @property
    def writer(self) -> str | None:
        """The name of the backend that writes here, as in MMCV; None for the model cloud."""
        return 'HardDiskBackend' if self.is_local else self.client and self.client.name

    @classmethod
    def of(cls, path: str | os.PathLike[str], file_client_args: dict[str, Any] | None = None) -> tuple[Store, str]:
        """The store that holds the file ``path``, and the file's name in it."""
        folder, name = os.path.split(local_path(path))
        return cls(folder + '//' if folder.endswith(':') else folder, file_client_args), name

    def __str__(self) -> str:
        return self.place

    def path(self, name: str) -> str:
        """The path or URL of the file called ``name``."""
        if self.is_local or self.client is None:
            return os.path.join(self.place, name)
        return str(self.client.join_path(self.place, name))

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, name: str, checkpoint: Mapping[str, Any], latest: bool = False) -> str:
        """Write a checkpoint, completely or not at all.

        Args:
            name: the file's name.
            checkpoint: what `torch.save` gets.
            latest: make ``latest.pth`` point to it afterwards; ignored if the folder is not local. If that fails, the
                log says so.

        Returns:
            The file's path or URL.

        Raises:
            NotSavedError: writing failed.
        """
        path = self.path(name)
        if self.is_local:
            with _as_not_saved(path, OSError):
                write_atomically(
                    path,
                    partial(save_with_checksums, checkpoint),
                    lambda: os.path.isdir(path) and _remove_folder(path),
                )
            if latest:
                self._move_latest(name)
        elif self.client is None:
            _into_cloud(checkpoint, path)
        else:
            buffer = io.BytesIO()
            save_with_checksums(checkpoint, buffer)
            with _as_not_saved(path, Exception):  # each storage raises different errors
                self.client.put(buffer.getvalue(), path)
        return path

    def write_folder(
        self,
        name: str,
        tensors: Mapping[str, Any],
        local: Mapping[str, Any],
        rest: Mapping[str, Any] | None,
        latest: bool = False,
        group: Any = None,
        then: Callable[[], None] | None = None,
    ) -> str:
        """Write a checkpoint as a folder, completely or not at all; every process of ``group`` calls it.

        Args:
            name: the folder's name.
            tensors: see `runnerkit.checkpoint.folder.write_folder`.
            local: see there.
            rest: see there.
            latest: make ``latest.pth`` point to it afterwards.
            group: see there.
            then: called on the first process when the checkpoint and ``latest.pth`` are there.

        Returns:
            The folder's path.

        Raises:
            NotSavedError: writing failed on some process.
        """
        from runnerkit.checkpoint.folder import write_folder

        path = Path(self.path(name))

        def finish() -> None:
            if latest:
                self._move_latest(name)
            if then is not None:
                then()

        with _as_not_saved(str(path), OSError):
            write_folder(path, tensors, local, rest, group, finish)
        return str(path)

    def finish(self, name: str, latest: bool) -> bool:
        """Finish the save of a checkpoint whose run was killed after it, and return whether it is the newest one.

        Newer ones that are not finite do not count.

        Args:
            name: the checkpoint's name.
            latest: make ``latest.pth`` point to it if it is the newest one.
        """
        path = Path(self.path(name)).resolve()
        candidates = (Path(each.path) for each in self._candidates())
        newest = next((each for each in candidates if why_file_not_finite(each) is None), None)
        if newest != path:
            return False
        if latest and behind_link(Path(self.path(LATEST))).resolve() != path:
            self._move_latest(name)
        return True

    def _move_latest(self, name: str) -> None:
        """Make ``latest.pth`` point to a checkpoint, which is whole without it."""
        try:
            replace_link(Path(self.path(LATEST)), name)
        except OSError as error:
            logger.warning('%s cannot be moved to %s (%s)', self.path(LATEST), name, error)

    def check_takes_folders(self) -> None:
        """Whether a sharded checkpoint can be written here.

        Raises:
            ValueError: this is no folder on a disk.
        """
        if not self.is_local:
            raise ValueError(
                f'the model is sharded, and {self.place} is no folder on a disk: all processes write their parts of a '
                'checkpoint into one folder. Give a work_dir (out_dir) that all machines share; runnerkit convert '
                'makes a single file of a checkpoint, which can be copied anywhere'
            )

    def delete(self, name: str) -> bool:
        """Delete a checkpoint if there is one; returns whether there was."""
        path = self.path(name)
        if self.is_local and os.path.isdir(path):
            return _remove_folder(path)
        is_there = self.has(name)
        if is_there and self.is_local:
            os.remove(path)
        elif is_there:
            self.client.remove(path)
        return is_there

    def sweep(self) -> list[str]:
        """Delete the temporary files that killed runs left, and return their names.

        A checkpoint folder that lacks nothing but its name gets it. In a local folder, files of running processes are
        kept; elsewhere this cannot be known. Nothing happens if the storage cannot list or delete.
        """
        try:
            if self.is_local:
                self._name_complete()
                return sweep(self.place)
            names = [name for name in self._names() if name.startswith('.') and name.endswith('.pth.tmp')]
            for name in names:
                self.client.remove(self.path(name))
        except (OSError, NotImplementedError, AttributeError):
            return []
        return names

    # --- reading -----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether the folder exists; always true if it is not local, as storages create folders with their files."""
        return not self.is_local or os.path.isdir(self.place)

    def has(self, name: str) -> bool:
        """Whether the checkpoint exists."""
        path = self.path(name)
        if self.is_local:
            return os.path.isfile(path) or is_checkpoint_folder(path)
        return bool(self.client.isfile(path))

    def is_whole(self, name: str) -> bool:
        """Whether the checkpoint exists and is intact; of the model cloud, this is assumed."""
        if not self.is_local and self.client is None:
            return True
        if not self.has(name):
            return False
        with self._copied(self.path(name)) as copy:
            return why_damaged(copy) is None

    def numbered(self) -> list[CheckpointFile]:
        """The checkpoints saved at intervals, newest first; best checkpoints are not included."""
        return self._stored(is_numbered)

    def best(self) -> list[CheckpointFile]:
        """The best checkpoints, newest first."""
        return self._stored(is_best)

    def newest(self, problem: Callable[[Path], str | None] = why_damaged) -> CheckpointFile | None:
        """The newest checkpoint without a ``problem``: the target of ``latest.pth``, else the newest file.

        A file that is newer than the target and has a higher number is preferred to it: the run was killed before it
        moved the link, or uses none (``create_symlink=False``). Age alone is not reliable, as copying changes it. At a
        URL there is no ``latest.pth``, and every candidate is downloaded. Skipped files are logged with the reason.

        Args:
            problem: returns why the file at a local path cannot be used; None if it can.
        """
        self._name_complete()
        for stored in self._candidates():
            with self._copied(stored.path) as path:
                reason = problem(Path(path))
            if reason is None:
                return stored
            logger.warning('%s is skipped: %s', stored.path, reason)
        return None

    def resolve_checkpoint(self, best: bool = False) -> str | None:
        """The checkpoint to use if a user gives this folder instead of a file; None if there is none.

        Args:
            best: prefer the newest of the best checkpoints to the latest one.
        """
        found = self.best() if best else []
        if not found and self.is_local and (latest := self._latest()) is not None:
            named = str(latest.resolve())
            # Another one than the link's, if a run was killed before it moved it; it does not move to NaN.
            candidates = (each.path for each in self._candidates())
            newest = next(each for each in candidates if each == named or why_file_not_finite(Path(each)) is None)
            return self.path(LATEST) if newest == named else newest
        return next((stored.path for stored in found or self.numbered()), None)

    def _copied(self, path: str) -> AbstractContextManager[Any]:
        """A context manager for a local path to the checkpoint at ``path``."""
        return nullcontext(path) if self.is_local else self.client.get_local_path(path)

    def _name_complete(self) -> None:
        """Give checkpoint folders their names whose save was killed after their last byte, and before that."""
        if not self.is_local:
            return
        for folder in temporary_files(self.place):
            if not (folder / MANIFEST).exists():
                continue
            from runnerkit.checkpoint.manifest import put_in_place

            path = folder.with_name(folder.name[1:].rpartition('.tmp')[0].rpartition('.')[0])
            is_free = not path.exists() or (path.is_dir() and why_damaged(path) is not None)
            if not (is_free and is_abandoned(folder)) or why_damaged(folder) is not None:
                continue
            try:
                put_in_place(folder, path)
            except OSError as error:  # it may only be read here, or another process is faster
                logger.warning('%s is complete, but cannot be renamed to %s: %s', folder, path.name, error)

    def _candidates(self) -> Iterator[CheckpointFile]:
        """The checkpoints saved at intervals in the order of `newest`; most callers need the first one alone."""
        if not self.is_local:
            yield from self.numbered()
            return
        given: list[CheckpointFile] = []
        latest = self._latest()
        if latest is not None:
            named = self._described(str(latest.resolve()))
            near = self._resolved(lambda name: (number := number_in(name)) is not None and number >= named.number)
            younger = near[: near.index(named)] if named in near else []
            given = [*(stored for stored in younger if stored.number > named.number), named]
            yield from given
        yield from (stored for stored in dict.fromkeys(self._resolved(is_numbered)) if stored not in given)

    def _resolved(self, wanted: Callable[[str], bool]) -> list[CheckpointFile]:
        return [stored._replace(path=str(Path(stored.path).resolve())) for stored in self._stored(wanted)]

    def _latest(self) -> Path | None:
        """What ``latest.pth`` leads to; None if that is missing, or neither a file nor a folder, such as a pipe."""
        path = behind_link(Path(self.place, LATEST))
        return path if path.is_file() or path.is_dir() else None

    def _stored(self, wanted: Callable[[str], bool]) -> list[CheckpointFile]:
        found = []
        for name in self._names(wanted):
            try:
                found.append(self._described(self.path(name)))
            except FileNotFoundError:  # a run that saves here has just deleted it
                continue
            except OSError as error:  # a link that leads to itself, for one
                logger.warning('%s is skipped: %s', self.path(name), error)
        return sorted(found, reverse=True)

    def _described(self, path: str) -> CheckpointFile:
        if self.is_local:
            written = os.stat(path).st_mtime
        else:  # without times, the numbers in the names decide
            written = getattr(self.client.client, 'modified', lambda path: 0.0)(path)
        return CheckpointFile(written, number_in(os.path.basename(path)) or 0, path)

    def _names(self, wanted: Callable[[str], bool] = bool) -> list[str]:
        try:
            if self.is_local:
                with os.scandir(self.place) as entries:
                    return [each.name for each in entries if wanted(each.name) and may_be_checkpoint(each)]
            names = map(os.path.basename, self.client.list_dir_or_file(self.place, list_dir=False))
            return list(filter(wanted, names))
        except (FileNotFoundError, NotADirectoryError):  # nothing has been saved yet
            return []

    # --- runs --------------------------------------------------------------------------------------------------------

    def saved(self) -> list[str]:
        """The names of all that runs have saved here: checkpoints, the link to the latest one, whose folder it is, and
        half-written files. Checkpoints with other names (``filename_tmpl``) are known by the link."""
        try:
            names = sorted(os.listdir(self.place) if self.is_local and self.exists() else self._names())
        except (AttributeError, NotImplementedError):  # the storage cannot list
            return []
        latest = Path(self.place, LATEST)
        own = re.compile('(?!)')
        if self.is_local and latest.exists():
            name = Path(os.readlink(latest)).parts[0] if latest.is_symlink() else behind_link(latest).name
            own = re.compile(r'\d+'.join(re.escape(part) for part in re.split(r'\d+', name)))
        forms = (_NUMBERED, _BEST, _HALF_WRITTEN, own)
        return [name for name in names if name in (LATEST, OWNER) or any(form.fullmatch(name) for form in forms)]

    def move(self, names: Iterable[str], to: str) -> list[str]:
        """Move files into the folder ``to`` of the same storage; returns the names of those that stay, because the
        storage cannot move files."""
        move = getattr(self.client and self.client.client, 'move', None)
        if move is None:
            return list(names)
        for name in names:
            move(self.path(name), self.client.join_path(to, name))
        return []

    # --- ownership ---------------------------------------------------------------------------------------------------

    def owner(self) -> dict[str, Any] | None:
        """What `set_owner` has written here; None if nothing, or if the storage cannot keep it."""
        path = self.path(OWNER)
        try:
            if self.is_local:
                found = read_json(path)
            else:
                found = json.loads(self.client.get_text(path)) if self.client.isfile(path) else None
        except PermissionError:
            raise
        except (OSError, ValueError, TypeError, RecursionError, AttributeError, NotImplementedError):  # or a mock
            return None
        return found if isinstance(found, dict) else None

    def set_owner(self, owner: Mapping[str, Any]) -> None:
        """Record which run this folder belongs to.

        Raises:
            OSError: writing failed.
        """
        content = json.dumps(owner).encode()
        if self.is_local:
            write_atomically(self.path(OWNER), content)
        elif hasattr(self.client.client, 'isfile'):
            self.client.put(content, self.path(OWNER))


def _remove_folder(path: str) -> bool:
    """Delete a sharded checkpoint; returns whether ``path`` is one."""
    if not is_checkpoint_folder(path):
        return False
    from runnerkit.checkpoint.manifest import remove_checkpoint

    return remove_checkpoint(Path(path))


def may_be_checkpoint(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a file, or may be a checkpoint that is a folder. A pipe would wait for its
    writer; broken links are looked at, and logged."""
    if not entry.is_symlink():
        return entry.is_file() or (entry.is_dir() and entry.name.endswith('.pth'))
    is_file, is_there = os.path.isfile(entry.path), os.path.exists(entry.path)
    return is_file or (entry.name.endswith('.pth') and (os.path.isdir(entry.path) or not is_there))


def is_numbered(name: str) -> bool:
    """Whether a checkpoint saved at an interval is called ``name``."""
    return _NUMBERED.fullmatch(name) is not None


def number_in(name: str) -> int | None:
    """The n of ``epoch_<n>.pth`` and ``iter_<n>.pth``; None for any other name."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def best_name(score: str, unit: str, number: int) -> str:
    """The file name of a best checkpoint."""
    text = re.sub(r'[^A-Za-z0-9_.@-]', '_', score)
    if not score.isascii() or len(score) > _MOST_OF_SCORE:
        checksum = hashlib.sha256(ascii(score).encode()).hexdigest()[:12]
        text = f'{text[: _MOST_OF_SCORE // 2]}_{checksum}'
    return f'best_{text}_{unit}_{number}.pth'


def is_best(name: str) -> bool:
    """Whether ``name`` has the form of `best_name`."""
    return _BEST.fullmatch(name) is not None


def find_latest_checkpoint(folder: str | os.PathLike[str]) -> Path | str | None:
    """The newest intact checkpoint of ``folder``, a path or a URL as text; or None. See `Store.newest`."""
    found = Store(folder).newest()
    return found and (found.path if is_url(found.path) else Path(found.path))


def why_not_finite(checkpoint: Any) -> str | None:
    """What is not finite in ``checkpoint``, the content of a file, according to its meta; None if all is."""
    meta = checkpoint.get('meta') if isinstance(checkpoint, Mapping) else None
    found = meta.get(NON_FINITE) if isinstance(meta, Mapping) else None
    if not isinstance(found, Mapping) or not found:
        return None
    return 'NaN or infinite values in ' + printable(', '.join(map(str, found.values())), 300)


def why_file_not_finite(path: Path) -> str | None:
    """`why_not_finite` of the checkpoint at a local path; None too if it cannot be read."""
    try:
        if not is_checkpoint_folder(path):
            from runnerkit.checkpoint.safe_load import safe_load

            return why_not_finite(safe_load(path, mmap=True))  # reads no tensor
        from runnerkit.checkpoint.folder import read_rest

        return why_not_finite(read_rest(path))
    except Exception:  # the code that uses the file reports what is wrong with it
        return None


def finite_beside(checkpoint: str) -> str | None:
    """The newest other checkpoint in the folder of ``checkpoint`` that is intact and finite; None if there is none, or
    if the folder is a URL."""
    store, own = Store.of(checkpoint)
    if not store.is_local:
        return None
    paths = (Path(each.path) for each in sorted([*store.numbered(), *store.best()], reverse=True))
    usable = (path for path in paths if path.name != own and why_file_not_finite(path) is None)
    return next((str(path) for path in usable if why_damaged(path) is None), None)


def resolve_checkpoint(path: str | os.PathLike[str], best: bool = False) -> str:
    """``path`` itself, or if it is a folder of checkpoints, such as a work dir, the one to use from it; see
    `Store.resolve_checkpoint`.

    To use weights, to evaluate or to start from them, take the best; to resume, the latest. A URL is a folder if its
    last part has no dot and checkpoints can be listed there. A ``latest.pth`` that is no symbolic link means what
    it names.
    """
    path = os.fspath(path)
    folder = os.path.expanduser(local_path(path))
    if is_url(folder):
        return _below_url(folder, best) or path
    if not os.path.isdir(folder):
        return _linked(path)
    if is_checkpoint_folder(folder):
        return path.rstrip('/')  # its parent is the folder above it
    found = Store(folder).resolve_checkpoint(best)
    if found is None:
        held = sorted(other.name for other in Path(folder).glob('*.pth'))
        hint = f'; it holds {shortened(held)}: name one of them' if held else ''
        lacks = f'neither best_*.pth nor {LATEST}' if best else f'no {LATEST}'
        raise FileNotFoundError(f'no checkpoint in {path} ({lacks}){hint}')
    return _linked(found)


def _linked(path: str) -> str:
    """``path``, or where it leads to as a ``latest.pth`` that holds a name: what it names may be a folder."""
    link = Path(local_path(path)).expanduser()
    behind = behind_link(link)
    return path if behind == link else str(behind)


def _below_url(url: str, best: bool) -> str | None:
    """The checkpoint to use from a folder at ``url``; None if it is not known to be one."""
    if '.' in url.rstrip('/').rpartition('/')[2] or url.startswith(_CLOUD):
        return None
    try:
        return Store(url).resolve_checkpoint(best)
    except (ValueError, AttributeError, NotImplementedError, ImportError):  # not a storage, or one that cannot list
        return None


def behind_link(path: Path) -> Path:
    """``path``, or the file that a ``latest.pth`` names in its text, on file systems without symbolic links."""
    if path.name != LATEST or path.is_symlink() or not path.is_file() or path.stat().st_size > 255:
        return path
    named = re.fullmatch(rb'[\w.@-]+\.pth', path.read_bytes())
    return path if named is None else path.with_name(named[0].decode())


@contextmanager
def _as_not_saved(path: str, errors: type[Exception]) -> Iterator[None]:
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
        save_with_checksums(checkpoint, copy)
        model.create_file(copy, name=name)


def own_messages(messages: Mapping[str, Any], checkpoint: str, places: Iterable[str]) -> dict[str, Any]:
    """The ``messages`` of hooks in ``checkpoint``, without paths of other checkpoints that lead elsewhere.

    The file may name any path or URL. One stays if it lies in the folder of ``checkpoint`` or in one of ``places``,
    where this run saves; if not, a local file of that name in one of them takes its place, if there is one.
    """
    path = local_path(checkpoint)
    folder = path.rpartition('/')[0] if is_url(path) else os.path.dirname(os.path.abspath(path))
    found, folders = dict(messages), (folder, *places)
    for key in ('best_ckpt', 'last_ckpt'):
        named = found.pop(key, None)
        if not isinstance(named, str):
            continue
        moved = [os.path.join(each, os.path.basename(named)) for each in folders]
        there = [path for path in moved if any(lies_in(path, each) for each in folders) and os.path.exists(path)]
        if any(lies_in(named, each) for each in folders):
            found[key] = named
        elif there:
            found[key] = there[0]
    return found
