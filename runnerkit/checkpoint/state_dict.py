"""Weights in and out of a model: wrappers looked through, differences told."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from runnerkit.checkpoint.loader import _load_checkpoint
from runnerkit.parallel import unwrap

EMA_PREFIX = 'ema_'


def get_state_dict(
    module: nn.Module, destination: dict[str, Any] | None = None, prefix: str = '', keep_vars: bool = False
) -> dict[str, Any]:
    """The state dict of the module inside any wrappers, under clean names."""
    return unwrap(module).state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)  # type: ignore[arg-type]


def weights_to_cpu(state_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The same weights on the CPU; its ``_metadata`` is kept."""
    moved = OrderedDict(
        (name, value.cpu() if isinstance(value, Tensor) else value) for name, value in state_dict.items()
    )
    moved._metadata = getattr(state_dict, '_metadata', OrderedDict())  # type: ignore[attr-defined]
    return moved


def load_state_dict(
    module: nn.Module, state_dict: Mapping[str, Any], strict: bool = False, logger: logging.Logger | None = None
) -> None:
    """Load weights into the module inside any wrappers; what does not fit is left out and told.

    Args:
        module: the model.
        state_dict: weights by name.
        strict: raise on any difference instead of logging it.
        logger: where differences go; by default runnerkit's logger.

    Raises:
        RuntimeError: ``strict`` and there are differences.
    """
    inner = unwrap(module)
    own = inner.state_dict()
    wrong = {
        name: f'{name}: shape {tuple(value.shape)} in the file, {tuple(own[name].shape)} in the model'
        for name, value in state_dict.items()
        if name in own and getattr(value, 'shape', None) != getattr(own[name], 'shape', None)
    }
    problems = list(wrong.values())
    # All the rest goes through torch, so that modules which rename old keys see them.
    fitting = OrderedDict((name, value) for name, value in state_dict.items() if name not in wrong)
    fitting._metadata = getattr(state_dict, '_metadata', OrderedDict())  # type: ignore[attr-defined]
    answer = inner.load_state_dict(fitting, strict=False)
    twins = {ema_name(name) for name in state_dict}  # a running average's other half is not a weight of the model
    unexpected = [name for name in answer.unexpected_keys if name not in twins]
    missing = [name for name in answer.missing_keys if name not in wrong and not name.endswith('num_batches_tracked')]
    if problems:
        problems.insert(0, 'of another shape:')
    if unexpected:
        problems += ['unexpected key in source state_dict: ' + shortened(unexpected)]
    if missing:
        problems += ['missing keys in source state_dict: ' + shortened(missing)]
    if problems:
        text = 'The model and loaded state dict do not match exactly\n' + '\n'.join(problems)
        if strict:
            raise RuntimeError(text)
        (logger or logging.getLogger('runnerkit')).warning(text)


def load_checkpoint(
    model: nn.Module,
    filename: str,
    map_location: Any = None,
    strict: bool = False,
    logger: logging.Logger | None = None,
    revise_keys: Sequence[tuple[str, str]] = ((r'^module\.', ''),),
) -> Any:
    """Load a checkpoint's weights into ``model``.

    Args:
        model: a module, wrapped or not.
        filename: a path or URL.
        map_location: as in `torch.load`.
        strict: whether any difference between file and model is an error.
        logger: where differences go.
        revise_keys: pairs of a regular expression and its replacement, applied to the names in the file.

    Returns:
        The whole checkpoint.

    Raises:
        RuntimeError: the file holds no weights, or, if ``strict``, other ones than the model has.
        ValueError: not one name or shape of the file fits the model: it is a checkpoint of another model.
    """
    checkpoint = _load_checkpoint(filename, map_location, logger)
    if not isinstance(checkpoint, Mapping):
        raise RuntimeError(f'No state_dict found in checkpoint file {filename}: it holds a {type(checkpoint).__name__}')
    state = revised(checkpoint.get('state_dict', checkpoint), revise_keys)
    check_same_model(model, state, filename)
    load_state_dict(model, state, strict, logger)
    return checkpoint


def revised(state: Mapping[str, Any], revise_keys: Iterable[tuple[str, str]]) -> OrderedDict[str, Any]:
    """``state`` with each pair's regular expression replaced in its names; its ``_metadata`` is kept."""
    renamed = OrderedDict(state)
    for pattern, replacement in revise_keys:
        renamed = OrderedDict((re.sub(pattern, replacement, name), value) for name, value in renamed.items())
    renamed._metadata = getattr(state, '_metadata', OrderedDict())  # type: ignore[attr-defined]
    return renamed


def check_same_model(model: nn.Module, state: Mapping[str, Any], filename: str) -> None:
    """Refuse weights of which not one fits the model.

    Raises:
        ValueError: with the first names of either side.
    """
    own = unwrap(model).state_dict()
    if own and not any(
        name in own and getattr(value, 'shape', None) == own[name].shape for name, value in state.items()
    ):
        raise ValueError(
            f'{filename} is a checkpoint of another model: not one of its weights ({shortened(list(state), 3)}) fits '
            f'{type(unwrap(model)).__name__} ({shortened(list(own), 3)})'
        )


def ema_name(parameter: str) -> str:
    """The name under which MMCV keeps the twin of ``parameter``: a buffer's name may hold no dots."""
    return EMA_PREFIX + parameter.replace('.', '_')


def shortened(names: Sequence[str], most: int = 12) -> str:
    """The first names of a list that may be long."""
    return ', '.join(names[:most]) + (f' … ({len(names)} in all)' if len(names) > most else '')
