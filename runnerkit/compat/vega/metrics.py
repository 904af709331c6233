"""Metrics as Vega's users write them: called at every step, and summed up at the end of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from runnerkit.compat.vega.current import running_metrics
from runnerkit.distributed import all_gather_objects, get_dist_info
from runnerkit.nn import METRICS
from runnerkit.parallel.scatter_gather import to_device
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number


class MetricBase:
    """The base of metrics in Vega's style. A subclass implements `__call__`, `summary` and `reset`.

    With several processes, the outputs and targets of all ranks are collected before the metric is called with them,
    so that each sample counts once, on every rank. They are kept in memory until then.

    A subclass need not call this class's constructor.
    """

    #: The metric's name; by default that of its class.
    __metric_name__: str | None = None

    #: What is better: ``'MAX'`` or ``'MIN'``.
    objective = 'MAX'

    #: The names of the last evaluation's scores, if `summary` returned a dict: they are called by its keys.
    score_names: tuple[str, ...] = ()

    device: torch.device | None = None
    _batches: tuple[tuple[Any, Any], ...] = ()

    def __call__(self, output: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Count one batch."""
        raise NotImplementedError(f'{type(self).__name__} must implement __call__(output, target)')

    def summary(self) -> Any:
        """Return the value over all batches since `reset`: a number, or several in a dict by name."""
        raise NotImplementedError(f'{type(self).__name__} must implement summary()')

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError(f'{type(self).__name__} must implement reset()')

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.__metric_name__ or type(self).__name__

    @property
    def result(self) -> dict[str, Any]:
        """The values of `summary` by name."""
        value = self.summary()
        return dict(value) if isinstance(value, Mapping) else {self.name: value}

    # --- what an evaluation calls ------------------------------------------------------------------------------------

    @property
    def higher_is_better(self) -> bool:
        """Whether the objective is ``'MAX'``.

        Raises:
            ValueError: it is neither ``'MAX'`` nor ``'MIN'``.
        """
        if self.objective not in ('MAX', 'MIN'):
            raise WrongValue(f"objective of {type(self).__name__} must be 'MAX' or 'MIN', but got {self.objective!r}")
        return self.objective == 'MAX'

    def to(self, device: Any) -> None:
        """Note the device of the batches. A metric keeps numbers, which have no device."""
        self.device = device

    def update(self, preds: Any, target: Any) -> None:
        """Count one batch, or keep it until `compute` if there are several processes."""
        if get_dist_info()[1] == 1:
            self(preds, target)
        else:
            self._batches += ((to_device(preds, 'cpu'), to_device(target, 'cpu')),)

    def compute(self) -> Any:
        """Return `summary` over the batches of all ranks."""
        batches, self._batches = self._batches, ()
        if get_dist_info()[1] > 1:
            for preds, target in (batch for each in all_gather_objects(batches) for batch in each):
                self(preds, target)
        value = self.summary()
        self.score_names = tuple(value) if isinstance(value, Mapping) else ()
        return value


class FunctionMetric(MetricBase):
    """A function of a batch's output and target as a metric: its mean over all samples.

    Args:
        function: ``function(output, target, **options)``, which returns a number.
        options: its other arguments.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.function, self.options = function, dict(options)
        self.__metric_name__ = function.__name__
        self.reset()

    def __call__(self, output: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Count one batch; returns the function's value."""
        value = self.function(output, target, *args, **self.options, **kwargs)
        self.total += float(value) * len(target)
        self.samples += len(target)
        return value

    def summary(self) -> float:
        """Return the mean, 0 if there was no batch."""
        return self.total / self.samples if self.samples else 0.0

    def reset(self) -> None:
        """Forget all batches."""
        self.total, self.samples = 0.0, 0


def metric_of_function(function: Callable[..., Any]) -> Callable[..., FunctionMetric]:
    """What the registry has for a function: its arguments in a config are those of the function."""

    @wraps(function)
    def build(**options: Any) -> FunctionMetric:
        return FunctionMetric(function, options)

    return build


def accuracy(output: Tensor, target: Tensor, topk: Sequence[int] = (1,)) -> list[Tensor]:
    """Return the share of samples whose class is among the ``k`` that are rated highest, for each ``k``.

    Args:
        output: ratings ``[n, classes]``.
        target: class numbers ``[n]``.
        topk: each at least 1; more than there are classes means all.

    Returns:
        Scalar tensors in ``[0, 1]``, one for each ``k``. (Vega's are percentages.)
    """
    return [hits / len(target) for hits in _hits(output, target, topk)]


