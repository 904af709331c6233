"""A training of a network with the loaders that one has: `fit`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from runnerkit.config.known_keys import TOP
from runnerkit.data.given import is_loader
from runnerkit.flow import from_python
from runnerkit.flow.from_python import TrainResult
from runnerkit.nn.pairs import Pairs
from runnerkit.nn.supervised import build_metrics
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number, rule_by_name
from runnerkit.utils.suggest import suggestion


def fit(
    net: nn.Module,
    train: Any = None,
    val: Any = None,
    *,
    loss: Any = None,
    optimizer: Any = None,
    epochs: int | None = None,
    metrics: Any = None,
    work_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    **keywords: Any,
) -> TrainResult:
    """Train a network on the loaders that you have, without a config::

        result = runnerkit.fit(net, train, val, loss=F.cross_entropy, optimizer=optimizer, epochs=5, seed=0)

    The network is trained in place. After each epoch it is evaluated on ``val``; the best weights are kept, by the
    first metric, else by the loss. What works with `runnerkit.train` works here: logs, checkpoints, the report, and
    ``resume=True``.

    Args:
        net: the network.
        train: what gives batches ``(x, y)``: a DataLoader, a list of batches or another iterable; or a data set of
            samples ``(x, y)``.
        val: the same for the evaluation; None evaluates nothing.
        loss: called as ``loss(net(x), y)``: a function, a module, or the name of a loss such as
            ``'CrossEntropyLoss'``. It returns one number, or a dict of terms that are summed.
        optimizer: an optimizer over the network's parameters, a name, or a dict such as ``dict(type='SGD', lr=0.1)``.
        epochs: how many, at least 1.
        metrics: a torchmetrics object, a name, or a list or dict of them.
        work_dir: where logs and checkpoints go; by default ``work_dirs/<class of net>``.
        batch_size: samples in a batch of a data set, by default 32; not with a loader.
        workers: processes that load a data set, by default none; not with a loader.
        **keywords: other arguments of `runnerkit.train`: ``seed``, ``resume``, ``device``, ``hooks`` …, and changes of
            the config, such as ``lr_config=dict(policy='CosineAnnealing', min_lr=0.0)``.

    Returns:
        What `runnerkit.train` returns. The ``model`` of the result has ``net`` as its attribute ``model``.

    Raises:
        TypeError: an argument is missing or of a wrong kind.
        ValueError: ``epochs`` is less than 1, or an option of data sets is given with a loader.
        PreflightError: the run cannot mean what it says, for example with an optimizer of another network.
    """
    _check_keywords(keywords, optimizer)
    _check(net, train, val, loss, optimizer)
    check_whole_number('epochs', epochs)
    data = {'train': _batches(train)} | ({} if val is None else {'val': _batches(val)})
    kind, loaders = type(net).__name__, [name for name, each in data.items() if is_loader(each)]
    options = {'batch_size': batch_size, 'workers': workers}
    for name, value in options.items():
        if value is not None and len(loaders) == len(data):
            given = ' and '.join(f'{each} is a {type(data[each]).__name__}' for each in loaders)
            raise WrongValue(f'{name}={value!r} is for data sets, but {given}: leave it out, or say it there')
    if len(loaders) < len(data):
        data |= {'batch_size': 32 if batch_size is None else batch_size, 'workers': workers or 0}
    built = build_metrics(metrics)
    config = {
        'model': {'type': Pairs, 'model': net, 'loss': loss} | ({'metrics': built} if built else {}),
        'data': data,
        'optimizer': {'type': optimizer} if isinstance(optimizer, str) else optimizer,
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': epochs},
    }
    if val is not None:
        decides = [_has_direction(*each) for each in built.items()][:1] == [True]
        config['evaluation'] = {'interval': 1, 'save_best': 'auto' if decides else 'loss'}
    return from_python.train(config, os.path.join('work_dirs', kind) if work_dir is None else work_dir, **keywords)


def _check_keywords(keywords: Mapping[str, Any], optimizer: Any) -> None:
    """Refuse misspelt arguments of `fit`; `runnerkit.train` looks at the others."""
    if 'lr' in keywords:
        kind = optimizer if isinstance(optimizer, str) else 'SGD'
        of_optimizer = f'optimizer=dict(type={kind!r}, lr={keywords["lr"]!r})'
        raise TypeError(f"fit() has no keyword 'lr', which belongs to the optimizer, such as {of_optimizer}")
    own = [name for name in inspect.signature(fit).parameters if name != 'keywords']
    known = {*inspect.signature(from_python.train).parameters, *TOP}
    for name in keywords:
        hint = suggestion(name, own)
        if hint and name not in known and '__' not in name:
            raise TypeError(f'fit() got an unknown keyword {name!r}{hint}')


def _check(net: Any, train: Any, val: Any, loss: Any, optimizer: Any) -> None:
    """Refuse arguments of a wrong kind, and say what to give."""
    optimizers = "torch.optim.Adam(net.parameters()), 'Adam' or dict(type='SGD', lr=0.1)"
    data = 'a DataLoader, a data set, or an iterable of batches (x, y)'
    is_loss = callable(loss) or isinstance(loss, str | Mapping)
    is_optimizer = isinstance(optimizer, Optimizer | str | Mapping)
    for name, value, fits, needed in (
        ('net', net, isinstance(net, nn.Module), 'a torch.nn.Module'),
        ('train', train, _gives_batches(train), data),
        ('val', val, val is None or _gives_batches(val), f'{data}, or None'),
        ('loss', loss, is_loss, "a function, a module, or 'CrossEntropyLoss'"),
        ('optimizer', optimizer, is_optimizer, f"an optimizer over the network's parameters: {optimizers}"),
    ):
        if not fits or isinstance(value, type):
            raise WrongType(f'fit needs {name}, {needed}, but got {value!r}')


def _gives_batches(value: Any) -> bool:
    return not isinstance(value, str | Mapping) and (hasattr(value, '__iter__') or hasattr(value, '__getitem__'))


def _batches(data: Any) -> Any:
    """``data``, where a list or tuple of batches becomes a loader of them."""
    is_list = isinstance(data, list | tuple)
    return DataLoader(data, batch_size=None) if is_list else data


def _has_direction(name: str, metric: Any) -> bool:
    """Whether it is known if more or less is better for ``metric``."""
    if getattr(metric, 'higher_is_better', None) is not None:
        return True
    try:
        return bool(rule_by_name(name))
    except ValueError:
        return False
