"""Predictions as JSON, CSV or npy."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.fileio.paths import local_target
from runnerkit.utils.suggest import suggestion


def write_predictions(
    path: str, inputs: Sequence[Any], predictions: Sequence[Any], classes: Sequence[str] | None = None
) -> None:
    """Write predictions to a file, completely or not at all."""
    target = local_target(path)
    if (extension := target.suffix.lower()) not in FORMATS:
        raise ValueError(
            f'predictions are written as {", ".join(FORMATS)}, but not as {path}{suggestion(extension, FORMATS)}'
        )
    write_atomically(target, FORMATS[extension](inputs, predictions, classes))


def as_json(inputs: Sequence[Any], predictions: Sequence[Any], classes: Sequence[str] | None = None) -> str:
    """A list of ``{"input": …, "prediction": …}``, each on its own line; with ``"class"`` if that has a name."""
    rows = [
        {'input': name, 'prediction': each, **_name_of_class(each, classes)}
        for name, each in zip(inputs, map(_for_json, predictions), strict=True)
    ]
    lines = ',\n'.join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'[\n{lines}\n]'


def _name_of_class(prediction: Any, classes: Sequence[str] | None) -> dict[str, str]:
    """The name of the class that a prediction is."""
    if classes is None or type(prediction) is not int or not 0 <= prediction < len(classes):
        return {}
    return {'class': classes[prediction]}


def _as_csv(inputs: Sequence[Any], predictions: Sequence[Any], classes: Sequence[str] | None = None) -> bytes:
    """A column ``input``, and a column for each number of a prediction; ``class`` if that has a name."""
    rows = []
    for name, each in zip(inputs, map(_for_json, predictions), strict=True):
        numbers = each
        if classes and isinstance(each, list) and len(each) == len(classes) == len(set(classes)):
            numbers = {f'prediction_{of}': number for of, number in zip(classes, each, strict=True)}
        rows.append(_columns_of_all([{'input': name}, _columns(numbers), _name_of_class(each, classes)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _columns(value: Any, name: str = '') -> dict[str, Any]:
    """The numbers of a prediction by column: ``{'box': {'x': 1}, 'p': [2]}`` has ``box.x`` and ``p_0``."""
    if isinstance(value, dict):
        return _columns_of_all(_columns(item, f'{name}.{key}' if name else key) for key, item in value.items())
    name = name or 'prediction'
    if not isinstance(value, list):
        return {name: value}
    if any(isinstance(item, list | dict) for item in value):
        raise ValueError(
            f'a {name} of several dimensions does not fit in a row of a CSV file: use --out FILE.npy or FILE.json'
        )
    return {f'{name}_{index}': item for index, item in enumerate(value)}


def _columns_of_all(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name in columns:
                raise ValueError(
                    f'two values of a prediction would be in the column {name!r} of a CSV file: write .json'
                )
            columns[name] = value
    return columns


def _as_npy(inputs: Sequence[Any], predictions: Sequence[Any], classes: Sequence[str] | None = None) -> bytes:
    """One array, the predictions along its first dimension."""
    try:
        # numpy has no bfloat16
        plain = [x.float() if getattr(x, 'dtype', None) == torch.bfloat16 else x for x in predictions]
        array = np.stack([np.asarray(each) for each in plain])
        kind = array.dtype.kind
    except ValueError as error:
        raise ValueError(f'the predictions do not fit in one array ({error}): write .json') from None
    if kind not in 'biufc':
        raise ValueError(f'the predictions are no arrays of numbers, but {type(predictions[0]).__name__}: write .json')
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _for_json(value: Any) -> Any:
    """``value`` with lists and numbers in place of arrays."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f'a {type(value).__name__} in a prediction cannot be written: predict must return tensors and numbers'
    )


#: What a file of predictions may be, by its extension.
FORMATS: dict[str, Callable[[Sequence[Any], Sequence[Any], Sequence[str] | None], bytes]] = {
    '.json': lambda inputs, predictions, classes: (as_json(inputs, predictions, classes) + '\n').encode(),
    '.csv': _as_csv,
    '.npy': _as_npy,
}
