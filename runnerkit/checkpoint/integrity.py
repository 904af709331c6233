"""Checks whether a checkpoint file is intact, and whether a run can resume from it."""

from __future__ import annotations

import operator
import os
import struct
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

from runnerkit.checkpoint.manifest import why_folder_damaged
from runnerkit.checkpoint.safe_load import refuse_old_torch, safe_load
from runnerkit.utils.logging import printable
from runnerkit.utils.small_files import open_regular

BLOCK = 1 << 20

#: Of the state under ``'runnerkit'``, with which a run goes on; that of older formats is converted.
STATE_FORMAT = 2

#: No run makes more: a million iterations per second for three years are 10 ** 14.
_MOST_ITERATIONS = 10**15

#: The parts of a zip archive that are read; times, versions and comments are skipped.
_LOCAL_HEADER = struct.Struct('<4s2xHH4xLLLHH')
_ENTRY = struct.Struct('<4s4xHH4xLLLHHHH2xLL')
_END = struct.Struct('<4sHHHHLLH')
_END_64 = struct.Struct('<4sQ4xLLQQQQ')
_LOCATOR_64 = struct.Struct('<4sLQL')

_SIZES_FOLLOW = 1 << 3  # checksum and sizes follow the data instead of being in the local header
_UTF8 = 1 << 11
_FOLDER = 0x10
_IN_EXTRA_FIELD = 0xFFFFFFFF  # the value needs more than 32 bits


class Damage(Exception):
    """What is wrong with a file."""


class _Record(NamedTuple):
    """A record's entry in the table of contents."""

    name: bytes
    flags: int
    crc: int
    size: int
    offset: int


