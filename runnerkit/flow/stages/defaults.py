"""What a config must say, what it need not, and which splits its workflow names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runnerkit.config.known_keys import DDP, REQUIRED
from runnerkit.config.origin import at
from runnerkit.config.pretty import is_mark
from runnerkit.hooks import HOOKS, CheckpointHook, Hook, OptimizerHook
from runnerkit.hooks.logger import TextLoggerHook
from runnerkit.optim.settings import IMPLEMENTATION
from runnerkit.registry import placed_errors
from runnerkit.runner import RUNNERS
from runnerkit.utils.signatures import LOADER_FUNCTIONS

#: Iterations between two log lines.
LOG_INTERVAL = 50

#: How many checkpoints are kept, apart from the best one.
KEPT = 3

_RUNNER = "a dict such as dict(type='EpochBasedRunner', max_epochs=12)"

#: Into how many parts log lines and checkpoints divide a run that is counted in iterations, at least.
PARTS = 10

#: Iterations between two checkpoints of a run whose number of iterations the config does not say.
SAVE_INTERVAL = 1000


def fill_in(cfg: Any) -> None:
    """Add to ``cfg`` a text log and checkpoints, if it has no ``log_config`` and no ``checkpoint_config``.

    By epochs: a line every 50 iterations and at each epoch's end, and a checkpoint each epoch. By iterations: ten
    checkpoints, and a line every 50 iterations, or ten in a shorter run. The last three checkpoints are kept. A
    ``log_config`` without ``hooks`` gets the text log. None, also as these ``hooks``, and hooks of these kinds in
    ``custom_hooks`` switch each of them off. A hook that is a name alone becomes a dict.
    """
    hooks_by_name(cfg)
    by_epoch, max_iters = length_of_run(cfg)
    training = cfg.get('training') if is_experiment(cfg) else None
    tenth = None if by_epoch or max_iters is None else max(1, max_iters // PARTS)
    interval = 1 if by_epoch else (training or {}).get('save_interval') or tenth or SAVE_INTERVAL
    if 'checkpoint_config' not in cfg and not custom_of_kind(cfg, CheckpointHook):
        cfg.checkpoint_config = {'interval': interval, 'max_keep_ckpts': KEPT}
    if 'log_config' not in cfg and not custom_of_kind(cfg, TextLoggerHook):
        told = (training or {}).get('log_interval')
        cfg.log_config = {'interval': told or min(LOG_INTERVAL, tenth or LOG_INTERVAL)}
    if isinstance(cfg.get('log_config'), Mapping):
        # An epoch may be shorter than the interval.
        default = [{'type': 'TextLoggerHook', **({'ignore_last': False} if by_epoch else {})}]
        cfg.log_config.hooks = cfg.log_config.get('hooks', default) or []


def hooks_by_name(cfg: Any) -> None:
    """Let each name of a hook in ``custom_hooks`` and ``log_config.hooks`` be a dict with that ``type``."""
    for section, key in ((cfg, 'custom_hooks'), (cfg.get('log_config'), 'hooks')):
        hooks = section.get(key) if hasattr(section, 'get') else None
        if isinstance(hooks, list | tuple) and any(isinstance(hook, str) for hook in hooks):
            section[key] = [{'type': hook} if isinstance(hook, str) else hook for hook in hooks]


def length_of_run(cfg: Any) -> tuple[bool, int | None]:
    """Whether the config's runner counts epochs, and its ``max_iters`` if the config says it."""
    runner = cfg.get('runner')
    if not isinstance(runner, Mapping):
        return True, None
    max_iters = runner.get('max_iters')
    if max_iters is None and is_experiment(cfg):
        max_iters = (cfg.get('training') or {}).get('max_iteration')
    return getattr(runner_class(cfg), 'by_epoch', True), max_iters if isinstance(max_iters, int) else None


def runner_class(cfg: Any) -> Any:
    """The class of the config's runner; None if it names none that is known."""
    runner = cfg.get('runner')
    kind = runner.get('type') if isinstance(runner, Mapping) else None
    return RUNNERS.get(kind) if isinstance(kind, str) else kind


def is_experiment(cfg: Any) -> bool:
    """Whether the config's runner is an `Experiment`, which has a section ``training``."""
    return hasattr(runner_class(cfg), 'train_batch')


def custom_of_kind(cfg: Any, kind: type[Hook]) -> list[Any]:
    """Those of the config's ``custom_hooks``, dicts or hooks, that are a ``kind``."""
    hooks, found = cfg.get('custom_hooks') or (), []
    for hook in hooks if isinstance(hooks, list | tuple) else [hooks]:
        made = hook.get('type') if isinstance(hook, Mapping) else type(hook)
        made = HOOKS.get(made) if isinstance(made, str) else made
        if isinstance(made, type) and issubclass(made, kind):
            found.append(hook)
    return found


def required_section(cfg: Any, key: str) -> Any:
    """``cfg[key]``; a KeyError if the config has no such section."""
    if cfg.get(key) is None:
        others = [name for name in REQUIRED if cfg.get(name) is None and name != key]
        if cfg.get('total_epochs') is not None and 'runner' in others:
            others.remove('runner')
        where = at(cfg, key) if key in cfg else ''
        nor = f' (nor {", ".join(others)})' if others else ''
        with placed_errors('CONFIG'):
            raise KeyError(
                f'the config {cfg.filename or ""} has no {key!r}{where}{nor}; a run needs {", ".join(REQUIRED)}'
            )
    return cfg[key]


