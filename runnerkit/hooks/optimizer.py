"""The hooks that update the weights: different settings of the runner's one update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.nn.amp import wrap_fp16_model
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.update import Update, cycle_length, log_anomalous_params, make_scaler
from runnerkit.utils.numbers import check_whole_number


@HOOKS.register_module()
class OptimizerHook(Hook):
    """Takes ``outputs['loss']`` through the runner's update: zero, scale, backward, unscale, clip, step.

    With a dict of optimizers the one loss updates all of them together; a dict of losses updates each optimizer by
    its own. An optimizer that the iteration's step has already updated itself (a GAN's) is left alone. Gradients can
    be read until the end of the iteration: they are cleared when the next cycle begins.

    Args:
        grad_clip: arguments of `torch.nn.utils.clip_grad_norm_`; logs ``grad_norm``, the norm before clipping.
        detect_anomalous_params: log the parameters that the loss does not depend on (costs a walk over the graph).
        cumulative_iters: iterations whose losses are averaged into one step, at least 1.
        amp: ``'bf16'`` or ``'fp16'`` runs the model's steps under `torch.autocast`; fp16 also scales the loss.
        loss_scale: for fp16, ``'dynamic'``, a factor, or a dict of arguments of `torch.amp.GradScaler`.
        fused: ``'auto'`` switches optimizers to torch's fused implementation where it has one for them; weights differ
            from the default one's in the last bits.
    """

    # Defaults of the class, for subclasses that write an __init__ of their own.
    grad_clip: dict[str, Any] | None = None
    detect_anomalous_params = False
    cumulative_iters = 1
    amp: str | None = None
    loss_scale: float | str | dict[str, Any] = 'dynamic'
    fused: str | None = None
    _casts_steps = True  # with amp, whole steps run under autocast
    _update: Any = None
    _stands_alone = False  # the update is the hook's own: what it is called with is no runner of ours
    _seen = 0

    def __init__(
        self,
        grad_clip: dict[str, Any] | None = None,
        detect_anomalous_params: bool = False,
        cumulative_iters: int = 1,
        amp: str | None = None,
        loss_scale: float | str | dict[str, Any] = 'dynamic',
        fused: str | None = None,
    ) -> None:
        self.grad_clip = grad_clip
        self.detect_anomalous_params = detect_anomalous_params
        self.cumulative_iters = cumulative_iters
        self.amp = amp
        self.loss_scale = loss_scale
        self.fused = fused

    def before_run(self, runner: RunnerView) -> None:
        self._configure(runner)

    def _configure(self, runner: RunnerView) -> None:
        options: dict[str, Any] = {
            'grad_clip': self.grad_clip,
            'cumulative_iters': self.cumulative_iters,
            'amp': self.amp,
            'loss_scale': self.loss_scale,
            'detect_anomalous_params': self.detect_anomalous_params,
            'fused': None if _has_sparse_gradients(runner.model) else self.fused,
        }
        self._update = runner.configure_update(**options) if hasattr(runner, 'configure_update') else None
        if not isinstance(self._update, Update):
            self._stands_alone = True
            self._update = Update(
                list(named_optimizers(runner.optimizer).values()), parameters=runner.model.parameters(), **options
            )
            return
        if self.fused is not None:
            runner.logger.info('fused: %s', _which(self._update))
        self._seen = runner.update_calls + self._update.steps
        # Points that cost something are served only where there is something to do.
        casts = self.amp is not None and self._casts_steps
        if casts:
            self.around_val = lambda runner: self._update.autocast()
        if casts or (self.cumulative_iters > 1 and hasattr(runner.model, 'no_sync')):
            self.around_iter = self._around_iter

    def after_train_iter(self, runner: RunnerView) -> None:
        if self._update is None:  # a subclass with a before_run of its own
            self._configure(runner)
        if self._stands_alone:
            self._update_alone(runner)
            return
        # Counted are changes of weights, through the runner or past it: the iteration's step may have made its own.
        if runner.update_calls + self._update.steps == self._seen:
            outputs = runner.outputs
            loss = outputs['loss'] if 'loss' in outputs else runner.required('loss')
            if type(loss) is not Tensor and isinstance(loss, dict):
                for name, each in loss.items():
                    runner.update(each, name)
            else:
                runner.update(loss)
        self._seen = runner.update_calls + self._update.steps

    def _update_alone(self, runner: Any) -> None:
        """The update for a loop that has no `update` itself: one of MMCV's shape, or a stand-in in a test."""
        iteration, max_iters = (0, None) if self.cumulative_iters == 1 else (runner.iter, runner.max_iters)
        self._update.backward(runner.outputs['loss'], iteration, max_iters, runner.model, runner.logger)
        if self._update.is_due(iteration, max_iters):
            norm = self._update.step()
            if norm is not None:
                runner.log_buffer.update({'grad_norm': float(norm)}, runner.outputs['num_samples'])

    def detect_anomalous_parameters(self, loss: Tensor, runner: RunnerView) -> None:
        """Log the parameters that ``loss`` does not depend on. For hooks that update by themselves."""
        log_anomalous_params(loss, runner.model, runner.logger)

    def clip_grads(self, params: Iterable[nn.Parameter]) -> Tensor | None:
        """Clip the gradients of ``params`` as ``grad_clip`` says; returns their norm before. For hooks that update by
        themselves."""
        with_grad = [p for p in params if p.requires_grad and p.grad is not None]
        return nn.utils.clip_grad_norm_(with_grad, **(self.grad_clip or {})) if with_grad else None

    @contextmanager
    def _around_iter(self, runner: Any) -> Iterator[None]:
        with ExitStack() as stack:
            if self._casts_steps:
                stack.enter_context(self._update.autocast())
            if hasattr(runner.model, 'no_sync') and not self._update.is_due(runner.iter, runner.max_iters, ahead=1):
                stack.enter_context(runner.model.no_sync())
            yield


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
        """Whether there is a batch norm in ``module``, or it is one."""
        return any(isinstance(part, _BatchNorm) for part in module.modules())

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self.initialized:
            self._init(runner)
        super().after_train_iter(runner)

    def _init(self, runner: RunnerView) -> None:
        """See how the run divides into cycles, and warn of what accumulation cannot make good."""
        begun = runner.iter % self.cumulative_iters
        if begun and not (self._update is not None and self._update.accumulated):
            runner.logger.warning(
                'the run goes on %d iterations into a cycle of cumulative_iters=%d whose gradients are lost: '
                'the next step has fewer',
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
        """By what the running iteration's loss is divided."""
        return cycle_length(self.cumulative_iters, runner.iter, runner.max_iters)


@HOOKS.register_module()
class Fp16OptimizerHook(OptimizerHook):
    """Trains in fp16 what the model's `auto_fp16` says, with a scaled loss.

    Weights and gradients are in single precision. ``OptimizerHook(amp='fp16')`` is the newer way: it needs no
    decorators, and runs whole steps under autocast.

    Args:
        grad_clip: as in `OptimizerHook`.
        coalesce: has no effect: DistributedDataParallel puts gradients into buckets by itself.
        bucket_size_mb: has no effect, see ``coalesce``.
        loss_scale: a fixed factor, ``'dynamic'``, or a dict of arguments of `torch.amp.GradScaler`.
        distributed: has no effect: whether gradients are averaged is the model wrapper's affair.
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
        self.loss_scaler = make_scaler(loss_scale, 'cpu')  # the update's own from the start of the run
        #: What subclasses that step by themselves pass to ``loss_scaler.update``, as in MMCV: a fixed scale, or None.
        self._scale_update_param = float(loss_scale) if isinstance(loss_scale, (int, float)) else None

    def before_run(self, runner: RunnerView) -> None:
        wrap_fp16_model(runner.model)
        super().before_run(runner)

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        if 'fp16' in checkpoint['meta']:
            runner.meta['fp16'] = checkpoint['meta']['fp16']

    def _configure(self, runner: RunnerView) -> None:
        super()._configure(runner)
        self.loss_scaler = self._update.scaler
        kept = runner.meta.get('fp16', {}).get('loss_scaler', {})
        if 'scale' in kept:
            self.loss_scaler.load_state_dict(kept)

    @contextmanager
    def around_save(self, runner: RunnerView) -> Iterator[None]:
        self._keep_scale(runner)
        yield

    def after_run(self, runner: RunnerView) -> None:
        self._keep_scale(runner)

    def _keep_scale(self, runner: RunnerView) -> None:
        # Where MMCV looks for it. Not in each iteration: it waits for the device.
        runner.meta.setdefault('fp16', {})['loss_scaler'] = self.loss_scaler.state_dict()

    def copy_grads_to_fp32(self, fp16_net: nn.Module, fp32_weights: Iterable[Tensor]) -> None:
        """Give ``fp32_weights`` the gradients of the parameters of ``fp16_net``. For loops with two sets of
        weights."""
        for weight, parameter in zip(fp32_weights, fp16_net.parameters(), strict=True):
            if parameter.grad is not None:
                weight.grad = parameter.grad.to(weight.dtype, copy=True)

    def copy_params_to_fp16(self, fp16_net: nn.Module, fp32_weights: Iterable[Tensor]) -> None:
        """Give the parameters of ``fp16_net`` the values of ``fp32_weights``. For loops with two sets of weights."""
        for parameter, weight in zip(fp16_net.parameters(), fp32_weights, strict=True):
            parameter.data.copy_(weight.data)


@HOOKS.register_module()
class GradientCumulativeFp16OptimizerHook(GradientCumulativeOptimizerHook, Fp16OptimizerHook):
    """`GradientCumulativeOptimizerHook` and `Fp16OptimizerHook` in one; takes the arguments of both."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def _which(update: Update) -> str:
    """Which of the optimizers are fused, and which are not."""
    answers = update.fused or [False] * len(update.optimizers)
    pairs = zip(update.optimizers, answers, strict=True)
    return ', '.join(f'{type(optimizer).__name__} {"yes" if fused else "no"}' for optimizer, fused in pairs)


def _has_sparse_gradients(model: Any) -> bool:
    """Whether the model has an embedding with sparse gradients, which no fused optimizer takes."""
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    return any(isinstance(part, embeddings) and part.sparse for part in model.modules())