def _hits(output: Tensor, target: Tensor, topk: Sequence[int]) -> list[Tensor]:
    """How many samples have their class among the ``k`` that are rated highest, for each ``k``."""
    ranked = output.topk(min(max(topk), output.shape[1]), dim=1).indices
    hits = ranked.eq(target.reshape(-1, 1))
    return [hits[:, :k].sum() for k in topk]


@METRICS.register_module('accuracy')
class Accuracy(MetricBase):
    """The share of samples whose class is among the ``k`` that are rated highest.

    Args:
        topk: one or more ``k``, each at least 1. The scores of several are called ``top<k>_accuracy``.

    Raises:
        TypeError: a ``k`` is no whole number.
        ValueError: one is below 1, or there is none.
    """

    __metric_name__ = 'accuracy'

    def __init__(self, topk: int | Sequence[int] = (1,)) -> None:
        self.topk = (topk,) if isinstance(topk, int) else tuple(topk)
        if not self.topk:
            raise WrongValue('topk must have at least one number, such as [1, 5], but is empty')
        for each in self.topk:
            check_whole_number('topk', each)
        self.hits: list[Any] = []
        self.samples = 0
        self.reset()

    def __call__(self, output: Any, target: Any, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Count one batch; returns its accuracies."""
        output = output[0] if isinstance(output, tuple) else output
        found = _hits(output, target, self.topk)
        # Summed where the predictions are, so that a step waits for no GPU.
        self.hits = [hits + new for hits, new in zip(self.hits, found, strict=True)]
        self.samples += len(target)
        return [hits / len(target) for hits in found]

    def summary(self) -> float | dict[str, float]:
        """Return the accuracy; of several, each by name. 0 if there was no batch."""
        values = [float(hits) / max(self.samples, 1) for hits in self.hits]
        if len(values) == 1:
            return values[0]
        return {f'top{k}_{self.name}': value for k, value in zip(self.topk, values, strict=True)}

    def reset(self) -> None:
        """Forget all batches."""
        self.hits = [0] * len(self.topk)
        self.samples = 0


def objective_of(metric: Any) -> str:
    """What is better for a metric: ``'MAX'`` or ``'MIN'``. One of torchmetrics says it by ``higher_is_better``."""
    is_less = getattr(metric, 'higher_is_better', None) is False
    return str(getattr(metric, 'objective', 'MIN' if is_less else 'MAX'))


class Metrics:
    """Several metrics as one: called, reset and read together. Each is also an attribute, by its type.

    Args:
        metric_cfg: a name, or a dict with ``type`` (or ``name``) and arguments, in ``params`` or next to it; or a list
            of these. A type that was registered as a function gives its mean. None: those of the running
            training or step.

    Raises:
        TypeError: it is something else.
        ValueError: two have one type.
    """

    def __init__(self, metric_cfg: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None) -> None:
        self.mdict: dict[str, Any] = {}
        metric_cfg = running_metrics() if metric_cfg is None else metric_cfg
        for item in [metric_cfg] if isinstance(metric_cfg, str | Mapping) else metric_cfg:
            given: Any = {'type': item} if isinstance(item, str) else item
            if not isinstance(given, Mapping) or not {'type', 'name'} & set(given):
                raise WrongType(f"a metric must be a dict such as {{'type': 'accuracy'}}, but got {item!r}")
            key = 'type' if 'type' in given else 'name'
            others = {each: given[each] for each in given if each not in (key, 'params')}
            name = given[key]
            if name in self.mdict:
                raise WrongValue(f'there are two metrics {name!r}: give each once')
            self.mdict[name] = METRICS.build({'type': name, **others, **(given.get('params') or {})})

    def __call__(self, output: Any = None, target: Any = None, *args: Any, **kwargs: Any) -> list[Any]:
        """Count one batch; returns what each metric returns."""
        return [metric(output, target, *args, **kwargs) for metric in self.mdict.values()]

    def reset(self) -> None:
        """Reset all of them."""
        for metric in self.mdict.values():
            metric.reset()

    @property
    def results(self) -> dict[str, Any]:
        """All values since `reset`, by name."""
        found: dict[str, Any] = {}
        for name, metric in self.mdict.items():
            found.update(metric.result if isinstance(metric, MetricBase) else {name: metric.compute()})
        return found

    @property
    def objectives(self) -> dict[str, str]:
        """What is better for each metric: ``'MAX'`` or ``'MIN'``."""
        return {name: objective_of(metric) for name, metric in self.mdict.items()}

    def __getattr__(self, key: str) -> Any:
        if key != 'mdict' and key in self.mdict:
            return self.mdict[key]
        raise AttributeError(f'{type(self).__name__} has no metric {key!r}')
