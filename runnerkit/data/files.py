"""Data sets of files that no config names: what a trained model is to be applied to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runnerkit.data.builder import _NESTED, DATASETS, with_transforms

_PROTOCOL = (
    'write a class method from_files(cls, files, **settings) that returns the samples of the files as a list or '
    'a data set: return [(load(file),) for file in files]'
)


def dataset_of_files(cfg: Any, files: Sequence[str]) -> Any:
    """The samples of ``files``, as the data set that ``cfg`` describes reads them.

    They are made by its class method ``from_files(files, **settings)``, where ``settings`` are the other keys of its
    config. The data set itself is not built, since its own files may not be here.
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
    made = with_transforms(DATASETS.build({**cfg, 'type': read}, default_args={'files': list(files)}), {**cfg})
    if not (hasattr(made, '__len__') and hasattr(made, '__getitem__')):
        raise TypeError(f'from_files of {name} has returned {made!r}; {_PROTOCOL}')
    return made


class CollateFiles:
    """A user's ``collate_fn`` for samples of files. They have no target, so its error says how to do without.

    Args:
        collate_fn: the user's own.
    """

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: list[Any]) -> Any:
        """Make a batch of ``samples``."""
        try:
            return self.collate_fn(samples)
        except Exception as error:
            function = getattr(self.collate_fn, 'func', self.collate_fn)  # of a partial
            name, sample = getattr(function, '__name__', type(function).__name__), samples[0]
            if isinstance(sample, Mapping):
                has, condition = f'only {", ".join(map(str, sample))}', 'the samples have its key'
            elif isinstance(sample, tuple | list):
                has, condition = f'{len(sample)} field{"s" * (len(sample) != 1)}', f'len(samples[0]) > {len(sample)}'
            else:
                has, condition = f'no more than a {type(sample).__name__}', 'the samples are tuples'
            error.add_note(
                f'the samples of from_files have no target ({has}). In the collate_fn {name}, read the target only if '
                f'{condition}',
            )
            raise


def _innermost(cfg: Any) -> Any:
    while True:
        if isinstance(cfg, list | tuple) and cfg:
            cfg = cfg[0]
        elif isinstance(cfg, Mapping) and isinstance(cfg.get('type'), str) and _NESTED.get(cfg['type']) in cfg:
            cfg = cfg[_NESTED[cfg['type']]]
        else:
            return cfg
