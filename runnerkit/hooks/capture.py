"""The hook that makes outputs and gradients of submodules readable."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.parallel import named_modules, unwrap
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import did_you_mean, suggestion

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
        self.output = _mapped(lambda tensor: tensor.detach().clone(), output)
        self._scale: Tensor | None = None  # the gradient with which the running backward pass began
        # Of each tensor: its gradient, and the scale of that backward pass.
        self._grads: list[tuple[Tensor, Tensor | None] | None] = [None for _ in tensors_held(output)]

    @property
    def grad(self) -> Any:
        """The gradients of the step's loss with respect to ``output``, in the same form; None before the backward pass,
        and where there is no gradient."""
        grads = iter(self._unscaled())
        return _mapped(lambda _: next(grads), self.output)

    def _unscaled(self) -> list[Tensor | None]:
        """The gradients of the output's tensors, without the factors of their losses."""
        pairs = [each or (None, None) for each in self._grads]
        return [grad if grad is None or scale is None else grad / scale for grad, scale in pairs]

    def _listen(self, output: Any) -> None:
        """Keep the gradients of ``output`` when they are computed."""
        # The graph lives as long as the step's outputs: it is not to keep this alive.
        captured = weakref.ref(self)
        for i, tensor in enumerate(tensors_held(output)):
            if tensor.requires_grad:
                tensor.register_hook(partial(_keep_grad, captured, i))


