"""The state that the stages of one run share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from runnerkit.config.origin import Finding
from runnerkit.config.readers import hint_for_name
from runnerkit.hooks.hook import Hook, Outcome
from runnerkit.utils.env import get_time_str
from runnerkit.utils.suggest import suggestion


@dataclass(slots=True)
class Options:
    """The command line's flags, apart from changes to the config; None if not given.

    Attributes:
        if_used: what to do if an earlier run has used the work dir, one of
            `runnerkit.flow.work_dir.resume.IF_USED`. By default its folder is renamed, unless this run resumes it.
        overfit: train and evaluate on so many samples, the first of the training data.
        stop_after: end the run after so many epochs, or iterations in an iteration runner.
    """

    work_dir: str | None = None
    resume_from: str | None = None
    load_from: str | None = None
    auto_resume: bool = False
    if_used: str | None = None
    validate: bool = True
    seed: int | None = None
    deterministic: bool = False
    diff_seed: bool = False
    launcher: str = 'none'
    gpu_id: int = 0
    device: str | None = None
    auto_scale_lr: bool = False
    dry_run: bool = False
    verbose: bool = False
    overfit: int | None = None
    stop_after: int | None = None


@dataclass(slots=True)
class Context:
    """The state of one run. Each stage fills in what later stages need.

    Other attributes than these cannot be set; your own stages share values as items, ``context['name']``.

    Attributes:
        cfg: the config, with the command line's changes.
        options: the command line's other flags.
        jobs: what of torchrun and Slurm the ranks belong to, and whether it was restarted.
        timestamp: the run's name in its work dir.
        resume_from: the checkpoint that the runner stage will resume from; None if it starts from the beginning.
        continues: whether this run continues the one in the work dir.
        others: on rank 0, the names in the work dir at the start.
        stages: what makes the stage of each slot; None for one that is left out.
        closing: what to close after the terminal stage, last opened first.
        hooks: hooks to register after the config's, each with its priority.
        guard: makes a context to enter around the training alone.
        lr_scaled_for: with ``auto_scale_lr``, the samples of each rank's batch and ``base_batch_size``.
        workflow: the config's, in which each entry on a split is one of a mode, ``('val', 1)`` for ``('val_hard', 1)``.
        loaders: one per workflow entry.
        val_loader: the loader for `EvalHook`, if any, or several by name.
        findings: the warnings of the preflight.
        outcome: how the run, or a failed stage, ended; None until then.
        own: values shared by your own stages; the items of the context.
    """

    cfg: Any
    options: Options = field(default_factory=Options)
    jobs: dict[str, bool] = field(default_factory=dict)
    timestamp: str = field(default_factory=get_time_str)
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device('cpu'))
    work_dir: Path = Path('.')
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger('runnerkit'))
    meta: dict[str, Any] = field(default_factory=dict)
    lr_scaled_for: tuple[int, int] | None = None
    workflow: list[tuple[str, int]] = field(default_factory=lambda: [('train', 1)])
    resume_from: str | None = None
    continues: bool = False
    others: list[str] = field(default_factory=list)
    stages: dict[str, Callable[[Context], Any] | None] = field(default_factory=dict)
    closing: ExitStack = field(default_factory=ExitStack)
    hooks: list[tuple[Hook, str]] = field(default_factory=list)
    guard: Callable[[Context], AbstractContextManager[Any]] = lambda context: nullcontext()
    loaders: list[Any] = field(default_factory=list)
    val_loader: Any = None
    model: Any = None
    optimizer: Any = None
    runner: Any = None
    findings: list[Finding] = field(default_factory=list)
    outcome: Outcome | None = None
    own: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            hint = suggestion(name, [each.name for each in fields(self)])
            raise AttributeError(
                f'a Context has no attribute {name!r}; set your own values as items, context[{name!r}] = …{hint}'
            ) from None

    def __getitem__(self, name: str) -> Any:
        if name not in self.own:
            instead = hint_for_name(name)
            hint = f': {instead}' if instead else suggestion(name, self.own)
            raise KeyError(f'no stage has set context[{name!r}]{hint}')
        return self.own[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.own
