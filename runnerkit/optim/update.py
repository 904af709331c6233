"""The update primitive: what happens between a loss and the changed weights."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as _torch

from runnerkit.optim.builder import drop_missing_fused, use_fused
from runnerkit.parallel.dtensors import is_dtensor, laid_out_like, local_part, stacked
from runnerkit.parallel.wrappers import held_by_optimizer, is_fsdp2, named_parameters
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.numbers import check_finite, check_whole_number

if TYPE_CHECKING:
    from runnerkit.parallel.fsdp import FSDP2

#: The names in torch's two wrappers around each `step` (2.6 to 2.14): without profiler, hooks and compiler, the first
#: only calls the second, which only sets whether gradients are recorded.
KNOWN = {
    'profile_hook_step': (
        'Optimizer RuntimeError __class__ __name__ _global_optimizer_post_hooks _global_optimizer_pre_hooks '
        '_optimizer_step_code _optimizer_step_post_hooks _optimizer_step_pre_hooks autograd cast chain isinstance len '
        'profiler record_function torch tuple values',
    ),
    '_use_grad_for_differentiable': (
        '_dynamo defaults graph_break is_grad_enabled set_grad_enabled torch._dynamo',
        'Optimizer _dynamo cast defaults graph_break is_grad_enabled set_grad_enabled torch._dynamo',
    ),
}


def wrapper_code(owner: Any, name: str) -> object:
    """Return the code object of the wrapper that ``owner.name`` puts around every optimizer's ``step``; None if the
    names in it are not `KNOWN`: then it may do something else."""
    wrap = getattr(owner, name, None)
    code = None if wrap is None else wrap(lambda: None).__code__
    return code if code is not None and ' '.join(sorted({*code.co_names})) in KNOWN[name] else None


_WRAPPER = wrapper_code(Optimizer, 'profile_hook_step')
_GRAD_MODE = wrapper_code(_torch, '_use_grad_for_differentiable')


def step(optimizer: Optimizer) -> None:
    """Do what ``optimizer.step()`` does, faster.

    torch wraps the method in a function that names the step for the profiler and calls the optimizer's step hooks. The
    name alone takes 20 to 40 µs, even without a profiler. A second wrapper imports torch's compiler, which takes a
    second, to tell it something. If there are no hooks before the step and no global hooks, this function calls the
    wrapped method directly, and then the hooks after the step. It calls ``optimizer.step()`` while `torch.profiler`
    runs, if something has replaced ``step`` (torch's schedulers do), and with a torch whose wrapper is not `KNOWN`.
    Only tools that record names without torch's profiler, such as an ``ExecutionTraceObserver`` alone, do not see this
    step.
    """
    wrapper: Any = getattr(type(optimizer), 'step', None)
    if (
        _WRAPPER is not None
        and getattr(wrapper, '__code__', None) is _WRAPPER
        and not profiler._is_profiler_enabled
        and 'step' not in vars(optimizer)
        and not optimizer._optimizer_step_pre_hooks
        and not _torch._global_optimizer_pre_hooks
        and not _torch._global_optimizer_post_hooks
    ):
        method = wrapper.__wrapped__
        if _GRAD_MODE is not None and getattr(method, '__code__', None) is _GRAD_MODE:
            with torch.set_grad_enabled(optimizer.defaults['differentiable']):
                method.__wrapped__(optimizer)
        else:
            method(optimizer)
        for hook in optimizer._optimizer_step_post_hooks.values():
            hook(optimizer, (optimizer,), {})
    else:
        optimizer.step()


AMP_DTYPES = {'bf16': torch.bfloat16, 'fp16': torch.float16}

#: What the arguments of `torch.amp.GradScaler` must be, of which torch checks little, and that by assertions.
_SCALER_ARGUMENTS: dict[str, tuple[str, Callable[[float], bool]]] = {
    'init_scale': ('above 0', lambda value: value > 0),
    'growth_factor': ('above 1', lambda value: value > 1),
    'backoff_factor': ('between 0 and 1', lambda value: 0 < value < 1),
    'growth_interval': ('of at least 1', lambda value: value >= 1),
}


class Update:
    """Zero at the start of a cycle, scale, backward, unscale, clip, step; for one or several optimizers at once.

    A cycle has ``cumulative_iters`` iterations. Its losses are averaged, and the optimizers step in the last iteration.
    Gradients are cleared when the *next* cycle starts, so they can be read until the end of the iteration.

    Args:
        optimizers: the optimizers that step together.
        grad_clip: arguments of `torch.nn.utils.clip_grad_norm_` (``max_norm``, ``norm_type`` …); None does not clip.
            An infinite ``max_norm`` only measures the norm; an infinite ``norm_type`` is the largest value.
        cumulative_iters: iterations in a cycle, at least 1. The last cycle of a run may be shorter; its losses are
            then averaged over its own length.
        amp: ``'fp16'`` scales the loss against underflow; ``'bf16'`` and None do not need that.
        loss_scale: for fp16, ``'dynamic'``, a fixed factor, or a dict of arguments of `torch.amp.GradScaler`.
        detect_anomalous_params: log, at each update, the parameters that the loss does not depend on.
        fused: ``'auto'`` switches the optimizers to torch's fused implementations if there are any; None leaves them
            unchanged.
        parameters: the parameters to clip; by default all parameters of the optimizers.
        is_one_of_several: the run has other optimizers. Then a backward pass computes gradients of these optimizers'
            parameters only, so that none reach another optimizer's step; and a cycle is counted in the losses of this
            update, since not every iteration may have one. The run's last iteration ends it; a shorter cycle is
            averaged over its own length.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        grad_clip: dict[str, Any] | None = None,
        cumulative_iters: int = 1,
        amp: str | None = None,
        loss_scale: float | str | dict[str, Any] = 'dynamic',
        detect_anomalous_params: bool = False,
        fused: str | None = None,
        parameters: Iterable[nn.Parameter] | None = None,
        is_one_of_several: bool = False,
    ) -> None:
        check_update_options(grad_clip, cumulative_iters, amp, loss_scale, fused)
        self.optimizers = list(optimizers)
        drop_missing_fused(self.optimizers)
        self.fused = [use_fused(optimizer) for optimizer in self.optimizers] if fused == 'auto' else []
        self.grad_clip = None if grad_clip is None else dict(grad_clip)
        self.cumulative_iters = cumulative_iters
        self.amp = amp
        self.detect_anomalous_params = detect_anomalous_params
        self._parameters = None if parameters is None else list(parameters)
        self.is_one_of_several = is_one_of_several
        # A fixed factor is set again after each step, because the scaler would halve it at an overflow.
        self.fixed_scale = float(loss_scale) if isinstance(loss_scale, (int, float)) else None
        self.scaler = make_scaler(loss_scale, self.device_type) if amp == 'fp16' else None
        self._first_scale = {} if self.scaler is None else self.scaler.state_dict()  # before any step
        self.accumulated = 0  # losses whose gradients wait for the step
        self.steps = 0  # optimizer steps since construction, also those made elsewhere
        self._one: Tensor | None = None  # the loss's own gradient
        self._sharded: list[FSDP2] | None = None  # the wrappers in the model, where this is one of several updates
        self._counting = [optimizer.register_step_post_hook(self._count_step) for optimizer in self.optimizers]

    def retire(self) -> None:
        """Stop counting the optimizers' steps, because another update replaces this one."""
        for handle in self._counting:
            handle.remove()

    @property
    def device_type(self) -> str:
        """The device type of the parameters: ``'cpu'``, ``'cuda'`` …."""
        return device_type_of(self.parameters())

    def parameters(self) -> Iterator[nn.Parameter]:
        """All parameters of the optimizers, group by group."""
        if self._parameters is not None:
            yield from self._parameters
            return
        for optimizer in self.optimizers:
            yield from held_by_optimizer(optimizer)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context for the forward pass; it does nothing without ``amp``."""
        return autocast(self.amp, self.device_type) if self.amp else nullcontext()

    def is_due(self, iteration: int, max_iters: int | None, ahead: int = 0) -> bool:
        """Whether the update of the 0-based ``iteration`` ends a cycle; ``ahead`` losses are still to come."""
        if self.cumulative_iters == 1:
            return True
        last_of_cycle = (iteration + 1) % self.cumulative_iters == 0 and not self.is_one_of_several
        # The third case: an optimizer that is not updated in every iteration (in a GAN) may miss the cycle's last one.
        return last_of_cycle or iteration + 1 == max_iters or self.accumulated + ahead >= self.cumulative_iters

    def backward(
        self,
        loss: Tensor,
        iteration: int = 0,
        max_iters: int | None = None,
        model: nn.Module | None = None,
        logger: logging.Logger | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Add the gradients of ``loss`` (one element) to the cycle's; a new cycle clears the old ones first."""
        if self.accumulated == 0:
            for optimizer in self.optimizers:
                if getattr(optimizer.zero_grad, '__func__', None) is not Optimizer.zero_grad:
                    optimizer.zero_grad()
                    continue
                # What zero_grad() does, without the 30 µs that its profiler and compiler hooks take.
                for group in optimizer.param_groups:
                    for parameter in group['params']:
                        parameter.grad = None
        if self.detect_anomalous_params and model is not None:
            log_anomalous_params(loss, model, logger, self.parameters() if self.is_one_of_several else None)
        if self.cumulative_iters > 1:
            is_own = self.is_one_of_several
            length = self.cumulative_iters if is_own else cycle_length(self.cumulative_iters, iteration, max_iters)
            loss = loss / length if length > 1 else loss
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        options: dict[str, Any] = {'retain_graph': True} if retain_graph else {}
        if self.is_one_of_several:
            self._add_own_gradients(loss, model, options)
        elif self.amp:
            self._add_gradients(loss, options)
        else:
            loss.backward(self._gradient_of(loss), **options)
        self.accumulated += 1

    def _gradient_of(self, loss: Tensor) -> Tensor | None:
        """The loss's own gradient, kept since backward() would create it each time; None if torch had to import its
        symbolic shapes to check it, which takes half a second."""
        if loss.dim() or not loss.is_floating_point() or 'torch.fx.experimental.symbolic_shapes' not in sys.modules:
            return None
        one = self._one
        if one is None or one.dtype is not loss.dtype or one.device != loss.device or one._version:  # a hook changed it
            one = self._one = torch.ones((), dtype=loss.dtype, device=loss.device)
        return one

    def _add_own_gradients(self, loss: Tensor, model: nn.Module | None, options: dict[str, Any]) -> None:
        """Compute the gradients of one of several optimizers' parameters alone."""
        inputs = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if not inputs:  # all of them are frozen; torch takes an empty list for an error
            return
        if self._sharded is None:
            self._sharded = [] if model is None else [part for part in model.modules() if is_fsdp2(part)]
        if model is None or not self._sharded:
            self._add_gradients(loss, {**options, 'inputs': inputs})
            return
        # Sharded weights cannot be named as inputs: others keep their gradients.
        own = {id(parameter) for parameter in inputs}
        for wrapper in self._sharded:
            wrapper.reshard()
        others = [(parameter, parameter.grad) for parameter in model.parameters() if id(parameter) not in own]
        for parameter, _ in others:
            parameter.grad = None
        try:
            self._add_gradients(loss, options)
        finally:
            for parameter, grad in others:
                parameter.grad = grad

    def _add_gradients(self, loss: Tensor, options: dict[str, Any]) -> None:
        # torch advises against a backward pass under autocast, so a surrounding one (a ring around the iteration) is
        # switched off.
        with torch.autocast(loss.device.type, enabled=False) if self.amp else nullcontext():
            loss.backward(**options)

    def step(self, model: nn.Module | None = None) -> Tensor | None:
        """Apply the cycle's gradients."""
        losses, self.accumulated = self.accumulated, 0
        if self.is_one_of_several and 0 < losses < self.cumulative_iters:
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(self.cumulative_iters / losses)
        if self.scaler is None:
            norm = None if self.grad_clip is None else self.clip(model)
            for optimizer in self.optimizers:
                step(optimizer)
            return norm
        # The scaler refuses an optimizer without any gradient, such as that of a frozen part.
        scaled = [optimizer for optimizer in self.optimizers if has_gradients(optimizer)]
        for optimizer in scaled:
            self.scaler.unscale_(optimizer)
        norm = self.clip(model)
        for optimizer in self.optimizers:
            if optimizer in scaled:
                self.scaler.step(optimizer)
            else:
                step(optimizer)
        if scaled:
            self.scaler.update(self.fixed_scale)
        return norm

    def clip(self, model: nn.Module | None = None) -> Tensor | None:
        """Clip the gradients as ``grad_clip`` says; returns their norm before, or None if there is nothing to clip."""
        if self.grad_clip is None:
            return None
        parameters = [p for p in self.parameters() if p.grad is not None]
        return clip_gradients(parameters, self.grad_clip, model) if parameters else None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs: the scaler, and the gradients of an unfinished cycle in `parameters`' order."""
        state: dict[str, Any] = {'accumulated': self.accumulated, 'cumulative_iters': self.cumulative_iters}
        if self.scaler is not None:
            state['scaler'], state['first_scale'] = self.scaler.state_dict(), self._first_scale
        if self.accumulated:
            state['grads'] = [None if p.grad is None else p.grad.detach().cpu() for p in self.parameters()]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; where ``cumulative_iters`` or a setting of the loss scale is another one
        now, that holds: the gradients of an unfinished cycle are dropped, the scale begins with its setting."""
        if state.get('cumulative_iters', self.cumulative_iters) != self.cumulative_iters:
            state = {**state, 'accumulated': 0, 'grads': ()}
        self.accumulated = state['accumulated']
        if self.scaler is not None and 'scaler' in state:
            was = state.get('first_scale', self._first_scale)
            own = {key: value for key, value in self._first_scale.items() if was.get(key) != value}
            self.scaler.load_state_dict({**state['scaler'], **own})
        for parameter, grad in zip(self.parameters(), state.get('grads', ()), strict=False):
            if grad is not None:
                grad = laid_out_like(grad, parameter).to(parameter.device, parameter.dtype, copy=True)
            parameter.grad = grad

    def _count_step(self, *_: Any) -> None:
        self.steps += 1


def check_update_options(
    grad_clip: Any = None, cumulative_iters: Any = 1, amp: Any = None, loss_scale: Any = 'dynamic', fused: Any = None
) -> None:
    """Refuse options of `Update` that it cannot follow."""
    check_whole_number('cumulative_iters', cumulative_iters)
    if amp is not None and amp not in AMP_DTYPES:
        raise ValueError(f"amp must be 'bf16', 'fp16' or None, but got {amp!r}")
    if fused not in (None, 'auto'):
        raise ValueError(
            f"fused must be 'auto' or None, but got {fused!r}; to require it, use optimizer=dict(..., fused=True)"
        )
    if grad_clip is not None and not isinstance(grad_clip, dict):
        raise TypeError(f'grad_clip must be a dict such as dict(max_norm=35), or None, but got {grad_clip!r}')
    check_finite('grad_clip', grad_clip, lambda path: True)
    check_finite('fp16', {'loss_scale': loss_scale})
    if amp == 'fp16':
        make_scaler(loss_scale, 'cpu')


def clip_gradients(
    parameters: Sequence[nn.Parameter], options: Mapping[str, Any], model: nn.Module | None = None
) -> Tensor:
    """Clip with `torch.nn.utils.clip_grad_norm_` and its ``options``; returns the norm before, over all ranks where the
    gradients are sharded.
    """
    options = dict(options)
    if float(options.get('norm_type', 2.0)) == inf and any(is_dtensor(each.grad) for each in parameters):
        # clip_grad_norm_ fails on a rank that has nothing of some gradient (torch 2.13).
        return _clip_by_largest(parameters, **options)
    try:
        norm: Any = nn.utils.clip_grad_norm_(parameters, **options)
    except NotImplementedError as error:
        sparse = [each for each in parameters if each.grad is not None and each.grad.layout is not torch.strided]
        if not sparse:
            raise
        names = {parameter: name for name, parameter in named_parameters(model).items()} if model is not None else {}
        which = ', '.join(f'{names.get(each, "a parameter")} {tuple(each.shape)}' for each in sparse[:3])
        raise ValueError(
            f'grad_clip={options} cannot clip the sparse gradient of {which}: torch has no norm of it. Set '
            'sparse=False in the nn.Embedding, with an optimizer other than SparseAdam, or leave grad_clip out '
            '(optimizer_config.grad_clip=None). If each optimizer has its own loss, runner.configure_update(<name>, '
            'grad_clip=…) clips one of them'
        ) from error
    return norm.full_tensor() if hasattr(norm, 'full_tensor') else norm


def largest(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the largest magnitude in ``tensors``, one number per device; NaN if there is a NaN among them.

    Of sharded tensors, it is that of this rank's part.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        values = local_part(tensor)
        values = values._values() if values.is_sparse else values
        if values.numel() and (values.is_floating_point() or values.is_complex()):
            by_device.setdefault(values.device, []).append(values)
    return [
        torch.stack([norm.float() for norm in torch._foreach_norm(group, ord=float('inf'))]).amax()
        for group in by_device.values()
    ]


@torch.no_grad()
def _clip_by_largest(
    parameters: Sequence[nn.Parameter],
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """`torch.nn.utils.clip_grad_norm_` with ``norm_type`` infinity, for sharded gradients."""
    sharded = next(each.grad for each in parameters if is_dtensor(each.grad))
    device = sharded.to_local().device  # type: ignore[union-attr]
    own = [each.to(device) for each in largest(each.grad for each in parameters if each.grad is not None)]
    norm: Tensor = stacked(torch.stack([torch.zeros((), device=device), *own]).amax(), sharded).full_tensor().amax()
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f'the largest gradient is {norm.item()}, so that gradients cannot be clipped by it; to clip nevertheless, '
            'leave out error_if_nonfinite'
        )
    nn.utils.clip_grads_with_norm_(parameters, max_norm, norm, foreach)
    return norm


def has_gradients(optimizer: Optimizer) -> bool:
    """Whether any parameter of ``optimizer`` has a gradient."""
    return any(parameter.grad is not None for parameter in held_by_optimizer(optimizer))


def cycle_length(cumulative_iters: int, iteration: int, max_iters: int | None) -> int:
    """Return how many iterations the cycle of the 0-based ``iteration`` has; the last cycle of a run may be shorter."""
    n = cumulative_iters
    if n == 1 or max_iters is None or iteration < max_iters // n * n:
        return n
    return max_iters % n


def autocast(amp: str, device_type: str) -> AbstractContextManager[Any]:
    """The context for a forward pass in ``amp``, ``'fp16'`` or ``'bf16'``."""
    return torch.autocast(device_type, AMP_DTYPES[amp])


def device_type_of(tensors: Iterable[Tensor]) -> str:
    """The device type of the first tensor; ``'cpu'`` if there is none."""
    return next((each.device.type for each in tensors), 'cpu')


def make_scaler(loss_scale: float | str | dict[str, Any], device_type: str) -> torch.amp.GradScaler:
    """Make a gradient scaler from any of MMCV's forms: ``'dynamic'``, a fixed factor, or a dict of `GradScaler`
    arguments.
    """
    if loss_scale == 'dynamic':
        return torch.amp.GradScaler(device_type)
    if isinstance(loss_scale, dict):
        for name in loss_scale.keys() & _SCALER_ARGUMENTS.keys():
            (wanted, is_right), value = _SCALER_ARGUMENTS[name], loss_scale[name]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_right(value):
                raise WrongValue(f'loss_scale: {name} must be a number {wanted}, but got {value!r}')
        return torch.amp.GradScaler(device_type, **loss_scale)
    if isinstance(loss_scale, (int, float)) and not isinstance(loss_scale, bool) and loss_scale > 0:
        return torch.amp.GradScaler(device_type, init_scale=float(loss_scale))
    raise ValueError(
        f"loss_scale must be a number above 0, 'dynamic' or a dict of GradScaler arguments, but got {loss_scale!r}"
    )


def log_anomalous_params(
    loss: Tensor, model: nn.Module, logger: logging.Logger | None = None, among: Iterable[Tensor] | None = None
) -> list[str]:
    """Log and return the names of the trainable parameters that ``loss`` does not depend on.

    Their gradient would be None, for example in an unused head, or in a branch that is cut by ``detach``.
    """
    reached = set(graph_leaves(loss))
    looked_at = None if among is None else set(among)
    missing = {
        name: tuple(p.shape)
        for name, p in named_parameters(model).items()
        if p.requires_grad and p not in reached and (looked_at is None or p in looked_at)
    }
    for name, shape in missing.items():
        (logger or logging.getLogger('runnerkit')).log(
            level=logging.ERROR, msg=f'{name} (shape {shape}) does not contribute to the loss: it gets no gradient'
        )
    return list(missing)


def graph_leaves(loss: Tensor) -> Iterable[Tensor]:
    """Yield the leaf tensors of the graph of ``loss``."""
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, 'variable', None)
        if variable is not None:
            yield variable
        waiting.extend(parent for parent, _ in node.next_functions)


def mean_gradients(states: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The mean over ranks of the gradients that wait in an unfinished cycle."""
    if len({state['accumulated'] for state in states}) > 1:
        raise ValueError(
            'the checkpoint was saved inside an accumulation cycle in which the ranks are at different places; '
            'resume it with the same number of ranks'
        )
    means = []
    for column in zip(*(state.get('grads', ()) for state in states), strict=True):
        given = [grad for grad in column if grad is not None]  # a rank may not have used the parameter
        if given and all(grad is given[0] for grad in column):  # of a sharded model: it is the mean
            means.append(given[0])
            continue
        means.append(sum(given[1:], given[0]) / len(column) if given else None)
    return means