class _ByName(dict[str, Captured]):
    """What was captured; a name that is not there is answered with those that are."""

    def __missing__(self, name: str) -> Captured:
        raise KeyError(
            f'nothing is captured of {name!r}{suggestion(name, self)} (there is {", ".join(self) or "nothing yet"}). '
            f'Name it in modules; it is there from the first captured forward pass on'
        )


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class CaptureHook(Hook):
    """Makes outputs and gradients of submodules readable, by their names in the model.

    After the forward pass, ``hook.captured['backbone.layer4'].output`` is what that submodule has returned in its last
    call, and after the backward pass ``….grad`` the gradient of the loss with respect to it. The names are those of the
    model inside any wrappers. Nothing of the training changes: the values are copies, on their device, and those of the
    last captured iteration are kept until the next one.

    The submodules are listened to in captured iterations only; a compiled model is run as it is written in these, since
    compiled code exposes no intermediate values. Where the step returns its loss, gradients of fp16 and of accumulating
    updates are those of that loss, without their factors; of several losses, that of the last backward pass that
    reaches the output. Where it updates by itself, they are as they were computed.

    Args:
        modules: names of submodules, such as ``['backbone.layer4', 'head']``.
        interval: iterations between two captures.
        gradients: whether to capture the gradients with respect to outputs.
        log: which of mean, std, norm, max (of absolute values) and zeros (the share of them) to log of all that is
            captured, as ``backbone.layer4.output_mean`` and ``backbone.layer4.grad_norm``. With an ``interval``, a log
            line has the values of the last captured iteration.
    """

    needs_training = True

    modules: Sequence[str] | str
    interval: int = 1
    gradients: bool = True
    log: Sequence[str] | str = ()

    def __post_init__(self) -> None:
        self.modules, self.log = _names('modules', self.modules), _names('log', self.log)
        if not self.modules:
            raise ValueError("modules is empty: name at least one submodule, such as ['backbone.layer4']")
        for name in self.log:
            if name not in STATISTICS:
                raise ValueError(
                    f'log must be among {", ".join(STATISTICS)}, but got {name!r}{suggestion(name, STATISTICS)}'
                )
        check_whole_number('interval', self.interval)
        if not isinstance(self.gradients, bool):
            raise WrongType(f'gradients must be True or False, but got {self.gradients!r}')
        self.captured: dict[str, Captured] = _ByName()
        self._found: dict[str, nn.Module] = {}
        self._listening: ExitStack | None = None  # what ends it
        self._is_due = False
        self._missed: set[str] = set()

    def before_run(self, runner: RunnerView) -> None:
        self._found = self.find_modules(runner.model)
        self._missed.clear()

    def find_modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """The submodules to capture, by name; wrappers around ``model`` or around its parts are no part of the names.

        Raises:
            ValueError: there is no such submodule.
        """
        known = named_modules(model, remove_duplicate=False)
        for name in self.modules:
            if name not in known:
                hint = did_you_mean(name, known) or f'it has {", ".join(list(known)[1:6])} …'
                raise ValueError(f'{type(unwrap(model)).__name__} has no submodule {name!r}; {hint}')
        return {name: known[name] for name in self.modules}

    def before_train_iter(self, runner: RunnerView) -> None:
        if self._listening is not None:  # an iteration was left in its middle, to go back to a checkpoint
            self._stop()
        self._is_due = (runner.iter + 1) % self.interval == 0
        if self._is_due:
            self._listen(runner)

    def after_forward(self, runner: RunnerView) -> None:
        if self._listening is not None and self._is_due:
            self._stop()
            loss = runner.outputs.get('loss')
            losses = loss.values() if isinstance(loss, Mapping) else [loss]
            for each in losses if self.gradients else ():
                if isinstance(each, Tensor) and each.requires_grad:
                    each.register_hook(self._note_scale)

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self._is_due:
            return
        self._is_due = False
        self._stop()  # a runner whose step has no after_forward
        self._warn_of_missed(runner)
        if self.log:
            self._log(runner)

    def after_run(self, runner: RunnerView) -> None:
        self._stop()
        self._is_due = False

    # --- listening ---------------------------------------------------------------------------------------------------

    def _listen(self, runner: RunnerView) -> None:
        self.captured.clear()  # before the new values come, so that both are never there
        self._listening = ExitStack()
        if 'torch._dynamo' in sys.modules:  # otherwise nothing is compiled
            self._listening.enter_context(torch.compiler.set_stance('force_eager'))
        for name, module in self._found.items():
            keep = partial(self._keep, name, runner.iter)
            self._listening.callback(module.register_forward_hook(keep).remove)

    def _stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _keep(self, name: str, iteration: int, module: nn.Module, args: Any, output: Any) -> None:
        captured = self.captured[name] = Captured(output, iteration)
        if self.gradients:
            captured._listen(output)

    def _note_scale(self, grad: Tensor) -> None:
        for captured in self.captured.values():
            captured._scale = grad.detach()

    def _warn_of_missed(self, runner: RunnerView) -> None:
        missed = self._found.keys() - self.captured.keys() - self._missed
        if missed:
            self._missed |= missed
            runner.logger.warning(
                'CaptureHook: %s: not called in iteration %d, so nothing was captured. A step that calls a method of '
                'it, and not the module itself, cannot be listened to',
                ', '.join(sorted(missed)),
                runner.iter + 1,
            )

    # --- logging -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _log(self, runner: RunnerView) -> None:
        values = {
            f'{name}_{statistic}': STATISTICS[statistic](tensor.float())
            for name, tensor in self._named_tensors()
            if tensor.numel() and not tensor.is_complex()
            for statistic in self.log
        }
        if self.interval > 1:  # a log line is not to mix them with those of earlier captures
            for history in (runner.log_buffer.val_history, runner.log_buffer.n_history):
                for name in values:
                    history.pop(name, None)
        runner.log_buffer.update(values, runner.outputs.get('num_samples', 1))

    def _named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name, captured in self.captured.items():
            outputs = list(tensors_held(captured.output))
            for i, (output, grad) in enumerate(zip(outputs, captured._unscaled(), strict=True)):
                place = f'{name}[{i}]' if len(outputs) > 1 else name
                yield f'{place}.output', output
                if grad is not None:
                    yield f'{place}.grad', grad


def _keep_grad(captured: weakref.ref[Captured], i: int, grad: Tensor) -> None:
    found = captured()
    if found is not None:
        found._grads[i] = grad.detach(), found._scale


def _mapped(function: Callable[[Tensor], Any], value: Any) -> Any:
    """``value`` with what ``function`` makes of each tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _mapped(function, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_mapped(function, each) for each in value]
        if hasattr(value, '_fields'):
            return type(value)(*parts)
        return parts if isinstance(value, list) else tuple(parts)
    return value if isinstance(value, (int, float, str)) else None


def tensors_held(value: Any) -> Iterator[Tensor]:
    """The tensors in ``value``, in the order in which `_mapped` meets them."""
    found: list[Tensor] = []
    _mapped(found.append, value)
    return iter(found)


def _names(argument: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or isinstance(names, bytes) or not all(isinstance(each, str) for each in names):
        raise WrongType(f'{argument} must be a name or a list of names, but got {given!r}')
    return list(names)
