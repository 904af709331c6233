"""Data sets of files that no config names: what a trained model is to be applied to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runnerkit.data.builder import _NESTED, DATASETS

_PROTOCOL = (
    'write a class method from_files(cls, files, **settings) that returns the samples of the files as a list or '
    'a data set: return [(load(file),) for file in files]'
)


def dataset_of_files(cfg: Any, files: Sequence[str]) -> Any:
    """The samples of ``files``, as the data set that ``cfg`` describes reads them.

    They are made by its class method ``from_files(files, **settings)``, where ``settings`` are the other keys of its
    config. The data set itself is not built, since its own files may not be here.

    Args:
        cfg: a data set's config. Of several data sets, or one that repeats another, the first inner one counts.
        files: paths.

    Raises:
        KeyError: the data set is not registered.
        TypeError: its class has no ``from_files``, or what that returns has no length; or ``cfg`` is not a config.
    """
    cfg = _innermost(cfg)
    if not isinstance(cfg, Mapping):
        raise TypeError(
            f'the data set {type(cfg).__name__} is built already: only one that a config describes takes files'
        )
    named = cfg.get('type')
    constructor = DATASETS.get(named) if isinstance(named, str) else named
    if constructor is None:
        return DATASETS.build(cfg)  # whose error says what is registered
    name = getattr(constructor, '__name__', named)
    read = getattr(constructor, 'from_files', None)
    if not callable(read):
        raise TypeError(f'{name} takes no files; {_PROTOCOL}')
    made = DATASETS.build({**cfg, 'type': read}, default_args={'files': list(files)})
    if not (hasattr(made, '__len__') and hasattr(made, '__getitem__')):
        raise TypeError(f'from_files of {name} has returned {made!r}; {_PROTOCOL}')
    return made


def _innermost(cfg: Any) -> Any:
    while True:
        if isinstance(cfg, list | tuple) and cfg:
            cfg = cfg[0]
        elif isinstance(cfg, Mapping) and isinstance(cfg.get('type'), str) and _NESTED.get(cfg['type']) in cfg:
            cfg = cfg[_NESTED[cfg['type']]]
        else:
            return cfg
