"""Samples for the report: predictions of the best evaluation, with pictures of some, and the first training batch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.checkpoint.store import best_name
from runnerkit.data.kinds import is_in_order
from runnerkit.data.named import class_names, column_names, name_of_scores
from runnerkit.data.sampler import EpochSampler
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.log_files import FIRST_BATCH, MOST_COLUMNS, PREDICTIONS, SAMPLES
from runnerkit.parallel import to_device
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.numbers import values_in
from runnerkit.utils.pictures import as_pixels, png_of
from runnerkit.utils.small_files import open_own, own_folder

#: The most bytes of the file, without pictures; of larger evaluations nothing is kept.
MOST_BYTES = 2 << 20

#: So many numbers of predictions and pictures wait for each other.
TOGETHER = 1 << 18

#: How many of the worst samples, and of the best, have a picture; its height and width, at most.
PICTURES, SIDE = 12, 96

#: Attributes of data sets with an entry for each sample that may name it, and keys of such entries.
_LISTS = ('samples', 'imgs', 'data_infos', 'files', 'paths', 'filenames', 'names', 'ids')
_KEYS = ('filename', 'file_name', 'path', 'name', 'id', 'img_info')


class PredictionsHook(Hook):
    """Keeps the predictions of the best evaluation in the work dir, on rank 0: those of its share of the samples.

    Kept are classes (``preds`` are ``[n, classes]``, ``target`` is ``[n]``) and numbers (one for each sample). Nothing
    moves to the host before an evaluation is the best one so far.

    Args:
        work_dir: of the run.
    """

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._trouble = WarnsOnce(f'the file {work_dir / PREDICTIONS}')
        self._passes: dict[str, Pass] = {}  # of the last evaluation, by the name of the data set

    def before_val_epoch(self, runner: RunnerView) -> None:
        """A pass over a loader begins."""
        if runner.rank == 0:
            with self._trouble.instead_of_raising():
                self._passes[name_of_scores(runner.data_loader)] = Pass(runner.data_loader, runner.completed_iters)

    def after_val_iter(self, runner: RunnerView) -> None:
        """Note the predictions for a batch."""
        with self._trouble.instead_of_raising():
            name = name_of_scores(runner.data_loader)
            if (seen := self._passes.pop(name, None)) is not None:
                seen.add(runner.outputs, runner.data_batch)
                self._passes[name] = seen  # without one of the batches, it would be of no use

    def after_save(self, runner: RunnerView) -> None:
        """Keep the predictions of the last evaluation if the checkpoint is the best one, saved after it."""
        with self._trouble.instead_of_raising():
            score = best_now(runner) if self._passes else None
            name = '' if score is None else score.partition('/')[0]  # or the score's name has a slash
            seen = self._passes.get(name, self._passes.get(''))
            if score is not None and seen is not None and seen.iterations == runner.completed_iters:
                self._passes = {}
                self._write(score, seen)

    def _write(self, score: str, seen: Pass) -> None:
        iterations = seen.iterations
        path, folder = self._work_dir / PREDICTIONS, self._work_dir / SAMPLES
        found, pictures = seen.samples(), dict(seen.pictures())
        for place in pictures:
            found[place]['picture'] = f'{SAMPLES}/{iterations}-{place}.png'
        for place, row in seen.rows():
            found[place]['row'] = row
        classes = class_names(getattr(seen.loader, 'dataset', None))
        about = {'score': score, 'iterations': iterations, 'classes': classes and list(classes), 'samples': found}
        content = json.dumps(about, separators=(',', ':')).encode()
        is_kept = bool(found) and len(content) <= MOST_BYTES
        if is_kept:
            if pictures:
                own_folder(folder)
            for place, picture in pictures.items():
                with open_own(folder / f'{iterations}-{place}.png', 'wb') as file:
                    file.write(picture)
            write_atomically(path, content)
        else:
            path.unlink(missing_ok=True)
        for old in () if folder.is_symlink() else folder.glob('*.png'):  # of the former best
            if not (is_kept and old.name.startswith(f'{iterations}-')):
                old.unlink()


def best_now(runner: RunnerView) -> str | None:
    """The score by which the run keeps its best checkpoint, if that is the one of this moment."""
    for hook in runner.hooks:
        if isinstance(hook, EvalHook) and hook.best_ckpt_path is not None:
            unit, done = ('epoch', runner.epoch + 1) if hook.by_epoch else ('iter', runner.iter + 1)
            if os.path.basename(hook.best_ckpt_path) == best_name(hook.key_indicator, unit, done):
                return hook.key_indicator
    return None


class Pass:
    """The predictions of one pass over a loader, on the device of the model.

    Args:
        loader: of the evaluation.
        iterations: how many were completed at the evaluation.
    """

    def __init__(self, loader: Any, iterations: int = 0) -> None:
        self.loader, self.iterations = loader, iterations
        self._rows: list[Tensor] = []
        self._count = 0
        self._shown: list[tuple[Tensor, Tensor, Tensor]] = []  # of the worst and the best: order, places, pictures
        self._waiting: list[list[Tensor]] = []  # predictions, targets and perhaps pictures of batches of one kind
        self._waiting_count = self._waiting_numbers = 0
        self._is_kept = True

    def add(self, outputs: Mapping[str, Any], batch: Any) -> None:
        """Note a batch."""
        preds = outputs.get('preds')
        if not self._is_kept or not are_kept(preds, outputs.get('target')):
            self._forget()
            return
        views = views_of(batch)
        parts = [preds.detach(), outputs['target'].detach()]
        if views is not None and len(views) == len(preds):
            parts.append(to_device(views, preds.device))  # does not wait for it
        if self._waiting and list(map(_kind, parts)) != list(map(_kind, self._waiting[-1])):
            self._note_waiting()
        self._waiting_count += len(preds)
        self._waiting_numbers += sum(each.numel() for each in parts)
        are_enough = self._waiting_numbers > TOGETHER
        # What waits may be overwritten by the next batch.
        self._waiting.append(parts if are_enough else [each.clone() for each in parts])
        if self._count + self._waiting_count > MOST_BYTES // 60:  # bytes of a sample, at least
            self._forget()
        elif are_enough:
            self._note_waiting()

    def _forget(self) -> None:
        self._is_kept, self._rows, self._shown, self._waiting = False, [], [], []

    def _note_waiting(self) -> None:
        """Note the batches that wait, all at once: twenty operations take as long for one of them."""
        if not self._waiting:
            return
        several = len(self._waiting) > 1
        preds, target, *views = map(torch.cat, zip(*self._waiting, strict=True)) if several else self._waiting[0]
        self._waiting, self._waiting_count, self._waiting_numbers = [], 0, 0
        rows = rows_of(preds, target)
        if views:
            places = torch.arange(self._count, self._count + len(rows), device=rows.device)
            loss = rows[:, 3]
            worst, best = loss.nan_to_num(-math.inf), loss.nan_to_num(math.inf).neg()
            before = self._shown or [(worst[:0], places[:0], views[0][:0])] * 2
            self._shown = [_largest(old, (new, places, *views)) for old, new in zip(before, (worst, best), strict=True)]
        self._rows.append(rows)
        self._count += len(rows)

    def samples(self) -> list[dict[str, Any]]:
        """Name, target, prediction, confidence, loss and picture (None) of each sample, in the loader's order."""
        self._note_waiting()
        rows = torch.cat(self._rows).tolist() if self._rows else []
        found = []
        for name, row in zip(names_of_samples(self.loader, len(rows)), rows, strict=True):
            values: list[Any] = [*map(_five_digits, row)]
            if values[2] is not None:  # only classes have a confidence
                values[:2] = map(int, row[:2])
            keys = ('target', 'prediction', 'confidence', 'loss')
            found.append({'name': name, **dict(zip(keys, values, strict=True)), 'picture': None})
        return found

    def pictures(self) -> Iterator[tuple[int, bytes]]:
        """The place and the PNG of each sample that is shown."""
        self._note_waiting()
        for _, places, views in self._shown:
            if views.dim() == 4:
                yield from zip(places.tolist(), map(png_of_view, views), strict=True)

    def rows(self) -> Iterator[tuple[int, dict[str, float | None]]]:
        """The place and the row of each sample of a table that is shown."""
        self._note_waiting()
        for _, places, views in self._shown:
            if views.dim() == 2:
                yield from zip(places.tolist(), named_rows(views, getattr(self.loader, 'dataset', None)), strict=True)