def why_damaged(path: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint, a file or a folder, is corrupt; None if it is intact.

    `torch.save` stores a CRC-32 with every record, but `torch.load` does not check it, so a flipped bit would go
    unnoticed. Old files that are not zip archives have no checksums; they count as intact if torch can read them.
    """
    refuse_old_torch()
    if os.path.isdir(path):
        return why_folder_damaged(path)
    is_archive = False
    try:
        with open(open_regular(path), 'rb') as file:
            is_archive = check_records(file)
        # Torch must find everything that the pickle refers to. With mmap, the tensors are not read again.
        safe_load(os.fspath(path), mmap=is_archive)
    except Damage as damage:
        return printable(damage)
    except Exception as error:  # a corrupt file can fail in any way
        reason = f'{type(error).__name__}: {error}'
        if is_archive and 'Weights only' in reason:
            return None  # intact, but it holds objects that are loaded only if the user trusts them
        shown = printable(reason.partition('\n')[0], 200)
        is_no_pickle = not is_archive and not isinstance(error, OSError)
        return f'it is not a file of torch.save ({shown})' if is_no_pickle else shown
    return None


def training_state_problem(checkpoint: Any) -> str | None:
    """Why a run cannot resume from ``checkpoint``, the content of a file; None if it can.

    Whether the weights fit the model and the hooks still exist is checked by the runner that resumes.
    """
    if not isinstance(checkpoint, Mapping):
        return f'it holds a {type(checkpoint).__name__} instead of a dict'
    meta = checkpoint.get('meta')
    if not isinstance(meta, Mapping):
        return "it holds no training state (there is no dict 'meta')"
    if not isinstance(checkpoint.get('state_dict'), Mapping):
        return 'it holds no weights (state_dict)'
    for name in ('epoch', 'iter'):
        if name not in meta:
            return f'its meta does not say how far the run was ({name!r} is missing)'
        problem = _problem_of_count(meta[name])
        if problem is not None:
            return f'its counter {name!r} {problem}'
    if not isinstance(meta.get('hook_msgs', {}), Mapping):
        return "its meta's hook_msgs are no dict"
    state = checkpoint.get('runnerkit')
    if state is not None and not isinstance(state, Mapping):
        return "its state under 'runnerkit' is no dict"
    return None if state is None else _problem_of_format(state.get('format', 1))


def _problem_of_format(number: Any) -> str | None:
    if isinstance(number, int) and 1 <= number <= STATE_FORMAT:
        return None
    return (
        f'its state is of format {printable(number, 40)}, and this version of runnerkit reads those up to '
        f'{STATE_FORMAT}: resume with the version that saved it'
    )


def _problem_of_count(count: Any) -> str | None:
    """What is wrong with a number of epochs or iterations. MMCV's files may hold numpy integers."""
    try:
        number = operator.index(count)
    except TypeError:
        return f'is a {type(count).__name__}, not an integer'
    if isinstance(count, bool) or not 0 <= number <= _MOST_ITERATIONS:
        return f'is {printable(count, 40)}, which no run can have reached'
    return None


def check_records(file: IO[bytes]) -> bool:
    """Read every record of a zip archive and compare it with its own header and with the table of contents.

    A flipped bit in the table itself is not covered by the checksums: torch skips a record that is marked as a folder,
    and leaves its tensor uninitialised.

    Returns:
        Whether ``file`` is an archive. Other files are not checked.

    Raises:
        Damage: the parts contradict each other, or are not as torch.save writes them.
    """
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise Damage('it is empty')
    starts_well = _at(file, 0, 4) == b'PK\3\4'
    if size < _END.size or _at(file, size - _END.size, 4) != b'PK\5\6':
        if starts_well:
            raise Damage('its end is missing')
        return False
    if not starts_well:
        raise Damage('its beginning is not that of a file of torch.save')
    buffer = memoryview(bytearray(BLOCK))
    names, end = set(), 0
    start_of_table, table = _table_of_contents(file, size - _END.size)
    for record in table:
        shown = repr(record.name.decode('utf-8', 'backslashreplace'))
        start = _start_of_data(file, record, shown)
        # torch.load ignores the case of names.
        if record.offset < end or record.name.lower() in names:
            raise Damage(f'its record {shown} is there twice, or overlaps another one')
        names.add(record.name.lower())
        end = start + record.size
        if end > start_of_table:
            raise Damage(f'its record {shown} is cut off')
        if _checksum(file, start, record.size, buffer) != record.crc:
            raise Damage(f'the checksum of its record {shown} is wrong')
    return True


def _table_of_contents(file: IO[bytes], end: int) -> tuple[int, list[_Record]]:
    """The position and the entries of the table; ``end`` is the position of the archive's end record."""
    _, *numbers = _unpack(_END, file, end, b'PK\5\6')
    *small, comment = numbers
    if end >= _LOCATOR_64.size and _at(file, end - _LOCATOR_64.size, 4) == b'PK\6\7':
        _, disk, end_64, disks = _unpack(_LOCATOR_64, file, end - _LOCATOR_64.size, b'PK\6\7')
        _, rest, *large = _unpack(_END_64, file, end_64, b'PK\6\6')
        follows = end_64 + _END_64.size == end - _LOCATOR_64.size and rest == _END_64.size - 12
        most = [0xFFFF] * 4 + [_IN_EXTRA_FIELD] * 2
        agree = all(a in (b, limit) for a, b, limit in zip(small, large, most, strict=True))
        if disk or disks != 1 or not follows or not agree:
            raise Damage('its end records contradict each other')
        small, end = large, end_64
    disk, table_disk, here, count, size, start = small
    if disk or table_disk or comment or here != count or start + size != end:
        raise Damage('its end records do not fit its table of contents')
    table, at, records = memoryview(_at(file, start, size)), 0, []
    for _ in range(count):
        record, length = _entry(table[at:])
        records.append(record)
        at += length
    if at != size:
        raise Damage('the length of its table of contents is not what its end records say')
    return start, records


def _entry(table: memoryview) -> tuple[_Record, int]:
    """The first entry of ``table``, and its length in bytes."""
    if len(table) < _ENTRY.size:
        raise Damage('its table of contents is cut off')
    mark, flags, method, crc, packed, size, *lengths, disk, external, offset = _ENTRY.unpack_from(table)
    name_end = _ENTRY.size + lengths[0]
    name, extra = bytes(table[_ENTRY.size : name_end]), bytes(table[name_end : name_end + lengths[1]])
    if mark != b'PK\1\2' or disk or not name:
        raise Damage('its table of contents is damaged')
    shown = repr(name.decode('utf-8', 'backslashreplace'))
    if method != 0:
        raise Damage(f'its record {shown} is compressed, which torch.save never does')
    if flags & ~(_SIZES_FOLLOW | _UTF8) or external & _FOLDER or name.endswith(b'/'):
        raise Damage(f'its record {shown} is not marked as plain data')
    size, packed, offset = _with_extra([size, packed, offset], extra)
    if size != packed:
        raise Damage(f'its record {shown} has two sizes, {size} and {packed} bytes')
    return _Record(name, flags, crc, size, offset), _ENTRY.size + sum(lengths)


def _start_of_data(file: IO[bytes], record: _Record, shown: str) -> int:
    """The position of the data, according to the record's own header, which must agree with the table of contents."""
    _, flags, method, crc, packed, size, *lengths = _unpack(_LOCAL_HEADER, file, record.offset, b'PK\3\4')
    start = record.offset + _LOCAL_HEADER.size
    name, extra = _at(file, start, lengths[0]), _at(file, start + lengths[0], lengths[1])
    agrees = (name, flags, method) == (record.name, record.flags, 0)
    if not flags & _SIZES_FOLLOW:
        size, packed = _with_extra([size, packed], extra)
        agrees = agrees and (crc, packed, size) == (record.crc, record.size, record.size)
    if not agrees:
        raise Damage(f'its record {shown} and its table of contents contradict each other')
    return start + sum(lengths)


def _with_extra(numbers: list[int], extra: bytes) -> list[int]:
    """``numbers``, with those that need 64 bits replaced from the extra field, which has them in the same order."""
    if _IN_EXTRA_FIELD not in numbers:
        return numbers
    while len(extra) >= 4:
        kind, length = struct.unpack_from('<HH', extra)
        if kind == 1:
            large = iter(struct.unpack_from(f'<{length // 8}Q', extra[: 4 + length].ljust(4 + length, b'\0'), 4))
            return [next(large, number) if number == _IN_EXTRA_FIELD else number for number in numbers]
        extra = extra[4 + length :]
    return numbers


def _checksum(file: IO[bytes], start: int, size: int, buffer: memoryview) -> int:
    crc = 0
    file.seek(start)
    while size > 0:
        count = file.readinto(buffer[: min(size, len(buffer))])  # type: ignore[attr-defined]
        if not count:
            raise Damage('it is cut off')
        crc = zlib.crc32(buffer[:count], crc)
        size -= count
    return crc


def _unpack(form: struct.Struct, file: IO[bytes], position: int, mark: bytes) -> tuple[Any, ...]:
    found = form.unpack(_at(file, position, form.size))
    if found[0] != mark:
        raise Damage(f'there should be a header at byte {position}')
    return found


def _at(file: IO[bytes], position: int, size: int) -> bytes:
    file.seek(position)
    data = file.read(size)
    if len(data) < size:
        raise Damage('it is cut off')
    return data
