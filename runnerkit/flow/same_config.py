"""Ranks that were started with different configs: they would train different models, or wait for ever."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from runnerkit.config.known_keys import TOP
from runnerkit.distributed import all_gather_objects, reduce_extremes
from runnerkit.distributed.info import ranks_in_words
from runnerkit.flow.context import Context
from runnerkit.utils.exceptions import ToldByFirstRank, WrongValue

#: What each rank may have of its own: rank 0's counts for the first two, the others are of a process.
OWN = ('seed', 'work_dir', 'dist_params', 'device', 'gpu_id', 'verbose')

#: Texts that say what is built or done. Others may be paths, which differ from machine to machine.
_MEANT = ('type', 'policy', 'mode')

_MISSING = 'not there'


def check_same_config(context: Context) -> None:
    """Refuse ranks whose configs or flags differ, and warn where only texts do. A collective.

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
        raise ToldByFirstRank('the ranks have different configs, as rank 0 says')
    if wrong:
        raise WrongValue(f'the ranks have different configs: {"; ".join(wrong)}. {way_out}')
    if odd and context.rank == 0:
        context.logger.warning(
            'the ranks have different configs: %s. If these are no places of each machine: %s', '; '.join(odd), way_out
        )


def values_of(context: Context) -> Iterator[tuple[str, str]]:
    """The plain values of the config and of the flags, as Python writes them, by key."""
    for key, value in context.cfg.items():
        if key in TOP and key not in OWN:
            yield from _leaves(key, value)
    for option in fields(context.options):
        if option.name not in OWN:
            yield f'--{option.name.replace("_", "-")}', _shown(getattr(context.options, option.name))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaves(f'{key}.{name}', each)
    elif isinstance(value, (list, tuple)) and value:
        for number, each in enumerate(value):
            yield from _leaves(f'{key}[{number}]', each)
    else:
        yield key, _shown(value)


def _shown(value: Any) -> str:
    """A plain value as it is written; of another one its class, since its text may hold an address."""
    plain = value is None or isinstance(value, (bool, int, float, str, list, tuple, Mapping))
    return repr(value) if plain else f'a {type(value).__name__}'


def differences(by_rank: Sequence[Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """What differs between the ranks: what may not, and texts.

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
            may_differ = all(value[0] in '\'"' for value in ranks) and key.rpartition('.')[2] not in _MEANT
            (odd if may_differ else wrong).append(f'{key} is {told}')
    return wrong, odd