def views_of(batch: Any) -> Tensor | None:
    """What can be shown of the samples of a batch: its pictures, made small, or rows of numbers; None if neither."""
    wide = [each for _, each in values_in(batch) if isinstance(each, Tensor) and each.dim() > 1 and len(each)]
    images = next((each for each in wide if _are_images(each)), None)
    if images is not None:
        step = -(-max(images.shape[2:]) // SIDE)
        return images[:, :, ::step, ::step]
    rows = next((each for each in wide[:1] if each.dim() == 2 and 1 < each.shape[1] <= MOST_COLUMNS), None)
    return rows if rows is not None and rows.is_floating_point() and rows.layout is torch.strided else None


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


def png_of_view(image: Tensor) -> bytes:
    """A picture ``[channels, height, width]`` as a PNG; floats may have any range."""
    if image.is_floating_point():
        image = image.float().nan_to_num(0.0, 0.0, 0.0)
        image = (image - image.min()) / (image.max() - image.min()).clamp_min(1e-12)
    return png_of(as_pixels(image))


def named_rows(rows: Tensor, dataset: Any) -> list[dict[str, float | None]]:
    """The values of each row by the names of the columns that ``dataset`` knows, else by their numbers."""
    names = column_names(dataset)
    keys = names if names and len(names) == rows.shape[1] else [*map(str, range(rows.shape[1]))]
    return [dict(zip(keys, map(_five_digits, row), strict=True)) for row in rows.tolist()]


def are_kept(preds: Any, target: Any) -> TypeGuard[Tensor]:
    """Whether there is a class for each sample and scores of all classes, or a number and its prediction."""
    if not isinstance(preds, Tensor) or not isinstance(target, Tensor) or not preds.is_floating_point():
        return False
    are_numbers = preds.dim() > 0 and preds.shape == target.shape and preds.numel() == len(preds)
    return are_numbers or _are_classes(preds, target)


def _are_classes(preds: Tensor, target: Tensor) -> bool:
    is_wide = preds.dim() == 2 and preds.shape[1] > 1
    return is_wide and target.shape == preds.shape[:1] and not target.is_floating_point()


def rows_of(preds: Tensor, target: Tensor) -> Tensor:
    """Target, prediction, confidence and loss of each sample as ``[n, 4]``, where they `are_kept`."""
    rounding = 2 * torch.finfo(preds.dtype).eps
    preds = preds.float()
    if _are_classes(preds, target):
        are_chances = (preds >= 0).all() & ((preds.sum(1) - 1).abs() < max(1e-3, rounding)).all()
        chances = torch.where(are_chances, preds, preds.softmax(1))
        confidence, prediction = chances.max(1)
        own = target.clamp(0, preds.shape[1] - 1).long()[:, None]
        loss = -chances.gather(1, own)[:, 0].clamp_min(1e-12).log()
        loss = torch.where(own[:, 0] == target, loss, math.nan)  # a class that is ignored
        return torch.stack([target.float(), prediction.float(), confidence, loss], 1)
    prediction, target = preds.reshape(-1), target.float().reshape(-1)
    loss = (prediction - target) ** 2
    return torch.stack([target, prediction, torch.full_like(loss, math.nan), loss], 1)


def names_of_samples(loader: Any, count: int) -> list[str]:
    """The names of the first ``count`` samples of this rank's pass over ``loader``.

    A name is the sample's file if the data set has a list of them, else its index, or the place in the pass.
    """
    sampler, dataset = getattr(loader, 'sampler', None), getattr(loader, 'dataset', None)
    places: Sequence[int] = range(count)
    if type(sampler) is EpochSampler and not sampler.shuffle:
        places = sampler.positions()[:count]
    elif not is_in_order(loader):
        return [f'place {number}' for number in places]
    return names_at(dataset, places)


def names_at(dataset: Any, places: Sequence[int]) -> list[str]:
    """The names of the samples with these indices: their files if ``dataset`` has a list of them, else the indices.

    A data set in torch's Subset, in a ConcatDataset or in a RepeatDataset is asked itself.
    """
    return [name or str(place) for place, name in _named(dataset, places)]


def _named(dataset: Any, places: Sequence[int]) -> list[tuple[int, str]]:
    """The index and the name of each sample; an empty name if there is none."""
    if hasattr(dataset, 'indices') and hasattr(dataset, 'dataset'):  # torch's Subset
        return _named(dataset.dataset, [int(dataset.indices[place]) for place in places])
    if hasattr(dataset, 'times') and hasattr(dataset, 'dataset'):  # RepeatDataset, also MMCV's
        return _named(dataset.dataset, [place % len(dataset.dataset) for place in places])
    if hasattr(dataset, 'cumulative_sizes') and hasattr(dataset, 'datasets'):  # torch's ConcatDataset
        names: dict[int, str] = {}
        for part, (begin, end) in zip(dataset.datasets, pairwise([0, *dataset.cumulative_sizes]), strict=True):
            own = [place for place in places if begin <= place < end]
            inside = _named(part, [place - begin for place in own])
            names |= {place: name for place, (_, name) in zip(own, inside, strict=True)}
        return [(place, names[place]) for place in places]
    lists = (getattr(dataset, name, None) for name in _LISTS)
    entries = next(
        (each for each in lists if isinstance(each, list | tuple) and len(each) > max(places, default=0)), ()
    )
    return [(place, _name_in(entries[place]) if entries else '') for place in places]


def _name_in(entry: Any) -> str:
    """The name in a sample's entry, such as ``('cat/1.png', 0)`` or ``{'img_info': {'filename': '1.png'}}``."""
    if isinstance(entry, str | os.PathLike):
        return os.fspath(entry)[-200:]
    if isinstance(entry, Mapping):
        return next((name for key in _KEYS if key in entry and (name := _name_in(entry[key]))), '')
    return _name_in(entry[0]) if isinstance(entry, list | tuple) and entry else ''


def _kind(value: Tensor) -> tuple[Any, ...]:
    return value.dtype, value.device, value.shape[1:]


def _five_digits(value: float) -> float | None:
    return float(f'{value:.5g}') if math.isfinite(value) else None


def _are_images(value: Tensor) -> bool:
    has_shape = value.dim() == 4 and value.shape[1] in (1, 3) and value.numel() > 0
    return has_shape and (value.is_floating_point() or value.dtype == torch.uint8)


def _largest(old: Sequence[Tensor], new: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The samples with the largest first values of ``old`` and ``new``, on their device."""
    order, places, images = map(torch.cat, zip(old, _largest_of(new), strict=True))
    return _largest_of((order, places, images))


def _largest_of(samples: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    order, places, images = samples
    chosen = order.topk(min(PICTURES, len(order))).indices
    return order[chosen], places[chosen], images[chosen]
