"""Callbacks as Vega's users write them, and the hook that calls them in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.distributed import broadcast_object
from runnerkit.evaluation import evaluation_mode, numbers_of
from runnerkit.flow.look.summary import measured
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView, Score
from runnerkit.parallel import unwrap
from runnerkit.parallel.scatter_gather import to_device
from runnerkit.registry import Registry
from runnerkit.utils.exceptions import WrongType, WrongValue

CALLBACKS = Registry('callback')

#: The methods of the trainer that a callback may supply; at most one callback each.
REPLACED = ('make_batch', 'train_step', 'valid_step')

#: What a summary holds besides its values.
_NO_PERFS = ('epoch',)

Logs = dict[str, Any]


class Callback:
    """The base of callbacks in Vega's style. Override the points you need::

        init_trainer, before_train
            before_epoch
                before_train_step, after_train_step         # for each batch
                before_valid                                # if there is a validation after this epoch
                    before_valid_step, after_valid_step     # for each batch
                after_valid
            after_epoch
        after_train                                         # not after an error

    ``logs`` is one dict an epoch, the same at all of its points, also for what callbacks put into it. It has
    ``train_num_batches`` and, with a validation, ``valid_num_batches``; at the points of a step ``train_batch`` or
    ``valid_batch`` as well, after it what the step returned; from `after_valid` on ``cur_valid_perfs``, the scores.
    Numbers that a callback writes to ``logs['summary_perfs']`` become scores of the run. `init_trainer` and
    `before_train` get another dict, `after_train` the last epoch's.

    A subclass need not call this class's constructor. What a callback raises ends the run.

    Attributes:
        priority: callbacks with a lower number are called first; equal ones in the order in which they are listed.
        trainer: the training, see `Trainer`; set before the first point.
        params: ``epochs``, ``do_validation``, ``use_cuda`` and ``is_chief`` of the training, by name.
    """

    priority: int = 100
    trainer: Any = None
    params: Mapping[str, Any] = {}

    def set_trainer(self, trainer: Trainer) -> None:
        """Set `trainer`."""
        self.trainer = trainer

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set `params`."""
        self.params = params

    def init_trainer(self, logs: Logs | None = None) -> None:
        """Called once, before all others."""

    def before_train(self, logs: Logs | None = None) -> None:
        """Called before the training."""

    def after_train(self, logs: Logs | None = None) -> None:
        """Called after the training, unless it has failed."""

    def before_epoch(self, epoch: int, logs: Logs | None = None) -> None:
        """Called before an epoch; the first one is 0."""

    def after_epoch(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch and its validation."""

    def before_train_step(self, batch_index: int, logs: Logs | None = None) -> None:
        """Called before a training step; the first one of an epoch is 0."""

    def after_train_step(self, batch_index: int, logs: Logs | None = None) -> None:
        """Called after a training step and its update."""

    def before_valid(self, logs: Logs | None = None) -> None:
        """Called before a validation."""

    def after_valid(self, logs: Logs | None = None) -> None:
        """Called after a validation."""

    def before_valid_step(self, batch_index: int, logs: Logs | None = None) -> None:
        """Called before a validation step."""

    def after_valid_step(self, batch_index: int, logs: Logs | None = None) -> None:
        """Called after a validation step."""

    def make_batch(self, batch: Any) -> Any:
        """Return what the steps get of a loader's batch. If you override this, it is the trainer's."""
        raise NotImplementedError

    def train_step(self, batch: Any) -> dict[str, Any]:
        """Train on a batch. If you override this, it is the trainer's.

        Returns:
            ``loss``, and anything else. If it has not updated the weights itself, ``loss`` is what they are updated
            with, and must be a scalar tensor.
        """
        raise NotImplementedError

    def valid_step(self, batch: Any) -> dict[str, Any]:
        """Evaluate a batch. If you override this, it is the trainer's.

        Returns:
            Anything; for the metrics ``valid_batch_output``, the predictions. Their targets are the batch's last field,
            or what is returned as ``target``.
        """
        raise NotImplementedError


class Trainer:
    """A run as callbacks see it.

    Args:
        runner: the run.
        hook: the hook that calls the callbacks.

    Attributes:
        runner: the run itself.
        config: the trainer's section of the config, by attribute, with Vega's defaults.
        loaders: those of the workflow's entries.
        make_batch: what the steps get of a loader's batch; by default the batch, on the model's device.
        train_step: the training step.
        valid_step: the validation step.
    """

    def __init__(self, runner: RunnerView, hook: VegaCallbacks) -> None:
        self.runner, self.config, self.loaders = runner, hook.config, runner.loaders
        self.make_batch: Callable[[Any], Any] = hook.replaced.get('make_batch', self._batch_on_device)
        self.train_step: Callable[[Any], Any] = hook.replaced.get('train_step', self._train_step)
        self.valid_step: Callable[[Any], Any] = hook.replaced.get('valid_step', self._valid_step)

    @property
    def model(self) -> Any:
        """The network. With several processes it is wrapped, so that gradients are synchronised: call it as usual,
        and read its attributes from ``model.module``."""
        model = self.runner.model
        inner = unwrap(model)
        if isinstance(model, nn.parallel.DistributedDataParallel):
            return model
        return inner.model if isinstance(getattr(inner, 'model', None), nn.Module) else inner

    @property
    def loss(self) -> Any:
        """The loss of a `runnerkit.nn.Supervised`; None of another model."""
        return getattr(unwrap(self.runner.model), 'loss', None)

    @property
    def optimizer(self) -> Any:
        """The optimizer, or a dict of several."""
        return self.runner.optimizer

    @property
    def epochs(self) -> int | None:
        """How many epochs the training has."""
        return self.runner.max_epochs

    @property
    def train_loader(self) -> Any:
        """The loader of the training data."""
        return self.loaders[0]

    @property
    def valid_loader(self) -> Any:
        """The loader of the validation data; None if there is no validation."""
        hooks = [hook for hook in self.runner.hooks if isinstance(hook, EvalHook)]
        return hooks[0].dataloader if hooks else [*self.loaders[1:], None][0]

    @property
    def batch_num_train(self) -> int:
        """Batches of an epoch."""
        return len(self.train_loader)

    @property
    def batch_num_valid(self) -> int:
        """Batches of a validation; 0 if there is none."""
        return len(self.valid_loader) if self.do_validation else 0

    @property
    def do_validation(self) -> bool:
        """Whether the training is validated."""
        return self.valid_loader is not None

    @property
    def use_cuda(self) -> bool:
        """Whether the model is on a GPU."""
        return self._device().type == 'cuda'

    @property
    def is_chief(self) -> bool:
        """Whether this is the first process."""
        return self.runner.rank == 0

    def inputs(self, batch: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments that the network gets of a batch; by default its first field."""
        model: Any = unwrap(self.runner.model)
        return model.arguments(batch) if hasattr(model, 'arguments') else ([batch[0]], {})

    def _device(self) -> torch.device:
        parameter = next(self.runner.model.parameters(), None)
        return torch.device('cpu') if parameter is None else parameter.device

    def _batch_on_device(self, batch: Any) -> Any:
        device = self._device()
        return batch if device.type == 'cpu' else to_device(batch, device)

    def _train_step(self, batch: Any) -> Any:
        model: Any = self.runner.model
        return model.train_step(batch, self.runner.optimizer)

    def _valid_step(self, batch: Any) -> Any:
        model: Any = self.runner.model
        return model.val_step(batch, self.runner.optimizer) if self.runner.by_epoch else model.val_step(batch)


@HOOKS.register_module()
class VegaCallbacks(Hook):
    """Calls callbacks written for Vega: `Callback` has their points.

    Give it a priority behind the evaluation, ``priority='LOW'`` or lower, because an epoch ends after it there. It
    needs a runner that counts epochs. The validation's points are those of EvalHook and of validation epochs.

    Args:
        callbacks: one or several: names of callbacks in CALLBACKS, dicts with a ``type`` and arguments, or objects.
        config: what callbacks read as ``self.trainer.config``, on top of Vega's defaults.

    Raises:
        KeyError: there is no callback of a name.
        TypeError: one of them is no `Callback`.
        ValueError: two callbacks supply the same step, or one is of Vega's default ones that hooks stand for here.
    """

    def __init__(
        self, callbacks: str | Callback | Mapping[str, Any] | Sequence[Any], config: Mapping[str, Any] | None = None
    ) -> None:
        from runnerkit.compat.vega.config import TRAINER
        from runnerkit.config.config_dict import as_config  # most runs need no other configs

        several = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        self.callbacks = sorted(map(_built, several), key=lambda callback: callback.priority)
        self.config = as_config({**TRAINER, **(config or {})})
        self.replaced: dict[str, Callable[[Any], Any]] = {}
        for name in REPLACED:
            owners = [each for each in self.callbacks if getattr(type(each), name) is not getattr(Callback, name)]
            if len(owners) > 1:
                first, second = (type(owner).__name__ for owner in owners[:2])
                raise WrongValue(f'{first} and {second} both supply {name}: leave one of them out')
            if owners:
                self.replaced[name] = getattr(owners[0], name)
        self.trainer: Any = None
        self.logs: Logs = {}
        self._batch: Any = None
        self._pending: dict[str, Any] = {}

    def before_run(self, runner: RunnerView) -> None:
        misfit = self.misfit(runner)
        if misfit is not None:
            raise WrongValue(': '.join(misfit))
        for hook in runner.hooks:
            if isinstance(hook, EvalHook) and self not in hook.hooks:
                hook.hooks.append(self)
        self.take_steps(runner)
        self.logs = {}
        self._call('init_trainer')
        self._call('before_train')

    def take_steps(self, runner: RunnerView) -> None:
        """Let the runner's steps be the trainer's, and hand the trainer to the callbacks."""
        runner.batch_processor = self._process
        self.trainer = Trainer(runner, self)
        names = ('epochs', 'do_validation', 'use_cuda', 'is_chief')
        for callback in self.callbacks:
            callback.set_trainer(self.trainer)
            callback.set_params({name: getattr(self.trainer, name) for name in names})

    def for_evaluation(self) -> Hook | None:
        """A hook for the callbacks' ``make_batch`` and ``valid_step``; None if they supply neither."""
        return EvaluationSteps(self) if {'make_batch', 'valid_step'} & set(self.replaced) else None

    def misfit(self, runner: RunnerView) -> tuple[str, str] | None:
        """Return why the hook does not fit the run, and the way out; None if it does."""
        if not runner.by_epoch:
            return f'VegaCallbacks counts epochs, but the {type(runner).__name__} does not', 'use an EpochBasedRunner'
        if runner.batch_processor is not None and runner.batch_processor != self._process:
            return 'VegaCallbacks takes the place of batch_processor', 'leave that out'
        hooks = list(runner.hooks)
        if any(isinstance(hook, EvalHook) for hook in hooks[hooks.index(self) :]):
            return (
                'VegaCallbacks is called before the EvalHook, but in Vega an epoch ends after its validation',
                "give it priority='LOW', or a higher number",
            )
        return None

    def before_train_epoch(self, runner: RunnerView) -> None:
        self.logs = {'train_num_batches': self.trainer.batch_num_train}
        if self.trainer.do_validation:
            self.logs['valid_num_batches'] = self.trainer.batch_num_valid
        self._call('before_epoch', runner.epoch)

    def before_train_iter(self, runner: RunnerView) -> None:
        self._begin_step(runner, 'train')

    def after_train_iter(self, runner: RunnerView) -> None:
        self._end_step(runner, 'train')

    def before_val_epoch(self, runner: RunnerView) -> None:
        self._call('before_valid')

    def before_val_iter(self, runner: RunnerView) -> None:
        self._begin_step(runner, 'valid')

    def after_val_iter(self, runner: RunnerView) -> None:
        self._end_step(runner, 'valid')

    def after_val_epoch(self, runner: RunnerView) -> None:
        self.logs['cur_valid_perfs'] = numbers_of(runner.log_buffer.output)
        self._call('after_valid')

    def after_train_epoch(self, runner: RunnerView) -> None:
        self._call('after_epoch', runner.epoch)
        self._score(runner)

    def after_run(self, runner: RunnerView) -> None:
        if runner.outcome is not None and runner.outcome.ended_well:
            self._call('after_train')
            self._score(runner)

    def _call(self, point: str, *index: int) -> None:
        for callback in self.callbacks:
            getattr(callback, point)(*index, logs=self.logs)

    def _begin_step(self, runner: RunnerView, mode: str) -> None:
        # Not put back into the runner: it saves what it knows of the loader's batch.
        self._batch = self.logs[f'{mode}_batch'] = self.trainer.make_batch(runner.data_batch)
        self._call(f'before_{mode}_step', runner.inner_iter)

    def _end_step(self, runner: RunnerView, mode: str) -> None:
        self.logs.update(runner.outputs)
        self._call(f'after_{mode}_step', runner.inner_iter)
        # Or the last step's activations would live until the end of the epoch.
        for key in (f'{mode}_batch', *runner.outputs):
            self.logs.pop(key, None)
        self._batch = None

    def _process(self, model: nn.Module, data: Any, train_mode: bool, **kwargs: Any) -> dict[str, Any]:
        """The runner's step, with the batch that the callbacks have seen, if they have."""
        name = 'train_step' if train_mode else 'valid_step'
        step = getattr(self.trainer, name)
        batch = self.trainer.make_batch(data) if self._batch is None else self._batch
        outputs = step(batch)
        if name not in self.replaced:
            return outputs
        if not isinstance(outputs, Mapping):
            raise WrongType(
                f'{name} of {type(getattr(step, "__self__", step)).__name__} must return a dict, but got {outputs!r}'
            )
        found = {'log_vars': _numbers(outputs), 'num_samples': _samples(batch), **outputs}
        if not train_mode and 'valid_batch_output' in outputs:
            found.setdefault('preds', outputs['valid_batch_output'])
            fields = list(batch.values()) if isinstance(batch, Mapping) else batch
            found.setdefault('target', fields[-1])
        return found

    def _score(self, runner: RunnerView) -> None:
        """Make scores of what the callbacks have summed up."""
        perfs = numbers_of(self.logs.get('summary_perfs') or {})
        scores = broadcast_object({name: value for name, value in perfs.items() if name not in _NO_PERFS})
        runner.scores.update({name: Score(value, runner.completed_iters) for name, value in scores.items()})

    def state_dict(self) -> dict[str, Any]:
        """Return the states of those callbacks that have a ``state_dict``, by their classes."""
        return {type(each).__name__: each.state_dict() for each in self.callbacks if hasattr(each, 'state_dict')}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for callback in self.callbacks:
            if hasattr(callback, 'load_state_dict') and type(callback).__name__ in state:
                callback.load_state_dict(state[type(callback).__name__])


class EvaluationSteps(Hook):
    """Lets an evaluation without a training make its batches and take its steps as the training did.

    Args:
        callbacks: the hook of the training.
    """

    def __init__(self, callbacks: VegaCallbacks) -> None:
        self.callbacks = callbacks

    def before_run(self, runner: RunnerView) -> None:
        self.callbacks.take_steps(runner)


def _built(callback: Any) -> Callback:
    """A callback of its name or config."""
    from runnerkit.compat.vega.config import STANDARD  # most runs have no callbacks

    if isinstance(callback, str):
        callback = {'type': callback}
    kind = callback.get('type') if isinstance(callback, Mapping) else None
    if isinstance(kind, str) and kind in STANDARD and CALLBACKS.get(kind) is None:
        raise WrongValue(f'{kind} is no callback here: {STANDARD[kind]}')
    found = CALLBACKS.build(callback) if isinstance(callback, Mapping) else callback
    if not isinstance(found, Callback):
        raise WrongType(f'a callback must derive from runnerkit.compat.vega.Callback, but got {found!r}')
    return found


def _numbers(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and scalar tensors of a step's result, detached."""
    found = {name: each.detach() if isinstance(each, Tensor) else each for name, each in outputs.items()}
    return {
        name: each
        for name, each in found.items()
        if (isinstance(each, Tensor) and each.dim() == 0) or (isinstance(each, int | float) and type(each) is not bool)
    }


def _samples(batch: Any) -> int:
    fields = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [batch]
    return next((len(each) for each in fields if isinstance(each, Tensor) and each.dim()), 1)


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
