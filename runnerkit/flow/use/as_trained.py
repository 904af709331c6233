"""A config given from Python for a work dir: the model is the run's, with the objects that the work dir cannot hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runnerkit.config import Config
from runnerkit.config.literals import read_literals
from runnerkit.config.objects import is_mark
from runnerkit.config.origin import dotted
from runnerkit.config.parse import fill_in_file_variables
from runnerkit.config.pretty import path_of
from runnerkit.utils.logging import get_logger, shortened

#: A path to a class or function, and its name there.
_PATH = re.compile(r'.*[.:]([A-Za-z_]\w*)')


def as_trained(given: Config, kept: Path) -> Config:
    """``given``, with the values of its ``model`` that the run had, and a warning if they differ.

    A training from Python may change its config (``train(config, model__width=64)``), and the weights belong to what
    was trained. Objects, and classes under the same name, are those of ``given``.

    Args:
        given: the config that was given.
        kept: the config file in the work dir; it is read as data.
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
    if _name(kept) == _name(given):
        return given
    note(path, kept, given)
    return kept


def _name(value: Any) -> Any:
    """What two ways to write the same value have in common: of a class, a function or a path, the name at its end."""
    text = path_of(value) if callable(value) and hasattr(value, '__qualname__') else value
    found = _PATH.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found else text
