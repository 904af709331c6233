"""The engine's checks of a run's weights: are they finite, and do they change?"""

from __future__ import annotations

import cmath
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint import get_state_dict
from runnerkit.checkpoint.names import ema_name
from runnerkit.checkpoint.store import finite_beside, why_not_finite
from runnerkit.distributed import all_gather_objects, reduce_extremes
from runnerkit.hooks.hook import RunnerView
from runnerkit.hooks.optimizer import OptimizerHook
from runnerkit.log_buffer import LogBuffer
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.update import largest
from runnerkit.parallel.bits import bit_words, has_bits, in_memory_order
from runnerkit.parallel.dtensors import local_part
from runnerkit.parallel.wrappers import held_by_optimizer

# --- finite? ----------------------------------------------------------------------------------------------------------

#: The buffers that have to be finite: running statistics of norms. Others may hold infinities, as masks do.
STATISTICS = ('running_mean', 'running_var')


class WatchedRun(RunnerView, Protocol):
    """What `Finiteness` reads of a runner, beyond what hooks do."""

    updater: Any  # the part, which is further down
    train_log: LogBuffer
    world_size: int
    lr_scaled_for: tuple[int, int] | None


class Finiteness:
    """Checks for NaN and infinite values when a checkpoint is saved and when a run ends, never in between.

    Args:
        runner: the run.

    Attributes:
        last: on rank 0, the newest finite checkpoint that is written.
    """

    def __init__(self, runner: WatchedRun) -> None:
        self._runner = runner
        self.last: str | None = None

    def resume(self, loaded: Mapping[str, Any], checkpoint: str) -> None:
        """The run continues from ``checkpoint``, a file with the content ``loaded``."""
        self.last = checkpoint if why_not_finite(loaded) is None else finite_beside(checkpoint)

    def note_saved(self, checkpoint: str) -> None:
        """``checkpoint`` is written, and its values are finite."""
        self.last = checkpoint

    def look(self, alone: bool = False) -> dict[str, str]:
        """Look for NaN and infinite values in weights, optimizer states and the training losses since the last
        checkpoint. Losses do not count if a loss scaler or a hook skips updates with bad gradients.

        Waits for the device. All ranks call it and get the same answer; with ``alone``, one rank checks itself.
        """
        runner, weights = self._runner, _weights_to_check(self._runner)
        kinds = {'weights': weights, 'optimizer': _states(runner, weights)}
        # Together, because each look waits for the device.
        bad = find_non_finite({(kind, name): each for kind, of_kind in kinds.items() for name, each in of_kind.items()})
        counts = {kind: {name: count for (of, name), count in bad.items() if of == kind} for kind in kinds}
        found = {kind: describe_counts(of_kind) for kind, of_kind in counts.items() if of_kind}
        skips = any(update.scaler for update in runner.updater.updates.values())
        skips = skips or any(getattr(hook, 'skips_updates', False) for hook in runner.hooks)
        if not skips and not runner.train_log.losses_are_finite():
            found['loss'] = 'a training loss since the last checkpoint'
        if not alone and reduce_extremes(len(found))[1]:
            for others in reversed(all_gather_objects(found)):  # the first rank's description of a kind wins
                found = {**found, **others}
        return found

    def advice(self, found: Mapping[str, str]) -> str:
        """The notice at the end of a run whose weights are not finite."""
        last = self.last
        if last is None:
            remedy = 'There is no finite checkpoint: start over with a smaller learning rate'
        else:
            remedy = f'Continue from the newest finite checkpoint, {last}, with a smaller learning rate: '
            remedy += _command(self._runner, last)
        return (
            f'THE RUN HAS DIVERGED: NaN or infinite values in {found["weights"]}. Checkpoints with such values are '
            f'never the best one and replace no finite one. {remedy} (or clip gradients, '
            'optimizer_config.grad_clip.max_norm; NonFiniteHook finds the first bad batch).'
        )


def _weights_to_check(runner: WatchedRun) -> dict[str, Tensor]:
    """What has to be finite, by its name in a checkpoint: what is trained, statistics of norms, and their averages."""
    if not isinstance(runner.model, nn.Module):
        return {}
    held = get_state_dict(runner.model, keep_vars=True)
    tensors = {name: each for name, each in held.items() if isinstance(each, Tensor)}
    names = [name for name, each in tensors.items() if each.requires_grad or name.rpartition('.')[2] in STATISTICS]
    return {name: tensors[name] for name in [*names, *map(ema_name, names)] if name in tensors}


