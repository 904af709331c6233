"""The scores of a trained model on a split of its data: `test`, and what ``runnerkit test`` does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from runnerkit.checkpoint import find_checkpoint
from runnerkit.checkpoint.state_dict import WeightsDoNotFit
from runnerkit.config import Config
from runnerkit.config.parse import EXTENSIONS
from runnerkit.fileio.paths import is_url, local_path
from runnerkit.flow.context import Context, Options
from runnerkit.flow.from_python import config_from
from runnerkit.flow.preflight import check_switches
from runnerkit.flow.stages.defaults import required_section
from runnerkit.flow.stages.instance import Instance, configured_work_dir
from runnerkit.flow.stages.loading import build_loaders, check_split
from runnerkit.flow.stages.network import Network
from runnerkit.flow.stages.process_state import preserved_process_state
from runnerkit.flow.use.load import Trained, check_which, warn_if_not_finite
from runnerkit.flow.use.scoring import scoring
from runnerkit.flow.work_dir.record import check_made_here, config_of, read_record
from runnerkit.registry import placed_errors
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import set_random_seed


def test(
    source: str | os.PathLike[str] | Mapping[str, Any] | Config,
    split: str = 'test',
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    which: str = 'best',
    device: torch.device | str | None = None,
    allow_partial: bool = False,
    launcher: str = 'none',
    cfg_options: Mapping[str, Any] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> dict[str, float]:
    """Evaluate a trained model on a split of its data, as ``runnerkit test`` does.

    ::

        runnerkit.test('work_dirs/lenet')  # {'loss': 0.05, 'accuracy': 0.98}

    Args:
        source: a work dir, whose config and code are executed; or a config: its file, a `Config` or a dict like one.
        split: which data set, or data sets by name, of the config's ``data``.
        checkpoint: the checkpoint or work dir with the weights; by default the work dir, or that of the config.
        which: of a work dir, the ``'best'`` checkpoint (the latest if there is no best one), or the ``'latest'``.
        device: where to compute; by default a GPU if there is one.
        allow_partial: evaluate even if some tensors of model or checkpoint have no counterpart.
        launcher: what has started the processes of a distributed evaluation, as for `runnerkit.train`.
        cfg_options: changes of the config as with ``--cfg-options``, by dotted key.
        work_dir: where the config's hooks write (``runner.work_dir``); by default ``<folder of the weights>/<split>``.
        trust: execute the config and the code of a work dir, also if it comes from elsewhere.

    Returns:
        Each score by its name, such as ``accuracy``, or ``clean/accuracy`` of one of several data sets. On ranks other
        than the first: empty.

    Raises:
        FileNotFoundError: there is no such work dir, config or checkpoint.
        KeyError: the config has no such split.
        ValueError: the weights do not fit the model, ``which`` is not known, or none of your runs on this machine has
            written the work dir's config and code.
    """
    check_which(which)
    config: Any = source
    place = checkpoint
    if isinstance(source, (str, os.PathLike)) and not os.fspath(source).endswith(EXTENSIONS):
        config, place = kept_config(source, trust), source if checkpoint is None else checkpoint
    cfg = config_from(config, cfg_options or {})
    check_split(required_section(cfg, 'data'), split)  # first: it may be a work dir, in the order of the command
    path = find_checkpoint(os.fspath(configured_work_dir(cfg) if place is None else place), best=which == 'best')
    options = Options(launcher=launcher, device=None if device is None else str(device))
    return evaluated(cfg, options, path, split, allow_partial, work_dir)


def kept_config(work_dir: str | os.PathLike[str], trust: bool) -> Path:
    """The config file that a run has kept in ``work_dir``."""
    found = config_of(work_dir)
    if found is None:
        name, is_folder = os.fspath(work_dir), os.path.isdir(work_dir)
        kind = 'a work dir without its config' if is_folder else 'neither a config nor a work dir'
        raise FileNotFoundError(
            f'{name} is {kind}: give the config first, runnerkit test CONFIG {name} (in Python '
            f"runnerkit.test('config.py', checkpoint={name!r}))"
        )
    return check_made_here(found, trust)


def evaluated(
    cfg: Any,
    options: Options,
    checkpoint: str,
    split: str = 'test',
    allow_partial: bool = False,
    work_dir: str | os.PathLike[str] | None = None,
) -> dict[str, float]:
    """The scores of ``checkpoint`` on ``split``, on rank 0; empty on other ranks. See `test` for ``work_dir``."""
    check_switches(cfg)
    context = Context(cfg, options, seed=seed_of(cfg, checkpoint))
    instance, network = Instance(context), Network(context)
    if work_dir is None:  # apart from what the hooks wrote in the training, which stays as it is
        place = local_path(checkpoint)
        work_dir = Path(configured_work_dir(cfg) if is_url(place) else os.path.dirname(place), split)
    with preserved_process_state(), context.closing:
        instance.start_processes(context)
        instance.set_backends(context)
        set_random_seed(context.seed, deterministic=bool(cfg.get('deterministic')))
        context.loaders = [*build_loaders(context, required_section(cfg, 'data'), split).values()]
        network.build_model(context)
        with scoring(context, Path(work_dir)) as score:
            try:
                loaded = context.runner.load_checkpoint(checkpoint, strict=not allow_partial)
            except WeightsDoNotFit as error:
                raise ValueError(
                    f'{checkpoint} does not fit the model of {cfg.filename or "the config"}, so its scores would '
                    f'be meaningless. {error}.\nGive the checkpoint of this model, or the config of that '
                    'checkpoint (in its work dir). To evaluate anyway: --allow-partial (allow_partial=True)'
                ) from None
            warn_if_not_finite(Trained(checkpoint, loaded, cfg))
            scores = score(loaded)
    return scores if context.rank == 0 else {}


def seed_of(cfg: Any, checkpoint: str) -> int:
    """The seed of the training: that of the config, else as the work dir of ``checkpoint`` notes it, else 0."""
    with placed_errors(cfg, 'seed'):
        check_whole_number('seed', cfg.get('seed'), at_least=0, or_none=True)
    found = cfg.get('seed')
    if found is None and not is_url(local_path(checkpoint)):
        found = read_record(Path(local_path(checkpoint)).parent).get('seed')
    return found if isinstance(found, int) else 0
