"""Data sets as Vega builds them: one class for all splits, which gets the mode as an argument."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Subset

from runnerkit.data import DATASETS
from runnerkit.utils.exceptions import WrongValue


def dataset_of_mode(
    dataset: Mapping[str, Any], mode: str, needs_mode: bool = False, train_portion: float | None = None
) -> Any:
    """Build the data set of a config, with ``mode`` and ``train_portion`` as arguments if its class has these.

    A class without ``train_portion`` is divided here: training has the first part of its training data, and a
    validation without its own section the rest.

    Args:
        dataset: its config.
        mode: ``'train'``, ``'val'`` or ``'test'``.
        needs_mode: whether the class must take it, because the configs of all splits are the same.
        train_portion: the share of the training data for the training, above 0 and at most 1; None: not given.

    Raises:
        ValueError: the portion is out of range; or the class must take the mode, and does not.
    """
    kind = dataset['type']
    found = DATASETS.get(kind) if isinstance(kind, str) else kind
    parameters = inspect.signature(found).parameters if callable(found) else {}
    takes: dict[str, Any] = {'mode': mode} if 'mode' in parameters else {}
    if train_portion is not None:
        if not isinstance(train_portion, int | float) or not 0 < train_portion <= 1:
            raise WrongValue(
                f'dataset.train_portion must be above 0 and at most 1, such as 0.9, but got {train_portion!r}'
            )
        if 'train_portion' in parameters:
            takes['train_portion'] = train_portion
        elif train_portion < 1 and (mode == 'train' or (mode == 'val' and needs_mode)):
            whole = dataset_of_mode(dataset, 'train')
            first = int(train_portion * len(whole))
            return Subset(whole, range(first) if mode == 'train' else range(first, len(whole)))
    if needs_mode and 'mode' not in takes and found is not None:
        raise WrongValue(
            f'the data set {kind} takes no mode, so without its own section {mode} would be the training data: write '
            f'dataset.{mode}, or dataset.common.train_portion: 0.9, or switch the validation off with '
            'trainer.with_valid: false'
        )
    return DATASETS.build(dict(dataset), default_args=takes)
