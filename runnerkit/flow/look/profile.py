"""``runnerkit profile``: run torch's profiler over the first iterations of a training; keep nothing."""

from __future__ import annotations

from typing import Any

from runnerkit.data.kinds import length_of
from runnerkit.flow.context import Context
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.hooks import CheckpointHook, ClosureHook, EvalHook, ProfilerHook, TextLoggerHook
from runnerkit.runner.workflow import first_training_loader
from runnerkit.utils.exceptions import WrongValue

#: How many operations the table shows.
ROWS = 30


class Profile(RunnerBase):
    """The runner stage of ``runnerkit profile``; ``context['profile']`` is the table afterwards.

    Args:
        context: the run's.
        iters: how many iterations to measure; fewer if the training is shorter.
        warmup: how many to run before.
    """

    def __init__(self, context: Context, iters: int, warmup: int) -> None:
        self.iters = iters
        self.warmup = warmup

    def run(self, context: Context) -> None:
        """Measure."""
        runner = context.runner
        last = self.warmup + self.iters
        loader = first_training_loader(context.loaders, context.workflow, runner)
        epochs, length = runner.max_epochs, length_of(loader)
        limits = [last, runner.max_iters, None if None in (epochs, length) else epochs * length]
        last = min(limit for limit in limits if limit is not None)
        if last <= self.warmup:
            raise WrongValue(f'the training ends after {last} iterations, within --warmup {self.warmup}')
        on_gpu = context.device.type == 'cuda'

        def show(profiler: Any) -> None:
            sort_by = f'self_{"device" if on_gpu else "cpu"}_time_total'
            table = profiler.key_averages().table(sort_by=sort_by, row_limit=ROWS)
            context['profile'] = f'{last - self.warmup} iterations after {self.warmup} for warming up\n\n{table}'

        keep_inside(runner)
        runner.register_hook(
            ProfilerHook(
                by_epoch=False,
                profile_iters=last,
                activities=['cpu', 'cuda'] if on_gpu else ['cpu'],
                schedule={'wait': 0, 'warmup': self.warmup, 'active': last - self.warmup, 'repeat': 1},
                on_trace_ready=show,
            )
        )
        runner.register_hook(
            ClosureHook(
                'after_train_iter', lambda runner: runner.iter + 1 == last and runner.stop('the profile is complete')
            )
        )
        runner.run(context.loaders, context.workflow)


def keep_inside(runner: Any) -> None:
    """Make the hooks of ``runner`` write to its work dir only; those that send something outside are removed."""
    for hook in list(runner.hooks):
        if hook.sends_outside:
            runner.logger.info('left out of the profile: %s', type(hook).__name__)
            runner.hooks.remove(hook)
        elif isinstance(hook, (CheckpointHook, EvalHook, TextLoggerHook)):
            hook.out_dir = hook.file_client_args = None
        if isinstance(hook, CheckpointHook):
            hook.save_last = False  # this run does not end where the training ends
