"""What a report shows of the first batch that a run trains on: pictures or rows, with their targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from runnerkit.data.named import class_names
from runnerkit.hooks.predictions import PICTURES, named_rows, png_of_view, views_of
from runnerkit.utils.numbers import values_in
from runnerkit.utils.small_files import open_own, own_folder

#: The folder of the pictures in the work dir, ``<number>.png``.
FIRST_BATCH = 'first_batch'


def keep_first_batch(batch: Any, dataset: Any, work_dir: Path) -> list[dict[str, Any]]:
    """Write pictures of the first samples, and return ``target`` and ``row`` of each; empty if none can be shown.

    Args:
        batch: as the training step gets it, with all augmentations.
        dataset: may know the names of classes and columns.
        work_dir: of the run.
    """
    views = views_of(batch)
    if views is None:
        return []
    count, views = len(views), views[:PICTURES].detach().cpu()
    found: list[dict[str, Any]] = [{'target': each} for each in _targets(batch, count, dataset)[: len(views)]]
    found = found or [{'target': None} for _ in views]
    if views.dim() == 4:
        folder = own_folder(work_dir / FIRST_BATCH)
        for number, view in enumerate(views):
            with open_own(folder / f'{number}.png', 'wb') as file:
                file.write(png_of_view(view))
        return found
    return [each | {'row': row} for each, row in zip(found, named_rows(views, dataset), strict=True)]


def _targets(batch: Any, count: int, dataset: Any) -> list[Any]:
    """The classes, by name, or the numbers of the first tensor with one for each sample; empty if there is none."""
    tensors = (each for _, each in values_in(batch) if isinstance(each, Tensor))
    target = next((each for each in tensors if each.shape in ((count,), (count, 1))), None)
    if target is None:
        return []
    names = None if target.is_floating_point() else class_names(dataset)
    values = target.detach().reshape(-1)[:PICTURES].tolist()
    return [names[each] if names and 0 <= each < len(names) else each for each in values]
