"""Writes and reads sharded checkpoints with `torch.distributed.checkpoint`: each process its own part."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as tables
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, _StorageInfo

from runnerkit.checkpoint.atomic import (
    METADATA,
    DiskFile,
    flush_folder,
    in_use,
    make_folder,
    save_with_checksums,
    temporary_name,
)
from runnerkit.checkpoint.manifest import (
    REST,
    ListedFile,
    check_content,
    check_sizes,
    put_in_place,
    read_manifest,
    write_manifest,
)
from runnerkit.checkpoint.safe_load import only_safe_names, safe_load
from runnerkit.checkpoint.shards import PLACES, Place, put_together
from runnerkit.distributed import all_gather_objects, from_first_rank
from runnerkit.utils.logging import printable
from runnerkit.utils.torch_versions import shards_function

#: How long rank 0 waits for files that other machines have written, in seconds: network file systems show them late.
_PATIENCE = 20.0

# --- writing ---------------------------------------------------------------------------------------------------------


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
    """

    def begin() -> Path:
        make_folder(path.parent)
        folder = path.with_name(temporary_name(path.name))
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        return folder

    def complete() -> None:
        files = {name: listed for part in parts for name, listed in part.items()}
        try:
            with _ListedDiskFile(temporary / REST) as file:
                save_with_checksums(dict(rest or {}), file)
            files[REST] = file.listed
            _wait_for(temporary, files)
            write_manifest(temporary, files)
            flush_folder(temporary)
            put_in_place(temporary, path)
            then()
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    temporary = _on_first(group, begin)
    with in_use(temporary):
        part = _write_tensors(temporary, tensors, local, group)
        parts = [part] if group is None else all_gather_objects(part, group)
        _on_first(group, complete)


