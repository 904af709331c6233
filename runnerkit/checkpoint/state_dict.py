"""Loading weights into a model, inside any wrappers, and reporting what does not fit."""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.checkpoint.loader import _load_checkpoint, _load_checkpoint_with_prefix, load_folder, weights_in
from runnerkit.checkpoint.names import ema_name, get_state_dict, plain_names, renamed, to_names_of
from runnerkit.checkpoint.store import resolve_checkpoint
from runnerkit.parallel import unwrap
from runnerkit.parallel.dtensors import is_sharded, laid_out_like
from runnerkit.parallel.wrappers import name_cleaner
from runnerkit.utils.logging import print_log, printable, shortened

#: Removes the prefix of a DataParallel wrapper, for files saved from a wrapped model.
WITHOUT_WRAPPER = [(r'^module\.', '')]

_MISMATCHES_SHOWN = 12


def weights_to_cpu(state_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The same weights on the CPU; ``_metadata`` is kept."""
    moved = OrderedDict(
        (name, value.cpu() if isinstance(value, Tensor) else value) for name, value in state_dict.items()
    )
    moved._metadata = getattr(state_dict, '_metadata', OrderedDict())  # type: ignore[attr-defined]
    return moved


def load_state_dict(
    module: nn.Module,
    state_dict: Mapping[str, Any],
    strict: bool = False,
    logger: logging.Logger | str | None = None,
) -> None:
    """Load weights into the module inside any wrappers. What does not fit is skipped and logged.

    Args:
        module: the model.
        state_dict: weights by name.
        strict: raise on any difference instead of logging it.
        logger: where differences are logged; by default runnerkit's logger.

    Raises:
        RuntimeError: ``strict`` is set and there are differences.
    """
    _tell(_load(module, state_dict), strict, logger)


def load_checkpoint(
    model: nn.Module,
    filename: str | os.PathLike[str],
    map_location: Any = None,
    strict: bool = False,
    logger: logging.Logger | str | None = None,
    revise_keys: Sequence[tuple[str, str]] = WITHOUT_WRAPPER,
) -> Any:
    """Load a checkpoint's weights into ``model``, or, if they are those of ``model.model`` alone, into that.

    Args:
        model: a module, wrapped or not.
        filename: a path or URL, or a name with one of the schemes of `CheckpointLoader`. Of a folder, such as a work
            dir, the best checkpoint is loaded, else the latest; see `resolve_checkpoint`.
        map_location: as in `torch.load`.
        strict: raise on any difference between file and model.
        logger: where it is logged how much was loaded, as a warning if not everything fitted; by default runnerkit's.
        revise_keys: pairs of a regular expression and its replacement, applied to the names in the file.

    Returns:
        The whole checkpoint.

    Raises:
        RuntimeError: the file holds no weights, or ``strict`` is set and they differ from the model's
            (`WeightsDoNotFit`).
        ValueError: none of the file's weights fits the model: it is a checkpoint of another model.
    """
    path = resolve_checkpoint(filename, best=True)
    checkpoint = _content_for(model, path, map_location)
    state = revised(weights_in(checkpoint, path), revise_keys)
    fit = _load(model, state)
    if fit.nothing_fits and not strict:
        # Those of a network alone, for a model that keeps its network as `model`, as `Supervised` does.
        fit = _load(model, renamed(state, lambda name: f'model.{name}'))
    if fit.nothing_fits and not strict:
        raise ValueError(
            f'{path} is a checkpoint of another model: none of its weights ({shortened(list(state), 3)}) fits '
            f'{type(unwrap(model)).__name__} ({shortened(fit.own, 3)}). Give a checkpoint of this network; for the '
            "weights of a part: init_cfg=dict(type='Pretrained', checkpoint=…, prefix=…)"
        )
    _tell(fit, strict, logger, f'{fit.summary} of {printable(path)}')
    return checkpoint


def _content_for(model: nn.Module, path: str, map_location: Any) -> Any:
    """The content of a checkpoint; of a folder, a process reads only its part of a model that is sharded."""
    inner = unwrap(model)
    if not is_sharded(inner) or not is_checkpoint_folder(path):
        return _load_checkpoint(path, map_location)
    from runnerkit.checkpoint.shards import layout_of

    return load_folder(path, layout=layout_of(get_state_dict(inner), {}, ema_name), optimizer=False)


def load_part(
    module: nn.Module,
    prefix: str,
    filename: str | os.PathLike[str],
    map_location: Any = None,
    logger: logging.Logger | str | None = None,
) -> None:
    """Load the weights of a checkpoint that lie below ``prefix``, such as ``'backbone.'``, into ``module``."""
    state = _load_checkpoint_with_prefix(prefix, filename, map_location)
    fit = _load(module, state)
    if fit.nothing_fits:
        raise ValueError(
            f'not one of the weights below {prefix!r} in {os.fspath(filename)} ({shortened(list(state), 3)}) fits '
            f'{type(unwrap(module)).__name__} ({shortened(fit.own, 3)}): look at the prefix, and at the part that gets '
            'them'
        )
    _tell(fit, False, logger, f'{fit.summary} of {printable(os.fspath(filename))}, below {prefix!r}')


class WeightsDoNotFit(RuntimeError):
    """Weights differ from those of the model, and ``strict`` was asked for."""


class _Fit(NamedTuple):
    """How weights fitted a model: ``mismatched`` holds sentences, the other lists names; ``other_kinds`` is of
    dtypes that do not convert.

    BatchNorm's batch counters are not counted, and not missed.
    """

    loaded: int
    own: list[str]
    mismatched: list[str]
    unexpected: list[str]
    missing: list[str]
    other_kinds: list[str]

    @property
    def nothing_fits(self) -> bool:
        return bool(self.own) and self.loaded == 0

    @property
    def summary(self) -> str:
        """How much of the model was loaded, and how much of what else there was, in one line."""
        rest = {'missing': self.missing, 'of another shape': self.mismatched, 'of another dtype': self.other_kinds}
        rest['unexpected'] = self.unexpected
        counts = ', '.join(f'{len(found)} {what}' for what, found in rest.items() if found)
        return f'loaded {self.loaded} of {len(self.own)} tensors{f" ({counts})" if counts else ""}'


def _load(module: nn.Module, state_dict: Mapping[str, Any]) -> _Fit:
    inner = unwrap(module)
    own = inner.state_dict()
    given = to_names_of(inner, state_dict)
    wrong = {
        name: f'size mismatch for {printable(name, 200)}: copying a param with shape {getattr(value, "shape", None)} '
        f'from checkpoint, the shape in current model is {own[name].shape}.'
        for name, value in given.items()
        if _has_shape(own.get(name)) and getattr(value, 'shape', None) != own[name].shape
    }
    other_kinds = {
        name: f'{printable(name, 200)} ({value.dtype}, in the model {own[name].dtype})'
        for name, value in given.items()
        if name not in wrong
        and _has_shape(own.get(name))
        and not (_is_batch_count(name) or _converts(value, own[name]))
    }
    # The rest is loaded by torch, so that modules which rename old keys can do so.
    fitting = OrderedDict(
        (name, laid_out_like(value, own.get(name)) if isinstance(value, Tensor) else value)
        for name, value in given.items()
        if name not in wrong and name not in other_kinds
    )
    fitting._metadata = given._metadata  # type: ignore[attr-defined]
    answer = inner.load_state_dict(fitting, strict=False)
    twins = set(map(ema_name, map(name_cleaner(inner), given)))  # the EMA's copies are not weights of the model
    unexpected = [name for name in answer.unexpected_keys if name not in twins]
    missing = [name for name in answer.missing_keys if name not in {*wrong, *other_kinds} and not _is_batch_count(name)]
    counted = [name for name in own if not _is_batch_count(name)]
    loaded = len({*counted} - {*missing, *wrong, *other_kinds})
    return _Fit(loaded, counted, list(wrong.values()), unexpected, missing, list(other_kinds.values()))


def _tell(fit: _Fit, strict: bool, logger: logging.Logger | str | None, summary: str = '') -> None:
    """Log how the weights fitted; ``summary`` is the first line."""
    logger = logger or logging.getLogger('runnerkit')
    problems = fit.mismatched[:_MISMATCHES_SHOWN]
    if len(problems) < len(fit.mismatched):
        problems.append(f'… ({len(fit.mismatched)} size mismatches in all)')
    if fit.other_kinds:
        problems += ['dtype of another kind in source state_dict: ' + shortened(fit.other_kinds)]
    if fit.unexpected:
        problems += ['unexpected key in source state_dict: ' + shortened(fit.unexpected)]
    if fit.missing:
        problems += ['missing keys in source state_dict: ' + shortened(fit.missing)]
    if not problems:
        if summary:
            print_log(summary, logger)
        return
    lines = ['The model and loaded state dict do not match exactly', *problems]
    text = '\n'.join([f'{summary}.', *lines] if summary else lines)
    if strict:
        raise WeightsDoNotFit(text)
    print_log(text, logger, logging.WARNING)


def _has_shape(value: Any) -> bool:
    return isinstance(value, Tensor) and not is_lazy(value)


def _converts(value: Any, own: Tensor) -> bool:
    """Whether ``value`` may be copied into ``own``: both are floating, complex, or whole numbers. Numbers and booleans
    (masks, which old files hold as numbers) convert if that changes no value."""
    if not isinstance(value, Tensor) or _kind_of_dtype(value.dtype) == _kind_of_dtype(own.dtype):
        return True
    if {_kind_of_dtype(value.dtype), _kind_of_dtype(own.dtype)} == {'whole', 'boolean'}:
        return bool((value.to(own.dtype).to(value.dtype) == value).all())
    return False


def _kind_of_dtype(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return 'complex'
    return 'floating' if dtype.is_floating_point else 'boolean' if dtype is torch.bool else 'whole'


def _is_batch_count(name: str) -> bool:
    # BatchNorm's batch counter: old files lack it, and the module starts one.
    return name.endswith('num_batches_tracked')


def revised(state: Mapping[str, Any], revise_keys: Iterable[tuple[str, str]]) -> OrderedDict[str, Any]:
    """The `plain_names` of ``state`` with each regular expression replaced; ``_metadata`` is kept."""
    names = list(state)
    for pattern, replacement in revise_keys:
        names = [re.sub(pattern, replacement, name) for name in names]
    answer = OrderedDict(zip(names, state.values(), strict=True))
    answer._metadata = getattr(state, '_metadata', OrderedDict())  # type: ignore[attr-defined]
    return plain_names(answer)
