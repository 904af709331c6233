"""Checks whether a checkpoint file is intact, whether a run can resume from it, and whether MMCV wrote it."""

from __future__ import annotations

import ast
import operator
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from types import UnionType
from typing import IO, Any, NamedTuple

from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.small_files import open_regular

BLOCK = 1 << 18  # what is read at once: it stays in the processor's cache until its checksum is known

#: Of the state under ``'runnerkit'``, with which a run resumes.
STATE_FORMAT = 2

#: No run makes more: a million iterations per second for three years are 10 ** 14.
_MOST_ITERATIONS = 10**15

_END = 22  # bytes of an archive's end record, which torch writes without a comment
_UTF_8 = 1 << 11
_PLAIN_FLAGS = 1 << 3 | _UTF_8  # sizes follow the data; names in UTF-8
_FOLDER = 0x10


class Damage(Exception):
    """What is wrong with a file."""


def why_damaged(path: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint, a file or a folder, is corrupt; None if it is intact.

    `torch.save` stores a CRC-32 with every record, but `torch.load` does not check it, so a flipped bit would go
    unnoticed. Old files that are not zip archives have no checksums; they count as intact if torch can read them.
    """
    if os.path.isdir(path):
        from runnerkit.checkpoint.manifest import why_folder_damaged

        return why_folder_damaged(path)
    from runnerkit.checkpoint.safe_load import safe_load  # imports torch, which `misfit` does without

    is_archive = False
    try:
        is_archive = check_file(path)
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


def check_file(path: str | os.PathLike[str]) -> bool:
    """`check_records` of the file at ``path``."""
    with open(open_regular(path), 'rb') as file:
        return check_records(file)


NUMBER = float | int


class OrNone(NamedTuple):
    """The kind of what may also be None, see `misfit`."""

    kind: Any


#: The kinds of values under ``'runnerkit'``, see `misfit`.
_STATE: dict[Any, Any] = {
    'world_size': int,
    'progress': {'samples': int | None, ...: int},
    'conditions': {'workflow': [[str | int]], 'optimizer': {...: str}},
    'settings': {
        'groups': {...: [{'parameters': [str]}]},
        'hooks': {...: dict},
        'schedules': {...: [list]},
    },
    'gradient_orders': dict,
    'scores': {...: [NUMBER]},
    'ranks': [
        {
            'rng': dict,
            'log_buffer': {'lengths': {...: int}, 'output': dict, 'window': int},
            'hooks': dict,
            'buffers': dict,
            'updates': {...: {'accumulated': int, 'cumulative_iters': int}},
            'readers': [
                OrNone({'about': {'batches': int | None}, 'epoch': int, 'batches': int, 'samples': int | None})
            ],
            'evaluations': [dict | None],
        }
    ],
}


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
    messages = meta.get('hook_msgs', {})
    if not isinstance(messages, Mapping):
        return "its meta's hook_msgs are no dict"
    if not isinstance(plain_number(messages.get('best_score', 0.0)), Real):
        return 'its best score is no number'
    state = checkpoint.get('runnerkit')
    if state is not None and not isinstance(state, Mapping):
        return "its state under 'runnerkit' is no dict"
    if state is None:
        return None
    if (number := state.get('format', STATE_FORMAT)) != STATE_FORMAT:
        return (
            f'its state is of format {printable(number, 40)}, and this version of runnerkit reads format '
            f'{STATE_FORMAT}: resume with the version that saved it'
        )
    return misfit(state, _STATE)


def misfit(value: Any, kind: Any, place: str = "its state under 'runnerkit'") -> str | None:
    """Where the first value in ``value`` is that is not of its ``kind``; None if there is none.

    A kind is a type, where ``int`` is a count; a dict of kinds by key, ``...`` for all keys that are not named; a list
    with the kind of all entries; a tuple with that of each; or an `OrNone`. What has no kind, or None, is not checked.
    """
    if isinstance(kind, OrNone):
        kind = None if value is None else kind.kind
    if kind is None:
        return None
    if isinstance(kind, Mapping) and isinstance(value, Mapping):
        pairs = ((each, kind.get(key, kind.get(...)), f'{place}[{key!r:.200}]') for key, each in value.items())
    elif isinstance(kind, list) and isinstance(value, list | tuple):
        pairs = ((each, kind[0], f'{place}[{number}]') for number, each in enumerate(value))
    elif isinstance(kind, tuple) and isinstance(value, list | tuple) and len(value) == len(kind):
        pairs = ((*each, f'{place}[{number}]') for number, each in enumerate(zip(value, kind, strict=True)))
    elif not isinstance(kind, type | UnionType) or not isinstance(value, kind):
        return f'{place} is a {type(value).__name__}, which no run saves there'
    else:
        problem = _problem_of_count(value) if type(value) is int and kind != NUMBER else None
        return problem and f'{place} {problem}'
    return next(filter(None, (misfit(*each) for each in pairs)), None)


@contextmanager
def reading(checkpoint: str | os.PathLike[str], purpose: str = 'resumed') -> Iterator[None]:
    """Raise a ValueError that names the checkpoint where values of other kinds than a run saves lead to an error."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(
            f'{os.fspath(checkpoint)} cannot be {purpose}: its content is not as a run saves it '
            f'({type(error).__name__}: {error})'
        ) from error


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
    """Read every record of a zip archive, compare it with its checksum, and check the table of contents.

    The checksums do not cover the table: torch skips a record that is marked as a folder, and leaves its tensor
    uninitialised.
    """
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise Damage('it is empty')
    starts_well = _read_at(file, 0, 4) == b'PK\3\4'
    if size < _END or _read_at(file, size - _END, 4) != b'PK\5\6':
        if starts_well:
            raise Damage('its end is missing')
        return False
    if not starts_well:
        raise Damage('its beginning is not that of a file of torch.save')
    try:
        with zipfile.ZipFile(file) as archive:
            _check_archive(archive, file)
    except (Damage, OSError):
        raise
    except Exception as error:  # a corrupt table can fail in any way
        raise Damage(f'its archive is damaged: {error or type(error).__name__}') from error
    return True


