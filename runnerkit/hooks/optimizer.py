"""The hooks that update the weights; each configures the runner's update in its own way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.optim.builder import why_not_fused
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.update import (
    Update,
    autocast,
    check_update_options,
    clip_gradients,
    cycle_length,
    device_type_of,
    log_anomalous_params,
    make_scaler,
)
from runnerkit.utils.logging import DETAIL
from runnerkit.utils.numbers import check_whole_number


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class OptimizerHook(Hook):
    """Updates the weights with ``outputs['loss']``: zero, scale, backward, unscale, clip, step.

    With several optimizers, a dict of losses by their names updates each optimizer with the gradients of its loss:
    first all backward passes, then all steps. One loss updates the optimizer that is called like the workflow's running
    mode; if there is none of that name, all of them together. An optimizer that the model's step has already updated
    itself is not updated again. Gradients can be read until the end of the iteration; they are cleared when the next
    cycle begins.

    Args:
        grad_clip: arguments of `torch.nn.utils.clip_grad_norm_`; logs ``grad_norm``, the norm before clipping; of an
            optimizer that is updated alone, ``grad_norm_<its name>``.
        detect_anomalous_params: log the parameters that the loss does not depend on (this walks over the graph).
        cumulative_iters: iterations whose losses are averaged into one step, at least 1; for an optimizer that is
            updated alone, the number of its losses.
        amp: ``'bf16'`` or ``'fp16'`` runs the model's steps under `torch.autocast`; fp16 also scales the loss.
        loss_scale: for fp16, ``'dynamic'``, a factor, or a dict of arguments of `torch.amp.GradScaler`.
        fused: ``'auto'`` switches optimizers to torch's fused implementation if there is one; the weights then differ
            in the last bits from those of the default implementation. A resumed run keeps its implementation. None
            leaves them as they are built. A run by config takes ``'auto'``, unless its optimizer is an object or says
            ``fused`` or ``foreach`` itself.
    """

    needs_training = True

    grad_clip: dict[str, Any] | None = None
    detect_anomalous_params: bool = False
    cumulative_iters: int = 1
    amp: str | None = None
    loss_scale: float | str | dict[str, Any] = 'dynamic'
    fused: str | None = None

    _casts_steps = True  # with amp, whole steps run under autocast
    _update: Any = field(default=None, init=False)
    _leaves_sync_out = False  # in the iterations of a cycle before its last one
    _stands_alone = False  # the hook has its own update, because the runner is not one of ours
    _seen = _calls = 0  # updates until now: of all, and of the runner's primitive
    _has_warned = False
    #: True for the hook of a config that says nothing about updates: once the model's step has updated an optimizer
    #: itself, all updates are left to it, also in iterations in which it makes none.
    gives_way = False
    _has_given_way = False
    _of_each: _OfEach | None = field(default=None, init=False)  # where there are several optimizers

    def __post_init__(self) -> None:
        check_update_options(self.grad_clip, self.cumulative_iters, self.amp, self.loss_scale, self.fused)

    def before_run(self, runner: RunnerView) -> None:
        self._configure(runner)

    def _configure(self, runner: RunnerView) -> None:
        names = ('grad_clip', 'cumulative_iters', 'amp', 'loss_scale', 'detect_anomalous_params')
        options = {name: getattr(self, name) for name in names}
        # Fused optimizers do not support sparse gradients.
        embeddings = [part for part in runner.model.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]
        options['fused'] = None if any(part.sparse for part in embeddings) else self.fused
        self._update = runner.configure_update(**options) if hasattr(runner, 'configure_update') else None
        if not isinstance(self._update, Update):
            self._stands_alone = True
            self._update = Update(
                list(named_optimizers(runner.optimizer).values()), parameters=runner.model.parameters(), **options
            )
            return
        if self.fused is not None:
            fused = self._update.fused or [False] * len(self._update.optimizers)
            answers = [
                f'{type(each).__name__} {"yes" if is_fused else f"no{why_not_fused(each)}"}'
                for each, is_fused in zip(self._update.optimizers, fused, strict=True)
            ]
            runner.logger.info('fused: %s', ', '.join(answers), extra=DETAIL if all(fused) else None)
        self._calls = runner.update_calls
        self._seen = self._calls + self._update.steps
        optimizers = named_optimizers(runner.optimizer)
        if len(optimizers) > 1 and (self._of_each is None or self._of_each.optimizers != optimizers):
            self._of_each = _OfEach(optimizers)
        # Several optimizers need not step in the same iteration, and modes need not reach the same parameters.
        is_one = self._of_each is None and not getattr(runner.model, 'averages_each_backward', False)
        self._leaves_sync_out = is_one and self.cumulative_iters > 1 and hasattr(runner.model, 'no_sync')
        # Define the expensive points only if they are needed.
        casts = self.amp is not None and self._casts_steps
        if casts:
            self.around_val = lambda runner: self._update.autocast()
        if casts or self._leaves_sync_out:
            self.around_iter = self._around_iter

    def after_train_iter(self, runner: RunnerView) -> None:
        if self._update is None:  # a subclass with its own before_run
            self._configure(runner)
        if self._stands_alone:
            self._update_alone(runner)
            return
        # Count all updates, through the runner or directly: the model's step may have made its own.
        is_updated = runner.update_calls + self._update.steps != self._seen
        if is_updated and not self._has_warned and runner.update_calls == self._calls:
            self._warn_of_bypass(runner)
        if self._of_each is not None:
            self._update_some(runner, self._of_each, is_updated)
        elif is_updated:
            self._has_given_way = self.gives_way
        elif not self._has_given_way:
            outputs = runner.outputs
            runner.update(outputs['loss'] if 'loss' in outputs else runner.required('loss'))
        self._calls = runner.update_calls
        self._seen = self._calls + self._update.steps

    def _warn_of_bypass(self, runner: RunnerView) -> None:
        """The step has called the optimizer itself, so that nothing of this hook's options has come into it."""
        self._has_warned = True
        asked = {
            'grad_clip': self.grad_clip is not None,
            'cumulative_iters': self.cumulative_iters > 1,
            'the loss scale of fp16': self.amp == 'fp16',
        }
        if any(asked.values()):
            runner.logger.warning(
                'the step calls optimizer.step() itself, so that %s of optimizer_config has no effect: let it call '
                'runner.update(loss) instead, in an Experiment self.update(loss)',
                ', '.join(name for name, is_asked in asked.items() if is_asked),
            )

    def for_evaluation(self) -> Hook | None:
        """What casts the evaluated steps as the training does; None without ``amp``."""
        return _Autocast(self.amp) if self.amp is not None and self._casts_steps else None

    def _update_some(self, runner: RunnerView, each: _OfEach, is_updated: bool) -> None:
        """Update those of several optimizers for which there is a loss, unless the step has done so itself."""
        done = each.new_ones(runner.losses_by_optimizer)
        if self.gives_way and is_updated:
            self._has_given_way = True
            each.left |= done
        done |= each.left
        if 'loss' in runner.outputs or not (is_updated or self._has_given_way):
            loss = runner.required('loss')
            if isinstance(loss, Tensor):
                if runner.mode not in each.optimizers:
                    if not (is_updated or self._has_given_way):
                        runner.update(loss)
                elif runner.mode not in done:
                    runner.update(loss, runner.mode)
            elif losses := {name: value for name, value in loss.items() if name not in done}:
                runner.update(losses)
        each.new_ones(runner.losses_by_optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return whether the hook has left the updates to the model; with several optimizers, which of them."""
        if not self._has_given_way:
            return {}
        return {'has_given_way': True, **({} if self._of_each is None else {'left': sorted(self._of_each.left)})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._has_given_way = state['has_given_way']
        if self._of_each is not None:
            self._of_each.left = set(state.get('left', self._of_each.optimizers))

    def _update_alone(self, runner: Any) -> None:
        """Update for a runner without an `update` method: MMCV's own, or a stub in a test."""
        iteration, max_iters = (0, None) if self.cumulative_iters == 1 else (runner.iter, runner.max_iters)
        self._update.backward(runner.outputs['loss'], iteration, max_iters, runner.model, runner.logger)
        if self._update.is_due(iteration, max_iters):
            norm = self._update.step(runner.model)
            if norm is not None:
                runner.log_buffer.update({'grad_norm': float(norm)}, runner.outputs['num_samples'])

    def detect_anomalous_parameters(self, loss: Tensor, runner: RunnerView) -> None:
        """Log the parameters that ``loss`` does not depend on. For subclasses with their own update."""
        log_anomalous_params(loss, runner.model, runner.logger)

    def clip_grads(self, params: Iterable[nn.Parameter]) -> Tensor | None:
        """Clip the gradients of ``params`` as ``grad_clip`` says; returns their norm before clipping. For subclasses
        with their own update."""
        with_grad = [p for p in params if p.requires_grad and p.grad is not None]
        return clip_gradients(with_grad, self.grad_clip or {}) if with_grad else None

    @contextmanager
    def _around_iter(self, runner: Any) -> Iterator[None]:
        with ExitStack() as stack:
            if self._casts_steps:
                stack.enter_context(self._update.autocast())
            if self._leaves_sync_out and not self._update.is_due(runner.iter, runner.max_iters, ahead=1):
                stack.enter_context(runner.model.no_sync())
            yield


class _OfEach:
    """What each of several optimizers has done, in the step or in the hook.

    Args:
        optimizers: by name.

    Attributes:
        left: those whose updates are left to the model's step.
    """

    def __init__(self, optimizers: dict[str, Optimizer]) -> None:
        self.optimizers = optimizers
        self.left: set[str] = set()
        self._steps: Counter[str] = Counter()
        self._seen: dict[str, int] = {}
        for name, optimizer in optimizers.items():
            optimizer.register_step_post_hook(lambda *_, name=name: self._steps.update([name]))

    def new_ones(self, losses: Mapping[str, int]) -> set[str]:
        """Those that have got losses or made steps since the last time that this was asked."""
        before, self._seen = self._seen, {name: losses.get(name, 0) + self._steps[name] for name in self.optimizers}
        return {name for name, count in self._seen.items() if count != before.get(name, 0)}


@HOOKS.register_module()
class GradientCumulativeOptimizerHook(OptimizerHook):
    """Averages the losses of several iterations into one step; ``OptimizerHook(cumulative_iters=…)`` does the same.

    The last cycle of a run may be shorter; its losses are averaged over its own length.

    Args:
        cumulative_iters: iterations whose losses make one step, at least 1.
        **kwargs: those of `OptimizerHook`.
    """

    def __init__(self, cumulative_iters: int = 1, **kwargs: Any) -> None:
        check_whole_number('cumulative_iters', cumulative_iters)
        super().__init__(**kwargs)
        self.cumulative_iters = cumulative_iters
        self.divisible_iters = 0
        self.remainder_iters = 0
        self.initialized = False

    def has_batch_norm(self, module: nn.Module) -> bool:
        """Whether ``module`` is or contains a batch norm."""
        return any(isinstance(part, _BatchNorm) for part in module.modules())

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self.initialized:
            self._init(runner)
        super().after_train_iter(runner)

    def _init(self, runner: RunnerView) -> None:
        """Compute how the run divides into cycles, and warn where accumulation differs from a larger batch."""
        begun = runner.iter % self.cumulative_iters
        if begun and not (self._update is not None and self._update.accumulated):
            runner.logger.warning(
                'the run resumes %d iterations into a cycle of cumulative_iters=%d whose gradients are lost: the next '
                'step has fewer',
                begun,
                self.cumulative_iters,
            )
        if self.cumulative_iters > 1 and self.has_batch_norm(runner.model):
            runner.logger.warning(
                'the model has batch norms, which see one batch at a time: accumulating %d of them is not the same '
                'as a batch of that size',
                self.cumulative_iters,
            )
        if runner.max_iters is not None:
            self.remainder_iters = runner.max_iters % self.cumulative_iters
            self.divisible_iters = runner.max_iters - self.remainder_iters
        self.initialized = True

    def _get_loss_factor(self, runner: RunnerView) -> int:
        """Return the number that the running iteration's loss is divided by."""
        return cycle_length(self.cumulative_iters, runner.iter, runner.max_iters)


@HOOKS.register_module()
class Fp16OptimizerHook(OptimizerHook):
    """Trains with a scaled loss; the methods that the model decorates with `auto_fp16` run in fp16.

    Weights and gradients are in single precision. ``OptimizerHook(amp='fp16')`` is the newer way: it needs no
    decorators and runs whole steps under autocast.

    Args:
        grad_clip: as in `OptimizerHook`.
        coalesce: no effect; DistributedDataParallel groups gradients into buckets itself.
        bucket_size_mb: no effect, see ``coalesce``.
        loss_scale: a fixed factor, ``'dynamic'``, or a dict of arguments of `torch.amp.GradScaler`.
        distributed: no effect; the model wrapper averages gradients.
        fused: as in `OptimizerHook`.

    Raises:
        ValueError: another ``loss_scale``.
    """

    _casts_steps = False  # the model's decorators say which of its methods are cast

    def __init__(
        self,
        grad_clip: dict[str, Any] | None = None,
        coalesce: bool = True,
        bucket_size_mb: int = -1,
        loss_scale: float | str | dict[str, Any] = 512.0,
        distributed: bool = True,
        fused: str | None = None,
    ) -> None:
        super().__init__(grad_clip, amp='fp16', loss_scale=loss_scale, fused=fused)
        self.coalesce = coalesce
        self.bucket_size_mb = bucket_size_mb
        self.distributed = distributed
        self.loss_scaler = make_scaler(loss_scale, 'cpu')  # replaced by the update's scaler when the run starts
        self._meta: dict[str, Any] = {}  # of the run
        #: The argument of ``loss_scaler.update`` in subclasses with their own step, as in MMCV: a fixed scale, or None.
        self._scale_update_param = float(loss_scale) if isinstance(loss_scale, (int, float)) else None

    def before_run(self, runner: RunnerView) -> None:
        from runnerkit.nn.amp import wrap_fp16_model

        wrap_fp16_model(runner.model)
        super().before_run(runner)

    def for_evaluation(self) -> Hook | None:
        """What lets the methods that the model decorates run in fp16."""
        return _Fp16Methods()

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        if 'fp16' in checkpoint['meta']:
            runner.meta['fp16'] = checkpoint['meta']['fp16']

    def _configure(self, runner: RunnerView) -> None:
        super()._configure(runner)
        self.loss_scaler, self._meta = self._update.scaler, runner.meta
        kept = runner.meta.get('fp16', {}).get('loss_scaler', {})
        if 'scale' in kept:
            self.loss_scaler.load_state_dict(kept)

    def state_dict(self) -> dict[str, Any]:
        self._keep_scale()
        return super().state_dict()

    def after_run(self, runner: RunnerView) -> None:
        self._keep_scale()

    def _keep_scale(self) -> None:
        # MMCV looks for it here. Not done in every iteration, because reading the scale waits for the device.
        self._meta.setdefault('fp16', {})['loss_scaler'] = self.loss_scaler.state_dict()

    def copy_grads_to_fp32(self, fp16_net: nn.Module, fp32_weights: Iterable[Tensor]) -> None:
        """Copy the gradients of ``fp16_net`` to ``fp32_weights``. For loops with two sets of weights."""
        for weight, parameter in zip(fp32_weights, fp16_net.parameters(), strict=True):
            if parameter.grad is not None:
                weight.grad = parameter.grad.to(weight.dtype, copy=True)

    def copy_params_to_fp16(self, fp16_net: nn.Module, fp32_weights: Iterable[Tensor]) -> None:
        """Copy ``fp32_weights`` to the parameters of ``fp16_net``. For loops with two sets of weights."""
        for parameter, weight in zip(fp16_net.parameters(), fp32_weights, strict=True):
            parameter.data.copy_(weight.data)


@HOOKS.register_module()
class GradientCumulativeFp16OptimizerHook(GradientCumulativeOptimizerHook, Fp16OptimizerHook):
    """`GradientCumulativeOptimizerHook` and `Fp16OptimizerHook` in one; takes the arguments of both."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class _Autocast(Hook):
    """Evaluates under `torch.autocast`, as a training with ``amp`` does."""

    def __init__(self, amp: str) -> None:
        self.amp = amp

    def around_val(self, runner: RunnerView) -> AbstractContextManager[Any]:
        return autocast(self.amp, device_type_of(runner.model.parameters()))


class _Fp16Methods(Hook):
    """Lets the decorated methods of the model run in fp16, as `Fp16OptimizerHook` does."""

    def before_run(self, runner: RunnerView) -> None:
        from runnerkit.nn.amp import wrap_fp16_model

        wrap_fp16_model(runner.model)
