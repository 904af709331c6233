"""``tools/train.py cfg.py``: train the model of a config."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from argparse import Namespace
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from typing import Any

from runnerkit.cli.arguments import argument, count, flag
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.config import Config, refuse_unread_keys
from runnerkit.config.config import import_modules_of
from runnerkit.config.keys import resolve_synonyms
from runnerkit.config.parse import EXTENSIONS
from runnerkit.config.readers import Run, read_runs
from runnerkit.utils.ending import DIVERGED, SIGNALLED, UsageError, ignoring_repeated_signals
from runnerkit.utils.suggest import suggestion

#: The last line of a run whose weights are not finite; the log has the rest.
_AFTER_DIVERGENCE = (
    'error: the weights are NaN or infinite: train with a smaller learning rate, or clip gradients '
    '(optimizer_config.grad_clip.max_norm=…), from the checkpoint that THE RUN HAS DIVERGED above names'
)


@command_line(
    'runnerkit train',
    'Train the model of a config file.',
    *('config', '--cfg-options', '--launcher', '--trust-pickles', '--local-rank', '--gpu-id', '--device'),
    argument('--work-dir', help="where logs and checkpoints go (default: the config's, else work_dirs/<config>)"),
    argument('--resume-from', metavar='CKPT', help='resume the run of this checkpoint or work dir'),
    argument('--load-from', metavar='CKPT', help='start a new run from the weights of this checkpoint or work dir'),
    flag('--auto-resume', 'resume from the newest usable checkpoint of the work dir, if any'),
    argument(
        '--if-used',
        choices=['resume', 'aside', 'refuse'],
        help='if the work dir has an earlier run: resume it (as --auto-resume), rename its folder to '
        '<work dir>.1, .2 … (the default), or refuse to start',
    ),
    argument('--gpus', type=int, metavar='N', help='1; for more GPUs, start more processes'),
    argument('--gpu-ids', type=int, nargs='+', metavar='N', help='one number, as --gpu-id'),
    argument('--no-validate', dest='validate', action='store_false', help='do not evaluate while training'),
    argument('--seed', help='the random seed (default: from the config, else from the resumed run, else random)'),
    flag('--diff-seed', 'use another seed in each process, e.g. for dropout'),
    flag('--deterministic', 'use deterministic algorithms only'),
    flag('--auto-scale-lr', 'scale the learning rate with the batch size'),
    flag('--dry-run', 'build and show everything, run one iteration of each mode, keep nothing'),
    argument(
        '--overfit',
        type=count,
        metavar='N',
        help='train and evaluate on the first N training samples, to check that the model can learn them',
    ),
    argument(
        '--stop-after',
        type=count,
        metavar='N',
        help='end after N epochs (iteration runner: iterations); schedules keep the length of the whole run',
    ),
    flag('--verbose', 'also show environment, config and hooks'),
)
def main(args: Namespace) -> int:
    """Train, see `runnerkit.utils.ending`."""
    if args.auto_resume and args.if_used not in (None, 'resume'):
        raise UsageError(f'--auto-resume and --if-used {args.if_used} contradict each other: give one of them')
    if args.launcher != 'none' and args.local_rank is not None:
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    # Else a program has called this function, and its garbage is its own.
    is_command = 'torch' not in sys.modules and not gc.get_freeze_count()
    use_gpus(args)
    runs = load_runs(args.config, args.cfg_options)
    if args.work_dir and len(runs) > 1:
        raise UsageError(
            f'--work-dir is one folder, but the config has {len(runs)} runs: set save_checkpoint_path there'
        )
    try:
        with nothing_collected() if is_command else nullcontext():
            # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
            from runnerkit.checkpoint import trusted_pickles
            from runnerkit.flow import Flow, Options

        hooks = []
        if os.environ.get('RUNNERKIT_TRACE_START'):
            from runnerkit.flow.look.trace import TraceHook, tell

            tell('torch is loaded')
            atexit.register(tell, 'exit')
            hooks = [(TraceHook(), 'LOWEST')]
        flows = []
        for run in runs:  # all stages are imported before the first run begins
            options = Options(**{option.name: getattr(args, option.name) for option in fields(Options)})
            options.device = options.device or run.device
            flows.append(Flow(run.cfg, options, name=run.name, hooks=hooks, guard=guarded))
        code = 0
        while flows and code == 0:
            with trusted_pickles(args.trust_pickles):
                code = exit_code(flows.pop(0).run())  # nothing holds what it has built
        return code
    finally:
        if is_command:
            gc.unfreeze()  # at its exit, Python finalizes only what the collector visits


def exit_code(context: Any) -> int:
    """The exit code of a run that no error has ended, see `runnerkit.utils.ending`."""
    number = stopped_by(context.runner)
    if number is not None:
        return SIGNALLED + number
    if context.outcome is not None and context.outcome.kind == 'diverged':
        if context.rank == 0:
            print(_AFTER_DIVERGENCE, file=sys.stderr)
        return DIVERGED
    return 0


def use_gpus(args: argparse.Namespace) -> None:
    """Read ``--gpus`` and ``--gpu-ids`` of MMCV's tools, which have no effect with a launcher."""
    asked = {'--gpus': args.gpus, '--gpu-ids': args.gpu_ids and len(args.gpu_ids)}
    for name, number in asked.items():
        if number is None:
            continue
        if args.launcher != 'none':
            print(f'{name} has no effect with --launcher {args.launcher}: each process uses one GPU')
        elif number == 1:
            args.gpu_id = args.gpu_ids[0] if args.gpu_ids else args.gpu_id
            print(f'{name}: this process uses one GPU, if there is one: --gpu-id {args.gpu_id}')
        else:
            devices = f'CUDA_VISIBLE_DEVICES={",".join(map(str, args.gpu_ids))} ' if name == '--gpu-ids' else ''
            raise UsageError(
                f'{name} asks for {number} GPUs, but each process uses one: start that many processes: '
                f'{devices}torchrun --nproc_per_node {number} … --launcher pytorch'
            )


