"""Evaluation: a model's predictions and scores on a loader, in one process or many."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf, nan
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from runnerkit.data.kinds import check_pass, is_limited, length_of
from runnerkit.data.named import with_name
from runnerkit.distributed import (
    broadcast_object,
    collect_results_cpu,
    collect_results_gpu,
    get_dist_info,
    reduce_extremes,
)
from runnerkit.distributed.collectives import TIME_NAMES
from runnerkit.parallel import forward_is_collective, unwrap
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import GREATER_KEYS, LESS_KEYS, names_a_loss, plain_number, rule_by_name
from runnerkit.utils.suggest import suggestion

#: What may be better: a greater score, or a lesser one.
RULES = ('greater', 'less')


#: What an evaluation logs besides its scores.
NO_SCORES = ('eval_iter_num', *TIME_NAMES)

_END = object()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch ``model`` to evaluation mode; afterwards restore the mode of every module (a frozen one stays frozen)."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


def single_gpu_test(model: nn.Module, data_loader: Any) -> list[Any]:
    """Return ``model(return_loss=False, **data)`` for every sample of ``data_loader``, in order; shows a progress
    bar."""
    from runnerkit.utils.progress import ProgressBar

    bar = ProgressBar(len(data_loader.dataset))
    return _predictions(model, data_loader, bar.update)


def _predictions(model: nn.Module, data_loader: Any, tell: Callable[[int], Any]) -> list[Any]:
    results: list[Any] = []
    batches = 0
    with evaluation_mode(model), torch.no_grad():
        for data, counts in with_equal_steps(model, data_loader, iter(data_loader)):
            found = model(return_loss=False, **data)
            if not counts:
                continue
            batches += 1
            if found is None:
                raise TypeError(
                    f'{type(unwrap(model)).__name__}.forward(return_loss=False, …) returned None, but it must return a '
                    'sequence with one prediction for each sample of the batch'
                )
            before = len(results)
            results.extend(found)
            if len(results) > before:
                tell(len(results) - before)
    check_pass(data_loader, batches)
    return results


def batches_on_ranks(loader: Any) -> tuple[float, float]:
    """Return the fewest and the most batches that a rank has of ``loader``, asked on all of them; infinity where a rank
    does not know."""
    is_known = not isinstance(getattr(loader, 'dataset', None), IterableDataset)
    length = length_of(loader) if is_known else None
    return reduce_extremes(inf if length is None else length)


def with_equal_steps(model: nn.Module, loader: Any, batches: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each of this rank's ``batches``, and whether it counts.

    They all do. But where every forward pass of ``model`` is a collective, a rank with fewer batches than another one
    repeats its last batch, which does not count, until all are through; one without any repeats another rank's first.
    """
    if get_dist_info()[1] == 1 or not forward_is_collective(model):
        yield from ((batch, True) for batch in batches)
        return
    last: Any = _END
    most = batches_on_ranks(loader)[1]
    for number in count() if most == inf else range(int(most)):
        batch = next(batches, _END)
        has = batch is not _END
        if number == 0 or most == inf:
            # The largest rank that has one, or -1.
            fewest, source = reduce_extremes(get_dist_info()[0] if has else -1)
            if source < 0:
                return
            if number == 0 and fewest < 0:
                other = broadcast_object(batch if source == get_dist_info()[0] else None, int(source))
                last = batch if has else other
        last = batch if has else last
        yield last, has


