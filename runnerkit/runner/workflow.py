"""Checks of a workflow, and its lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from runnerkit.data.kinds import is_empty, is_unbounded, length_of, order_of
from runnerkit.distributed.groups import get_dist_info
from runnerkit.parallel import unwrap
from runnerkit.parallel.steps import steps_of_modes
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import suggestion
from runnerkit.utils.user_files import is_ours

#: Pairs of a mode and how many units of it.
Workflow = Sequence[tuple[str, int]]


def check_workflow(data_loaders: Any, workflow: Any, runner: Any) -> None:
    """Check that ``workflow`` is a list of (mode, n) with a non-empty loader for each."""
    if not isinstance(data_loaders, (list, tuple)):
        raise WrongType(
            f'data_loaders must be a list of loaders, one for each workflow entry, but got {type(data_loaders)}'
        )
    check_entries(workflow)
    if len(data_loaders) != len(workflow):
        raise WrongValue(
            f'workflow has {len(workflow)} entries, but there are {len(data_loaders)} data loaders: give one for each'
        )
    for loader, entry in zip(data_loaders, workflow, strict=True):
        unit_of(runner, entry[0])
        check_train_step(runner, entry)
        if is_unbounded(loader):
            check_stream(runner, entry)
        if is_empty(loader):
            raise WrongValue(
                f'the data loader of the workflow entry {tuple(entry)} is empty: its data set has no samples (or, '
                'with drop_last, less than one batch)'
            )
        check_shares(runner, entry, loader)


def agree_on_lengths(data_loaders: Sequence[Any], workflow: Workflow, runner: Any) -> None:
    """Give all ranks the same lengths of the training loaders, by one collective per loader. Warn about loaders that
    yield the same samples on all ranks.
    """
    if get_dist_info()[1] == 1:
        return
    from runnerkit.data.shares import agree_on_length, warn_if_sampler_not_sharded

    for loader, entry in zip(data_loaders, workflow, strict=True):
        if trains(entry[0], runner):
            agree_on_length(loader, entry)
            warn_if_sampler_not_sharded(loader)


def check_shares(runner: Any, entry: Any, loader: Any) -> None:
    """Check that every rank has samples to validate on, where all ranks make equally many steps."""
    order = order_of(loader)
    if runner.by_epoch or order is None or trains(entry[0], runner) or order.sampler.round_up:
        return
    samples, ranks = order.sampler.end, order.sampler.world_size
    if samples < ranks:
        raise WrongValue(
            f'the workflow entry {tuple(entry)} validates on {samples} samples, fewer than the {ranks} ranks, but '
            'an iteration runner needs batches for each: replace the entry by evaluation=dict(interval=…), or '
            'use fewer ranks'
        )


def check_train_step(runner: Any, entry: Any) -> None:
    """Check that the model has the step that ``entry`` calls, unless user code replaces that call."""
    model = unwrap(runner.model)
    is_own_step = runner.batch_processor is not None or not is_ours(type(runner).run_iter.__module__)
    if entry[0] != 'train' or is_own_step or hasattr(model, 'train_step'):
        return
    steps = steps_of_modes(model)
    if steps:
        modes = ', '.join(f"('{step.removesuffix('_step')}', 1)" for step in steps)
        raise WrongValue(
            f'the workflow entry {tuple(entry)} calls train_step, but {type(model).__name__} has only '
            f'{", ".join(steps)}: write workflow = [{modes}], or a train_step'
        )


def check_stream(runner: Any, entry: Any) -> None:
    """Check that the workflow entry ``entry`` can read a stream."""
    if runner.by_epoch:
        raise WrongValue(
            f'the workflow entry {tuple(entry)} reads a stream, which has no epochs: use an iteration runner, '
            "runner=dict(type='IterBasedRunner', max_iters=1000000); the run ends with the stream"
        )
    if not trains(entry[0], runner):
        raise WrongValue(
            f'the workflow entry {tuple(entry)} validates on a stream, whose events can be read only once: '
            'validate on a separate data set'
        )


def check_entries(workflow: Any) -> None:
    """Check that ``workflow`` is a list of (mode, n)."""
    if not isinstance(workflow, (list, tuple)) or not all(isinstance(entry, (list, tuple)) for entry in workflow):
        raise WrongType(f"workflow must be a list of (mode, n), such as [('train', 1)], but got {workflow!r}")
    for entry in workflow:
        if len(entry) != 2:
            raise WrongValue(f"a workflow entry is (mode, n), such as ('train', 1), but got {entry!r}")
        mode, n = entry
        if not isinstance(mode, str):
            raise WrongType(f'mode in workflow must be a str, but got {type(mode)}')
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise WrongValue(f'the number in the workflow entry {tuple(entry)} must be a whole number of at least 1')


def trains(mode: str, runner: Any) -> bool:
    """Whether ``mode`` trains: ``'train'``, and modes that are steps of the model and not methods of the runner."""
    return mode == 'train' or not callable(getattr(runner, mode, None))


def unit_of(runner: Any, mode: str) -> Callable[..., Any]:
    """The runner's method ``mode``, or its train loop with ``model.<mode>_step``."""
    method = getattr(runner, mode, None)
    # Methods of our runners such as ``run`` and ``save_checkpoint`` are no modes.
    module = getattr(method, '__module__', None) or ''
    is_mode = mode in ('train', 'val') or not module.startswith(('runnerkit.runner.', 'runnerkit.hooks.'))
    if callable(method) and not mode.startswith('_') and is_mode:
        return method
    if hasattr(runner.model, f'{mode}_step'):
        return partial(runner.train, mode=mode)
    inner = unwrap(runner.model)
    model, steps = type(inner).__name__, (name for name in dir(inner) if name.endswith('_step'))
    hint = suggestion(mode, ['train', 'val', *(name.removesuffix('_step') for name in steps)])
    raise ValueError(
        f'runner has no method named "{mode}" to run an epoch, and {model} has no {mode}_step; modes are train, '
        f'val, and methods of the runner or the model{hint}'
    )


def iters_in(epochs: int | None, loader: Any) -> int | None:
    """How many iterations ``epochs`` passes over ``loader`` take; None if unknown."""
    length = length_of(loader)
    return None if length is None or epochs is None else epochs * length


def epochs_in(iters: int | None, loader: Any) -> int | None:
    """How many passes over ``loader`` begin within ``iters`` iterations; None if unknown."""
    length = length_of(loader)
    return None if not length or iters is None else math.ceil(iters / length)


def first_training_loader(data_loaders: Sequence[Any], workflow: Sequence[Any], runner: Any) -> Any:
    """The loader of the first entry that trains, or None."""
    pairs = zip(data_loaders, workflow, strict=True)
    return next((loader for loader, (mode, _) in pairs if trains(mode, runner)), None)
