"""The hook that updates the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


@HOOKS.register_module()
class OptimizerHook(Hook):
    """Takes ``outputs['loss']`` through the runner's update: zero, scale, backward, unscale, clip, step.

    With a dict of optimizers the one loss updates all of them together; a dict of losses updates each optimizer by
    its own. An optimizer that the iteration's step has already updated itself (a GAN's) is left alone. Gradients can
    be read until the end of the
    iteration: they are cleared when the next cycle begins.

    Args:
        grad_clip: arguments of `torch.nn.utils.clip_grad_norm_`; logs ``grad_norm``, the norm before clipping.
        detect_anomalous_params: log the parameters that the loss does not depend on (costs a walk over the graph).
        cumulative_iters: iterations whose losses are averaged into one step, at least 1.
        amp: ``'bf16'`` or ``'fp16'`` runs the model's steps under `torch.autocast`; fp16 also scales the loss.
        loss_scale: for fp16, ``'dynamic'``, a factor, or a dict of arguments of `torch.amp.GradScaler`.
    """

    # Defaults of the class, for subclasses that write an __init__ of their own.
    grad_clip: dict[str, Any] | None = None
    detect_anomalous_params = False
    cumulative_iters = 1
    amp: str | None = None
    loss_scale: float | str | dict[str, Any] = 'dynamic'
    _update: Any = None
    _seen = 0

    def __init__(
        self,
        grad_clip: dict[str, Any] | None = None,
        detect_anomalous_params: bool = False,
        cumulative_iters: int = 1,
        amp: str | None = None,
        loss_scale: float | str | dict[str, Any] = 'dynamic',
    ) -> None:
        self.grad_clip = grad_clip
        self.detect_anomalous_params = detect_anomalous_params
        self.cumulative_iters = cumulative_iters
        self.amp = amp
        self.loss_scale = loss_scale

    def before_run(self, runner: RunnerView) -> None:
        self._configure(runner)

    def _configure(self, runner: RunnerView) -> None:
        self._update = runner.configure_update(
            grad_clip=self.grad_clip,
            cumulative_iters=self.cumulative_iters,
            amp=self.amp,
            loss_scale=self.loss_scale,
            detect_anomalous_params=self.detect_anomalous_params,
        )
        self._seen = runner.update_calls + self._update.steps
        # Points that cost something are served only where there is something to do.
        if self.amp is not None:
            self.around_val = lambda runner: self._update.autocast()
        if self.amp is not None or (self.cumulative_iters > 1 and hasattr(runner.model, 'no_sync')):
            self.around_iter = self._around_iter

    def after_train_iter(self, runner: RunnerView) -> None:
        if self._update is None:  # a subclass with a before_run of its own
            self._configure(runner)
        # Counted are changes of weights, through the runner or past it: the iteration's step may have made its own.
        if runner.update_calls + self._update.steps == self._seen:
            loss = runner.required('loss')
            if isinstance(loss, dict):
                for name, each in loss.items():
                    runner.update(each, name)
            else:
                runner.update(loss)
        self._seen = runner.update_calls + self._update.steps

    def clip_grads(self, params: Iterable[nn.Parameter]) -> Tensor | None:
        """Clip the gradients of ``params`` as ``grad_clip`` says; returns their norm before. For hooks that update by
        themselves."""
        with_grad = [p for p in params if p.requires_grad and p.grad is not None]
        return nn.utils.clip_grad_norm_(with_grad, **(self.grad_clip or {})) if with_grad else None

    @contextmanager
    def _around_iter(self, runner: Any) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._update.autocast())
            if hasattr(runner.model, 'no_sync') and not self._update.is_due(runner.iter, runner.max_iters, ahead=1):
                stack.enter_context(runner.model.no_sync())
            yield
