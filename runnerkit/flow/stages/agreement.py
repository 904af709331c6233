"""Checks at the start that all ranks have the same config, flags and work dir."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from runnerkit.config.known_keys import TOP
from runnerkit.config.origin import dotted
from runnerkit.distributed import all_gather_objects, reduce_extremes
from runnerkit.distributed.info import ranks_in_words
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.stages.wrapping import wrapper_of
from runnerkit.utils.exceptions import ToldByFirstRank, WrongValue
from runnerkit.utils.nested import values_in

#: What may differ between the ranks: rank 0's counts for the first two, the others belong to a process.
OWN = ('seed', 'work_dir', 'dist_params', 'device', 'gpu_id', 'verbose')

#: Texts that say what is built or done. Others may be paths, which differ from machine to machine.
_MEANT = ('type', 'policy', 'mode')

#: The arguments of a data set: each rank may take another share (``rank=int(os.environ['RANK'])``).
_SHARES = re.compile(r'data\.[^.]+\.')

_MISSING = 'not there'

#: Seconds within which a network file system shows a new file to other machines.
_PATIENCE = 20.0


def check_same_config(context: Context) -> None:
    """Refuse ranks whose configs or flags differ; warn where only texts and data sets' arguments do. A collective.

    Raises:
        ValueError: on rank 0: values differ.
        ToldByFirstRank: on the others.
    """
    mine = dict(values_of(context))
    known = zlib.crc32(repr(sorted(mine.items())).encode())
    lowest, highest = reduce_extremes(known)
    if lowest == highest:
        return
    wrong, odd = differences(all_gather_objects(mine))
    way_out = 'Start all ranks with the same config file, --cfg-options and flags'
    if wrong and context.rank > 0:
        raise ToldByFirstRank('the ranks have different configs; see the error of rank 0')
    if wrong:
        raise WrongValue(f'the ranks have different configs: {"; ".join(wrong)}. {way_out}')
    if odd and context.rank == 0:
        context.logger.warning(
            'the ranks have different configs: %s. If these are not the places or shares of each rank: %s',
            '; '.join(odd),
            way_out,
        )


def values_of(context: Context) -> Iterator[tuple[str, str]]:
    """The plain values of the config and of the flags, as Python writes them, by key."""
    for key, value in context.cfg.items():
        if key in TOP and key not in OWN:
            yield from ((dotted(path), _shown(each)) for path, each in values_in(value, (key,)))
    for option in fields(context.options):
        if option.name not in OWN:
            yield f'--{option.name.replace("_", "-")}', _shown(getattr(context.options, option.name))


def _shown(value: Any) -> str:
    """A plain value as it is written; of another one its class, since its text may hold an address."""
    plain = value is None or isinstance(value, (bool, int, float, str, list, tuple, Mapping))
    return repr(value) if plain else f'a {type(value).__name__}'


def differences(by_rank: Sequence[Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """What differs between the ranks: what may not, and what may (texts, and arguments of data sets).

    Args:
        by_rank: what `values_of` gives, for each rank.

    Returns:
        Two lists of texts, one text for each key: ``optimizer.lr is 0.1 on rank 0, 0.2 on rank 1``.
    """
    wrong: list[str] = []
    odd: list[str] = []
    for key in dict.fromkeys(key for values in by_rank for key in values):
        ranks: dict[str, list[int]] = {}
        for rank, values in enumerate(by_rank):
            ranks.setdefault(values.get(key, _MISSING), []).append(rank)
        if len(ranks) > 1:
            told = ', '.join(f'{value} on {ranks_in_words(having)}' for value, having in ranks.items())
            may_differ = _SHARES.match(key) is not None or all(value[0] in '\'"' for value in ranks)
            (odd if may_differ and key.rpartition('.')[2] not in _MEANT else wrong).append(f'{key} is {told}')
    return wrong, odd


def same_place(work_dir: str, context: Context) -> str:
    """Rank 0's work dir. A config that puts the time into the name gives each rank another one. A collective."""
    first, *others = all_gather_objects(work_dir)
    differ = [rank for rank, other in enumerate(others, 1) if other != first]
    if differ and context.rank == 0:
        context.logger.warning(
            'the work dir is %s here and %s on %s: all ranks use the first one. To choose another, use --work-dir',
            shown(first),
            shown(others[differ[0] - 1]),
            ranks_in_words(differ),
        )
    return first


def check_shared(context: Context, file: Path) -> None:
    """Check that the work dir is the same one on all machines. A collective.

    Under FSDP2 all ranks write checkpoints there, else they read one when the run is resumed. With an ``out_dir``,
    checkpoints are elsewhere.

    Args:
        context: of the run.
        file: in the work dir, of a new name, which rank 0 has written.

    Raises:
        FileNotFoundError: on rank 0: other ranks do not see it, and FSDP2 is used.
        ToldByFirstRank: on the others.
    """
    saving = context.cfg.get('checkpoint_config') or {}
    if context.world_size == 1 or saving.get('out_dir'):
        return
    # Rank 0 may have no log file, as a full disk does not stop a run.
    first, *others = all_gather_objects(file.exists() if context.rank == 0 else _appears(file))
    blind = [rank for rank, sees in enumerate(others, 1) if not sees]
    if not first or not blind:
        return
    is_refused, is_first = wrapper_of(context.cfg) == 'FSDP2', context.rank == 0
    if is_refused and not is_first:
        raise ToldByFirstRank('ranks do not see the work dir of rank 0; see the error of rank 0')
    found = f'{ranks_in_words(blind)} do{"es" * (len(blind) == 1)} not see the files of rank 0 in the work dir'
    way_out = 'Choose a folder that all machines share (--work-dir, or checkpoint_config.out_dir)'
    if is_refused:
        why = 'FSDP2 saves sharded checkpoints, to which all ranks write'
        raise FileNotFoundError(f'{found} {file.parent}: {why}. {way_out}')
    if is_first:
        context.logger.warning('%s %s: such a run cannot be resumed. %s', found, file.parent, way_out)


def _appears(file: Path) -> bool:
    end = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