def runner_config(cfg: Any) -> Any:
    """The config's ``runner``; older configs have ``total_epochs``."""
    if isinstance(cfg.get('runner'), Mapping):
        return cfg.runner
    if cfg.get('runner') is not None:
        raise TypeError(f'runner must be {_RUNNER}, but got {cfg.runner!r}')
    if cfg.get('total_epochs') is not None:
        return {'type': 'EpochBasedRunner', 'max_epochs': cfg.total_epochs}
    with placed_errors(cfg if 'runner' in cfg else 'CONFIG', 'runner'):
        raise KeyError(f"the config has no 'runner', {_RUNNER}")


def optimizer_config(cfg: Any) -> Any:
    """``optimizer_config``, by default empty, with ``amp`` or MMCV's ``fp16`` merged into it; None if it is None, or if
    it is missing and one of ``custom_hooks`` is an OptimizerHook."""
    config = cfg.get('optimizer_config')
    if config is None and ('optimizer_config' in cfg or custom_of_kind(cfg, OptimizerHook)):
        return None
    amp, fp16 = cfg.get('amp'), cfg.get('fp16')
    if config is not None and amp is None and fp16 is None:
        return config
    merged = {} if config is None else config.copy()
    if amp is not None:
        merged['amp'] = amp
    elif fp16 is not None:
        merged.update(amp='fp16', loss_scale=fp16.get('loss_scale', 512.0))
    return merged


def compile_options(cfg: Any) -> dict[str, Any] | None:
    """The config's ``compile`` as arguments of `runnerkit.nn.compiled.compile_model`; None if it is off."""
    options = cfg.get('compile')
    if options is None or isinstance(options, bool):
        return {} if options else None
    if not isinstance(options, Mapping):
        raise TypeError(
            f"compile must be True, False or a dict such as compile=dict(mode='reduce-overhead'), but got {options!r}"
        )
    return dict(options)


def wrapper_of(cfg: Any) -> str | Any:
    """The ``type`` of the config's ``model_wrapper``: ``'DDP'`` where it says nothing, or uses one of its names."""
    section = cfg.get('model_wrapper')
    kind = section.get('type', 'DDP') if isinstance(section, Mapping) else 'DDP'
    return 'DDP' if kind in DDP else kind


def updating(cfg: Any) -> Any:
    """What updates the weights: the config's hook, or one that leaves the updates to a step that makes its own.

    Optimizers that the config names are fused, unless it says how they are implemented.
    """
    config = optimizer_config(cfg)
    is_ours = isinstance(config, Mapping) and config.get('type', 'OptimizerHook') == 'OptimizerHook'
    if is_ours and 'fused' not in config and not _says_implementation(cfg.get('optimizer')):
        config = config.copy()
        config['fused'] = 'auto'
    if 'optimizer_config' not in cfg and config is not None:
        hook = OptimizerHook(**config)
        hook.gives_way = True
        return hook
    return config


def _says_implementation(optimizer: Any) -> bool:
    """Whether an optimizer, or one of several, is an object, or its config says how torch computes a step."""
    if isinstance(optimizer, Mapping) and 'type' not in optimizer:
        return any(map(_says_implementation, optimizer.values()))
    return not isinstance(optimizer, str | Mapping) or not IMPLEMENTATION.isdisjoint(optimizer)


# --- the splits of data -----------------------------------------------------------------------------------------------

#: What the names of splits that are evaluated on begin with, and of those that are trained on.
EVALUATED, TRAINED = ('val', 'test'), ('train',)


def splits_in(data: Mapping[str, Any]) -> list[str]:
    """The keys of ``data`` that hold data sets."""
    return [
        key
        for key, value in data.items()
        if not str(key).endswith('_dataloader')
        and key not in LOADER_FUNCTIONS
        # Of texts, only the mark of an object that has been there.
        and (is_mark(value) if isinstance(value, str) else hasattr(value, '__getitem__') or hasattr(value, '__iter__'))
    ]


def split_of(mode: str, data: Mapping[str, Any]) -> str:
    """The split that the workflow's ``mode`` names; a mode that is no split's name trains on ``train``."""
    return mode if mode == 'val' or mode in splits_in(data) else 'train'


def mode_of(mode: str, data: Mapping[str, Any]) -> str:
    """What runs a workflow entry: ``'val'`` for a split ``val_…``, ``test`` or ``test_…``, ``'train'`` for one called
    ``train_…``, and a step of the model, or a method of the runner, for all other names."""
    if mode in splits_in(data):
        kind = mode.partition('_')[0]
        return 'val' if kind in EVALUATED else 'train' if kind in TRAINED else mode
    return mode


def validates(workflow: Any, data: Any) -> list[str]:
    """The modes of ``workflow``, which may be of any shape, that validate."""
    entries = workflow if isinstance(workflow, Sequence) and not isinstance(workflow, str) else []
    known = data if isinstance(data, Mapping) else {}
    modes = [entry[0] for entry in entries if isinstance(entry, (list, tuple)) and entry]
    return [mode for mode in modes if isinstance(mode, str) and mode_of(mode, known) == 'val']
