"""``--dry-run``: build and show everything, run one iteration of each mode, keep nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from runnerkit.data.named import name_of_scores
from runnerkit.flow.context import Context
from runnerkit.flow.look.preview import preview_curves
from runnerkit.flow.look.summary import measured
from runnerkit.flow.stages.stage import origin
from runnerkit.flow.stages.training import RunnerBase, data_of, length_in_words, model_of
from runnerkit.hooks import OptimizerHook
from runnerkit.hooks.hook_table import HookTable
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.parallel import DataContainer
from runnerkit.runner.workflow import first_training_loader, length_of
from runnerkit.utils.logging import print_result


class DryRun(RunnerBase):
    """The runner stage of ``--dry-run``."""

    def run(self, context: Context) -> None:
        """Show what would be trained on what, and what one iteration of each mode gives; then everything else."""
        say = printer(context)
        loaders = {
            (mode, name_of_scores(loader)): loader
            for (mode, _), loader in zip(context.workflow, context.loaders, strict=True)
        }
        named = context.val_loader if isinstance(context.val_loader, Mapping) else {'': context.val_loader}
        for name, loader in named.items():
            if loader is not None:
                loaders.setdefault(('val', name), loader)
        labels = {(mode, name): f'{mode} {name}' if name not in ('', mode) else mode for mode, name in loaders}
        data = ', '.join(f'{labels[key]} on {data_of(loader)}' for key, loader in loaders.items())
        say(f'Would train {model_of(context)} for {length_in_words(context.runner, context.workflow)}\nData: {data}')
        tried = self.try_batches(context, loaders)
        losses = ', '.join(f'{labels[key]} {loss}' for key, (_, loss) in zip(loaders, tried, strict=True))
        count = len(context.findings)
        warned = f', with {count} warning{"s" * (count > 1)} at the end of this' if count else ''
        say(f'First losses: {losses}\nThe run would start{warned}.\n')
        self.show_plan(context)
        validates = any(mode == 'val' for mode, _ in context.workflow)
        say(f'Hooks:\n{HookTable(context.runner.hooks).info(validates)}')
        self.show_schedules(context)
        say('\n'.join(text for text, _ in tried))

    def show_plan(self, context: Context) -> None:
        """Show the config, and where each stage comes from."""
        say = printer(context)
        say(f'Config:\n{context.cfg.pretty_text}')
        say('Stages:\n' + '\n'.join(f'{name:<9} {origin(make)}' for name, make in context.stages.items()))

    def try_batches(self, context: Context, loaders: Mapping[tuple[str, str], Any]) -> list[tuple[str, str]]:
        """What the first batch of each loader holds, with the model's parts, and the loss of one iteration with it; the
        keys are mode and name."""
        texts = []
        for (mode, name), loader in loaders.items():
            batch = next(iter(loader))
            head = f'First batch of mode {mode!r}{f" on {name}" if name else ""}:'
            summary, loss = self.one_iteration(context, mode, batch)
            texts.append(('\n'.join([head, *describe_run(batch), *summary]), loss))
        return texts

    def show_schedules(self, context: Context) -> None:
        """Plot the learning rate over the whole run, and the momentum if it has a schedule."""
        runner, say = context.runner, printer(context)
        if context.optimizer is None:
            say('Learning rate: none, as there is no optimizer')
            return
        for hook in runner.hooks:
            if isinstance(hook, ScheduleHook) and hook.monitor is not None:
                say(f'{hook.scheduler} depends on {hook.monitor}, which is not known yet: not drawn')
        length = length_of(first_training_loader(context.loaders, context.workflow, runner))
        if not length:
            say('Learning rate: not drawn, because the length of the loader is not known')
            return
        for curve in preview_curves(runner, length):
            say(f'{curve.title}: {curve.source}\n{sketch(curve.values)}')

    def one_iteration(self, context: Context, mode: str, batch: Any) -> tuple[list[str], str]:
        """Run one step of ``mode``, with an update if the mode trains; returns the model's summary, if it trains, and
        the loss."""
        runner, text = context.runner, []
        runner.mode = mode
        if mode == 'val':
            with runner.around_val():
                runner.mode = mode
                runner.run_iter(batch, train_mode=False)
                outputs = runner.outputs  # the span restores those before it
        else:
            hooks = [hook for hook in runner.hooks if isinstance(hook, OptimizerHook)]
            for hook in hooks:  # before the step, so that they see whether it updates the weights itself
                hook.before_run(runner)
            with measured(runner.model) as summary:
                runner.run_iter(batch, train_mode=True)
            outputs = runner.outputs
            summary.samples = outputs.get('num_samples')
            text = [str(summary)]
            for hook in hooks:
                hook.after_train_iter(runner)
        loss = outputs.get('loss')
        if isinstance(loss, Mapping):
            return text, ', '.join(f'{name} {value_of(each)}' for name, each in loss.items())
        return text, value_of(loss)


def value_of(loss: Any) -> str:
    """``loss`` as text."""
    return f'{float(loss.detach()):.4f}' if isinstance(loss, Tensor) else str(loss).lower()


def printer(context: Context) -> Callable[[str], None]:
    """Prints on rank 0, and nothing elsewhere."""
    return partial(print_result, logger=context.logger) if context.rank == 0 else lambda text: None


def describe_run(batch: Any) -> list[str]:
    """A line for every value in a nested batch: its place, and its type or, of a tensor, shape and dtype."""
    return [f'  {name}: {shape_of(leaf)}' for name, leaf in leaves(batch, 'batch')]


def shape_of(value: Any) -> str:
    """Shape and dtype of a tensor; the type of anything else."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f'{tuple(value.shape)} {str(value.dtype).removeprefix("torch.")}'


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value in nested dicts, lists, tuples and `DataContainer`, with its place."""
    if isinstance(value, DataContainer):
        yield from leaves(value.data, name)
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, f'{name}[{key!r}]')
    else:
        yield name, value


def sketch(values: Sequence[float], width: int = 60, height: int = 8) -> str:
    """A small text plot of ``values``, which must not be empty; the first one is on the left."""
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
