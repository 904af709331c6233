"""The hook that makes outputs and gradients of submodules readable."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.parallel import submodule
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number, values_in
from runnerkit.utils.suggest import suggestion

#: What can be logged of a tensor, by the name of the argument ``log``.
STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    'mean': torch.mean,
    'std': partial(torch.std, correction=0),
    'norm': torch.linalg.vector_norm,
    'max': lambda values: values.abs().max(),
    'zeros': lambda values: (values == 0).float().mean(),
}


class Captured:
    """What a submodule has computed in one iteration; copies without a graph.

    Args:
        output: what its ``forward`` has returned.
        iter: the iteration, from 0, as ``runner.iter`` was then.

    Attributes:
        output: its tensors, in the lists, tuples and dicts in which they were returned; numbers and texts as they are,
            any other object as None.
        iter: the iteration.
    """

    def __init__(self, output: Any, iter: int) -> None:
        self.iter = iter
        self.output = _with_each_tensor(lambda tensor: tensor.detach().clone(), output)
        self._grads: list[Tensor | None] = [None for _ in tensors_in(output)]

    @property
    def grad(self) -> Any:
        """The gradients of the step's loss with respect to ``output``, in the same form; None before the backward pass,
        and where there is no gradient."""
        grads = iter(self._grads)
        return _with_each_tensor(lambda _: next(grads), self.output)


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class CaptureHook(Hook):
    """Makes outputs and gradients of submodules readable, by their names in the model.

    After the forward pass, ``hook.captured['backbone.layer4'].output`` is what that submodule has returned in its last
    call, and after the backward pass ``….grad`` the gradient of the loss with respect to it, as it was computed: in
    fp16 with the loss's scale. The names are those of the model inside any wrappers. Nothing of the training changes:
    the values are copies, on their device, and those of the last captured iteration are kept until the next one.

    The submodules are listened to in captured iterations only; a compiled model is run as it is written in these, since
    compiled code exposes no intermediate values.

    Args:
        modules: names of submodules, such as ``['backbone.layer4', 'head']``.
        interval: iterations between two captures.
        log: which of mean, std, norm, max (of absolute values) and zeros (the share of them) to log of all that is
            captured, as ``backbone.layer4.output_mean`` and ``backbone.layer4.grad_norm``. With an ``interval``, a log
            line has the values of the last captured iteration.
    """

    needs_training = True

    modules: Sequence[str] | str
    interval: int = 1
    log: Sequence[str] | str = ()

    def __post_init__(self) -> None:
        self.modules, self.log = _list_of_names('modules', self.modules), _list_of_names('log', self.log)
        if not self.modules:
            raise ValueError("modules is empty: name at least one submodule, such as ['backbone.layer4']")
        for name in self.log:
            if name not in STATISTICS:
                raise ValueError(
                    f'log must be among {", ".join(STATISTICS)}, but got {name!r}{suggestion(name, STATISTICS)}'
                )
        check_whole_number('interval', self.interval)
        self.captured: dict[str, Captured] = {}
        self._submodules: dict[str, nn.Module] = {}
        self._listening = ExitStack()
        self._is_due = False
        self._missed: set[str] = set()

    def before_run(self, runner: RunnerView) -> None:
        self._submodules = self.find_modules(runner.model)
        self._missed.clear()

    def find_modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """The submodules to capture, by name; wrappers around ``model`` or around its parts are no part of the names.

        Raises:
            ValueError: there is no such submodule.
        """
        return {name: submodule(model, name) for name in self.modules}

    def before_train_iter(self, runner: RunnerView) -> None:
        self._is_due = (runner.iter + 1) % self.interval == 0
        self._listening.close()  # if an iteration was left in its middle, to go back to a checkpoint
        if not self._is_due:
            return
        self.captured.clear()  # before the new values come, so that both are never there
        if 'torch._dynamo' in sys.modules:  # otherwise nothing is compiled
            self._listening.enter_context(torch.compiler.set_stance('force_eager'))
        for name, module in self._submodules.items():
            handle = module.register_forward_hook(partial(self._keep, name, runner.iter))
            self._listening.callback(handle.remove)

    def _keep(self, name: str, iteration: int, module: nn.Module, args: Any, output: Any) -> None:
        captured = self.captured[name] = Captured(output, iteration)
        reference = weakref.ref(captured)  # the graph, which holds its hooks, may live longer

        def take(place: int, grad: Tensor) -> None:
            if (of_call := reference()) is not None:
                of_call._grads[place] = grad.detach()

        for place, tensor in enumerate(tensors_in(output)):
            if tensor.requires_grad:
                tensor.register_hook(partial(take, place))

    def after_forward(self, runner: RunnerView) -> None:
        self._listening.close()

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self._is_due:
            return
        self._listening.close()  # a runner whose step has no after_forward
        missed = self._submodules.keys() - self.captured.keys() - self._missed
        if missed:
            self._missed |= missed
            runner.logger.warning(
                'CaptureHook: %s: not called in iteration %d, so nothing was captured. A step that calls a method of '
                'it, and not the module itself, cannot be listened to',
                ', '.join(sorted(missed)),
                runner.iter + 1,
            )
        if self.log:
            self._log(runner)

    def after_run(self, runner: RunnerView) -> None:
        self._listening.close()

    @torch.no_grad()
    def _log(self, runner: RunnerView) -> None:
        values = {}
        for name, captured in self.captured.items():
            outputs = tensors_in(captured.output)
            for i, pair in enumerate(zip(outputs, captured._grads, strict=True)):
                place = f'{name}[{i}]' if len(outputs) > 1 else name
                for kind, tensor in zip(('output', 'grad'), pair, strict=True):
                    if tensor is not None and tensor.numel() and not tensor.is_complex():
                        for statistic in self.log:
                            values[f'{place}.{kind}_{statistic}'] = STATISTICS[statistic](tensor.float())
        if self.interval > 1:  # a log line is not to mix them with those of earlier captures
            for history in (runner.log_buffer.val_history, runner.log_buffer.n_history):
                for name in values:
                    history.pop(name, None)
        runner.log_buffer.update(values, runner.outputs.get('num_samples', 1))


def _with_each_tensor(function: Callable[[Tensor], Any], value: Any) -> Any:
    """``value`` with what ``function`` makes of each tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _with_each_tensor(function, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_with_each_tensor(function, each) for each in value]
        return type(value)(*parts) if hasattr(value, '_fields') else type(value)(parts)
    return value if isinstance(value, (int, float, str)) else None


def tensors_in(output: Any) -> list[Tensor]:
    """The tensors in ``output``, in the order in which `_with_each_tensor` meets them."""
    return [each for _, each in values_in(output) if isinstance(each, Tensor)]


def _list_of_names(argument: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or isinstance(names, bytes) or not all(isinstance(each, str) for each in names):
        raise WrongType(f'{argument} must be a name or a list of names, but got {given!r}')
    return list(names)
