"""A training from Python: `train`, which does what ``runnerkit train`` does and returns what came of it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from runnerkit.checkpoint import trusted_pickles
from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.config.config_dict import as_config
from runnerkit.config.keys import resolve_synonyms
from runnerkit.config.known_keys import BELONGS, MMCV_TOOLS, TOP
from runnerkit.config.origin import Place
from runnerkit.flow.context import Options
from runnerkit.flow.flow import Flow
from runnerkit.hooks import EMAHook
from runnerkit.hooks.hook import Hook, Outcome
from runnerkit.hooks.logger import HistoryHook
from runnerkit.optim.builder import kept_settings
from runnerkit.parallel import unwrap
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import near_miss, suggestion
from runnerkit.utils.user_files import end_import

#: Where the values of a dict were written, for messages.
PYTHON = Place('from Python')


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What came of a training.

    Attributes:
        model: the trained model as it is at the run's end, without wrappers, in evaluation mode, on the run's device.
            With an EMAHook it has the averaged weights.
        scores: the latest value of each score, by name.
        history: what the run has logged, as `runnerkit.hooks.logger.HistoryHook` describes it; the same on every rank.
            ``pandas.DataFrame(result.history)`` is its table. A resumed run's begins where it was resumed.
        work_dir: where logs and checkpoints are.
        outcome: whether the run is complete, was stopped, and why, or has diverged: its weights, and so ``model``, are
            NaN or infinite then, and ``best_checkpoint`` is of the time before.
        best_checkpoint: the path, or URL, of the best checkpoint; None without ``save_best``.
        last_checkpoint: the same of the last one; None if none was saved.
        signal: the number of the signal that has stopped the run, if one has.
    """

    model: nn.Module = field(repr=False)
    scores: dict[str, float]
    history: list[dict[str, Any]] = field(repr=False)
    work_dir: Path
    outcome: Outcome
    best_checkpoint: str | None
    last_checkpoint: str | None = None
    signal: int | None = None


