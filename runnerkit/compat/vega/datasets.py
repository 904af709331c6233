"""Data sets as Vega builds them: one class for all splits, which gets the mode as an argument."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from runnerkit.data import DATASETS
from runnerkit.utils.exceptions import WrongValue


def dataset_of_mode(dataset: Mapping[str, Any], mode: str, needs_mode: bool = False) -> Any:
    """Build the data set of a config, with ``mode`` as an argument if its class has one of that name.

    Args:
        dataset: its config.
        mode: ``'train'``, ``'val'`` or ``'test'``.
        needs_mode: whether the class must take it, because the configs of all splits are the same.

    Raises:
        ValueError: it must, and does not.
    """
    kind = dataset['type']
    found = DATASETS.get(kind) if isinstance(kind, str) else kind
    takes = callable(found) and 'mode' in inspect.signature(found).parameters
    if needs_mode and not takes and found is not None:
        raise WrongValue(
            f'the data set {kind} takes no mode, so without its own section {mode} would be the training data: '
            f'write dataset.{mode}, or switch the validation off with trainer.with_valid: false'
        )
    return DATASETS.build(dict(dataset), default_args={'mode': mode} if takes else None)
