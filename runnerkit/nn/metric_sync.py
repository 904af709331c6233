"""Metrics over ranks that have seen unequally many batches, or none.

A torchmetrics metric that keeps what it has seen in a list sends the list tensor by tensor. It expects that the lists
of all ranks are equally long, or can be concatenated to one tensor of the same type. Where they are not, as on a rank
without a batch, the ranks wait for each other for ever, or mix up each other's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.distributed import all_gather_objects, get_dist_info


class _Nothing(Tensor):
    """A placeholder in a list for a tensor that other ranks have and this one lacks."""


@contextmanager
def unequal_lists(metrics: Iterable[Any]) -> Iterator[None]:
    """Let ``metrics`` be computed inside this context, on all ranks together, also where their lists are unequal.

    One collective where a metric keeps a list, none elsewhere. Metrics that are not of torchmetrics, and those with
    their own ``dist_sync_fn`` or ``process_group``, are left alone.
    """
    keeping = [] if get_dist_info()[1] == 1 else [each for each in _torchmetrics_in(metrics) if _lists(each)]
    mine = [
        {name: (len(items), all(isinstance(each, Tensor) for each in items)) for name, items in _lists(each).items()}
        for each in keeping
    ]
    ranks = all_gather_objects(mine) if keeping else []
    if keeping:
        from torchmetrics.utilities import dim_zero_cat  # loaded already: whose metrics these are
    changed = []
    for i, metric in enumerate(keeping):
        for name, items in _lists(metric).items():
            lengths = [rank[i][name][0] for rank in ranks]
            # A list that is to be concatenated is sent as one tensor, and any other one item by item.
            is_joined = metric._reductions.get(name) is dim_zero_cat
            wanted = min(1, max(lengths)) if is_joined else max(lengths)
            if min(lengths) >= wanted or not all(rank[i][name][1] for rank in ranks):
                continue
            missing = [torch.empty(0).as_subclass(_Nothing) for _ in range(wanted - len(items))]
            setattr(metric, name, [*items, *missing])
            changed.append(metric)
    for metric in changed:
        metric.dist_sync_fn = _gathered
    try:
        yield
    finally:
        for metric in changed:
            metric.dist_sync_fn = None


def _torchmetrics_in(metrics: Iterable[Any]) -> Iterator[Any]:
    """All metrics of torchmetrics among ``metrics`` and inside them."""
    for metric in metrics:
        if isinstance(metric, nn.ModuleDict) and hasattr(metric, 'compute_groups'):
            metric.items(keep_base=True, copy_state=False)  # type: ignore[call-arg]  # lets a group share its states
        if isinstance(metric, nn.Module):
            yield from (each for each in metric.modules() if hasattr(each, 'dist_sync_fn'))


def _lists(metric: Any) -> dict[str, list[Any]]:
    """The states of ``metric`` that are lists and that we see to."""
    if metric.dist_sync_fn is not None or metric.process_group is not None:
        return {}
    return {name: getattr(metric, name) for name, default in metric._defaults.items() if isinstance(default, list)}


def _gathered(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """What torchmetrics asks for in place of `gather_all_tensors`: every rank's tensor, of those that have one."""
    by_rank = all_gather_objects(None if isinstance(tensor, _Nothing) else tensor.cpu())
    return [each.to(tensor.device) for each in by_rank if each is not None]
