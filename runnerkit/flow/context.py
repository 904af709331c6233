"""What the stages of one run pass on to each other."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from runnerkit.hooks.hook import Outcome
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.suggest import did_you_mean


@dataclass(slots=True)
class Options:
    """What the command line says beside the config; None where it says nothing."""

    work_dir: str | None = None
    resume_from: str | None = None
    load_from: str | None = None
    auto_resume: bool = False
    validate: bool = True
    seed: int | None = None
    deterministic: bool = False
    diff_seed: bool = False
    launcher: str = 'none'
    gpu_id: int = 0
    device: str | None = None
    auto_scale_lr: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class Context:
    """The state of one run on its way through the stages. Each stage fills in what later ones need.

    It has no other attributes than these; what stages of your own pass on to each other is an item,
    ``context['name']``.

    Attributes:
        cfg: the config, with what the command line changed.
        options: the command line's other flags.
        timestamp: the run's name in its work dir.
        lock: the claim on the work dir, on the first rank.
        loaders: one for each entry of the workflow.
        val_loader: what `EvalHook` evaluates on, if anything.
        outcome: how the run ended, or that a stage before or after it has failed; None until then.
        own: what stages of your own pass on; the items of the context.
    """

    cfg: Any
    options: Options = field(default_factory=Options)
    timestamp: str = field(default_factory=lambda: time.strftime('%Y%m%d_%H%M%S'))
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device('cpu'))
    work_dir: Path = Path('.')
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger('runnerkit'))
    meta: dict[str, Any] = field(default_factory=dict)
    workflow: list[tuple[str, int]] = field(default_factory=lambda: [('train', 1)])
    lock: FolderLock | None = None
    loaders: list[Any] = field(default_factory=list)
    val_loader: Any = None
    model: Any = None
    optimizer: Any = None
    runner: Any = None
    outcome: Outcome | None = None
    own: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            names = [each.name for each in fields(self)]
            hint = did_you_mean(name, names)
            raise AttributeError(
                f'a Context has no attribute {name!r}; {f"{hint}, or " if hint else ""}set your own values as items, '
                f'context[{name!r}] = …'
            ) from None

    def __getitem__(self, name: str) -> Any:
        if name not in self.own:
            hint = did_you_mean(name, self.own)
            raise KeyError(f'no stage has set context[{name!r}]' + (f'; {hint}' if hint else ''))
        return self.own[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.own
