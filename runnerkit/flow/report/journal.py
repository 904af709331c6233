"""What a run writes about itself: an entry in ``run.json`` for each start, completed at the end."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config.config_dict import walk
from runnerkit.config.origin import OPTIONS, written_at
from runnerkit.data.kinds import dataset_of, length_of
from runnerkit.flow.context import Context, Options
from runnerkit.flow.report.predictions import PredictionsHook
from runnerkit.flow.report.record import IMAGES, JOURNAL, starts_in
from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.hooks.report import ReportHook
from runnerkit.nn import Supervised
from runnerkit.parallel import unwrap
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.pictures import Pixels, png_of, scaled_down
from runnerkit.version import __version__

#: Height and width of a kept picture, at most.
MOST_PIXELS = 640


def recording_hooks(context: Context) -> Iterator[Hook]:
    """The hooks that keep what a report shows. Trials of a study keep no predictions."""
    yield JournalHook(context)
    if context.val_loader is not None and not any(isinstance(hook, ReportHook) for hook, _ in context.hooks):
        yield PredictionsHook(context.work_dir)


class JournalHook(Hook):
    """Writes ``run.json`` and reported pictures into the work dir, on rank 0. A kill leaves an entry without an end.

    Args:
        context: of the run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path = context.work_dir / JOURNAL
        self._trouble = WarnsOnce(f'the file {self._path}')
        self._starts: list[dict[str, Any]] = []
        self._seconds = {'evaluation': 0.0, 'saving': 0.0}

    def before_run(self, runner: RunnerView) -> None:
        """Write an entry for this start."""
        if runner.rank == 0:
            self._starts = [*starts_in(self._path), start_of(self._context, runner)]
            self._write_starts()

    def after_run(self, runner: RunnerView) -> None:
        """Complete the entry."""
        if self._starts and runner.outcome is not None:
            outcome = runner.outcome
            reason = outcome.reason if outcome.error is None else f'{type(outcome.error).__name__}: {outcome.error}'
            self._starts[-1] |= {'end': time.time(), 'outcome': outcome.kind, 'reason': (reason or '')[:500]}
            self._starts[-1] |= {'iterations_at_end': runner.completed_iters, 'seconds': self._seconds}
            self._write_starts()

    def after_image(self, runner: RunnerView, name: str, pixels: Pixels) -> None:
        """Keep a picture of `runnerkit.report_image`."""
        if runner.rank == 0:
            content = png_of(scaled_down(pixels, MOST_PIXELS))
            file = self._context.work_dir / IMAGES / f'{quote(name, safe="")}_{runner.completed_iters}.png'
            self._write(file, content)

    def around_val(self, runner: RunnerView) -> AbstractContextManager[None]:
        """Measure an evaluation."""
        return self._measuring('evaluation')

    def around_save(self, runner: RunnerView) -> AbstractContextManager[None]:
        """Measure the writing of a checkpoint."""
        return self._measuring('saving')

    @contextmanager
    def _measuring(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[what] += time.monotonic() - began

    def _write_starts(self) -> None:
        content = json.dumps({'version': 1, 'starts': self._starts}, indent=1, default=str)
        self._write(self._path, content.encode())

    def _write(self, path: Path, content: bytes) -> None:
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, methodcaller('write', content))
        except OSError as error:  # the training is worth more than its record
            self._trouble(error)


def start_of(context: Context, runner: RunnerView) -> dict[str, Any]:
    """The entry of a run that begins."""
    cfg, model = context.cfg, unwrap(runner.model)
    parameters = [] if any(map(is_lazy, model.parameters())) else list(model.parameters())
    return {
        'begin': time.time(),
        'iterations': runner.completed_iters,
        'epochs': runner.completed_epochs,
        'max_iterations': runner.max_iters,
        'max_epochs': runner.max_epochs,
        'command': sys.argv,
        'folder': os.getcwd(),
        'config_file': cfg.filename,
        'changed': changed_keys(cfg),
        'options': {key: value for key, value in asdict(context.options).items() if value != getattr(Options(), key)},
        'resumed_from': context.resume_from,
        'seed': context.seed,
        'host': socket.gethostname(),
        'process': os.getpid(),
        'ranks': context.world_size,
        'threads': torch.get_num_threads(),
        'device': _device(context.device),
        'git': git_state(Path(cfg.filename).parent if cfg.filename else Path.cwd()),
        'versions': {'runnerkit': __version__, 'torch': torch.__version__, 'python': platform.python_version()},
        'model': type(model.model if isinstance(model, Supervised) else model).__name__,
        'parameters': sum(each.numel() for each in parameters) or None,
        'data': dict(_data(context)),
    }


def _device(device: torch.device) -> str:
    return f'{device} ({torch.cuda.get_device_name(device)})' if device.type == 'cuda' else str(device)


def _data(context: Context) -> Iterator[tuple[str, dict[str, int | None]]]:
    """Samples and batches of each loader whose length is known."""
    loaders = [(mode, loader) for (mode, _), loader in zip(context.workflow, context.loaders, strict=False)]
    validation = context.val_loader
    loaders += validation.items() if isinstance(validation, dict) else [('evaluation', validation)]
    for name, loader in loaders:
        with suppress(Exception):  # what a user's loader raises when it is asked for its length is no matter here
            if loader is not None:
                yield name, {'samples': length_of(dataset_of(loader)), 'batches': length_of(loader)}


def changed_keys(cfg: Any) -> list[list[str]]:
    """Key, value and place of each value that is not of a base file: of the config file itself, or an option.

    In a config without bases, these are the options alone.
    """
    rows = [(key, value, written_at(cfg, key.split('.'))) for key, value in walk(cfg._cfg_dict)]
    main = os.path.abspath(cfg.filename) if cfg.filename else ''
    files = {place: os.path.abspath(place.rpartition(':')[0] or place) for _, _, place in rows if place}
    has_base = any(file != main for place, file in files.items() if place != OPTIONS)
    kept = [row for row in rows if row[2] == OPTIONS or (has_base and files.get(row[2]) == main)]
    return [[key, repr(value)[:200], place] for key, value, place in kept[:300]]


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that is checked out in ``folder``, and whether tracked files have been changed; None without git."""
    try:
        commit = _git(folder, 'rev-parse', 'HEAD')
        return {'commit': commit, 'dirty': bool(_git(folder, 'status', '--porcelain', '--untracked-files=no'))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    command = ['git', '--no-optional-locks', '-C', str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout.strip()
