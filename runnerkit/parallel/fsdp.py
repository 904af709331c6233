"""The wrapper for several processes that share one model: each holds a part of every weight."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import Logger
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from runnerkit.distributed import all_gather_objects, broadcast_buffers, broadcast_object, from_first_rank
from runnerkit.distributed.collectives import group_device
from runnerkit.parallel.dtensors import is_dtensor
from runnerkit.parallel.sharding import of_classes, recompute_activations, units
from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS
from runnerkit.utils.exceptions import WrongType, WrongValue, one_line
from runnerkit.utils.seed import rng_state, set_rng_state
from runnerkit.utils.suggest import did_you_mean
from runnerkit.utils.torch_versions import check_sharding

DTYPES = {'bf16': torch.bfloat16, 'fp16': torch.float16, 'fp32': torch.float32}

#: The keys of ``mp_policy``: torch's MixedPrecisionPolicy.
MP_POLICY = ('param_dtype', 'reduce_dtype', 'output_dtype', 'cast_forward_inputs')


@MODULE_WRAPPERS.register_module()
class FSDP2(Steps, nn.Module):
    """torch's ``fully_shard`` for models with steps: weights, gradients and optimizer states are divided among ranks.

    The model is divided into units. Before the forward and the backward pass of a unit, its weights are gathered from
    all ranks, and freed afterwards; its gradients are averaged, and each rank keeps its part. Training takes the same
    steps as with `MMDistributedDataParallel`, with about 1/N of the memory for the model on each of N ranks, and more
    communication.

    Every step of the model (``train_step``, ``val_step``, any ``<mode>_step``) and its ``forward`` may be called. Each
    call is a collective, also without gradients: all ranks must make equally many. A step must return its loss in a
    dict, list or tuple.

    All ranks begin with the weights and buffers of rank 0. The other ranks' model may therefore be on the meta device.
    The class of the model and of each unit becomes a new subclass; parameters become DTensors, so optimizers are
    to be built afterwards.

    Args:
        module: the model, on the CPU, on ``device``, or (not on rank 0) on the meta device.
        module_classes: names of the classes whose modules are units, such as the layers of a Transformer.
        min_num_params: without these names, the number of parameters from which on a module is a unit; 1,000,000 if
            neither is given.
        mp_policy: ``param_dtype``, ``reduce_dtype`` and ``output_dtype``, each 'bf16', 'fp16' or 'fp32', in which
            units compute, gradients are averaged and the model returns; and ``cast_forward_inputs``. Optimizers keep
            the weights' own type, and so do batch norms. The inputs of a step are cast as a whole, with the targets in
            it.
        cpu_offload: keep weights, gradients and optimizer states in the CPU's memory, and update there.
        activation_checkpointing: whether units compute their activations again in the backward pass; or names of the
            classes whose modules do.
        reshard_after_forward: whether to free gathered weights between forward and backward; a number of ranks among
            which they are divided meanwhile.
        broadcast_buffers: whether ranks take over rank 0's buffers before each training step.
        find_unused_parameters: whether ranks may differ in the parameters that a loss reaches.
        forward_methods: names of further methods of the model that are called from outside and use its weights.
        device: where to compute; by default where the process group communicates, and the CPU for gloo.

    Raises:
        RuntimeError: there is no process group.
        TypeError: an argument is of a wrong type.
        ValueError: an argument is unknown, or the ranks' models differ.
    """

    def __init__(
        self,
        module: nn.Module,
        module_classes: Sequence[str] | None = None,
        min_num_params: float | None = None,
        mp_policy: Mapping[str, Any] | None = None,
        cpu_offload: bool = False,
        activation_checkpointing: bool | Sequence[str] = False,
        reshard_after_forward: bool | int = True,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        forward_methods: Sequence[str] = (),
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        if not dist.is_initialized():
            raise RuntimeError(
                'FSDP2 divides a model among the processes of a group, and there is none: start the training with '
                'torchrun and --launcher pytorch, or call runnerkit.distributed.init_dist first'
            )
        check_sharding()
        parts = units(module, module_classes, min_num_params)
        checkpointed = to_checkpoint(module, parts, activation_checkpointing)
        if mixed_precision(mp_policy).get('param_dtype') is not None:
            # Batch norms with weights compute in the type of their statistics, whatever their inputs' is.
            norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.affine]
            parts = [*(part for part in norms if part not in parts), *parts]
        _check_same_everywhere(module)
        self.device = group_device() if device is None else device
        self.reshard_after_forward = reshard_after_forward
        # Torch would hide gradients that wait in another type than their parameters' from everybody.
        self.keeps_gradients = mixed_precision(mp_policy).get('reduce_dtype') is None
        first_ranks = module.named_parameters() if dist.get_rank() == 0 else ()
        whole = {name: parameter.detach() for name, parameter in first_ranks}  # no copies
        recompute_activations(checkpointed)
        _shard(module, parts, self.device, mp_policy, cpu_offload, reshard_after_forward)
        self.module = module
        self._units = [*parts, module]
        for name in _methods(module, forward_methods):
            _register(module, name)
        if find_unused_parameters:
            module.set_reduce_scatter_unused_params(True)  # type: ignore[operator]
        self._make_room(torch.device('cpu') if cpu_offload else self.device)
        _give_out(whole, module)
        # By name, since a step may put another tensor there; those that hooks add later are theirs.
        self._own_buffers = [(part, name) for part in module.modules() for name in part._buffers]
        self._broadcast()
        self.broadcast_buffers = broadcast_buffers

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model with its arguments on its device."""
        return self._step('forward', *inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Do not average the gradients of the backward passes within; they are kept whole meanwhile.

        With a ``reduce_dtype`` they are still averaged.
        """
        if not self.keeps_gradients:
            yield
            return
        root: Any = self.module
        root.set_requires_gradient_sync(False)
        root.set_is_last_backward(False)
        try:
            yield
        finally:
            root.set_requires_gradient_sync(True)
            root.set_is_last_backward(True)

    def kept_gradients(self) -> dict[str, Tensor]:
        """What `no_sync` has kept so far: the whole gradients of this rank, by parameter; all ranks call it."""
        gradients = {name: each.grad for name, each in self._whole_parameters()}
        return {name: each for name, each in gradients.items() if each is not None}

    def keep_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """Go on from what `kept_gradients` has returned, and drop what is kept now; all ranks call it."""
        for name, parameter in self._whole_parameters():
            given = gradients.get(name)
            parameter.grad = None if given is None else given.to(parameter.device, parameter.dtype, copy=True)

    def _whole_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The model's parameters, gathered one unit after another."""
        self.reshard()
        for unit in self._units:
            unit.unshard()  # type: ignore[operator]
            yield from ((name, each) for name, each in self.module.named_parameters() if not is_dtensor(each))
            unit.reshard()  # type: ignore[operator]

    def _step(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        if self.broadcast_buffers and torch.is_grad_enabled() and self.training:
            self._broadcast()
        return self._direct(name, *inputs, **kwargs)

    def _direct(self, name: str, *inputs: Any, **kwargs: Any) -> Any:
        try:
            outputs = super()._direct(name, *inputs, **kwargs)
        except Exception:
            self.module.reset_iter_state()  # type: ignore[operator]
            raise
        # The model's own weights stay gathered up to here: a step may use them after a call of the model within it.
        # Without gradients no backward pass would free what is gathered, and the next call would not see new weights.
        if not torch.is_grad_enabled():
            self.reshard()
        elif self.reshard_after_forward is not False:
            self.module.reshard()  # type: ignore[operator]
        return outputs

    def reshard(self) -> None:
        """Free all gathered weights."""
        for unit in self._units:
            unit.reshard()  # type: ignore[operator]

    def _make_room(self, device: torch.device) -> None:
        """Give memory to parameters and buffers on the meta device; bring buffers to where the model computes."""
        # Not the whole module's to_empty: metrics of torchmetrics in it would lose their states.
        parts = [part for part in self.module.modules() if any(each.is_meta for each in _own(part))]
        for part in parts:
            part.to_empty(device=device, recurse=False)
        for unit in self._units if parts else ():
            unit.to_empty(device=device, recurse=False)  # so that it takes note of its parameters
        for part in self.module.modules():
            for name, buffer in part.named_buffers(recurse=False):
                if buffer.device.type != self.device.type:
                    setattr(part, name, buffer.to(self.device))

    def _broadcast(self) -> None:
        buffers = {id(each): each for part, name in self._own_buffers if (each := part._buffers.get(name)) is not None}
        broadcast_buffers(buffers.values())

    def _model_device(self) -> torch.device:
        return self.device


def mixed_precision(policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of torch's ``MixedPrecisionPolicy`` for a config's ``mp_policy``."""
    if policy is None:
        return {}
    if not isinstance(policy, Mapping):
        raise WrongType(
            f"mp_policy must be a dict such as dict(param_dtype='bf16', reduce_dtype='fp32'), but got {policy!r}"
        )
    found: dict[str, Any] = {}
    for key, value in policy.items():
        if key not in MP_POLICY:
            hint = did_you_mean(str(key), MP_POLICY) or 'it has ' + ', '.join(MP_POLICY)
            raise WrongValue(f'mp_policy has no key {key!r}; {hint}')
        if key == 'cast_forward_inputs':
            if not isinstance(value, bool):
                raise WrongType(f'mp_policy.cast_forward_inputs must be True or False, but got {value!r}')
            found[key] = value
        elif value is not None:
            if not (isinstance(value, str) and value in DTYPES) and value not in DTYPES.values():
                hint = did_you_mean(str(value), DTYPES)
                needed = ', '.join(map(repr, DTYPES))
                raise WrongValue(f'mp_policy.{key} must be one of {needed}, but got {value!r}; {hint}'.rstrip('; '))
            found[key] = DTYPES.get(value, value)
    return found


def to_checkpoint(
    model: nn.Module, parts: Sequence[nn.Module], activation_checkpointing: bool | Sequence[str]
) -> list[nn.Module]:
    """The modules of ``model`` that compute their activations again: ``parts`` for True, those of classes for names."""
    if isinstance(activation_checkpointing, bool):
        if activation_checkpointing and not parts:
            raise WrongValue(
                f'activation_checkpointing=True means the units, but all of {type(model).__name__} is one: name '
                'classes of modules, activation_checkpointing=[…], or divide the model, by module_classes or '
                'min_num_params'
            )
        return list(parts) if activation_checkpointing else []
    return of_classes(model, activation_checkpointing, 'activation_checkpointing')


def check_fsdp_arguments(
    module: nn.Module,
    module_classes: Sequence[str] | None = None,
    min_num_params: float | None = None,
    mp_policy: Mapping[str, Any] | None = None,
    activation_checkpointing: bool | Sequence[str] = False,
    forward_methods: Sequence[str] = (),
    **others: Any,
) -> None:
    """Check the arguments of `FSDP2` that name parts of ``module``, before anything is done to it."""
    to_checkpoint(module, units(module, module_classes, min_num_params), activation_checkpointing)
    mixed_precision(mp_policy)
    _methods(module, forward_methods)


def build_without_weights(build: Callable[[], nn.Module], logger: Logger) -> nn.Module:
    """The initialised model that ``build`` makes, for `FSDP2`: on the other ranks than 0 without weights, if it can be
    built and can initialise itself on torch's meta device; else whole on every rank. A collective."""
    built: list[nn.Module] = []
    from_first_rank(lambda: built.append(build()))  # its error is raised on all ranks
    problem = ''
    if not built:
        try:
            with torch.device('meta'):
                built.append(build())
        except Exception as error:  # of code that needs numbers
            problem = f'{type(error).__name__}: {one_line(error)}'
        else:
            gc.collect()
            named = {id(each) for each in (*built[0].parameters(), *built[0].buffers())}
            tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor) and id(each) not in named]
            if any(each.is_meta for each in tensors):  # they would get no values
                problem = 'it holds tensors that are no parameters or buffers'
    if problem := next(filter(None, all_gather_objects(problem)), ''):
        logger.info('the model is built whole on every rank, since it cannot be built without weights: %s', problem)
        built[:] = built if dist.get_rank() == 0 else [build()]
    set_rng_state(broadcast_object(rng_state()))  # others have drawn less
    return built[0]


def prepare_for_one_process(model: nn.Module, options: Mapping[str, Any], logger: Logger) -> None:
    """Do what FSDP2 does besides sharding, for a single process; it still looks up the names."""
    parts = units(model, options.get('module_classes'), options.get('min_num_params'))
    recompute_activations(to_checkpoint(model, parts, options.get('activation_checkpointing', False)))
    mixed_precision(options.get('mp_policy'))
    if left_out := [key for key in ('mp_policy', 'cpu_offload') if options.get(key)]:
        logger.warning(
            'model_wrapper: this single process trains without FSDP2, so %s has no effect: start it with torchrun and '
            "--launcher pytorch, or use amp='bf16'",
            ' and '.join(left_out),
        )
    else:
        logger.info('model_wrapper: this single process trains without FSDP2')


def hand_over(optimizers: Iterable[Optimizer], before: Mapping[str, nn.Parameter], wrapper: FSDP2) -> None:
    """Let optimizers that were built over a model's whole parameters update its sharded ones."""
    from torch.distributed.tensor import distribute_tensor

    after = dict(wrapper.module.named_parameters())
    sharded: dict[int, Any] = {id(each): after[name] for name, each in before.items()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group['params'] = [sharded.get(id(each), each) for each in group['params']]
        for old in [each for each in optimizer.state if id(each) in sharded]:  # of Adagrad, for example
            new = sharded[id(old)]
            optimizer.state[new] = {
                key: distribute_tensor(value, new.device_mesh, new.placements)
                if isinstance(value, Tensor) and value.shape == old.shape and value.dim()
                else value
                for key, value in optimizer.state.pop(old).items()
            }


def _shard(
    model: nn.Module,
    parts: Sequence[nn.Module],
    device: torch.device,
    mp_policy: Mapping[str, Any] | None,
    cpu_offload: bool,
    reshard_after_forward: bool | int,
) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    offload = CPUOffloadPolicy(pin_memory=device.type != 'cpu') if cpu_offload else OffloadPolicy()
    options: dict[str, Any] = {
        'mesh': init_device_mesh(device.type, (dist.get_world_size(),)),
        'offload_policy': offload,
    }
    given = mixed_precision(mp_policy)
    inside = MixedPrecisionPolicy(**{key: value for key, value in given.items() if key != 'output_dtype'})
    of_norms = MixedPrecisionPolicy(reduce_dtype=given.get('reduce_dtype'), cast_forward_inputs=False)
    for part in parts:
        policy = of_norms if isinstance(part, _BatchNorm) else inside
        fully_shard(part, reshard_after_forward=reshard_after_forward, mp_policy=policy, **options)
    # `FSDP2._direct` reshards the rest, when the step is over.
    fully_shard(model, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(**given), **options)


def _methods(model: nn.Module, named: Sequence[str]) -> list[str]:
    """The methods of ``model`` before which its weights are gathered, ``forward`` aside."""
    for name in named:
        if not callable(getattr(model, name, None)):
            methods = [each for each in dir(model) if not each.startswith('_')]
            hint = did_you_mean(name, methods)
            raise WrongValue(f'forward_methods: {type(model).__name__} has no method {name!r}; {hint}'.rstrip('; '))
    steps = [name for name in dir(type(model)) if name.endswith('_step') and callable(getattr(model, name, None))]
    return list(dict.fromkeys((*steps, *named)))


def _register(model: nn.Module, name: str) -> None:
    from torch.distributed.fsdp import register_fsdp_forward_method

    before = inspect.signature(getattr(model, name))
    register_fsdp_forward_method(model, name)
    # What torch has put there names the bound method as the one it wraps, of which one argument too many is taken off.
    own = inspect.Parameter('self', inspect.Parameter.POSITIONAL_ONLY)
    getattr(model, name).__func__.__signature__ = before.replace(parameters=[own, *before.parameters.values()])


def _check_same_everywhere(model: nn.Module) -> None:
    named = [*model.named_parameters(), *model.named_buffers()]
    own = [(name, tuple(each.shape), str(each.dtype), each.requires_grad) for name, each in named]
    first = broadcast_object(own)
    differing = [index for index, each in enumerate(all_gather_objects(own == first)) if not each]
    if differing:
        mine = set(own) ^ set(first)
        raise WrongValue(
            f'the models of the ranks 0 and {", ".join(map(str, differing))} differ'
            + (f', here in {", ".join(sorted({each[0] for each in mine})[:3])}' if mine else '')
            + ': build the same model on all ranks'
        )


def _own(part: nn.Module) -> list[Tensor]:
    return [*part.parameters(recurse=False), *part.buffers(recurse=False)]


@torch.no_grad()
def _give_out(whole: dict[str, Tensor], model: nn.Module) -> None:
    """Give each rank its part of the weights ``whole``, which rank 0 has; one weight after another."""
    from torch.distributed.tensor import distribute_tensor

    sharded: Any
    for name, sharded in model.named_parameters():
        mesh = sharded.device_mesh
        full = whole.pop(name, None)
        if full is None:
            full = torch.empty(sharded.shape, dtype=sharded.dtype, device=mesh.device_type)
        mine: Any = distribute_tensor(full.to(mesh.device_type), mesh, sharded.placements)
        sharded.to_local().copy_(mine.to_local())
