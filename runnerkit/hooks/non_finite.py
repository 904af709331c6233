"""The hook that detects NaN and infinite losses, gradients and weights."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from runnerkit.data import loader_seed
from runnerkit.distributed import all_gather_objects, broadcast_object, get_dist_info
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_files import replay_command
from runnerkit.optim.finite import StepGuard, first_bad, is_fused
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import unwrap
from runnerkit.utils.exceptions import NonFiniteError
from runnerkit.utils.losses import names_a_loss
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion

ACTIONS = ('stop', 'skip', 'rollback')

#: The default limits: how many rollbacks, and how many skipped updates in a row.
MOST = {'rollback': 3, 'skip': 50}


class Found(NamedTuple):
    """What was not finite on one rank since the last check: the first iteration with a bad loss and with bad gradients
    (from 1; 0: none), and whether weights are bad."""

    loss: int
    gradients: int
    weights: bool


class Position(NamedTuple):
    """The position of an iteration in the run: numbers as in the log, from 1."""

    iteration: int
    epoch: int
    batch: int
    mode: str


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class NonFiniteHook(Hook):
    """Stops the run, skips an update, or goes back to a checkpoint when the loss, gradients or weights are not finite.

    Loss and gradients are checked in each iteration on their device, without waiting for it. The results are read in
    the iterations that are logged, before each evaluation and before each checkpoint. The weights are also checked
    then, so that no checkpoint ever holds NaN or infinite weights. In a distributed run all ranks act
    alike.

    A step that a gradient scaler (fp16) skips because of its scale is not an error. The hook must come after the
    one that updates, as it does with its default priority.

    Args:
        action: ``'stop'`` ends the run with `NonFiniteError`, which names the batch and how to look at it. ``'skip'``
            skips each update with bad gradients: fused optimizers do so on the device; with others, each update waits
            for the device. ``'rollback'`` continues from the last intact checkpoint.
        interval: iterations between two checks of the results; by default, the iterations that are logged.
        max_tries: how many times to go back (by default 3), or how many updates to skip in a row (50), before the run
            ends with `NonFiniteError`.
        leave_out: after going back, skip the update from the bad batch. Without it, the same thing happens again unless
            it was random.
        gradients: whether to check the gradients; this reads all of them once more in each update.
    """

    needs_training = True

    action: str = 'stop'
    interval: int | None = None
    max_tries: int | None = None
    leave_out: bool = False
    gradients: bool = True

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            hint = suggestion(str(self.action), ACTIONS)
            raise ValueError(f'action must be one of {", ".join(ACTIONS)}, but got {self.action!r}{hint}')
        for name in ('interval', 'max_tries'):
            check_whole_number(name, getattr(self, name), or_none=True)
        if self.leave_out and self.action != 'rollback':
            raise ValueError(f"leave_out belongs to action='rollback', but got action={self.action!r}")
        self.max_tries = self._most = MOST.get(self.action, 0) if self.max_tries is None else self.max_tries
        self._tries = 0
        self._left_out: set[int] = set()  # iterations whose updates are left out after going back
        self._guard: StepGuard | None = None
        self._withheld_at: int | None = None  # the number of steps before the one to leave out
        self._reset()

    @property
    def skips_updates(self) -> bool:  # type: ignore[override]
        """Whether updates from bad batches are skipped, or have been."""
        return self.action == 'skip' or bool(self._left_out)

    def _reset(self) -> None:
        # For each iteration since the last check, whether its values are finite: flags on their device.
        self._losses: list[tuple[int, Tensor]] = []
        self._gradients: list[tuple[int, Tensor]] = []
        self._places: list[Position] = []  # of the iterations since the last check
        self._unread = False  # whether an iteration has begun since then
        self._statistics: list[tuple[Tensor, Tensor]] = []  # of batch norms, and copies from before the iteration

    def before_run(self, runner: RunnerView) -> None:
        self._reset()
        guarded = list(named_optimizers(runner.optimizer).values())
        self._stop_guarding()
        if self.gradients or self.action == 'skip' or self.leave_out:
            self._guard = StepGuard(guarded, lambda magnitude: self._see(self._gradients, magnitude))
            self._guard.withholds = self.action == 'skip'
        if self.action == 'skip' and not all(is_fused(each) for each in guarded):
            runner.logger.warning(
                'each update waits for the device to say whether it is to be skipped: the optimizer is not fused '
                '(optimizer=dict(fused=True, …) of Adam, AdamW, SGD and Adagrad avoids that)'
            )
        # All ranks check together, so they need the same intervals; some hooks exist on the first rank only.
        self._looks: list[tuple[bool, int]] = broadcast_object(self._intervals(runner))

    def _intervals(self, runner: RunnerView) -> list[tuple[bool, int]]:
        """Return when to check: pairs of (whether iterations are counted from the epoch's beginning, interval)."""
        loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
        savers = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook) and not hook.by_epoch]
        looks = {(False, hook.interval) for hook in savers if hook.interval > 0}
        if self.interval is not None:
            looks.add((False, self.interval))
        else:
            looks.update((hook.by_epoch, hook.interval) for hook in loggers)
        return sorted(looks) or [(False, 50)]

    # --- in each iteration: nothing here waits for the device --------------------------------------------------------

    def before_train_iter(self, runner: RunnerView) -> None:
        batch = runner.inner_iter + 1 if runner.by_epoch else getattr(runner.data_loader, 'position', 0)
        self._unread = True
        self._places.append(Position(runner.iter + 1, runner.epoch + 1, batch, str(runner.mode)))
        if self._left_out and self._guard is not None:
            self._leave_out(runner, self._guard)
        if self._guard is not None and self._guard.withholds:
            self._keep_statistics(runner)

    def _leave_out(self, runner: RunnerView, guard: StepGuard) -> None:
        if runner.iter + 1 in self._left_out:
            self._withheld_at = guard.steps
        elif self._withheld_at is not None and guard.steps > self._withheld_at:
            self._withheld_at = None
        # With accumulation, the step that has to be left out may come some iterations later.
        guard.withholds = self._withheld_at is not None

    def after_train_iter(self, runner: RunnerView) -> None:
        if self._guard is None or not self._guard.withholds:
            for value in losses_of(runner.outputs):
                self._see(self._losses, value)
        elif self._statistics:
            self._mend_statistics()
        if self._is_due(runner):
            self._look(runner)

    def _see(self, checks: list[tuple[int, Tensor]], value: Tensor) -> None:
        if self._places:  # empty if an optimizer steps before the first iteration
            checks.append((self._places[-1].iteration, torch.isfinite(value.detach()).all()))

    def _is_due(self, runner: RunnerView) -> bool:
        done, in_epoch = runner.iter + 1, runner.inner_iter + 1
        return done == runner.max_iters or any((in_epoch if inner else done) % n == 0 for inner, n in self._looks)

    def _keep_statistics(self, runner: RunnerView) -> None:
        # A bad batch corrupts the running averages of batch norms during the forward pass.
        if not self._statistics:
            layers = [layer for layer in unwrap(runner.model).modules() if isinstance(layer, _NormBase)]
            running = [each for layer in layers for each in (layer.running_mean, layer.running_var)]
            self._statistics = [(each, each.clone()) for each in running if each is not None]
        elif self._statistics:
            own, kept = zip(*self._statistics, strict=True)
            torch._foreach_copy_(kept, own)

    @torch.no_grad()
    def _mend_statistics(self) -> None:
        for own, kept in self._statistics:
            own.copy_(torch.where(torch.isfinite(own), own, kept))

    # --- checking ----------------------------------------------------------------------------------------------------

    def after_train_epoch(self, runner: RunnerView) -> None:
        self._look(runner)

    @contextmanager
    def around_val(self, runner: RunnerView) -> Iterator[None]:
        if self._unread:
            self._look(runner)
        yield

    @contextmanager
    def around_save(self, runner: RunnerView) -> Iterator[None]:
        # Perhaps called on one rank only, so going back is not possible here. CheckpointHook and EvalHook save after
        # all ranks have checked.
        found = self._found(runner)
        if any(found):
            raise NonFiniteError(self._report(runner, {runner.rank: found}) + ' Nothing was saved.')
        yield

    def after_run(self, runner: RunnerView) -> None:
        has_failed = runner.outcome is not None and runner.outcome.error is not None
        try:
            if self._unread and not has_failed:
                self._look(runner, may_go_back=False)
        finally:
            self._stop_guarding()

    def _stop_guarding(self) -> None:
        if self._guard is not None:
            self._guard.remove()
            self._guard = None

    def _look(self, runner: RunnerView, may_go_back: bool = True) -> None:
        """Read the results since the last check and act on them; all ranks call this together."""
        self._unread = False
        found = dict(enumerate(all_gather_objects(self._found(runner))))
        if any(map(any, found.values())):
            self._act(runner, found, may_go_back)
        if self.action == 'skip' and self._guard is not None:
            self._report_skipped(runner, self._guard)
        self._losses.clear()
        self._gradients.clear()
        del self._places[:-1]  # the running iteration is not over

    def _found(self, runner: RunnerView) -> Found:
        has_bad_weights = not {'weights', 'optimizer'}.isdisjoint(runner.non_finite(alone=True))
        return Found(first_bad(self._losses), first_bad(self._gradients), has_bad_weights)

    def _report_skipped(self, runner: RunnerView, guard: StepGuard) -> None:
        new, in_a_row = guard.left_out()
        if new:
            runner.logger.warning(
                '%d updates up to iteration %d were skipped: their gradients were not finite', new, runner.iter + 1
            )
        if in_a_row >= self._most:
            raise NonFiniteError(
                f'the last {in_a_row} updates up to iteration {runner.iter + 1} were skipped, since their gradients '
                f'were not finite (max_tries={self._most}): a smaller learning rate, clipping '
                '(grad_clip=dict(max_norm=…)) or a look at the data may help.'
            )

    def _act(self, runner: RunnerView, found: dict[int, Found], may_go_back: bool) -> None:
        report = self._report(runner, found)
        if self.action != 'rollback' or not may_go_back:
            raise NonFiniteError(f'{report} No checkpoint holds it.')
        if self._tries >= self._most:
            raise NonFiniteError(f'{report} The run has gone back {self._tries} times already (max_tries).')
        checkpoint = runner.last_checkpoint()
        if checkpoint is None:
            raise NonFiniteError(f'{report} There is no checkpoint of this run to go back to.')
        self._tries += 1
        bad = [iteration for each in found.values() for iteration in (each.loss, each.gradients) if iteration]
        if self.leave_out and bad:
            self._left_out.add(min(bad))
        runner.logger.error('%s Going back to %s (%d of %d).', report, checkpoint, self._tries, self._most)
        self._reset()
        self._withheld_at = None
        runner.roll_back(checkpoint)

    # --- reporting ---------------------------------------------------------------------------------------------------

    def _report(self, runner: RunnerView, found: dict[int, Found]) -> str:
        """Say what was bad first, on which ranks, and how to look at the batch."""
        # The loss comes before the gradients of the same iteration.
        bad = sorted(
            (number, part, rank) for rank, each in found.items() for part, number in enumerate(each[:2]) if number
        )
        if not bad:
            since = f' (looked at since iteration {self._places[0].iteration})' if self._places else ''
            return f'weights or optimizer states are not finite at iteration {runner.completed_iters}{since}.'
        first, part, _ = bad[0]
        ranks = [rank for number, which, rank in bad if (number, which) == (first, part)]
        place = next(place for place in self._places if place.iteration == first)
        what = ('loss is', 'gradients are')[part]
        return f'the {what} not finite since {self._described(runner, place, ranks)}'

    def _described(self, runner: RunnerView, place: Position, ranks: list[int]) -> str:
        seed = runner.meta.get('seed', loader_seed(getattr(runner.data_loader, 'dataloader', runner.data_loader)))
        where = f'iteration {place.iteration}: epoch {place.epoch}, batch {place.batch} of it'
        if seed is not None:
            where += f', seed {seed}'
        world_size = get_dist_info()[1]
        if world_size > 1:
            where += f', rank {", ".join(map(str, ranks))} of {world_size}'
        config = os.path.join(runner.work_dir or '', str(runner.meta.get('exp_name', '')))
        if not os.path.isfile(config):
            return where + '.'
        import shlex  # only needed when there is something to report

        command = ['runnerkit', 'batch', config, '--epoch', str(place.epoch), '--batch', str(place.batch)]
        if place.mode == 'val':
            command += ['--split', 'val']
        if world_size > 1:
            command += ['--rank', str(ranks[0]), '--world-size', str(world_size)]
        replay = replay_command(runner.work_dir, place.iteration - 1)
        seen = f'{where}. To see that batch: {shlex.join(command)}.'
        return f'{seen} To replay that iteration: {replay}.' if replay else seen

    def state_dict(self) -> dict[str, Any]:
        """Return how many times the run has gone back, and the batches that were left out."""
        return {'tries': self._tries, 'left_out': sorted(self._left_out)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # After going back, this object knows more than the checkpoint.
        self._tries = max(self._tries, state['tries'])
        self._left_out.update(state['left_out'])


def losses_of(outputs: dict[str, Any]) -> list[Tensor]:
    """Return the losses of a step's outputs: ``loss``, else the logged values whose names contain ``loss``."""
    loss = outputs.get('loss')
    if loss is None:
        loss = {name: each for name, each in outputs.get('log_vars', {}).items() if names_a_loss(name)}
    values = list(loss.values()) if isinstance(loss, dict) else [loss]
    tensors = [each for each in values if isinstance(each, Tensor)]
    bad = any(isinstance(each, (int, float)) and not math.isfinite(each) for each in values)
    return [*tensors, torch.tensor(math.nan)] if bad else tensors
