"""A trained model's predictions for a split of its config, or for files."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.config import Config
from runnerkit.config.parse import EXTENSIONS
from runnerkit.config.pretty import refuse_marks
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.data.builder import check_dataset
from runnerkit.data.files import CollateFiles, dataset_of_files
from runnerkit.data.given import is_loader
from runnerkit.data.named import named_datasets
from runnerkit.fileio.paths import is_url
from runnerkit.flow.context import Context, Options
from runnerkit.flow.preflight import check_switches
from runnerkit.flow.stages.defaults import required_section, splits_in
from runnerkit.flow.stages.instance import Instance, choose_device, configured_work_dir
from runnerkit.flow.stages.loading import loader_settings
from runnerkit.flow.stages.process_state import preserved_process_state
from runnerkit.flow.use.load import Trained, build_trained, find_trained
from runnerkit.flow.work_dir.record import config_of, read_record
from runnerkit.flow.work_dir.snapshot import CODE
from runnerkit.parallel import scatter, to_device
from runnerkit.registry import find_function, placed_errors
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.logging import get_logger, is_terminal, printable
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.progress import ProgressBar
from runnerkit.utils.suggest import suggestion

#: What may be done to the predictions of a batch, ``[n, …]``, by name.
APPLY: dict[str, Callable[[Tensor], Tensor]] = {
    'argmax': lambda batch: batch.argmax(1),
    'softmax': lambda batch: batch.softmax(1),
    'sigmoid': torch.sigmoid,
}

#: Whose class reads files: the first of these splits that the config has.
READERS = ('test', 'val', 'train')

#: Settings of a split's loader that would change which samples come, and in which order.
_ORDER = ('shuffle', 'sampler', 'batch_sampler', 'drop_last', 'round_up', 'max_batches')

Inputs = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def predict(
    source: Config | str | os.PathLike[str],
    inputs: Inputs = 'test',
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    config: Config | dict[str, Any] | str | os.PathLike[str] | None = None,
    which: str = 'best',
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    apply: str | Callable[[Any], Any] | None = None,
    trust: bool = False,
) -> list[Any]:
    """Apply a trained model to a split of its data, or to files.

    ::

        digits = runnerkit.predict('work_dirs/lenet', ['a.png', 'b.png'], apply='argmax')

    A model predicts with its method ``predict(data)``, which gets a batch and returns one prediction for each of its
    samples: a tensor ``[n, …]``, a list of n, or a dict or tuple of these. `Supervised` has it. A model in MMCV's style
    is called as ``model(return_loss=False, **data)``.

    Args:
        source: a work dir; a config or its file, whose work dir has the model; or a checkpoint. See `load_model` about
            what is executed.
        inputs: the name of a split (``'test'``, or ``'val/clean'`` of several data sets by name); or files, which the
            data set's ``from_files`` reads.
        checkpoint: the model's checkpoint or work dir, in place of the one of ``source``.
        config: the model's config, in place of the one of ``source``.
        which: of a work dir, the ``'best'`` or the ``'latest'`` checkpoint.
        device: where to compute; by default a GPU if there is one.
        batch_size: samples in a batch; by default the split's.
        apply: what to do to the predictions of each batch: ``'argmax'`` and ``'softmax'`` (of ``[n, classes, …]``),
            ``'sigmoid'``, or any function, itself or by its name (``'my_file.py:function'``).
        trust: see `load_model`.

    Returns:
        The prediction for each sample, in order, with its tensors on the CPU.

    Raises:
        FileNotFoundError: there is no such work dir, checkpoint, config or input.
        KeyError: the config has no such split, or names what is not registered.
        TypeError: ``inputs`` are something else; the data set takes no files, or the model has no ``predict``.
        ValueError: the model does not return one prediction for each sample; or see `load_model`.
    """
    inputs = words_of(inputs)  # inputs may be a generator
    trained = find_to_predict(source, checkpoint, config, which, trust, inputs)
    return predictions(trained, inputs, device, batch_size, apply)


def find_to_predict(
    source: Config | str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | None = None,
    config: Config | dict[str, Any] | str | os.PathLike[str] | None = None,
    which: str = 'best',
    trust: bool = False,
    inputs: Inputs | None = 'test',
) -> Trained:
    """The model of `predict`, which has the same arguments, before it is built; ``inputs`` are None if no data are
    named."""
    if not isinstance(source, Config) and not (os.fspath(source).endswith(EXTENSIONS) and not is_url(source)):
        place = source if checkpoint is None else checkpoint
        trained = find_trained(place, config, which, trust, work_dir=source)
        files_come = inputs is not None and split_meant(trained.cfg, inputs) is None
        kept = config_of(source) if files_come and config is None else None
        if kept is not None:
            _log_kept_code(kept, str(trained.cfg._cfg_dict))
        return trained
    cfg = source if isinstance(source, Config) else Config.fromfile(source)
    place = configured_work_dir(cfg) if checkpoint is None else checkpoint
    try:
        return find_trained(place, cfg, which)
    except FileNotFoundError as error:
        if checkpoint is not None:
            raise
        raise FileNotFoundError(
            f'{error}. That is the work dir of {cfg.filename or "the config"}: train the model first, or name another '
            'work dir or checkpoint (checkpoint=…, --checkpoint)'
        ) from None


@cache  # once for each run
def _log_kept_code(kept: Path, values: str) -> None:
    """Log that the run's copy of the user's code reads files, if ``values`` of the config ``kept`` name it."""
    code = kept.parent / (read_record(kept.parent).get('code') or CODE)
    if str(code.absolute()) in values:
        get_logger('runnerkit').info(
            "The run's copy of your code reads these files: %s. If you have changed the code since, give your config "
            'in place of the work dir: runnerkit predict %s FILE --checkpoint %s',
            *map(printable, (code, kept.name, kept.parent)),
        )


def predictions(
    trained: Trained,
    inputs: Inputs,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    apply: str | Callable[[Any], Any] | None = None,
) -> list[Any]:
    """The predictions of a model that has been found; see `predict`."""
    cfg = trained.cfg
    finish = function_to_apply(apply)
    check_switches(cfg)
    with preserved_process_state():
        context = Context(cfg, Options())
        context.device = choose_device(None if device is None else str(device), 0, 1)
        instance = Instance(context)
        instance.set_backends(context)
        loader = loader_of(cfg, inputs, batch_size)
        model = build_trained(trained, context.device)
        found = _predicted(model, loader, context.device, finish)
    if hasattr(loader.dataset, '__len__') and len(found) != len(loader.dataset):
        raise ValueError(
            f'{type(model).__name__} has returned {len(found)} predictions for {len(loader.dataset)} samples: its '
            'predict must return one for each sample of a batch, as a tensor [n, …], a list of n, or a dict or tuple '
            'of these'
        )
    return found


def split_meant(cfg: Config, inputs: Inputs) -> str | None:
    """The split of the config that ``inputs`` names, such as ``'test'`` or ``'val/clean'``; None if they are files."""
    words = words_of(inputs)
    word = words[0] if len(words) == 1 else ''
    known = splits(cfg)
    if word in known:
        return word
    inner = [name for name in known if name.startswith(f'{word}/')]
    if word and inner:
        raise ValueError(f'data.{word} has several data sets by name: name one of them, {" or ".join(inner)}')
    return None


def splits(cfg: Config) -> list[str]:
    """The names of the data sets in a config's ``data``; ``val/clean`` is one of several under ``val``."""
    data = required_section(cfg, 'data')
    return [f'{key}/{name}' if name else key for key in splits_in(data) for name in _data_sets_in(data[key])]