def multi_gpu_test(
    model: nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> list[Any] | None:
    """`single_gpu_test` on several ranks: rank 0 returns all predictions in order, the others None."""
    from runnerkit.utils.progress import ProgressBar

    size = len(data_loader.dataset)
    rank, world_size = get_dist_info()
    bar = ProgressBar(size) if rank == 0 else None

    def tell(done: int) -> None:
        # The other ranks are about as far. Do not count beyond the end if the shares are uneven.
        if bar is not None and bar.completed < size:
            bar.update(min(done * world_size, size - bar.completed))

    results = _predictions(model, data_loader, tell)
    return collect_results_gpu(results, size) if gpu_collect else collect_results_cpu(results, size, tmpdir)


def score_dataset(
    model: nn.Module,
    loader: Any,
    test_fn: Callable[..., Any] | None = None,
    logger: logging.Logger | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Let the data set score the model's predictions; ``options`` are passed to its ``evaluate``."""
    if is_limited(loader):
        raise ValueError(
            f'{type(loader.dataset).__name__}.evaluate scores the predictions of all samples, but max_batches='
            f'{loader.max_batches} leaves some out: leave out max_batches, or make the data set itself smaller'
        )
    _, world_size = get_dist_info()
    results = (test_fn or (single_gpu_test if world_size == 1 else multi_gpu_test))(model, loader)
    if results is None:  # all but rank 0 have nothing to evaluate
        return {}
    evaluate = getattr(loader.dataset, 'evaluate', None)
    if evaluate is None:
        raise AttributeError(
            f'{type(loader.dataset).__name__} has no evaluate(results, logger=…), which turns what test_fn '
            'returned into scores'
        )
    return scores_of_dataset(loader, evaluate(results, logger=logger, **options))


def scores_of_dataset(loader: Any, scores: Any) -> dict[str, Any]:
    """Return what the data set's ``evaluate`` gave, by full names."""
    if not isinstance(scores, Mapping):
        raise WrongType(
            f"{type(loader.dataset).__name__}.evaluate must return a dict of scores, such as {{'acc': 0.9}}, but got "
            f'{printable(repr(scores), 200)}'
        )
    return with_name(loader, scores)


def numbers_of(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among ``scores`` as floats, NaN for None, without times and MMCV's ``eval_iter_num``, which
    are only for loggers."""
    numbers = {name: number_of(value) for name, value in scores.items() if name not in NO_SCORES}
    return {name: number for name, number in numbers.items() if number is not None}


def number_of(score: Any) -> float | None:
    """Return the number in ``score``, NaN for a score of None; None if it holds anything else, or several numbers."""
    value: Any = nan if score is None else plain_number(score)
    is_real = isinstance(value, Number) and not isinstance(value, complex)
    return float(value) if is_real else None


def metrics_of(model: nn.Module) -> Mapping[str, Any]:
    """Return the model's torchmetrics by name; empty if it has none."""
    metrics = getattr(unwrap(model), 'metrics', None)
    return dict(metrics.items()) if metrics else {}  # a ModuleDict is not a Mapping


def names_of(metric: Any) -> tuple[str, ...]:
    """Return the names of the scores of a metric that names them itself, as of its last evaluation."""
    return getattr(metric, 'score_names', ())


def declared_rule(model: nn.Module, key: str) -> str | None:
    """Which is better for the score ``key``, ``'greater'`` or ``'less'``; None if its metric does not say."""
    metric = next((each for name, each in metrics_of(model).items() if key == name or key in names_of(each)), None)
    better = getattr(metric, 'higher_is_better', None)
    return None if better is None else 'greater' if better else 'less'


def rule_of(
    model: nn.Module, key: str, greater_keys: Sequence[str] = GREATER_KEYS, less_keys: Sequence[str] = LESS_KEYS
) -> str:
    """Which is better for the score ``key``, ``'greater'`` or ``'less'``: as the metric declares, else by name."""
    declared = declared_rule(model, key) or declared_rule(model, key.rpartition('/')[2])
    return declared or rule_by_name(key, greater_keys, less_keys)


def check_score_exists(model: nn.Module, key: str, argument: str) -> None:
    """Refuse a score ``key`` that is none of the model's metrics, nor a loss; a model without metrics may have any."""
    metrics, name = list(metrics_of(model)), key.rpartition('/')[2]
    known = any(each in (key, name) or name.startswith(f'{each}_') or key.startswith(f'{each}_') for each in metrics)
    # What a metric calls its scores, it tells after the first evaluation.
    known = known or any(hasattr(metric, 'score_names') for metric in metrics_of(model).values())
    if metrics and not known and not names_a_loss(key):
        raise ValueError(
            f"{argument}={key!r} is none of the model's metrics ({', '.join(metrics)}) nor a loss"
            f'{suggestion(key, metrics)}'
        )


class Scores:
    """The model's metrics over one evaluation.

    Args:
        model: its ``metrics`` (name to torchmetrics metric), if any, are updated with the ``preds`` and ``target`` that
            its ``val_step`` returns.
    """

    def __init__(self, model: nn.Module) -> None:
        self._metrics = metrics_of(model)
        self._model = type(unwrap(model)).__name__
        self._device = next((each.device for each in model.parameters()), None)
        self._is_updated = False
        for metric in self._metrics.values():
            metric.reset()

    def update(self, outputs: Mapping[str, Any]) -> None:
        """Count one batch."""
        if not self._metrics:
            return
        self._is_updated = True
        missing = [key for key in ('preds', 'target') if key not in outputs]
        if missing:
            raise KeyError(
                f'{self._model} has metrics, but its val_step returned no {" and no ".join(map(repr, missing))} '
                f'(it returned {sorted(outputs)})'
            )
        preds, target = outputs['preds'], outputs['target']
        for name, metric in self._metrics.items():
            if isinstance(preds, Tensor) and metric.device != preds.device:
                metric.to(preds.device)
            try:
                metric.update(preds, target)
            except Exception as error:
                from runnerkit.nn.failures import note_metric

                note_metric(error, name, metric, preds, target)
                raise

    def compute(self) -> dict[str, Any]:
        """Return every metric's value over all ranks. A metric with several values gives one score for each, named
        ``<metric>_<key or index>``, unless it has ``score_names``: then each has its key as its name."""
        scores: dict[str, Any] = {}
        if get_dist_info()[1] == 1:
            values = {name: metric.compute() for name, metric in self._metrics.items()}
        else:
            from runnerkit.nn.metric_sync import unequal_lists

            if not self._is_updated and self._device is not None:
                for metric in self._metrics.values():  # as on the ranks that have had a batch
                    metric.to(self._device)
            with unequal_lists(self._metrics.values()):
                values = {name: metric.compute() for name, metric in self._metrics.items()}
        for name, metric in self._metrics.items():
            value = values[name]
            metric.reset()
            if isinstance(value, Mapping) and hasattr(metric, 'score_names'):
                parts = dict(value)
            elif isinstance(value, Mapping):
                parts = {f'{name}_{key}': each for key, each in value.items()}
            else:
                parts = {name: value}
            for key, part in parts.items():
                if isinstance(part, Tensor) and part.numel() != 1:
                    scores.update({f'{key}_{i}': each for i, each in enumerate(part.flatten())})
                else:
                    scores[key] = part
        return scores