@contextmanager
def nothing_collected() -> Iterator[None]:
    """A context for importing torch, which leaves no garbage: a tenth of its time would go into looking for it. Until
    `gc.unfreeze`, the collector does not visit what is there, which stays, and takes 0.1 s each time."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
        gc.freeze()


def guarded(context: Any) -> AbstractContextManager[None]:
    """A context in which repeated signals are ignored, once one has stopped the run."""
    return ignoring_repeated_signals(lambda: stopped_by(context.runner) is not None)


def stopped_by(runner: Any) -> int | None:
    """The signal that stopped the run; None if it ended otherwise, or has not ended."""
    outcome = None if runner is None else runner.outcome
    if outcome is None or outcome.kind not in ('stopped', 'diverged') or outcome.reason is None:
        return None
    number: int | None = runner.stop_signal
    return number


def load_config(filename: str, overrides: dict[str, Any] | None = None, sections: Collection[str] | None = None) -> Any:
    """The config with ``--cfg-options`` merged in; of a config with several runs, that of the first one."""
    return load_runs(filename, overrides, sections)[0].cfg


def load_runs(
    filename: str, overrides: dict[str, Any] | None = None, sections: Collection[str] | None = None
) -> list[Run]:
    """The runs of a config: one, or in another system's shape, as many as its reader finds."""
    cfg = read_config_with_options(filename, overrides)
    with wrong_usage(KeyError, TypeError, ValueError, of=f'{filename}: '):
        runs = read_runs(cfg)
    for run in runs:
        refuse_unread_keys(run.cfg, sections)
    with wrong_usage(TypeError):
        import_modules_of(cfg._cfg_dict)  # only now, since most of them import torch
    return runs


def read_config_with_options(filename: str, overrides: dict[str, Any] | None = None) -> Config:
    """The config in a file with ``--cfg-options`` merged in; its ``custom_imports`` are not imported."""
    if not os.path.exists(filename):
        folder = os.path.dirname(filename) or '.'
        files = [name for name in os.listdir(folder) if name.endswith(EXTENSIONS)] if os.path.isdir(folder) else []
        raise UsageError(f'no such config file: {filename}{suggestion(os.path.basename(filename), files)}')
    with wrong_usage(Exception):
        cfg = Config.fromfile(filename, import_custom_modules=False)
    with wrong_usage(KeyError, TypeError, IndexError, ValueError, of=f'--cfg-options does not fit {filename}: '):
        cfg.merge_from_dict(resolve_synonyms(cfg._cfg_dict, overrides or {}))
    return cfg
