"""The names of the classes that a data set has."""

from __future__ import annotations

from typing import Any


def class_names(dataset: Any) -> tuple[str, ...] | None:
    """The names of the classes, in the order of their numbers; None if the data set does not say them.

    They are its attribute ``CLASSES``, as in MMCV, or ``classes``, as in torchvision. A data set around others
    (``dataset``, ``datasets``, as in `torch.utils.data.Subset` and `torch.utils.data.ConcatDataset`) has those of the
    first one.
    """
    for _ in range(10):  # wrappers in wrappers; not forever if one contains itself
        for name in ('CLASSES', 'classes'):
            names = as_class_names(getattr(dataset, name, None))
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
