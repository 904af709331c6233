"""Checks at the start of several ranks: the same config, and one work dir. A single process imports none of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from runnerkit.config.known_keys import TOP
from runnerkit.distributed.collectives import broadcast_object, reduce_extremes, same_on_all_ranks
from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import wrapper_of
from runnerkit.utils.exceptions import ToldByFirstRank, WrongValue
from runnerkit.utils.numbers import values_in

#: What may differ between the ranks: rank 0's counts for the first two, the others belong to a process.
OWN = ('seed', 'work_dir', 'dist_params', 'device', 'gpu_id', 'verbose')

#: Strings that say what is built or done. Others may be paths, which differ from machine to machine.
_NAMES = ('type', 'policy', 'mode', 'amp')

#: Seconds within which a network file system shows a new file to other machines.
_PATIENCE = 20.0


def check_same_config(context: Context) -> None:
    """Refuse ranks whose configs or flags differ. A collective."""
    if same_on_all_ranks(sorted(common_settings(context))):
        return
    if context.rank > 0:
        raise ToldByFirstRank('the ranks have different configs or flags; see the error of rank 0')
    raise WrongValue(
        'the ranks have different configs or flags: start all of them with the same config file, --cfg-options and '
        f'flags. Compare what `runnerkit print-config {context.cfg.filename or "CONFIG"}` prints on each machine'
    )


def common_settings(context: Context) -> Iterator[str]:
    """The values that all ranks must have, each after its key: not strings that may be paths, nor arguments of data
    sets, of which each rank may take its share (``rank=int(os.environ['RANK'])``)."""
    config = {key: value for key, value in context.cfg.items() if key in TOP and key not in OWN}
    flags = {key: value for key, value in asdict(context.options).items() if key not in OWN}
    for path, value in values_in({'config': config, 'flags': flags}):
        may_differ = isinstance(value, str) or (path[1:2] == ('data',) and len(path) > 3)
        if not may_differ or path[-1] in _NAMES:
            is_plain = value is None or isinstance(value, (bool, int, float, str, list, tuple, Mapping))
            yield f'{path} {value if is_plain else type(value).__name__}'  # another one's text may hold an address


def check_shared(context: Context, file: Path) -> None:
    """Check that all ranks see the work dir of rank 0. A collective.

    Under FSDP2 all ranks write checkpoints there, else they read one when the run is resumed. With an ``out_dir``,
    checkpoints are elsewhere.
    """
    # Rank 0 may have no log file, as a full disk does not stop a run.
    if (context.cfg.get('checkpoint_config') or {}).get('out_dir') or not broadcast_object(file.exists()):
        return
    end = time.monotonic() + _PATIENCE
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    if not reduce_extremes(not file.exists())[1]:
        return
    problem = f'some ranks do not see the files of rank 0 in the work dir {file.parent}'
    way_out = 'Choose a folder that all machines share (--work-dir, or checkpoint_config.out_dir)'
    if wrapper_of(context.cfg) != 'FSDP2':
        context.logger.warning('%s: such a run cannot be resumed. %s', problem, way_out)
    elif context.rank > 0:
        raise ToldByFirstRank(f'{problem}; see the error of rank 0')
    else:
        raise FileNotFoundError(f'{problem}: FSDP2 saves sharded checkpoints, to which all ranks write. {way_out}')
