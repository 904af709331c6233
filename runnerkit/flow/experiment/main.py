"""The command line of an experiment, with Parakeet's flags."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from torch import multiprocessing

from runnerkit.config import Config
from runnerkit.config.action import parse_value
from runnerkit.config.merge import merge
from runnerkit.distributed import shutdown
from runnerkit.flow.experiment.experiment import Experiment
from runnerkit.flow.experiment.setup import KNOWN_KEYS, TRAINING_KEYS, experiment_config
from runnerkit.utils.ending import DIVERGED, SIGNALLED, code_of
from runnerkit.utils.suggest import suggestion


def parser(prog: str | None = None) -> argparse.ArgumentParser:
    """A parser with the flags that an experiment reads; add your own to it."""
    parse = argparse.ArgumentParser(prog=prog, allow_abbrev=False)
    parse.add_argument('--config', metavar='FILE', help='a config file (.py, .yaml or .json), over the default config')
    parse.add_argument('--data', metavar='DIR', help='where the data set is')
    parse.add_argument('--output', metavar='DIR', help='where logs and checkpoints go (default: work_dirs/<class>)')
    parse.add_argument(
        '--checkpoint_path', metavar='FILE', help='go on from this checkpoint (default: the newest one in --output)'
    )
    parse.add_argument('--device', help='cpu, gpu, cuda:1 … (default: a GPU if there is one)')
    parse.add_argument('--nprocs', type=int, default=1, help='how many processes train together (default: 1)')
    parse.add_argument(
        '--opts', nargs=argparse.REMAINDER, default=[], metavar='KEY VALUE', help='change values of the config'
    )
    return parse


def main(
    experiment: type[Experiment],
    argv: Sequence[str] | None = None,
    default_config: Mapping[str, Any] | None = None,
    parse: argparse.ArgumentParser | None = None,
) -> int:
    """Train an experiment from the command line: set it up, go on from its newest checkpoint if there is one, run.

    Args:
        experiment: the class.
        argv: the flags; by default the program's.
        default_config: what ``--config`` need not say.
        parse: a parser with more flags than those of `parser`.

    Returns:
        The exit code, see `runnerkit.utils.ending`. Errors are raised; a SystemExit never with a code of 0.
    """
    parse = parser() if parse is None else parse
    args = parse.parse_args(argv)
    if args.nprocs < 1:
        parse.error(f'--nprocs must be at least 1, but got {args.nprocs}')
    try:
        config = merged_config(default_config, args.config, args.opts)
    except (OSError, KeyError, TypeError, ValueError) as error:
        parse.error(str(error.args[0] if isinstance(error, KeyError) and error.args else error))
    if args.nprocs == 1 or 'WORLD_SIZE' in os.environ:
        return _train(experiment, config, args)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            _process, (experiment, config, args, folder), nprocs=args.nprocs, start_method='spawn'
        )
    return 0


def merged_config(default: Mapping[str, Any] | None, file: str | None, opts: Sequence[str]) -> Config:
    """The default config with those of ``file`` and then ``opts``, ``KEY VALUE …``, merged in."""
    found = experiment_config(default)
    if file is not None:
        found = experiment_config(Config(merge(Config.fromfile(file)._cfg_dict, found._cfg_dict)))
    if len(opts) % 2:
        raise ValueError(f'--opts takes pairs, KEY VALUE KEY VALUE …, but {opts[-1]!r} has no value')
    for key, text in zip(opts[::2], opts[1::2], strict=True):
        is_read = key in (*KNOWN_KEYS, *(f'training.{each}' for each in TRAINING_KEYS))
        node: Any = found
        for last in key.split('.'):
            holder, keys = node, [*map(str, node)] if isinstance(node, (Mapping, Config)) else []
            if last not in keys and not is_read:
                hint = suggestion(last, [*keys, *KNOWN_KEYS])
                raise KeyError(f'--opts {key}: the config has no {last!r} there{hint}')
            node = holder[last] if last in keys else None
        value = parse_value(text)
        if isinstance(node, float) and type(value) is int:
            value = float(value)
        if node is not None and value is not None and type(value) is not type(node):
            raise TypeError(f'--opts {key}: {text!r} is a {type(value).__name__}, but the config has {node!r}')
        holder[last] = value
    return experiment_config(found)


def _train(experiment: type[Experiment], config: Config, args: argparse.Namespace) -> int:
    made = experiment(config, args)
    try:
        made.setup()
        made.resume_or_load()
        made.run()
    except SystemExit as error:
        if not isinstance(error.code, str):
            error.code = code_of(error)  # never 0
        raise
    finally:
        made.close()
    if made.stop_signal is not None:
        return SIGNALLED + made.stop_signal
    return DIVERGED if made.outcome is not None and made.outcome.kind == 'diverged' else 0


def _process(rank: int, experiment: type[Experiment], config: Config, args: argparse.Namespace, folder: str) -> None:
    """One of several processes, which meet through a file."""
    from runnerkit.distributed import init_dist

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(args.nprocs))
    init_dist('pytorch', init_method=f'file://{folder}/meet', rank=rank, world_size=args.nprocs)
    try:
        _train(experiment, config, args)
    finally:
        shutdown()
