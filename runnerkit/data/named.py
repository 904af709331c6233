"""Several data sets under one key of ``data``, by name, and loaders that know the name of theirs."""

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
        if not (is_config or (not isinstance(each, (Mapping, str)) and hasattr(each, '__getitem__'))):
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