def train(
    config: str | os.PathLike[str] | Mapping[str, Any] | Config,
    work_dir: str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    seed: int | None = None,
    resume: bool | str | os.PathLike[str] = False,
    validate: bool = True,
    launcher: str = 'none',
    if_used: str | None = None,
    overfit: int | None = None,
    stop_after: int | None = None,
    hooks: Sequence[Hook] = (),
    diff_seed: bool = False,
    verbose: bool = False,
    trust_pickles: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> TrainResult:
    """Train the model of a config, as ``runnerkit train`` does: from a notebook, or as part of a larger program.

    The settings of the process that a run changes (torch's switches, threads, the log) are restored afterwards; random
    generators are not. Objects in the config are used themselves: a network is trained in place, and an optimizer has
    its settings back afterwards, and the state of the training.

    Args:
        config: a config file, a `Config`, or a dict like one; it is not changed.
        work_dir: where logs and checkpoints go; by default the config's, else ``work_dirs/<config>``. If an
            earlier run has used it, that folder is renamed to ``<work dir>.1`` …, unless this run resumes it.
        device: ``'cpu'``, ``'cuda'``, ``'cuda:1'`` …; by default a GPU if there is one.
        seed: the random seed, at least 0; by default the config's, else a random one.
        resume: whether to resume from the newest usable checkpoint of the work dir, if there is one; or the checkpoint,
            or work dir, to resume from.
        validate: whether to evaluate while training, if the config does.
        launcher: what has started the processes of a distributed run: ``'pytorch'`` (torchrun), ``'slurm'`` or
            ``'mpi'``. Every process calls this function. ``'none'``: a single process, or a process group that the
            caller has joined, and that is not left.
        if_used: what to do if an earlier run has used the work dir: ``'resume'`` continues it, ``'aside'`` moves its
            files (the default), ``'refuse'`` raises an error.
        overfit: train and evaluate on so many samples, the first of the training data; at least 1.
        stop_after: end after so many epochs, or iterations in an iteration runner, at least 1; schedules keep the
            length of the whole run.
        hooks: hooks to register after those of the config, in their order, with the priority NORMAL.
        diff_seed: whether each process of a distributed run has another seed.
        verbose: whether the log also shows environment, config and hooks.
        trust_pickles: whether checkpoints are loaded even if that runs code in them.
        cfg_options: changes of the config as with ``--cfg-options``, by dotted key: ``{'optimizer.lr': 0.1}``.
        **overrides: the same as keywords, with two underscores for a dot: ``optimizer__lr=0.1``.

    Returns:
        The model with its scores, and where the rest is, also if the run was stopped early (by a hook, or SIGTERM) or
        has diverged: see ``outcome``.

    Raises:
        TypeError: an argument has a wrong type, or a keyword is neither an argument nor a key of the config.
        PreflightError: the config cannot mean what it says; the error lists all reasons.
        FileNotFoundError: there is no such config file or checkpoint.
        FileExistsError: the work dir is used, and ``if_used='refuse'``.
        RuntimeError: another thread of this process is training.
        KeyboardInterrupt: Ctrl-C; the run has stopped after an iteration and saved it, if the config saves.
    """
    end_import()
    path = (str, os.PathLike)
    for name, value, kinds, needed in (
        ('work_dir', work_dir, (*path, type(None)), 'the path or URL of a folder, or None for that of the config'),
        ('resume', resume, (*path, bool), 'True, False, or the path of a checkpoint or work dir'),
        ('validate', validate, (bool,), 'True or False'),
        ('cfg_options', cfg_options, (Mapping, type(None)), "a dict by dotted key, such as {'optimizer.lr': 0.1}"),
    ):
        if not isinstance(value, kinds):
            raise TypeError(f'{name} must be {needed}, but got {value!r}')
    check_whole_number('overfit', overfit, or_none=True, hint='None uses all samples')
    check_whole_number('stop_after', stop_after, or_none=True, hint='None trains to the end')
    if resume is True and if_used not in (None, 'resume'):
        raise ValueError(f'resume=True and if_used={if_used!r} contradict each other: give one of them')
    cfg = config_from(config, cfg_options or {}, overrides)
    options = Options(
        work_dir=None if work_dir is None else os.fspath(work_dir),
        device=device,
        seed=seed,
        resume_from=None if isinstance(resume, bool) else os.fspath(resume),
        auto_resume=resume is True,
        validate=validate,
        launcher=launcher,
        if_used=if_used,
        overfit=overfit,
        stop_after=stop_after,
        diff_seed=diff_seed,
        verbose=verbose,
    )
    history = HistoryHook()
    with trusted_pickles(trust_pickles), kept_settings(cfg.get('optimizer')):
        context = Flow(cfg, options, hooks=[*((hook, 'NORMAL') for hook in hooks), (history, 'LOWEST')]).run()
    runner = context.runner
    outcome = runner.outcome
    for hook in runner.hooks:
        if isinstance(hook, EMAHook):
            hook.use_averages()
    return TrainResult(
        model=unwrap(runner.model).eval(),
        scores={name: score.value for name, score in runner.scores.items()},
        history=history.records,
        work_dir=context.work_dir,
        outcome=outcome,
        best_checkpoint=runner.meta.get('hook_msgs', {}).get('best_ckpt'),
        last_checkpoint=runner.meta.get('hook_msgs', {}).get('last_ckpt'),
        signal=runner.stop_signal if outcome.kind in ('stopped', 'diverged') and outcome.reason else None,
    )


def config_from(config: Any, overrides: Mapping[str, Any], keywords: Mapping[str, Any] | None = None) -> Config:
    """A new config with the changes merged in and its ``custom_imports`` imported."""
    if isinstance(config, (str, os.PathLike)):
        cfg = Config.fromfile(config, import_custom_modules=False)
    elif isinstance(config, Config):
        cfg = Config(as_config(config._cfg_dict, PYTHON), config.text, config.filename)
    elif isinstance(config, Mapping):
        cfg = Config(as_config(dict(config), PYTHON))
    else:
        raise TypeError(f'config must be the path of a config file, a Config or a dict, but got {type(config)}')
    changes = dict(overrides)
    for name, value in (keywords or {}).items():
        key = key_of_keyword(name, cfg)
        if key in changes:
            raise ValueError(f'{key} is given twice, as the keyword {name}={value!r} and in cfg_options')
        changes[key] = value
    cfg.merge_from_dict(resolve_synonyms(cfg._cfg_dict, changes))
    import_modules_of(cfg._cfg_dict)
    return cfg


def key_of_keyword(keyword: str, cfg: Config) -> str:
    """The key that a keyword of `train` is about: ``optimizer__lr`` is ``optimizer.lr``. Misspelt keys are left to the
    preflight, which finds all of them."""
    section, *_ = parts = keyword.split('__')
    is_key = section in TOP or section in MMCV_TOOLS or section in cfg or near_miss(section, TOP)
    if not is_key or not all(parts):
        meant = BELONGS.get(keyword, '').partition(',')[0].replace('.', '__')
        known = [name for name in inspect.signature(train).parameters if name not in ('config', 'overrides')]
        hint = f'; set {meant}' if meant else suggestion(keyword, [*known, *TOP])
        raise TypeError(
            f'train() got an unknown keyword {keyword!r}: it is neither an argument nor a key of the config{hint}'
        )
    return '.'.join(parts)
