"""The hook that detects NaN and infinite losses, gradients and weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from runnerkit.distributed import all_gather_objects, broadcast_object, get_dist_info, reduce_extremes
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_files import replay_command
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.update import largest
from runnerkit.parallel import unwrap
from runnerkit.parallel.dtensors import is_dtensor
from runnerkit.parallel.wrappers import held_by_optimizer
from runnerkit.utils.exceptions import NonFiniteError
from runnerkit.utils.numbers import check_whole_number, names_a_loss
from runnerkit.utils.suggest import suggestion

#: The actions, and their default limits: how many skipped updates in a row, and how many rollbacks.
MOST = {'stop': 0, 'skip': 50, 'rollback': 3}


#: What is checked in each iteration.
LOSS, GRADIENTS = 'loss is', 'gradients are'


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class NonFiniteHook(Hook):
    """Stops the run, skips an update, or goes back to a checkpoint when the loss, gradients or weights are not finite.

    Loss and gradients are checked in each iteration on their device, without waiting for it. The results are read at
    the interval of the log, before each evaluation and before each checkpoint. The weights are also checked then, so
    that no checkpoint ever holds NaN or infinite weights. In a distributed run all ranks act alike.

    A step that a gradient scaler (fp16) skips because of its scale is not an error. The hook must come after the
    one that updates, as it does with its default priority.

    Args:
        action: ``'stop'`` ends the run with `NonFiniteError`, which names the iteration and how to replay it.
            ``'skip'`` skips each update with bad gradients: fused optimizers do so on the device; with others, each
            update waits for the device. ``'rollback'`` continues from the last intact checkpoint.
        interval: iterations between two checks of the results; by default, those between two log lines.
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
        if self.action not in MOST:
            hint = suggestion(str(self.action), MOST)
            raise ValueError(f'action must be one of {", ".join(MOST)}, but got {self.action!r}{hint}')
        for name in ('interval', 'max_tries'):
            check_whole_number(name, getattr(self, name), or_none=True)
        if self.leave_out and self.action != 'rollback':
            raise ValueError(f"leave_out belongs to action='rollback', but got action={self.action!r}")
        self.max_tries = self._most = MOST[self.action] if self.max_tries is None else self.max_tries
        self._tries = 0
        self._left_out: set[int] = set()  # iterations whose updates are left out after going back
        self._handles: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self._iteration = 0  # the newest one, from 1
        self._unread = False  # whether an iteration has begun since the last look
        # The first bad iteration since the last look, 0 if there is none, for each of what is checked and each device.
        self._first_bad: dict[tuple[str, torch.device], Tensor] = {}
        self._updated_at = self._last_update = 0  # the iterations of the newest update, and of the one before
        self._skipped: Tensor | None = None  # how many updates: since the last look, and in a row
        self._statistics: list[tuple[Tensor, Tensor]] = []  # of batch norms, and copies from before the iteration
        self._gradients_of: dict[Optimizer, list[tuple[Tensor, Tensor]]] = {}  # while it skips a step

    @property
    def skips_updates(self) -> bool:  # type: ignore[override]
        """Whether updates from bad batches are skipped, or have been."""
        return self.action == 'skip' or bool(self._left_out)

    def before_run(self, runner: RunnerView) -> None:
        self._reset()
        self._stop_guarding()
        if self.gradients or self.action == 'skip' or self.leave_out:
            for optimizer in named_optimizers(runner.optimizer).values():
                self._handles.append(optimizer.register_step_pre_hook(self._before_step))
                self._handles.append(optimizer.register_step_post_hook(self._after_step))
        looks = {hook.interval for hook in runner.hooks if isinstance(hook, CheckpointHook) and not hook.by_epoch}
        logs = {hook.interval for hook in runner.hooks if isinstance(hook, LoggerHook)}
        looks |= (logs or {50}) if self.interval is None else {self.interval}
        # All ranks look together, so they need the same intervals; some hooks exist on the first rank only.
        self._looks: set[int] = broadcast_object({interval for interval in looks if interval > 0})

    # --- in each iteration: nothing here waits for the device --------------------------------------------------------

    def before_train_iter(self, runner: RunnerView) -> None:
        self._unread, self._iteration, self._last_update = True, runner.iter + 1, self._updated_at
        if self._skips():
            self._keep_statistics(runner)

    def _skips(self) -> bool:
        """Whether the update that this iteration belongs to is skipped if its gradients are bad."""
        # With accumulation, the update that has to be left out may come some iterations after the bad one.
        return self.action == 'skip' or any(self._last_update < number <= self._iteration for number in self._left_out)

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self._skips():
            for loss in losses_of(runner.outputs):
                self._check(LOSS, loss)
        elif self._statistics:
            with torch.no_grad():
                for now, kept in self._statistics:
                    now.copy_(torch.where(torch.isfinite(now), now, kept))
        done = runner.iter + 1
        if done == runner.max_iters or any(done % interval == 0 for interval in self._looks):
            self._look(runner)

    def _check(self, what: str, value: Tensor) -> None:
        number = ~torch.isfinite(value.detach()).all() * self._iteration
        first = self._first_bad.get((what, value.device), number)
        self._first_bad[what, value.device] = torch.where(first > 0, first, number)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if getattr(optimizer, 'found_inf', None) is not None or not self._iteration:
            return  # a gradient scaler checks this step; or it is one before the first iteration
        self._updated_at = self._iteration
        held = [(each, each.grad) for each in held_by_optimizer(optimizer) if each.grad is not None]
        magnitudes = largest(grad for _, grad in held)
        if not self._skips():
            for magnitude in magnitudes:
                self._check(GRADIENTS, magnitude)
        elif held:
            bad = torch.zeros((), dtype=torch.bool, device=held[0][1].device)
            for magnitude in magnitudes:
                bad |= ~torch.isfinite(magnitude.to(bad.device))
            if any(is_dtensor(grad) for _, grad in held):  # ranks with parts of a gradient act alike
                bad.fill_(reduce_extremes(float(bad))[1] > 0)
            self._skip(optimizer, held, bad)

    def _skip(self, optimizer: Optimizer, held: list[tuple[Tensor, Tensor]], bad: Tensor) -> None:
        if self._skipped is None:
            self._skipped = torch.zeros(2, dtype=torch.int64, device=bad.device)
        new, in_a_row = self._skipped
        new.add_(bad)
        in_a_row.add_(1).mul_(bad)
        fused = all(group.get('fused') for group in optimizer.param_groups)
        if fused and getattr(optimizer, '_step_supports_amp_scaling', False):
            optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
            self._gradients_of[optimizer] = []
        elif bad:  # waits for the device
            for parameter, _ in held:
                parameter.grad = None
            self._gradients_of[optimizer] = held

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        held = self._gradients_of.pop(optimizer, None)
        if held is not None and hasattr(optimizer, 'found_inf'):
            del optimizer.found_inf
        for parameter, grad in held or ():
            parameter.grad = grad

    def _keep_statistics(self, runner: RunnerView) -> None:
        # A bad batch corrupts the running averages of batch norms during the forward pass.
        if self._statistics:
            now, kept = zip(*self._statistics, strict=True)
            torch._foreach_copy_(kept, now)
        else:
            layers = [layer for layer in unwrap(runner.model).modules() if isinstance(layer, _NormBase)]
            running = [each for layer in layers for each in (layer.running_mean, layer.running_var)]
            self._statistics = [(each, each.clone()) for each in running if each is not None]

    # --- looking -----------------------------------------------------------------------------------------------------

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
        # all ranks have looked.
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
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _look(self, runner: RunnerView, may_go_back: bool = True) -> None:
        """Read the flags since the last look and act on them; all ranks call this together."""
        self._unread = False
        found = dict(enumerate(all_gather_objects(self._found(runner))))
        if any(map(any, found.values())):
            self._act(runner, found, may_go_back)
        if self.action == 'skip' and self._skipped is not None:
            self._report_skipped(runner, self._skipped)
        self._first_bad.clear()

    def _found(self, runner: RunnerView) -> tuple[int, int, bool]:
        """The first iterations with a bad loss and with bad gradients, 0 if none, and whether weights are bad."""
        loss, gradients = (
            min((int(n) for (of, _), n in self._first_bad.items() if of == what and n), default=0)
            for what in (LOSS, GRADIENTS)
        )
        return loss, gradients, not {'weights', 'optimizer'}.isdisjoint(runner.non_finite(alone=True))

    def _report_skipped(self, runner: RunnerView, skipped: Tensor) -> None:
        new, in_a_row = skipped.tolist()
        skipped[0] = 0
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

    def _act(self, runner: RunnerView, found: dict[int, tuple[int, int, bool]], may_go_back: bool) -> None:
        report = self._report(runner, found)
        if self.action != 'rollback' or not may_go_back:
            raise NonFiniteError(f'{report} No checkpoint holds it.')
        if self._tries >= self._most:
            raise NonFiniteError(f'{report} The run has gone back {self._tries} times already (max_tries).')
        checkpoint = runner.last_checkpoint()
        if checkpoint is None:
            raise NonFiniteError(f'{report} There is no checkpoint of this run to go back to.')
        self._tries += 1
        if self.leave_out:
            bad = [number for loss, gradients, _ in found.values() for number in (loss, gradients) if number]
            self._left_out.update(sorted(bad)[:1])
        runner.logger.error('%s Going back to %s (%d of %d).', report, checkpoint, self._tries, self._most)
        self._reset()
        runner.roll_back(checkpoint)

    def _report(self, runner: RunnerView, found: dict[int, tuple[int, int, bool]]) -> str:
        """What was bad first, on which rank, and how to replay it."""
        bad = [(n, what, rank) for rank, of in found.items() for n, what in zip(of, (LOSS, GRADIENTS)) if n]  # noqa: B905
        if not bad:
            return f'weights or optimizer states are not finite at iteration {runner.completed_iters}.'
        # The loss comes before the gradients of the same iteration.
        number, what, rank = min(bad, key=lambda each: (each[0], each[1] != LOSS))
        world_size, command = get_dist_info()[1], replay_command(runner.work_dir, number - 1)
        where = f', on rank {rank} of {world_size}' if world_size > 1 else ''
        replay = f' To replay it: {command}.' if command else ''
        return f'the {what} not finite since iteration {number}{where}.{replay}'

    def state_dict(self) -> dict[str, Any]:
        """Return how many times the run has gone back, the batches that were left out, and when it last updated."""
        return {'tries': self._tries, 'left_out': sorted(self._left_out), 'updated_at': self._updated_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # After going back, this object knows more than the checkpoint.
        self._tries = max(self._tries, state['tries'])
        self._left_out.update(state['left_out'])
        self._updated_at = state.get('updated_at', max(state['left_out'], default=0))


def losses_of(outputs: dict[str, Any]) -> list[Tensor]:
    """Return the losses of a step's outputs: ``loss``, else the logged values whose names contain ``loss``."""
    loss = outputs.get('loss')
    if loss is None:
        loss = {name: each for name, each in outputs.get('log_vars', {}).items() if names_a_loss(name)}
    values = list(loss.values()) if isinstance(loss, dict) else [loss]
    tensors = [each for each in values if isinstance(each, Tensor)]
    bad = any(isinstance(each, (int, float)) and not math.isfinite(each) for each in values)
    return [*tensors, torch.tensor(math.nan)] if bad else tensors
