"""A trained model, built again from its work dir or its checkpoint."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from runnerkit.checkpoint import _load_checkpoint, ema_name, find_checkpoint
from runnerkit.checkpoint.integrity import is_mmcv_file, reading
from runnerkit.checkpoint.state_dict import WITHOUT_WRAPPER, WeightsDoNotFit, load_state_dict, revised
from runnerkit.checkpoint.store import NON_FINITE, finite_beside
from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.config.origin import dotted
from runnerkit.config.parse import EXTENSIONS, fill_in_file_variables
from runnerkit.config.pretty import is_mark, path_of, refuse_marks
from runnerkit.config.settings import read_literals
from runnerkit.fileio.paths import is_url
from runnerkit.flow.stages.defaults import required_section
from runnerkit.flow.stages.instance import choose_device
from runnerkit.flow.work_dir.record import check_made_here, config_of, is_made_here
from runnerkit.hooks.hook import Priority, get_priority
from runnerkit.nn import build_model
from runnerkit.registry import placed_errors
from runnerkit.utils.logging import get_logger, printable, shortened
from runnerkit.utils.suggest import suggestion

#: Which checkpoint of a work dir.
WHICH = ('best', 'latest')


class Trained(NamedTuple):
    """A trained model before it is built.

    Attributes:
        path: its checkpoint.
        content: what the checkpoint holds.
        cfg: its config.
    """

    path: str
    content: Mapping[str, Any]
    cfg: Config


def load_model(
    source: str | os.PathLike[str],
    config: Config | dict[str, Any] | str | os.PathLike[str] | None = None,
    which: str = 'best',
    *,
    device: torch.device | str = 'cpu',
    trust: bool = False,
) -> Any:
    """Build a trained model and load its weights: the averages, if the run has kept averages (`EMAHook`).

    A warning is logged if the weights are NaN or infinite.

    ::

        model = runnerkit.load_model('work_dirs/lenet')

    If one of your runs has written a work dir on this machine, its config and the files in its folder ``code`` are
    executed. What another user or machine has made is read as data: nothing of its config is executed or built unless
    you ``trust`` it.

    Args:
        source: a work dir; or a checkpoint, by its path or URL, which has the config of the work dir that it lies in.
        config: the model's config or its file, in place of the one in ``source``. A file is executed. With a work dir
            and a dict (or a `Config` of one), the model is as the run had it, and objects are those of ``config``.
        which: of a work dir, the ``'best'`` checkpoint (the latest if there is no best one), or the ``'latest'``.
        device: where the model is to be, such as ``'cuda'``.
        trust: execute the config and the code of a work dir from elsewhere; of a checkpoint on its own, import and
            build what its config names. The text of that config is never executed.

    Returns:
        The `torch.nn.Module` that the config's ``model`` describes, in evaluation mode.

    Raises:
        FileNotFoundError: there is no such work dir, checkpoint or config.
        KeyError: the config has no model, or names one that is not registered.
        ValueError: the weights do not fit the model; the checkpoint is damaged, or holds no config; work dir or
            checkpoint were made elsewhere, and are not trusted; ``which`` or ``device`` is not known.
    """
    return build_trained(find_trained(source, config, which, trust), device)


def find_trained(
    source: str | os.PathLike[str],
    config: Config | dict[str, Any] | str | os.PathLike[str] | None = None,
    which: str = 'best',
    trust: bool = False,
    work_dir: str | os.PathLike[str] | None = None,
) -> Trained:
    """The checkpoint and the config of `load_model`, which has the same arguments; ``work_dir`` has the config to use,
    if that is not the one of ``source``."""
    check_which(which)
    if isinstance(config, str) and config in WHICH:
        raise ValueError(
            f'config={config!r} is not a config: to choose the checkpoint of a work dir, write which={config!r}'
        )
    source = os.fspath(source)
    if not is_url(source) and source.endswith(EXTENSIONS):
        raise ValueError(
            f'{source} is a config, not weights: give the work dir or the checkpoint first, and the config as '
            f'config={source!r}'
        )
    try:
        path = find_checkpoint(source, best=which == 'best')
    except FileNotFoundError as error:
        place, near = Path(source).expanduser(), ''
        if not (place.exists() or place.suffix) and place.parent.is_dir():
            near = suggestion(place.name, [other.name for other in place.parent.iterdir() if other.is_dir()])
        raise FileNotFoundError(f'{error}{near}') from None
    content = _load_checkpoint(path, 'cpu')
    weights = content.get('state_dict', content) if isinstance(content, Mapping) else content
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise ValueError(f'{path} holds a {type(weights).__name__}, but a checkpoint is a dict of weights by name')
    if not isinstance(content.get('meta', {}), Mapping):
        content = {**content, 'meta': {}}
    if config is None:
        cfg = config_beside(source if work_dir is None else work_dir, path, content.get('meta', {}), trust)
    elif not isinstance(config, (Config, Mapping)):
        cfg = Config.fromfile(config)
    else:
        cfg = config if isinstance(config, Config) else Config(dict(config))
        kept = config_of(source) if cfg.filename is None else None
        if kept is not None and (trust or is_made_here(kept)):  # else it could name what the user has not
            cfg = as_trained(cfg, kept)
    return Trained(path, content, cfg)


def config_beside(source: str | os.PathLike[str], path: str, meta: Mapping[str, Any], trust: bool) -> Config:
    """The config of the work dir ``source``; else of the one that the checkpoint at ``path`` lies in; else that of its
    ``meta``."""
    file = config_of(source)
    if file is not None:
        return Config.fromfile(check_made_here(file, trust))
    file = config_of(os.path.dirname(path) or '.')
    if file is not None and is_made_here(file):
        return Config.fromfile(file)
    return config_in(meta, path, trust)


def config_in(meta: Mapping[str, Any], path: str, trust: bool) -> Config:
    """The config that the checkpoint at ``path`` holds in its ``meta``, with its modules imported. Its text is read as
    data, never executed.
    """
    way_out = "pass the config as a file that you know, config='…/config.py' (predict CONFIG --checkpoint …)"
    text = meta.get('config')
    if not isinstance(text, str):
        raise ValueError(f'{path} holds no config, so the model is not known: {way_out}')
    if not trust:
        raise ValueError(
            f'{path} lies in none of the work dirs that your runs have written on this machine, so nothing is built of '
            f'the config in it: {way_out}. If you trust its author, add --trust (trust=True)'
        )
    try:
        cfg = Config(read_literals(text), cfg_text=text)
    except (ValueError, KeyError) as error:
        problem = printable(error.args[0] if error.args else error)
        raise ValueError(
            f'the config in {path} cannot be read as data: {problem}. It was not executed; {way_out}'
        ) from None
    import_modules_of(cfg._cfg_dict)
    return cfg


def check_which(which: str) -> None:
    """Check which checkpoint of a work dir is asked for."""
    if which not in WHICH:
        raise ValueError(
            f'which must be {" or ".join(map(repr, WHICH))}, but got {which!r}{suggestion(str(which), WHICH)}'
        )


def build_trained(trained: Trained, device: torch.device | str = 'cpu') -> Any:
    """The model in evaluation mode, with its weights; see `load_model`."""
    target = choose_device(str(device), 0, 1)
    section = required_section(trained.cfg, 'model')
    refuse_marks(section, 'model')
    with placed_errors(trained.cfg, 'model'):
        model: Any = build_model(section)
    warn_if_not_finite(trained)
    weights = weights_of(trained)
    try:
        load_state_dict(model, weights, strict=True)
    except WeightsDoNotFit as error:
        raise ValueError(
            f'{trained.path} does not fit the model of its config. {error}\nGive the config of this checkpoint '
            '(config=…), or load what fits with runnerkit.load_checkpoint(model, path)'
        ) from None
    classes = trained.content.get('meta', {}).get('CLASSES')
    if classes is not None and not hasattr(model, 'CLASSES'):
        model.CLASSES = classes
    return model.to(target).eval()


def warn_if_not_finite(trained: Trained) -> None:
    """Log a warning if the weights that are used of a checkpoint are NaN or infinite.

    Infinities may be on purpose, in masks for example: they count only in a file whose run has found broken weights.
    """
    from runnerkit.hooks.weights import describe_counts, find_non_finite

    with reading(trained.path, 'used'):
        meta, weights = trained.content.get('meta', {}), weights_of(trained)
        twins = {ema_name(name) for name in weights}  # the weights behind averages, which are not used
        bad = find_non_finite({name: each for name, each in weights.items() if name not in twins})
        if 'weights' not in meta.get(NON_FINITE, ()):
            bad = {name: count for name, count in bad.items() if weights[name].isnan().any()}
    if bad:
        other = finite_beside(trained.path)
        logging.getLogger('runnerkit').warning(
            '%s has NaN or infinite values in %s, so its predictions are useless. %s',
            printable(trained.path),
            printable(describe_counts(bad)),
            f'Use {printable(other)}' if other else 'Use an older one, or start over with a smaller learning rate',
        )


def weights_of(trained: Trained) -> dict[str, Any]:
    """The weights to use. Where MMCV has saved averages with the raw weights, they are under the averages' names."""
    weights = revised(trained.content.get('state_dict', trained.content), WITHOUT_WRAPPER)
    if is_mmcv_file(trained.content) and not _swapped_by_mmcv(trained.cfg):
        raw = dict(weights)
        averages = {name: raw[ema_name(name)] for name in raw if ema_name(name) in raw}
        for name, value in raw.items():
            # Of a parameter with several names, only the first has an average.
            same = (name,) if name in averages else (each for each in averages if _is_same(value, raw[each]))
            weights[name] = next((averages[each] for each in same), value)
    return weights


