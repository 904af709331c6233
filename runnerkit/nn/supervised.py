"""A model for the runner, made of parts by name: any module, a loss, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import isfunction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runnerkit.nn.base_module import BaseModule, InitCfg
from runnerkit.nn.builder import LOSSES, METRICS, MODELS, build_model
from runnerkit.registry import FUNCTIONS, build_or_bind, find_function
from runnerkit.utils.numbers import names_a_loss
from runnerkit.utils.suggest import did_you_mean

#: One field or output by name or 0-based position (negative from the end), several in a list, or a dict by argument.
Fields = str | int | list[str | int] | tuple[str | int, ...] | Mapping[str, str | int]


def _check_shapes(preds: Any, target: Any) -> None:
    if preds.shape != target.shape:
        raise ValueError('outputs and targets must have the same shape')


def _check_classes(preds: Any, target: Any) -> None:
    # Of class indices, torch refuses all but 0.
    if isinstance(preds, Tensor) and preds.shape[1:2] == (1,) and target.is_floating_point():
        raise ValueError(
            'the cross entropy of a single class is 0, whatever the network gives: let it give an output for each '
            "class, or use dict(type='BCEWithLogitsLoss') with targets of float32"
        )


#: What torch takes without an error, and what trains a wrong model: losses that compare each output with its own target
#: would compare every output with every target.
_CHECKS: dict[Any, Callable[[Any, Any], None]] = {
    **dict.fromkeys((nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss), _check_shapes),
    **dict.fromkeys((F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.poisson_nll_loss), _check_shapes),
    **dict.fromkeys((nn.CrossEntropyLoss, F.cross_entropy), _check_classes),
}


@MODELS.register_module()
class Supervised(BaseModule):
    """Trains any module on batches of inputs and targets, without a line of code::

        model = dict(
            type='Supervised',
            model=dict(type='torchvision.models.resnet18', num_classes=10),
            loss=dict(type='CrossEntropyLoss', label_smoothing=0.1),
            metrics=dict(accuracy=dict(type='MulticlassAccuracy', num_classes=10, average='micro')),
        )

    A batch is a tuple, a list or a dict. Its loss is ``loss(*outputs, *targets)``, where ``outputs`` are taken from
    ``model(*inputs)``. Each of ``inputs``, ``outputs`` and ``targets`` is ``'image'`` or ``0`` for one field, a list
    for several, or ``dict(x='image')`` for keyword arguments.

    Args:
        model: a config for `build_model`, or a module.
        loss: a config for `LOSSES`, a name in it, any callable, or a function's name (``'my_losses.py:focal'``, or a
            dict with that ``type`` and some of its arguments). It returns a tensor, or a dict of terms. A term called
            'loss' is the total; otherwise the terms with 'loss' in their names are summed, or all terms if there are
            none. Each term is logged.
        metrics: torchmetrics: a dict of configs, names or metrics by name (or a MetricCollection); or a list, or a
            single one, named by their classes. They are not sub-modules: they are not in the ``state_dict``, and DDP
            ignores them.
        inputs: fields of the batch that the model gets; by default the first.
        targets: fields of the batch that the loss gets after the outputs; by default the last. The metrics' ``target``
            is the first of these.
        outputs: parts of the model's output that the loss gets; by default the whole output. The metrics' ``preds`` are
            the first of these.
        init_cfg: initial weights, as for any `BaseModule`.
    """

    def __init__(
        self,
        model: nn.Module | dict[str, Any] | list[dict[str, Any]],
        loss: Callable[..., Any] | dict[str, Any] | str,
        metrics: Any = None,
        inputs: Fields = 0,
        targets: Fields = -1,
        outputs: Fields | None = None,
        init_cfg: InitCfg = None,
    ) -> None:
        super().__init__(init_cfg)
        self.model = build_model(model)
        if isinstance(loss, str):
            loss = {'type': loss} if FUNCTIONS.get(loss) is None else find_function(loss, 'loss')
        self.loss = build_or_bind(loss, LOSSES) if isinstance(loss, dict) else loss
        if not callable(self.loss):
            raise TypeError(
                f"loss={loss!r} is neither a config nor callable: give dict(type='CrossEntropyLoss'), a function, or "
                'its name in a config'
            )
        called = getattr(self.loss, 'func', self.loss)  # with some arguments, a function is a partial
        self._check = _CHECKS.get(called if isfunction(called) else type(called))
        self.metrics = build_metrics(metrics)
        self.inputs, self.targets, self.outputs = inputs, targets, outputs
        parts = [*(model if isinstance(model, list | tuple) else [model]), loss]
        origin = next(filter(None, (getattr(part, '_origin_', None) for part in parts)), None)
        self._where = f' (its config: {origin})' if origin else ''

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output."""
        return self.model(*args, **kwargs)

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Compute the loss of one batch.

        Args:
            data: the batch.
            optimizer: not used; runners pass it.

        Returns:
            ``loss``, a scalar tensor; ``log_vars``, detached scalars by name; ``num_samples``, the batch's size.

        Raises:
            LookupError: the batch or the output lacks a field.
            TypeError: the batch, the output or what the loss returns is of the wrong kind.
            ValueError: output and target of a loss such as MSELoss differ in shape, or a cross entropy gets one class.
        """
        return self._step(data)[0]

    def val_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Return the result of `train_step`, with ``preds`` and ``target`` for the metrics."""
        step, preds, target = self._step(data)
        preds, target = (each.detach() if isinstance(each, Tensor) else each for each in (preds, target))
        for metric in self.metrics.values():
            # A metric must be on the device of its inputs. It is not a sub-module, so it is not moved with the model.
            if isinstance(preds, Tensor) and metric.device != preds.device:
                metric.to(preds.device)
        return dict(step, preds=preds, target=target)

    def predict(self, data: Any) -> Any:
        """Return the predictions for one batch, which needs no targets: what the metrics get as ``preds``.

        Args:
            data: the batch; or, if the model gets the first field only, that field itself.

        Raises:
            LookupError: the batch or the output lacks a field.
            TypeError: the batch or the output is of the wrong kind.
        """
        args, kwargs = self.arguments(data)
        output = self._output(args, kwargs)
        if self.outputs is None:
            return output
        outs, named = self._pick(output, 'outputs')
        return _first(outs, named)

    def arguments(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments that the model gets for one batch.

        Args:
            data: as in `predict`.

        Raises:
            LookupError: the batch lacks a field.
            TypeError: the batch is of the wrong kind.
        """
        if isinstance(data, Tensor) and self.inputs == 0:
            data = (data,)
        return self._pick(data, 'inputs')

    def _step(self, data: Any) -> tuple[dict[str, Any], Any, Any]:
        args, kwargs = self._pick(data, 'inputs')
        output = self._output(args, kwargs)
        outs, named_outs = ([output], {}) if self.outputs is None else self._pick(output, 'outputs')
        wanted, named_wanted = self._pick(data, 'targets')
        preds, target = _first(outs, named_outs), _first(wanted, named_wanted)
        try:
            if self._check is not None:
                self._check(preds, target)
            result = self.loss(*outs, *wanted, **named_outs, **named_wanted)
        except Exception as error:
            from runnerkit.nn.failures import note_loss

            note_loss(error, self.loss, preds, target, self._where)
            raise
        loss, log_vars = self._total(result)
        samples = _samples_in([*args, *kwargs.values()] if kwargs else args)
        return {'loss': loss, 'log_vars': log_vars, 'num_samples': samples}, preds, target

    @staticmethod
    def _total(result: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar to minimise, and everything to log, detached."""
        if isinstance(result, Tensor):
            if result.is_floating_point():  # the usual case, in a few microseconds
                loss = result.mean() if result.dim() else result
                return loss, {'loss': loss.detach()}
            result = {'loss': result}
        if (
            not isinstance(result, Mapping)
            or not all(isinstance(term, Tensor) for term in result.values())
            or not result
        ):
            raise TypeError(f'the loss must return a tensor or a dict of tensors, but it returned {result!r}')
        # Numbers that have a mean: counts, and what is true or false, have none in their own type.
        floats = {
            name: term if term.is_floating_point() or term.is_complex() else term.float()
            for name, term in result.items()
        }
        terms = {name: term.mean() if term.dim() else term for name, term in floats.items()}
        counted = [term for name, term in terms.items() if names_a_loss(name)] or list(terms.values())
        loss = terms['loss'] if 'loss' in terms else torch.stack(counted).sum()
        return loss, {name: term.detach() for name, term in dict(terms, loss=loss).items()}

    def _output(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return self(*args, **kwargs)
        except Exception as error:
            from runnerkit.nn.failures import note_layer

            note_layer(error, self, self._where)
            raise

    def _pick(self, source: Any, setting: str) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments: the fields of ``source`` that the attribute ``setting`` names."""
        fields = getattr(self, setting)
        try:
            if isinstance(fields, (str, int)):
                return [_field(source, fields)], {}
            if isinstance(fields, Mapping):
                return [], {argument: _field(source, field) for argument, field in fields.items()}
            return [_field(source, field) for field in (fields if isinstance(fields, (list, tuple)) else [fields])], {}
        except (LookupError, TypeError) as error:
            holder = "the model's output" if setting == 'outputs' else 'the batch'
            raise type(error)(
                f'{setting}={fields!r} of Supervised does not fit {holder}: {error.args[0]}. '
                f'Set {setting} to what {holder} has{self._where}'
            ) from None


def build_metrics(metrics: Any) -> dict[str, Any]:
    """Build metrics by name from any of the forms that `Supervised` takes."""
    if metrics is None:
        return {}
    if isinstance(metrics, nn.ModuleDict):  # a MetricCollection
        metrics = dict(metrics.items())
    if isinstance(metrics, Mapping) and 'type' not in metrics:
        return {name: _build_metric(metric) for name, metric in metrics.items()}
    built: dict[str, Any] = {}
    for metric in map(_build_metric, metrics if isinstance(metrics, list | tuple) else [metrics]):
        name = type(metric).__name__
        if name in built:
            raise ValueError(
                f'two metrics are called {name}: name them, metrics=dict(first=dict(type={name!r}), second=…)'
            )
        built[name] = metric
    return built


def _build_metric(metric: Any) -> Any:
    metric = {'type': metric} if isinstance(metric, str) else metric
    with torch.device('cpu'):  # also if the model is built on the meta device: FSDP2 fills weights only
        built = METRICS.build(metric) if isinstance(metric, dict) else metric
    if not (hasattr(built, 'update') and hasattr(built, 'compute')):
        raise TypeError(
            f'metric {metric!r} is neither a config nor a torchmetrics.Metric: '
            f"give e.g. dict(type='MulticlassAccuracy', num_classes=10, average='micro')"
        )
    return built


def _field(source: Any, field: str | int) -> Any:
    """One field of a batch or output, by name or position."""
    if isinstance(source, (list, tuple)) and isinstance(field, int) and -len(source) <= field < len(source):
        return source[field]
    if isinstance(source, Mapping):
        by_position, names = list(source.values()), list(source)
    elif isinstance(source, list | tuple):
        by_position, names = list(source), list(getattr(source, '_fields', ()))  # the names of a namedtuple
    else:
        raise TypeError(f'fields can be taken from a tuple, list or dict, but this is a {type(source).__name__}')
    if field in names:
        field = names.index(field)
    if isinstance(field, int) and -len(by_position) <= field < len(by_position):
        return by_position[field]
    hint = did_you_mean(field, map(str, names)) if isinstance(field, str) else ''
    there = ', '.join(map(repr, names)) or f'{len(by_position)} of them, by position'
    raise LookupError(f'it has {there}' + (f'; {hint}' if hint else ''))


def _first(values: list[Any], named: dict[str, Any]) -> Any:
    return (values or [*named.values()])[0]


def _samples_in(values: Iterable[Any]) -> int:
    """Return the length of the first input that has one."""
    for value in values:
        if isinstance(value, Tensor) and value.dim() > 0:
            return value.shape[0]
        if isinstance(value, list | tuple):
            return len(value)
        if isinstance(value, Mapping):
            return _samples_in(value.values())
    return 1
