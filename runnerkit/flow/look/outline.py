"""Model, data and length of a run in one line each, for the log and the dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn.parameter import is_lazy

from runnerkit.data.kinds import dataset_of, length_of
from runnerkit.flow.context import Context
from runnerkit.nn import Supervised
from runnerkit.parallel import unwrap
from runnerkit.runner.workflow import Workflow, first_training_loader, trains


def training_line(context: Context) -> str:
    """Model, length and training data: ``LeNet (80,250 parameters, SGD) for 12 epochs on Digits (3,500 samples)``."""
    loader = first_training_loader(context.loaders, context.workflow, context.runner)
    data = '' if dataset_of(loader) is None else f' on {data_of(loader, batches=False)}'
    return f'{model_of(context)} for {length_in_words(context.runner, context.workflow)}{data}'


def model_of(context: Context) -> str:
    """The model's class, how many parameters it has, and what updates them."""
    model = unwrap(context.runner.model)
    named = context.optimizer if isinstance(context.optimizer, Mapping) else {'': context.optimizer}
    optimizers = [f'{type(each).__name__} {name}'.rstrip() for name, each in named.items() if each is not None]
    parameters = list(model.parameters())
    is_known = not any(map(is_lazy, parameters))
    count = f'{sum(each.numel() for each in parameters):,} parameters' if is_known else 'lazy parameters'
    kind = type(model.model if isinstance(model, Supervised) else model).__name__
    return f'{kind} ({", ".join([count, *(optimizers or ["no optimizer"])])})'


def data_of(loader: Any, batches: bool = True) -> str:
    """The class of the loader's data set, with the number of samples and of ``batches`` where they are known."""
    data = dataset_of(loader)
    counts = [(length_of(data), 'samples'), (length_of(loader) if batches else None, 'batches')]
    known = ', '.join(f'{count:,} {what}' for count, what in counts if count is not None)
    return f'{type(data).__name__} ({known})' if known else type(data).__name__


def length_in_words(runner: Any, workflow: Workflow) -> str:
    """How long the run is; with several trainings in ``workflow``, also how often it is repeated."""
    limits = ((runner.max_epochs, 'epochs'), (runner.max_iters, 'iterations'))
    limit, unit = limits[0] if runner.by_epoch and runner.max_epochs is not None else limits[1]
    if limit is None:
        return 'as long as the stream lasts'
    parts = [n for mode, n in workflow if trains(mode, runner)]
    repeated = f' (the workflow {limit // sum(parts)} times)' if len(parts) > 1 and limit % sum(parts) == 0 else ''
    return f'{limit} {unit[:-1] if limit == 1 else unit}{repeated}'