def _check_archive(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    names: set[str] = set()
    end, block = 0, memoryview(bytearray(BLOCK))
    for record in archive.infolist():
        shown = repr(record.filename)
        if record.compress_type != zipfile.ZIP_STORED:
            raise Damage(f'its record {shown} is compressed, which torch.save never does')
        is_plain = not record.flag_bits & ~_PLAIN_FLAGS and not record.external_attr & _FOLDER and not record.is_dir()
        if not is_plain or record.volume:
            raise Damage(f'its record {shown} is not marked as plain data')
        if record.file_size != record.compress_size:
            raise Damage(f'its record {shown} has two sizes, {record.file_size} and {record.compress_size} bytes')
        # torch.load ignores the case of names.
        if record.header_offset < end or record.filename.lower() in names:
            raise Damage(f'its record {shown} is there twice, or overlaps another one')
        names.add(record.filename.lower())
        header = _read_at(file, record.header_offset, 30)
        lengths = struct.unpack_from('<HH', header, 26)  # of its name and its extra field
        start = record.header_offset + 30 + sum(lengths)
        end = start + record.file_size
        if end > archive.start_dir:
            raise Damage(f'its record {shown} is cut off')
        name = _read_at(file, record.header_offset + 30, lengths[0])
        encoding = 'utf-8' if record.flag_bits & _UTF_8 else 'cp437'
        if header[:4] != b'PK\3\4' or name != record.orig_filename.encode(encoding):
            raise Damage(f'its record {shown} and its table of contents contradict each other')
        if _checksum(file, start, record.file_size, block) != record.CRC:
            raise Damage(f'the checksum of its record {shown} is wrong')


def _checksum(file: IO[bytes], start: int, size: int, block: memoryview) -> int:
    file.seek(start)
    checksum = 0
    while size:
        read = file.readinto(block[:size])  # type: ignore[attr-defined]
        if not read:
            raise Damage('it is cut off')
        checksum, size = zlib.crc32(block[:read], checksum), size - read
    return checksum


def _read_at(file: IO[bytes], position: int, size: int) -> bytes:
    file.seek(position)
    data = file.read(size)
    if len(data) < size:
        raise Damage('it is cut off')
    return data


def is_mmcv_file(checkpoint: Mapping[str, Any]) -> bool:
    """Whether MMCV wrote ``checkpoint``: there, iteration counts and averaged weights mean something else."""
    meta = checkpoint.get('meta')
    return not (isinstance(meta, Mapping) and 'runnerkit_version' in meta)


def gpus_of_run(meta: Mapping[str, Any]) -> int:
    """How many GPUs an MMCV run used, from ``gpu_ids`` in its config's text, which is not executed; 0 if unknown."""
    found = re.search(r'^gpu_ids = (.+)$', str(meta.get('config', '')), flags=re.MULTILINE)
    if not found:
        return 0
    text = found[1].strip()
    counted = re.fullmatch(r'range\((?:0, ?)?(\d+)\)', text)
    try:
        return int(counted[1]) if counted else len(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return 0
