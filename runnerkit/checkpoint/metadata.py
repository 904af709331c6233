"""Reads the table of contents of a sharded checkpoint, the file ``.metadata``, without running code from it.

`torch.distributed.checkpoint` writes that file with pickle and reads it with `pickle.load`, which calls whatever the
file names. Here every name becomes a class or function of ours, made for each file, that holds what it is
given. What comes out is checked, and only then handed to torch.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from runnerkit.utils.logging import printable

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

#: The name of the file.
METADATA = '.metadata'

#: Classes of torch's whose instances are kept as their attributes.
_RECORDS = {
    'torch.distributed.checkpoint.metadata': (
        'Metadata',
        'MetadataIndex',
        'TensorStorageMetadata',
        'BytesStorageMetadata',
        'ChunkStorageMetadata',
        'TensorProperties',
        'StorageMeta',
        '_MEM_FORMAT_ENCODING',
    ),
    'torch.distributed.checkpoint.filesystem': ('_StorageInfo',),
}
#: Paths, as different versions of Python call them.
_PATHS = {
    (module, name)
    for module in ('pathlib', 'pathlib._local')
    for name in ('Path', 'PosixPath', 'WindowsPath', 'PurePath', 'PurePosixPath', 'PureWindowsPath')
}


class _Record:
    """What a file says of an object: its arguments and its state."""

    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> _Record:
        record = super().__new__(cls)
        record.args = args
        return record

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, name: str) -> Any:
        """An attribute; None if the file does not give it."""
        return self.state.get(name) if isinstance(self.state, Mapping) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        # Of this file alone: a pickle can set attributes of what it names.
        self.kinds: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if name in _RECORDS.get(module, ()) or (module, name) in _PATHS:
            return self.kinds.setdefault((module, name), type(name, (_Record,), {}))
        if (module, name) == ('torch', 'Size'):
            return torch.Size
        if (module, name) == ('collections', 'OrderedDict'):
            return OrderedDict
        if (module, name) == ('torch.serialization', '_get_layout'):
            return lambda text: text
        if module == 'torch' and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f'it names {module}.{name}, which no such table needs')


def read_metadata(data: bytes, sizes: Mapping[str, int] | None = None) -> Any:
    """The table of contents in ``data``, a `torch.distributed.checkpoint.metadata.Metadata`.

    Args:
        data: the content of the file.
        sizes: the files in its folder, and how many bytes they have.

    Raises:
        ValueError: it is damaged, names something else, or contradicts itself or the files.
    """
    try:
        found = _Unpickler(data).load()
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(f'{METADATA}: {printable(error, 200)}') from None
    try:
        return _Table(sizes).read(found)
    except _Wrong as wrong:
        raise ValueError(f'{METADATA}: {printable(wrong, 200)}') from None


class _Wrong(Exception):
    """What is wrong with a table."""


class _Table:
    def __init__(self, sizes: Mapping[str, int] | None) -> None:
        self.sizes = sizes

    def read(self, found: Any) -> Any:
        from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta

        entries, storage = _record(found, 'Metadata')['state_dict_metadata'], found['storage_data']
        if type(entries) is not dict or type(storage) is not dict:
            raise _Wrong('it lists no tensors')
        places: dict[Any, Any] = {}
        lengths: dict[tuple[str, tuple[int, ...]], int] = {}
        for index, info in storage.items():
            index = _record(index, 'MetadataIndex')
            offset = None if index['offset'] is None else _size(index['offset'])
            place = self._place(_record(info, '_StorageInfo'))
            places[MetadataIndex(_text(index['fqn']), offset)] = place
            lengths[index['fqn'], tuple(offset or ())] = place.length
        tensors: dict[str, Any] = {}
        for name, entry in entries.items():
            kind = type(entry).__name__
            if kind == 'BytesStorageMetadata':
                tensors[_text(name)] = BytesStorageMetadata()
            else:
                tensors[_text(name)] = self._tensor(name, _record(entry, 'TensorStorageMetadata'), lengths)
        about = found['storage_meta']
        save = about['save_id'] if isinstance(about, _Record) else None
        return Metadata(
            tensors, storage_data=places, storage_meta=StorageMeta(save_id=None if save is None else _text(save))
        )

    def _place(self, info: _Record) -> Any:
        from torch.distributed.checkpoint.filesystem import _StorageInfo

        file, offset, length = _text(info['relative_path']), _number(info['offset']), _number(info['length'])
        if '/' in file or '\\' in file or file in ('', '.', '..'):
            raise _Wrong(f'it names the file {file!r}, which is not in its folder')
        if self.sizes is not None and (file not in self.sizes or offset + length > self.sizes[file]):
            raise _Wrong(f'it names bytes {offset} to {offset + length} of {file!r}, which are not there')
        if info['transform_descriptors']:
            raise _Wrong(f'a part of {file!r} is compressed or encrypted')
        return _StorageInfo(file, offset, length)

    def _tensor(self, name: str, entry: _Record, lengths: Mapping[Any, int]) -> Any:
        from torch.distributed.checkpoint.metadata import (
            ChunkStorageMetadata,
            TensorProperties,
            TensorStorageMetadata,
        )

        state = _record(entry['properties'], 'TensorProperties').state
        dtype = state[0] if isinstance(state, tuple) and state else None
        size, chunks = _size(entry['size']), entry['chunks']
        if not isinstance(dtype, torch.dtype) or type(chunks) is not list:
            raise _Wrong(f'it does not say what {name!r} is')
        found = []
        for chunk in chunks:
            offsets, sizes = (_size(_record(chunk, 'ChunkStorageMetadata')[key]) for key in ('offsets', 'sizes'))
            inside = len(offsets) == len(sizes) == len(size) and all(
                offset + length <= whole for offset, length, whole in zip(offsets, sizes, size, strict=True)
            )
            length = lengths.get((name, tuple(offsets)))
            if not inside or length is None or math.prod(sizes) * dtype.itemsize > length:
                raise _Wrong(f'a part of {name!r} does not lie in it, or in its file')
            found.append(ChunkStorageMetadata(offsets, sizes))
        if sum(math.prod(chunk.sizes) for chunk in found) != math.prod(size):
            raise _Wrong(f'parts of {name!r} are missing')
        if _overlap(found):
            raise _Wrong(f'parts of {name!r} overlap')
        return TensorStorageMetadata(TensorProperties(dtype), size, found)


def _overlap(chunks: Iterable[ChunkStorageMetadata]) -> bool:
    """Whether two parts of one tensor have an element in common."""
    begun: list[ChunkStorageMetadata] = []  # those that may reach the running one's first row
    for chunk in sorted((each for each in chunks if math.prod(each.sizes)), key=lambda each: tuple(each.offsets)):
        if chunk.offsets:
            begun = [other for other in begun if other.offsets[0] + other.sizes[0] > chunk.offsets[0]]
        for other in begun:
            sides = zip(other.offsets, other.sizes, chunk.offsets, chunk.sizes, strict=True)
            if all(one < begin + size and begin < one + its for one, its, begin, size in sides):
                return True
        begun.append(chunk)
    return False


def _record(value: Any, kind: str) -> _Record:
    if not isinstance(value, _Record) or type(value).__name__ != kind:
        raise _Wrong(f'it holds a {type(value).__name__} instead of a {kind}')
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Wrong(f'it holds a {type(value).__name__} instead of a name')
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _Wrong(f'it holds {value!r} instead of a number of bytes')
    return value


def _size(value: Any) -> torch.Size:
    if not isinstance(value, tuple) or not all(type(number) is int and number >= 0 for number in value):
        raise _Wrong('it holds a size that is none')
    return torch.Size(value)