def _write_tensors(
    folder: Path, tensors: Mapping[str, Tensor], local: Mapping[str, Tensor], group: Any
) -> dict[str, ListedFile]:
    """Write this process's part; returns the files that it has written. If it fails on one process, it fails on all."""
    writer = _Writer(folder, sync_files=False)  # our files sync themselves
    writer.fs = disk = _Disk()
    try:
        with _without_warning():
            planner = _SavePlanner(local)
            save = shards_function('save')
            save(dict(tensors), storage_writer=writer, planner=planner, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        shutil.rmtree(folder, ignore_errors=True)
        rank, (failure, _) = next(iter(error.failures.items()))
        if isinstance(failure, OSError):
            raise OSError(failure.errno, f'rank {rank}: {failure.strerror or failure}') from error
        raise failure from error
    return disk.files


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
        """Nothing: the machine's paths do not belong into a checkpoint."""
        return tables.StorageMeta()


class _ListedDiskFile(DiskFile):
    """A file that knows its size and checksum."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.listed = ListedFile(0, 0)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast('B')
        self.listed = ListedFile(self.listed.size + len(view), zlib.crc32(view, self.listed.crc))
        return super().write(view)

    def tell(self) -> int:
        """How much has been written."""
        return self.listed.size

    def close(self) -> None:
        """Nothing: torch closes a file before it is synced."""


class _Disk(FileSystem):
    """The disk, for torch's writer; it lists the files that were written."""

    def __init__(self) -> None:
        self.files: dict[str, ListedFile] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with _ListedDiskFile(path) as file:
            yield file
        self.files[Path(path).name] = file.listed

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.files[Path(new_path).name] = self.files.pop(Path(path).name)


def _wait_for(folder: Path, files: Mapping[str, ListedFile]) -> None:
    """Wait until this machine sees all files in their full length."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return check_sizes(folder, files)
        except ValueError as error:
            if time.monotonic() > end:
                raise OSError(
                    None,
                    f'{error}, as rank 0 sees it. A sharded checkpoint needs a folder that all machines share '
                    '(work_dir, out_dir)',
                    str(folder),
                ) from None
        time.sleep(0.1)


def _on_first(group: Any, call: Callable[[], Any]) -> Any:
    """What ``call`` gives on the first process; an OSError there is one on all."""

    def attempt() -> tuple[Any, OSError | None]:
        try:
            return call(), None
        except OSError as error:
            return None, error

    result, failure = attempt() if group is None else from_first_rank(attempt, group)
    if failure is not None:
        raise failure
    return result


# --- reading ---------------------------------------------------------------------------------------------------------


def read_rest(folder: Path, load: Callable[[str], Any] = safe_load) -> dict[str, Any]:
    """What a checkpoint folder holds apart from large tensors, in whose places there is None."""
    check_content(folder, REST, read_manifest(folder))
    rest = load(os.fspath(folder / REST))
    if not isinstance(rest, dict):
        raise ValueError(f'{REST} holds a {type(rest).__name__} instead of a dict')
    rest.pop('runnerkit_save', None)  # folders of former saves have an id there
    return rest


def read_folder(
    folder: Path,
    layout: Mapping[Place, Tensor] | None = None,
    optimizer: bool = True,
    load: Callable[[str], Any] = safe_load,
) -> dict[str, Any]:
    """The checkpoint in ``folder``. No process waits for another one: each checks and reads the files that it needs."""
    files = read_manifest(folder)
    check_sizes(folder, files)
    check_content(folder, METADATA, files)
    rest = read_rest(folder, load)
    if not optimizer:
        rest.pop('optimizer', None)
    try:
        table = read_table((folder / METADATA).read_bytes())
        targets = {
            name: _target(name, table, (layout or {}).get(tuple(place), (layout or {}).get(tuple(place[:-1]))))
            for name, place in rest.get(PLACES, {}).items()
            if optimizer or place[0] != 'optimizer'
        }
    except Exception as error:  # a forged table can fail in any way
        raise ValueError(f'{METADATA}: {printable(error, 200)}') from None
    if targets:
        _read_into(targets, _Reader(folder, files, table))
    return put_together(rest, targets)


def _target(name: str, table: tables.Metadata, like: Tensor | None) -> Tensor:
    """The tensor into which ``name`` is read, laid out as ``like`` (for a part of its state: as the parameter)."""
    entry = table.state_dict_metadata.get(name)
    if not isinstance(entry, tables.TensorStorageMetadata):
        raise ValueError(f'its tensor {name!r} is missing')
    dtype = entry.properties.dtype
    if like is not None and like.shape == entry.size:
        return torch.zeros_like(like, dtype=dtype, requires_grad=False)
    return torch.zeros(entry.size, dtype=dtype)  # what a forged table leaves out is not whatever was in the memory


def _read_into(targets: dict[str, Tensor], reader: _Reader) -> None:
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with _without_warning(), only_safe_names():
            shards_function('load')(targets, storage_reader=reader, planner=planner, no_dist=True)
    except CheckpointException as error:
        failure, _ = next(iter(error.failures.values()))
        if isinstance(failure, ValueError):
            raise failure from None
        text = printable(failure).partition('\n')[0]
        raise ValueError(f'its parts are not what {METADATA} says ({type(failure).__name__}: {text})') from None


class _Reader(dcp.FileSystemReader):
    """Torch's reader, which compares the checksum of each file before anything of it is used.

    Args:
        folder: the checkpoint.
        files: its manifest.
        table: its table of contents, from `read_table`: torch's own method runs what the file names.
    """

    def __init__(self, folder: Path, files: Mapping[str, ListedFile], table: tables.Metadata) -> None:
        super().__init__(folder)
        self._files, self._table = files, table

    def read_metadata(self, *args: Any, **kwargs: Any) -> tables.Metadata:
        """The table of contents."""
        return self._table

    def prepare_local_plan(self, plan: dcp.LoadPlan) -> dcp.LoadPlan:
        """Check the files that this process reads."""
        for name in dict.fromkeys(self.storage_data[item.storage_index].relative_path for item in plan.items):
            check_content(Path(self.path), name, self._files)
        return plan


#: The classes that a table may name.
_CLASSES = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        tables.Metadata,
        tables.MetadataIndex,
        tables.TensorStorageMetadata,
        tables.BytesStorageMetadata,
        tables.ChunkStorageMetadata,
        tables.TensorProperties,
        tables.StorageMeta,
        _StorageInfo,
    )
}


class _Unpickler(pickle.Unpickler):
    """Makes nothing but what a table of contents consists of.

    A pickle can set attributes of a class that it names: so each file gets subclasses for itself.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._kinds: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CLASSES:
            return self._kinds.setdefault(name, type(name, (_CLASSES[module, name],), {}))
        if (module, name) == ('torch', 'Size'):
            return torch.Size
        if (module, name) == ('torch.serialization', '_get_layout'):
            return lambda layout: torch.strided
        if (module, name) == (tables.__name__, '_MEM_FORMAT_ENCODING'):
            return lambda number: tables._MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
        if module == 'torch' and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f'it names {module}.{name}, which no such table needs')


def read_table(data: bytes) -> tables.Metadata:
    """The table of contents of a checkpoint folder, read without running code; any error if it is none."""
    table = _Unpickler(data).load()
    if not isinstance(table, tables.Metadata):
        raise ValueError(f'it holds a {type(table).__name__} instead of a table')
    # torch looks up by its own class.
    places = {tables.MetadataIndex(index.fqn, index.offset): place for index, place in table.storage_data.items()}
    return tables.Metadata(table.state_dict_metadata, storage_data=places)


@contextmanager
def _without_warning() -> Iterator[None]:
    """Torch warns where a process writes or reads alone, and of the functions that it has for this in torch 2.6."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='torch.distributed is disabled|.*_state_dict. is deprecated')
        yield