def _data_sets_in(config: Any) -> dict[str, Any]:
    """The data sets under one key of ``data`` by name. Building them reports what is wrong with them."""
    try:
        return named_datasets(config)
    except TypeError:
        return {'': config}


def words_of(inputs: Inputs) -> list[str]:
    """``inputs`` as a list: the name of a split, or files."""
    try:
        return [os.fspath(each) for each in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
    except TypeError:
        raise TypeError(
            f'inputs must be the name of a split, or paths of files, but got {type(inputs)}. For data in memory, '
            'call the model: runnerkit.load_model(…)(data)'
        ) from None


def loader_of(cfg: Config, inputs: Inputs, batch_size: int | None = None) -> Any:
    """The loader of ``inputs``, in their order; see `predict`."""
    data, meant = required_section(cfg, 'data'), split_meant(cfg, inputs)
    if meant is None:
        key = next((name for name in READERS if data.get(name) is not None), '')
        config = next(iter(_data_sets_in(data[key]).values())) if key else None
    else:
        key, _, name = meant.partition('/')
        config = _data_sets_in(data[key])[name]
    refuse_marks(config, 'data', *(meant or key).split('/'))
    if meant is not None:
        with placed_errors(data, key, name=f'data.{meant}'):
            dataset = build_dataset(config)
            if is_loader(dataset):
                kind = type(dataset).__name__
                raise WrongType(f'a {kind} may not give all samples in order: give its data set')
            check_dataset(dataset)
    else:
        files = _existing(words_of(inputs), splits(cfg))
        if not key:
            raise KeyError(f"the config's data has no {' and no '.join(READERS)}, so it is unknown how to read files")
        with placed_errors(data):
            dataset = dataset_of_files(config, files)
    # The samples come whole and in order.
    settings = {name: value for name, value in loader_settings(data, key).items() if name not in _ORDER}
    if batch_size is not None:
        settings['samples_per_gpu'] = batch_size
    seed = cfg.get('seed')
    with placed_errors(cfg, 'seed'):
        check_whole_number('seed', seed, at_least=0, or_none=True)
    loader = build_dataloader(dataset, dist=False, seed=seed or 0, shuffle=False, round_up=False, **settings)
    if meant is None and settings.get('collate_fn') is not None:
        loader.collate_fn = CollateFiles(loader.collate_fn)
    return loader


def _existing(files: list[str], names: list[str]) -> list[str]:
    if not files:
        raise ValueError(f'there is nothing to predict: name files, or one of the splits {", ".join(names)}')
    for file in files:
        path = Path(file).expanduser()
        if not path.exists():
            near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            hint = suggestion(path.name, [*near, *names]) or suggestion(file, names)
            raise FileNotFoundError(
                f"{file} is neither a file nor a split of the config's data ({', '.join(names)}){hint}"
            )
    return [os.path.expanduser(file) for file in files]


def function_to_apply(apply: str | Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """What is done to the predictions of a batch; see `predict`."""
    if apply is None or callable(apply):
        return apply or (lambda batch: batch)
    if isinstance(apply, str) and set('.:') & set(apply):
        return find_function(apply, 'apply')
    if apply not in APPLY:
        raise ValueError(
            f'apply must be a function, its name (my_file.py:function) or one of {", ".join(APPLY)}, but got '
            f'{apply!r}{suggestion(str(apply), APPLY)}'
        )

    def applied(batch: Any) -> Any:
        if not isinstance(batch, Tensor) or batch.dim() < 1 + (apply != 'sigmoid'):
            what = (
                f'the shape {tuple(batch.shape)}' if isinstance(batch, Tensor) else f'the type {type(batch).__name__}'
            )
            raise TypeError(
                f'apply={apply!r} needs one tensor [n, classes, …] for a batch, but its predictions have {what}'
            )
        return APPLY[apply](batch)

    return applied


def _predicted(model: Any, loader: Any, device: torch.device, finish: Callable[[Any], Any]) -> list[Any]:
    """One prediction for each sample of ``loader``, with a progress bar on a terminal."""
    size = len(loader.dataset) if hasattr(loader.dataset, '__len__') else 0
    bar = ProgressBar(size, file=sys.stderr) if is_terminal() else None
    found: list[Any] = []
    with torch.no_grad():
        for data in loader:
            rows = _rows(finish(_outputs_of(model, on_device(data, device))))
            found += rows
            if bar is not None and rows:
                bar.update(len(rows))
    if bar is not None:
        bar.file.write('\n')
    return found


def on_device(data: Any, device: torch.device) -> Any:
    """A batch on ``device``, with what MMCV's containers hold in their places."""
    if device.type in ('cpu', 'cuda'):
        return scatter(data, [-1 if device.type == 'cpu' else device.index])[0]
    return to_device(data, device)


def _outputs_of(model: Any, data: Any) -> Any:
    own = getattr(model, 'predict', None)
    if callable(own):
        return own(data)
    if isinstance(data, Mapping) and 'return_loss' in inspect.signature(model.forward).parameters:
        return model(return_loss=False, **data)
    raise TypeError(
        f'{type(model).__name__} has no method predict(data), which gets a batch and returns a prediction for each '
        "of its samples: write one, or let Supervised train the network, model=dict(type='Supervised', model=…, loss=…)"
    )


def _rows(batch: Any) -> list[Any]:
    """The predictions of a batch, one for each sample, on the CPU."""
    if isinstance(batch, Tensor):
        return list(batch.detach().cpu()) if batch.dim() else [batch.detach().cpu()]
    if isinstance(batch, Mapping):
        return [dict(zip(batch, row, strict=True)) for row in _rows(tuple(batch.values()))]
    if isinstance(batch, tuple):
        parts = [_rows(part) for part in batch]
        if len(counts := {*map(len, parts)}) > 1:
            raise ValueError(
                f'parts of a prediction are for {sorted(counts)} samples: predict must return all for each'
            )
        return list(zip(*parts, strict=True))
    if isinstance(batch, list | np.ndarray):
        return [to_device(each, 'cpu') for each in batch]
    raise TypeError(
        f'a prediction for a batch must be a tensor [n, …], a list of n, or a dict or tuple of these, but got a '
        f'{type(batch).__name__}'
    )