def _states(runner: WatchedRun, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Optimizer states with a value per element of a parameter, like momenta. A shared one has its first name."""
    names = {id(each): name for name, each in reversed([*weights.items()])}
    return {
        f'{key} of {names.get(id(parameter), "a parameter")}': value
        for optimizer in named_optimizers(runner.optimizer).values()
        for parameter, state in optimizer.state.items()
        for key, value in (state.items() if isinstance(state, dict) else ())
        # Scalars may be infinite until they have counted something.
        if isinstance(value, Tensor) and (value.dim() or value.shape == parameter.shape)
    }


def _command(runner: WatchedRun, checkpoint: str) -> str:
    config = os.path.join(runner.work_dir or '', str(runner.meta.get('exp_name', '')))
    if not os.path.isfile(config):
        return f'runner.resume({checkpoint!r})'
    words = ['runnerkit', 'train', config, '--work-dir', str(runner.work_dir), '--resume-from', checkpoint]
    samples, base = runner.lr_scaled_for or (1, runner.world_size)
    scale = runner.world_size * samples / base
    rates = {name: each.defaults.get('lr') for name, each in named_optimizers(runner.optimizer).items()}
    lower = [
        f'optimizer{name and "." + name}.lr={float(rate) / scale / 10:.3g}'
        for name, rate in rates.items()
        if rate is not None
    ]
    return shlex.join([*words, *(['--cfg-options', *lower] if lower else [])])


@torch.no_grad()
def find_non_finite(tensors: Mapping[Any, Any]) -> dict[Any, str]:
    """Which of ``tensors`` have values that are NaN or infinite, and how many, such as ``'3 of 10 values'``.

    Of sharded tensors it looks at this rank's part. What is not a floating-point tensor is left out.
    """
    local = {name: values for name, value in tensors.items() if (values := _readable_floats(value)) is not None}
    on_cpu = [each for each in local.values() if each.device.type == 'cpu']
    # A sum takes a tenth of the time of the largest magnitude there.
    sums = [each.sum(dtype=torch.float32 if each.itemsize < 4 else None) for each in on_cpu]
    if all(cmath.isfinite(n.item()) for n in [*sums, *largest(each for each in local.values() if not each.is_cpu)]):
        return {}
    # Finite numbers may be too large for a sum, or those of 64 bits for `largest`.
    bad = {name: int((~torch.isfinite(each)).sum()) for name, each in local.items()}
    return {name: f'{count} of {local[name].numel()} values' for name, count in bad.items() if count}


def _readable_floats(value: Any) -> Tensor | None:
    """The floating-point values of a tensor, or of this rank's part of it; None if there are none that can be read."""
    if not isinstance(value, Tensor) or is_lazy(value):
        return None
    value = local_part(value)
    value = value._values() if value.is_sparse else value
    is_plain = type(value) is Tensor and value.layout == torch.strided and not value.is_meta
    if not is_plain or not (value.is_floating_point() or value.is_complex()):
        return None
    return value.float() if value.itemsize == 1 else value  # numbers of 8 bits have no norms


def describe_counts(bad: Mapping[str, str]) -> str:
    """The tensors of `find_non_finite` on one line: the first one, and how many there are."""
    name, count = next(iter(bad.items()))
    more = f' and {len(bad) - 1} other tensor{"s" * (len(bad) > 2)}' if len(bad) > 1 else ''
    return f'{name} ({count}){more}'


# --- do they change? --------------------------------------------------------------------------------------------------

#: After how many iterations of a run the weights are compared, if no epoch has ended before.
FIRST_LOOK = 200

#: What to do in a run whose optimizer is never stepped.
_WAY_TO_STEP = (
    'Register an OptimizerHook (optimizer_config=dict() in the config or in register_training_hooks), or step in '
    'train_step (in an Experiment: self.update(loss) in train_batch).'
)

_POINTS = ('before_train_epoch', 'after_train_iter')

#: How many updates a dynamic loss scale may skip until it is small enough.
_SKIPPED_FP16 = 24


class WeightWatch:
    """Logs an error if the weights of a run have not changed, as soon as they should have.

    That is the end of the first epoch or `FIRST_LOOK` iterations, whichever comes first, but not before the first
    accumulation cycle is complete. While all learning rates are 0 (a warm-up) or nothing is trainable, it waits.
    Weights are compared by checksums of all their bits, so any way to change them counts. It is a part of the engine,
    called at the points of a run until the comparison.

    Attributes:
        due: the number, from 1, of the iteration after which to compare; -1: never.
    """

    def __init__(self) -> None:
        self.due = -1
        self._begun = 0
        self._before: dict[str, Tensor] = {}

    def begin(self, runner: Any) -> None:
        """Note the weights with which the run begins."""
        self._stop(runner)
        self._before, self._begun = checksums(trainable(runner.model)), runner.completed_iters
        if self._before:
            # One more than that, because the runner asks before the hooks of that iteration have updated anything.
            self.due = self._begun + FIRST_LOOK + 1
            for point in _POINTS:
                runner.hooks.listen(point, getattr(self, point))

    def before_train_epoch(self, runner: Any) -> None:
        """Look after an epoch and all its hooks, which may also update the weights."""
        self._look(runner, runner.completed_iters)

    def after_train_iter(self, runner: Any) -> None:
        """Look after the iteration that is due."""
        if runner.completed_iters == self.due:
            self._look(runner, runner.iter)

    def _look(self, runner: Any, iters: int) -> None:
        if iters <= self._begun:
            return
        wait = iters_to_first_update(runner)
        if iters - self._begun < wait:
            self.due = self._begun + wait + 1
        elif self._have_changed(runner):
            self._stop(runner)
            self._before = {}
        elif not trainable(runner.model) or (rates(runner) and not any(rates(runner))):
            self.due = iters + FIRST_LOOK + 1
        else:
            self._stop(runner)
            if runner.rank == 0:
                runner.logger.error('%s', self._text(runner, iters))

    def end(self, runner: Any) -> str | None:
        """The notice for the end of the run; None if the weights have changed, or the run was too short."""
        self._stop(runner)
        iters = runner.completed_iters
        is_due = bool(self._before) and iters - self._begun >= max(1, iters_to_first_update(runner))
        is_still = is_due and bool(trainable(runner.model)) and not self._have_changed(runner)
        self._before = {}
        return self._text(runner, iters) if is_still else None

    def _have_changed(self, runner: Any) -> bool:
        """Whether any weight that is trained now has changed, or none of them was trained when the run began."""
        now = checksums(trainable(runner.model))
        pairs = [(now[name], before) for name, before in self._before.items() if name in now]
        return (bool(now) and not pairs) or any(bool(one != other) for one, other in pairs)

    def _text(self, runner: Any, iters: int) -> str:
        done = iters - self._begun
        return f'THE WEIGHTS HAVE NOT CHANGED in {done} iteration{"s" * (done > 1)} of this run: {reason(runner)}'

    def _stop(self, runner: Any) -> None:
        self.due = -1
        for point in _POINTS:
            runner.hooks.unlisten(point, getattr(self, point))


def trainable(model: Any) -> dict[str, nn.Parameter]:
    """The model's parameters that are trained and whose bits can be read here, by name."""
    named: Iterable[tuple[str, nn.Parameter]] = model.named_parameters() if isinstance(model, nn.Module) else ()
    return {
        name: each for name, each in named if each.requires_grad and not is_lazy(each) and has_bits(local_part(each))
    }


def checksums(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For each tensor the sum of its words, as an integer of their size, on its device."""
    return {
        name: (words := bit_words(in_memory_order(local_part(weight)))).sum(dtype=words.dtype)  # others are slow
        for name, weight in weights.items()
    }


def iters_to_first_update(runner: Any) -> int:
    """After how many iterations at most a working run has made an update; each optimizer has its own cycle."""
    updates = list(runner.updater.updates.values())
    cycles = [update.cumulative_iters for update in updates]
    cycles += [cycle for hook in runner.hooks if isinstance(cycle := getattr(hook, 'cumulative_iters', 1), int)]
    several = len(named_optimizers(runner.optimizer)) or 1
    return max(cycles, default=1) * several * (_SKIPPED_FP16 if any(update.scaler for update in updates) else 1)


def rates(runner: Any) -> list[float]:
    """The learning rates of all parameter groups of all optimizers."""
    groups = (group for each in named_optimizers(runner.optimizer).values() for group in each.param_groups)
    return [1.0 if group.get('lr') is None else float(group['lr']) for group in groups]  # None: computed


def reason(runner: Any) -> str:
    """The likely reason why the weights do not change, and a remedy."""
    weights, optimizers = trainable(runner.model).values(), named_optimizers(runner.optimizer).values()
    if not optimizers:
        return "the runner has no optimizer. Give it one (optimizer=…), or do not use a 'train' workflow."
    held = {id(each) for optimizer in optimizers for each in held_by_optimizer(optimizer)}
    if not any(id(each) in held for each in weights):
        return (
            "the optimizer holds none of the model's trainable parameters. Build it from the parameters of the model "
            'that the runner gets.'
        )
    if not runner.update_calls and not any(isinstance(hook, OptimizerHook) for hook in runner.hooks):
        return 'nothing steps the optimizer. ' + getattr(runner, 'way_to_step', _WAY_TO_STEP)
    if not any(rates(runner)):
        return 'all learning rates are 0. Look at optimizer and lr_config.'
    gradients = [local_part(each.grad) for each in weights if each.grad is not None]
    if not gradients:
        return (
            'no parameter has a gradient. The loss that train_step returns must depend on them: look for detach(), '
            'torch.no_grad() and item().'
        )
    if not any(bool(each.count_nonzero()) for each in gradients):
        return 'all gradients are 0. Look at the loss, and for activations without a gradient.'
    return (
        'there are gradients, but the optimizer does not apply them, or its steps are too small for the precision of '
        'the weights.'
    )
