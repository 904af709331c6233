"""The callback that counts a network's operations and parameters, so that a study can have them as objectives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.compat.vega.callbacks import CALLBACKS, Callback
from runnerkit.evaluation import evaluation_mode
from runnerkit.flow.look.summary import measured
from runnerkit.parallel import unwrap

#: What one operation, and one parameter, counts in Vega's scores.
UNITS = {'flops': 1e-9, 'params': 1e-3}


def calc_model_flops_params(model: nn.Module, *inputs: Any, **named: Any) -> tuple[float, int]:
    """Return the floating-point operations of one forward pass, and the number of parameters.

    They are counted as ``runnerkit summary`` does: a multiplication and an addition are two operations. The pass is
    one in evaluation mode and without gradients, and changes nothing in the model.

    Args:
        model: the network.
        *inputs: what it is called with.
        **named: the same by name.
    """
    model = unwrap(model)
    with evaluation_mode(model), torch.no_grad(), measured(model) as summary:
        model(*inputs, **named)
    return summary.whole.flops, summary.whole.parameters


@CALLBACKS.register_module()
class ModelStatistics(Callback):
    """Writes the scores ``flops`` (in 1e9) and ``params`` (in 1e3), for one sample.

    They are counted with the first sample of the first batch, once, at the end of the training; with
    ``trainer.config.calc_params_each_epoch`` after every epoch.
    """

    priority = 220

    def before_train(self, logs: dict[str, Any] | None = None) -> None:
        """Forget the sample of an earlier training."""
        self.inputs: tuple[list[Any], dict[str, Any]] | None = None

    def after_train_step(self, batch_index: int, logs: Any = None) -> None:
        """Keep the first sample."""
        if self.inputs is None:
            args, kwargs = self.trainer.inputs(logs['train_batch'])
            self.inputs = [_first(each) for each in args], {name: _first(each) for name, each in kwargs.items()}

    def after_epoch(self, epoch: int, logs: Any = None) -> None:
        """Count, if that is to be done after every epoch."""
        if self.trainer.config.calc_params_each_epoch:
            self._count(logs)

    def after_train(self, logs: Any = None) -> None:
        """Count."""
        if not self.trainer.config.calc_params_each_epoch:
            self._count(logs)

    def _count(self, logs: dict[str, Any]) -> None:
        if self.inputs is None:  # a resumed run that had nothing left to do
            return
        args, kwargs = self.inputs
        flops, params = calc_model_flops_params(self.trainer.model, *args, **kwargs)
        logs.setdefault('summary_perfs', {}).update(flops=flops * UNITS['flops'], params=params * UNITS['params'])


def _first(value: Any) -> Any:
    return value[:1] if isinstance(value, Tensor) and value.dim() else value