def _is_same(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and one.dtype == other.dtype and torch.equal(one, other)


def _swapped_by_mmcv(cfg: Config) -> bool:
    """Whether MMCV's EMAHook had swapped weights and averages before the file was written; see our EMAHook."""
    hooks = cfg.get('custom_hooks')
    hooks = [each for each in hooks if isinstance(each, Mapping)] if isinstance(hooks, list | tuple) else []
    hooks = [each for each in hooks if each.get('type') == 'EMAHook']
    runner, saving = (cfg.get(key) for key in ('runner', 'checkpoint_config'))
    by_epoch = not isinstance(runner, Mapping) or runner.get('type', 'EpochBasedRunner') == 'EpochBasedRunner'
    saves_by_epoch = not isinstance(saving, Mapping) or saving.get('by_epoch', True)
    early = any(get_priority(hook.get('priority', 'NORMAL')) < Priority.NORMAL.value for hook in hooks)
    return bool(early and by_epoch and saves_by_epoch)


#: The lines of a config's text that say where a run was.
_PLACES = re.compile(r'^(work_dir|load_from|resume_from) = .*\n?', re.MULTILINE)


def without_places(value: Any) -> Any:
    """A config's text for a file to hand on, without the folders of the run; any other value as it is."""
    return _PLACES.sub('', value) if isinstance(value, str) else value


# --- the config of a run, with objects from Python --------------------------------------------------------------------

#: A path to a class or function, and its name there.
_PATH = re.compile(r'.*[.:]([A-Za-z_]\w*)')


def as_trained(given: Config, kept: Path) -> Config:
    """``given``, with the values of its ``model`` that the run had, and a warning if they differ.

    A training from Python may change its config (``train(config, model__width=64)``), and the weights belong to what
    was trained. Objects, and classes under the same name, are those of ``given``.
    """
    try:
        text = kept.read_text(encoding='utf-8')
        of_run = read_literals(fill_in_file_variables(text, str(kept.absolute()))) if kept.suffix == '.py' else {}
    except (ValueError, KeyError):  # it is not data alone, so no run has written it
        return given
    if 'model' not in of_run or 'model' not in given:
        return given
    changed: list[str] = []

    def note(path: tuple[Any, ...], value: Any, other: Any) -> None:
        changed.append(f'{dotted(path)} {value!r} (not {other!r})')

    model = _laid_over(of_run['model'], given.model, ('model',), note)
    if changed:
        get_logger('runnerkit').warning(
            'the model is built as the run in %s had it: %s. To build another one, name a checkpoint file in place of '
            'the work dir',
            kept.parent,
            shortened(changed),
        )
        given = Config(given._cfg_dict, given.text)
        given.model = model
    return given


def _laid_over(kept: Any, given: Any, path: tuple[Any, ...], note: Callable[..., None]) -> Any:
    """The values of ``kept``, and those of ``given`` where they say the same or stand for an object."""
    if is_mark(kept):
        return given
    if isinstance(kept, Mapping) and isinstance(given, Mapping):
        for key in given.keys() - kept.keys():
            note((*path, key), None, given[key])
        return {key: _laid_over(value, given.get(key), (*path, key), note) for key, value in kept.items()}
    if type(kept) is type(given) and isinstance(kept, list | tuple) and len(kept) == len(given):
        items = enumerate(zip(kept, given, strict=True))
        return type(kept)(_laid_over(one, other, (*path, index), note) for index, (one, other) in items)
    if _last_name(kept) == _last_name(given):
        return given
    note(path, kept, given)
    return kept


def _last_name(value: Any) -> Any:
    """What two ways to write the same value have in common: of a class, a function or a path, the name at its end."""
    text = path_of(value) if callable(value) and hasattr(value, '__qualname__') else value
    found = _PATH.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found else text
