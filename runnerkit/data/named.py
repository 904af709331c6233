"""Names of data sets: several under one key of ``data``, what loaders know of them, and the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAME = 'name_of_scores'


def named_datasets(config: Any) -> dict[str, Any]:
    """The configs in ``dict(clean=dict(type=…), noisy=dict(type=…))`` by name; a single data set is called ``''``."""
    if not isinstance(config, Mapping) or 'type' in config or not config:
        return {'': config}
    for name, each in config.items():
        is_config = isinstance(each, Mapping) and 'type' in each
        gives_items = hasattr(each, '__getitem__') or hasattr(each, '__iter__')
        if not (is_config or (gives_items and not isinstance(each, (Mapping, str)))):
            raise TypeError(
                f"a dict without 'type' must hold data sets by name, dict(clean=dict(type=…), noisy=dict(type=…)), but "
                f'its {name!r} is {each!r}'
            )
        if not isinstance(name, str) or not name or '/' in name:
            raise TypeError(f'the name of a data set must be a text without slashes, but got {name!r}')
    return dict(config)


def name_scores(loader: Any, name: str) -> Any:
    """Let the scores of evaluations on ``loader`` be called ``<name>/<score>``; returns the loader."""
    setattr(loader, _NAME, name)
    return loader


def name_of_scores(loader: Any) -> str:
    """What `name_scores` was given; empty if nothing was."""
    name = getattr(getattr(loader, 'dataloader', loader), _NAME, '')
    return name if isinstance(name, str) else ''


def with_name(loader: Any, scores: Mapping[str, Any]) -> dict[str, Any]:
    """``scores`` of an evaluation on ``loader``, by their full names."""
    name = name_of_scores(loader)
    return {f'{name}/{score}' if name else score: value for score, value in scores.items()}


def class_names(dataset: Any) -> tuple[str, ...] | None:
    """The names of the classes, in the order of their numbers; None if the data set does not say them.

    They are its attribute ``CLASSES``, as in MMCV, or ``classes``, as in torchvision. A data set around others
    (``dataset``, ``datasets``, as in `torch.utils.data.Subset` and `torch.utils.data.ConcatDataset`) has those of the
    first one.
    """
    return _names_under(dataset, 'CLASSES', 'classes')


def column_names(dataset: Any) -> tuple[str, ...] | None:
    """The names of a table's columns: the attribute ``columns`` of the data set, found as in `class_names`."""
    return _names_under(dataset, 'columns')


def _names_under(dataset: Any, *attributes: str) -> tuple[str, ...] | None:
    for _ in range(10):  # wrappers in wrappers; not forever if one contains itself
        for attribute in attributes:
            names = as_class_names(getattr(dataset, attribute, None))
            if names is not None:
                return names
        inner = getattr(dataset, 'datasets', None)
        dataset = inner[0] if isinstance(inner, (list, tuple)) and inner else getattr(dataset, 'dataset', None)
        if dataset is None:
            return None
    return None


def as_class_names(value: Any) -> tuple[str, ...] | None:
    """``value`` if it is a list or tuple of texts, at least one; else None."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    return None
