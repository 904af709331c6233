"""Reads checkpoints that are folders, without running code from them; each process reads what it needs."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import LoadItemType
from torch.futures import Future

from runnerkit.checkpoint.integrity import Damage, check_records, why_damaged
from runnerkit.checkpoint.manifest import (
    REST,
    SAVE,
    Files,
    check_parts,
    check_save,
    check_size,
    listed_as,
    read_manifest,
)
from runnerkit.checkpoint.metadata import METADATA, read_metadata
from runnerkit.checkpoint.safe_load import safe_load
from runnerkit.checkpoint.shards import PLACES, Place, empty_like, put_together
from runnerkit.utils.logging import printable


def read_rest(folder: Path, load: Callable[[str], Any] = safe_load) -> dict[str, Any]:
    """What a checkpoint folder holds apart from large tensors, in whose places there is None.

    Args:
        folder: the checkpoint.
        load: reads a file of torch.save.

    Raises:
        ValueError: it is damaged, or holds objects and is not trusted.
    """
    return _rest_of(folder, read_manifest(folder), load)


def _rest_of(folder: Path, files: Files, load: Callable[[str], Any]) -> dict[str, Any]:
    damage = why_damaged(folder / REST)
    if damage is not None:
        raise ValueError(f'{REST}: {damage}')
    rest = load(os.fspath(folder / REST))
    if not isinstance(rest, dict):
        raise ValueError(f'{REST} holds a {type(rest).__name__} instead of a dict')
    check_save(REST, rest.pop(SAVE, None), files)
    return rest


def read_folder(
    folder: Path,
    layout: Mapping[Place, Tensor] | None = None,
    wanted: Callable[[Place], bool] = lambda place: True,
    load: Callable[[str], Any] = safe_load,
) -> dict[str, Any]:
    """The checkpoint in ``folder``. No process waits for another one: each reads what it needs, and checks it.

    Args:
        folder: the checkpoint.
        layout: the tensors, spread over processes, as which those at the same places are to be laid out; of each, this
            process reads its part. All other tensors are read whole, to the CPU.
        wanted: whether to read the tensor at a place; None stays in the place of the others.
        load: reads a file of torch.save.

    Raises:
        ValueError: it is damaged, incomplete, or no checkpoint.
    """
    files = read_manifest(folder)
    for name, listed in files.items():
        check_size(folder / name, listed)
    check_parts(folder, files)
    if METADATA not in files or listed_as(folder / METADATA) != files[METADATA]:
        raise ValueError(f'its {METADATA} is damaged')
    rest = _rest_of(folder, files, load)
    sizes = {name: listed.size for name, listed in files.items()}
    metadata = read_metadata((folder / METADATA).read_bytes(), sizes)
    check_save(METADATA, metadata.storage_meta.save_id, files)
    targets: dict[str, Tensor] = {}
    for name, place in rest.get(PLACES, {}).items():
        entry = metadata.state_dict_metadata.get(name)
        if not hasattr(entry, 'size'):
            raise ValueError(f'its tensor {name!r} is missing')
        if wanted(tuple(place)):
            like = _like(layout or {}, tuple(place))
            targets[name] = empty_like(entry.size, entry.properties.dtype, like)
    read_tensors(folder, metadata, targets)
    return put_together(rest, targets)


def _like(layout: Mapping[Place, Tensor], place: Place) -> Tensor | None:
    """The tensor whose layout the one at ``place`` gets; that of a parameter for each part of its state."""
    return layout.get(place, layout.get(place[:-1]))


def read_tensors(folder: Path, metadata: Any, targets: dict[str, Tensor]) -> None:
    """Fill ``targets`` from the files of ``folder``; this process alone.

    Raises:
        ValueError: a part is damaged.
    """
    if not targets:
        return
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='torch.distributed is disabled')
        try:
            dcp.load(targets, storage_reader=_Reader(folder, metadata), planner=_LoadPlanner(), no_dist=True)
        except CheckpointException as error:
            failure, _ = next(iter(error.failures.values()))
            raise failure from None


class _LoadPlanner(dcp.DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        """Refuse what torch would unpickle."""
        raise pickle.UnpicklingError(f'{read_item.dest_index.fqn} is no tensor')


class _Reader(dcp.StorageReader):
    """Reads tensors of a folder: each part is checked against its checksums before it is used.

    Args:
        folder: the checkpoint.
        metadata: its table of contents, which `read_metadata` has checked.
    """

    def __init__(self, folder: Path, metadata: Any) -> None:
        self._folder, self._metadata = folder, metadata

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing to forget."""

    def read_metadata(self) -> Any:
        """The table of contents."""
        return self._metadata

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future[None]:
        """Read what ``plan`` lists, into the tensors that ``planner`` knows."""
        by_part: dict[Any, list[Any]] = {}
        for item in plan.items:
            by_part.setdefault(item.storage_index, []).append(item)
        for index, items in by_part.items():
            whole: Tensor | None = None
            for item in items:
                if item.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(item, io.BytesIO())
                if whole is None:
                    whole = self._part(index)
                part = whole
                for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                    part = part.narrow(dim, start, length)
                target = planner.resolve_tensor(item).detach()
                target.copy_(part)
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _part(self, index: Any) -> Tensor:
        """One saved part of a tensor: a file of torch.save within a file."""
        place = self._metadata.storage_data[index]
        with (self._folder / place.relative_path).open('rb') as file:
            file.seek(place.offset)
            data = io.BytesIO(file.read(place.length))
        try:
            is_archive = check_records(data)
            data.seek(0)
            part = safe_load(data) if is_archive else None
        except (Damage, pickle.UnpicklingError, RuntimeError) as error:
            raise ValueError(
                f'the part of {index.fqn} in {place.relative_path}: {printable(error).partition(chr(10))[0]}'
            ) from None
        chunks = self._metadata.state_dict_metadata[index.fqn].chunks
        sizes = next((chunk.sizes for chunk in chunks if chunk.offsets == (index.offset or chunk.offsets)), None)
        if type(part) is not Tensor or part.shape != sizes:
            raise ValueError(f'the part of {index.fqn} in {place.relative_path} is not what {METADATA} says')
        return part

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it can be read here."""
        return os.path.isdir(checkpoint_id)
