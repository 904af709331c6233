"""``runnerkit summary``, and a part of the dry run: the model's parameters, operations and shapes for one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from runnerkit.evaluation import evaluation_mode
from runnerkit.flow.context import Context
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.parallel import unwrap
from runnerkit.runner.workflow import trains
from runnerkit.utils.seed import preserved_rng


@dataclass
class ModelPart:
    """One module of a summary.

    Attributes:
        name: its name in the model; empty for the model itself.
        kind: its class.
        parameters: how many numbers it has to learn or hold, those of its modules included.
        trainable: how many of them require gradients.
        calls: how often the step has called it.
        flops: floating-point operations of these calls; a multiplication and an addition are two.
        output: the shape of what the first call returned.
    """

    name: str
    kind: str
    parameters: int
    trainable: int
    calls: int = 0
    flops: int = 0
    output: str = ''


@dataclass
class Summary:
    """A model, and what one step with it takes.

    Attributes:
        whole: the model itself; its calls and output are not looked at.
        parts: its top-level modules. Of a model that only wraps another one, those of the inner one.
        samples: of the batch; None if the step does not say it.
    """

    whole: ModelPart
    parts: list[ModelPart] = field(default_factory=list)
    samples: int | None = None

    def __str__(self) -> str:
        rows = [('module', 'class', 'parameters', 'FLOPs', 'output')]
        for part in self.parts:
            output = part.output + (f', {part.calls} calls' if part.calls > 1 else '') if part.calls else 'not called'
            rows.append((part.name, part.kind, f'{part.parameters:,}', count(part.flops), output))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            f'  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}'
            for row in rows
        ]
        whole = self.whole
        each = f', {count(whole.flops / self.samples)} for each of the {self.samples} samples' if self.samples else ''
        head = f'{whole.kind}: {whole.parameters:,} parameters, {whole.trainable:,} of them trainable; '
        return '\n'.join([f'{head}FLOPs of one step: {count(whole.flops)}{each}', *lines])


def count(number: float) -> str:
    """``number`` with three digits and a unit: ``'1.23 G'``."""
    for size, unit in ((1e15, 'P'), (1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if number >= size:
            return f'{number / size:.3g} {unit}'
    return f'{number:.3g}'


@contextmanager
def measured(model: nn.Module) -> Iterator[Summary]:
    """Look at one step of ``model``, which the body of the ``with`` statement takes; the summary is filled in then.

    What runs in the step is counted, so also a backward pass if the step has one. torch counts matrix products,
    convolutions and attention; the rest of a network hardly matters.
    """
    model = unwrap(model)
    summary = Summary(_part('', model))
    counter, handles = FlopCounterMode(display=False), []
    for name, module in top_level(model):
        part = _part(name, module)
        summary.parts.append(part)
        handles += _watch(module, part, counter)
    try:
        with counter:
            yield summary
    finally:
        for handle in handles:
            handle.remove()
    summary.whole.flops = counter.get_total_flops()
    # The step may have given lazy parameters their shapes.
    modules = dict(model.named_modules())
    for part in (summary.whole, *summary.parts):
        part.parameters, part.trainable = _sizes(modules[part.name])


def forward_summary(model: nn.Module, sample: Any) -> Summary:
    """Look at one forward pass of ``model``, in evaluation mode and without gradients. Neither the model nor the random
    numbers of the process are changed.
    """
    model = unwrap(model)
    with preserved_rng(), evaluation_mode(model), torch.no_grad(), measured(model) as summary:
        own = getattr(model, 'predict', None)
        if callable(own):
            own(sample)
        elif isinstance(sample, Mapping):
            mmcv = {'return_loss': False} if 'return_loss' in signature(model.forward).parameters else {}
            model(**mmcv, **sample)
        else:
            model(*sample) if isinstance(sample, tuple | list) else model(sample)
    return summary


def count_parameters(model: nn.Module) -> int:
    """How many numbers the parameters of ``model`` have."""
    return _sizes(model)[0]


def is_shaped(model: nn.Module) -> bool:
    """Whether all parameters have shapes: lazy ones get theirs when the model is first called."""
    return not any(is_lazy(each) for each in model.parameters())


def top_level(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules of ``model`` with their names; of a model that only wraps another one, those of that one."""
    name = ''
    while True:
        children = [(f'{name}{key}', child) for key, child in model.named_children()]
        learning = [child for child in children if any(True for _ in child[1].parameters())]
        if len(learning) != 1 or any(True for _ in model.parameters(recurse=False)):
            return children or ([(name.rstrip('.'), model)] if name else [('', model)])
        if not any(True for _ in learning[0][1].children()):
            return children
        name, model = f'{learning[0][0]}.', learning[0][1]


def _part(name: str, module: nn.Module) -> ModelPart:
    return ModelPart(name, type(module).__name__, *_sizes(module))


def _sizes(module: nn.Module) -> tuple[int, int]:
    parameters = [each for each in module.parameters() if not is_lazy(each)]
    return sum(each.numel() for each in parameters), sum(each.numel() for each in parameters if each.requires_grad)


def _watch(module: nn.Module, part: ModelPart, counter: FlopCounterMode) -> list[Any]:
    before = [0]

    def begin(*_: Any) -> None:
        before[0] = counter.get_total_flops()

    def end(_module: nn.Module, _inputs: Any, output: Any) -> None:
        part.calls += 1
        part.flops += counter.get_total_flops() - before[0]
        part.output = part.output or shape(output)

    return [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]


def shape(value: Any) -> str:
    """The shapes of the tensors in ``value``: ``'(4, 10)'``, ``'[(4, 8), (4, 16)]'``, ``'{boxes: (7, 4)}'``."""
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, Mapping):
        return '{' + ', '.join(f'{key}: {shape(each)}' for key, each in value.items()) + '}'
    if isinstance(value, (list, tuple)):
        return '[' + ', '.join(shape(each) for each in value[:4]) + (', …' if len(value) > 4 else '') + ']'
    return type(value).__name__


class Summarize(RunnerBase):
    """The runner stage of ``runnerkit summary``: takes one training step, without an update.

    ``context['summary']`` is what was found; there is none if the workflow does not train.
    """

    def run(self, context: Context) -> None:
        """Take the step."""
        runner = context.runner
        for (mode, _), loader in zip(context.workflow, context.loaders, strict=True):
            if trains(mode, runner):
                runner.mode = mode
                runner.model.train()
                batch = next(iter(loader))  # data sets may compute something, too
                with measured(runner.model) as summary:
                    runner.run_iter(batch, train_mode=True)
                summary.samples = runner.outputs.get('num_samples')
                context['summary'] = summary
                return
