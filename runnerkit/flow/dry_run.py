"""``--dry-run``: everything is built and shown, one iteration of each mode is run, nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from runnerkit.flow.context import Context
from runnerkit.flow.preview import preview_curves
from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook
from runnerkit.runner.workflow import first_training_loader, length_of


class DryRun:
    """Takes the runner stage's place."""

    def __call__(self, context: Context) -> None:
        """Show what a run would do, and do one iteration of each mode."""
        say = context.logger.info
        say('Hooks:\n%s', context.runner.get_hook_info())
        self.show_schedules(context)
        loaders = {mode: loader for (mode, _), loader in zip(context.workflow, context.loaders, strict=True)}
        if context.val_loader is not None:
            loaders.setdefault('val', context.val_loader)
        for mode, loader in loaders.items():
            batch = next(iter(loader))
            say('First batch of mode %r:\n%s', mode, '\n'.join(describe(batch)))
            self.one_iteration(context, mode, batch)

    def show_schedules(self, context: Context) -> None:
        """A plot of the learning rate, and of the momentum if it has a schedule, over the whole run."""
        runner, say = context.runner, context.logger.info
        if context.optimizer is None:
            say('Learning rate: none, as there is no optimizer')
            return
        for hook in runner.hooks:
            if isinstance(hook, TorchLrUpdaterHook) and hook.monitor is not None:
                say('%s follows %s, which is not known yet, and is not drawn', hook.scheduler, hook.monitor)
        length = length_of(first_training_loader(context.loaders, context.workflow, runner))
        if not length:
            say('Learning rate: not drawn, as the length of the training loader is not known')
            return
        for curve in preview_curves(runner, length):
            say('%s: %s\n%s', curve.title, curve.source, sketch(curve.values))

    def one_iteration(self, context: Context, mode: str, batch: Any) -> None:
        """One step of ``mode``, with an update where it trains."""
        runner = context.runner
        runner.mode = mode
        if mode == 'val':
            with runner.around_val():
                runner.mode = mode
                runner.run_iter(batch, train_mode=False)
        else:
            runner.run_iter(batch, train_mode=True)
            if context.optimizer is not None and isinstance(runner.outputs.get('loss'), Tensor):
                runner.update(runner.outputs['loss'])
        loss = runner.outputs.get('loss')
        context.logger.info(
            'One iteration of mode %r: loss %s', mode, 'none' if loss is None else f'{float(loss.detach()):.4f}'
        )


def describe(value: Any, name: str = 'batch') -> list[str]:
    """A line for every tensor in a nested batch: where it is, its shape and type."""
    if isinstance(value, Tensor):
        return [f'  {name}: {tuple(value.shape)} {str(value.dtype).removeprefix("torch.")}']
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in describe(item, f'{name}[{key!r}]')]
    if isinstance(value, (list, tuple)):
        return [line for i, item in enumerate(value) for line in describe(item, f'{name}[{i}]')]
    return [f'  {name}: {type(value).__name__}']


def sketch(values: Sequence[float], width: int = 60, height: int = 8) -> str:
    """A small plot in characters of at least one value; the highest on top, the run's start on the left."""
    columns = [values[i * (len(values) - 1) // max(1, width - 1)] for i in range(min(width, len(values)))]
    if len(values) <= width:
        columns = list(values)
    low, high = min(columns), max(columns)
    rows = [round((value - low) / (high - low) * (height - 1)) if high > low else 0 for value in columns]
    lines = []
    for level in reversed(range(height if high > low else 1)):
        label = f'{high:10.3g}' if level == height - 1 else f'{low:10.3g}' if level == 0 else ' ' * 10
        lines.append(f'{label} |' + ''.join('*' if row == level else ' ' for row in rows))
    return '\n'.join([*lines, ' ' * 11 + '+' + '-' * len(columns), ' ' * 12 + f'iteration 0 … {len(values) - 1}'])
