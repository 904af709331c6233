"""Writes checkpoints that are folders, to which each process brings its own part."""

from __future__ import annotations

import os
import shutil
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp

from runnerkit.checkpoint.atomic import DiskFile, flush_folder, make_folder, temporary_name
from runnerkit.checkpoint.manifest import REST, SAVE, Listed, check_size, mark, put_in_place, write_manifest
from runnerkit.checkpoint.metadata import METADATA
from runnerkit.distributed import all_gather_objects, from_first_rank

#: How long rank 0 waits for files that other machines have written, in seconds: network file systems show them late.
_PATIENCE = 20.0


class FailedElsewhere(OSError):
    """Another process could not write its part of a checkpoint."""


def write_folder(
    path: Path,
    tensors: Mapping[str, Tensor],
    local: Mapping[str, Tensor],
    rest: Mapping[str, Any] | None,
    group: Any = None,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint folder, completely or not at all; every process of ``group`` calls it.

    The files are written into a folder of another name, synced to the disk and listed in the manifest; then the folder
    gets its name.

    Args:
        path: of the folder; one of that name, or a file, is replaced. All processes must see the folder above it.
        tensors: how the tensors lie over the processes; their values are not read.
        local: the values of this process's parts, by the same names.
        rest: what else there is; of the first process.
        group: processes that can talk without disturbing others; None if this process is alone.
        then: called on the first process when the folder has its name.

    Raises:
        OSError: the disk of some process is full, a folder is gone …; nothing is left of the new checkpoint.
    """
    name, save = _first(group, lambda: (str(_new_folder(path)), uuid.uuid4().hex))
    temporary = Path(name)
    failure: Exception | None = None
    written: dict[str, Listed] = {}
    try:
        written = _write_tensors(temporary, tensors, local, group, save)
    except Exception as error:
        failure = error
    every = _gathered(group, (written, failure))

    def finish() -> None:
        try:
            files: dict[str, Listed] = {}
            for rank, (names, failed) in enumerate(every):
                if failed is not None:
                    raise _told(failed, rank, failure)
                files.update(names)
            with _OwnFile(temporary / REST) as file:
                own: Any = file
                torch.save({**(rest or {}), SAVE: save}, own)
            files[REST] = file.listed
            _wait_for(temporary, files)
            write_manifest(temporary, files, save)
            flush_folder(temporary)
            put_in_place(temporary, path)
            then()
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    _first(group, finish)


def _write_tensors(
    folder: Path, tensors: Mapping[str, Tensor], local: Mapping[str, Tensor], group: Any, save: str
) -> dict[str, Listed]:
    """Write this process's part; returns the files that it has written."""
    from torch.distributed.checkpoint.api import CheckpointException

    files = _Files(save)
    writer = _Writer(folder, sync_files=False)  # our files sync themselves
    writer.fs = files
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', message='torch.distributed is disabled')
            planner = _SavePlanner(local)
            dcp.save(dict(tensors), storage_writer=writer, planner=planner, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        rank, (failure, _) = next(iter(error.failures.items()))
        raise _told(failure, rank, None) from error
    return files.written


class _SavePlanner(dcp.DefaultSavePlanner):
    """Plans with the tensors as they lie over the processes, and writes copies of this process's parts.

    What all processes have is written by the first.
    """

    def __init__(self, local: Mapping[str, Tensor]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True)
        self._local = local

    def lookup_object(self, index: Any) -> Any:
        """The values that are written."""
        return self._local[index.fqn]


class _Writer(dcp.FileSystemWriter):
    def storage_meta(self) -> Any:
        """The id of the save; the machine's paths do not belong into a checkpoint."""
        own: Any = self.fs
        return dcp.metadata.StorageMeta(save_id=own.save)


class _OwnFile(DiskFile):
    """A file that knows its size and checksum, and is on the disk when it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listed = Listed(0, 0)
        self._is_open = True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast('B')
        self.listed = Listed(self.listed.size + len(view), zlib.crc32(view, self.listed.crc))
        return super().write(view)

    def tell(self) -> int:
        """How much has been written."""
        return self.listed.size

    def __enter__(self) -> _OwnFile:
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            if raised[0] is None:
                self.sync()
        finally:
            self.close()
        if self.error is not None:  # torch says something else
            raise OSError(self.error.errno, self.error.strerror) from raised[1]

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._is_open:
            self._is_open = False
            super().__exit__(None, None, None)


class _Files(dcp.filesystem.FileSystem):
    """The disk, for a writer of torch's: each file is synced, and its size and checksum noted.

    Args:
        save: the id of the save, which each file with parts of tensors ends with.
    """

    def __init__(self, save: str) -> None:
        super().__init__()
        self.save = save
        self.written: dict[str, Listed] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if mode != 'wb':
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with _OwnFile(Path(path)) as file:
            yield _Stream(file)
            if not Path(path).name.startswith(METADATA):
                file.write(mark(self.save))
        self.written[Path(path).name] = file.listed

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


class _Stream:
    """What torch writes to: it closes a file before it is synced."""

    def __init__(self, file: _OwnFile) -> None:
        self.write, self.tell, self.flush = file.write, file.tell, file.flush

    def close(self) -> None:
        """Nothing; the file is closed when it is synced."""


def _new_folder(path: Path) -> Path:
    make_folder(path.parent)
    temporary = path.with_name(temporary_name(path.name))
    shutil.rmtree(temporary, ignore_errors=True)
    os.mkdir(temporary)
    return temporary


def _wait_for(folder: Path, files: Mapping[str, Listed]) -> None:
    """Wait until this machine sees all files in their full length."""
    end = time.monotonic() + _PATIENCE
    for name, listed in files.items():
        while True:
            try:
                check_size(folder / name, listed)
                break
            except ValueError as error:
                if time.monotonic() > end:
                    raise OSError(
                        None,
                        f'{error}, as rank 0 sees it. A sharded checkpoint needs a folder that all machines share '
                        '(work_dir, out_dir)',
                        str(folder),
                    ) from None
            time.sleep(0.1)


def _told(failure: BaseException, rank: int, own: BaseException | None) -> BaseException:
    """What ``failure`` of a rank is called on all ranks."""
    if own is not None and failure is own:
        return own
    if isinstance(failure, FailedElsewhere):  # which names its rank
        return failure
    if isinstance(failure, OSError):
        return FailedElsewhere(failure.errno, f'rank {rank}: {failure.strerror or failure}')
    return failure


def _gathered(group: Any, value: Any) -> list[Any]:
    return [value] if group is None else all_gather_objects(value, group)


def _first(group: Any, call: Callable[[], Any]) -> Any:
    """What ``call`` gives on the first process; if it fails there, it fails on all."""
    if group is None:
        return call()
    failures: list[OSError] = []

    def attempt() -> tuple[Any, OSError | None]:
        try:
            return call(), None
        except OSError as error:
            failures.append(error)
            return None, FailedElsewhere(error.errno, error.strerror or str(error))

    result, failure = from_first_rank(attempt, group)
    if failure is not None:
        raise failures[0] if failures else failure
    return result
