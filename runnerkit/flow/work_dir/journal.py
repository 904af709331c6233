"""What a run writes about itself: an entry in ``run.json`` for each start, completed at the end."""

from __future__ import annotations

import json
import logging
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config.settings import settings_with_places
from runnerkit.data.kinds import length_of
from runnerkit.data.loader_state import batch_checksums
from runnerkit.flow.context import Context, Options
from runnerkit.flow.work_dir.record import read_record, write_record
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import Hook, Outcome, RunnerView
from runnerkit.hooks.loss_jump import LossJumpHook
from runnerkit.hooks.predictions import PredictionsHook, keep_first_batch
from runnerkit.hooks.report import ReportHook
from runnerkit.log_files import IMAGES, JOURNAL, number_of_starts, starts_in
from runnerkit.nn import Supervised
from runnerkit.parallel import unwrap
from runnerkit.utils.env import git_state
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.pictures import Pixels, png_of, scaled_down
from runnerkit.utils.small_files import own_folder, read_small
from runnerkit.version import __version__

#: The file with the error of another rank than the first.
ERROR = '.error_of_rank'

#: Height and width of a kept picture, at most.
MOST_PIXELS = 640

#: The most rows of a start: values of the config, modules of the model, sentences about inexact resumes.
MOST_ROWS = 300

#: The most characters of such a sentence.
MOST_TEXT = 2000

#: Spaces at the end of the file, in whose place a run writes its outcome if the disk is full.
_ROOM = 1024

#: How many starts are kept, the first and the newest, and how many of the newest keep settings and modules: a run may
#: be resumed thousands of times.
MOST_STARTS, MOST_WHOLE = 300, 100


def recording_hooks(context: Context) -> Iterator[Hook]:
    """The hooks that keep what a report shows. Trials of a study keep no predictions."""
    yield JournalHook(context)
    if not any(isinstance(hook, LossJumpHook) for hook in getattr(context.runner, 'hooks', ())):
        yield LossJumpHook()
    if context.val_loader is not None and not is_trial(context):
        yield PredictionsHook(context.work_dir)


def is_trial(context: Context) -> bool:
    """Whether the run is a trial of a study."""
    return any(isinstance(hook, ReportHook) for hook, _ in context.hooks)


class JournalHook(Hook):
    """Writes ``run.json`` and reported pictures into the work dir, on rank 0. A kill leaves an entry without an end.

    Args:
        context: of the run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path, self._error_of_rank = context.work_dir / JOURNAL, context.work_dir / ERROR
        self._trouble = WarnsOnce(f'the file {self._path}')
        self._starts: list[dict[str, Any]] = []
        self._seconds = {'evaluation': 0.0, 'saving': 0.0}
        self._inexact = _Inexact()

    def before_run(self, runner: RunnerView) -> None:
        """Write an entry for this start."""
        if runner.rank == 0:
            self._seconds, self._inexact = {'evaluation': 0.0, 'saving': 0.0}, _Inexact()
            self._begin(runner)
            runner.logger.addHandler(self._inexact)
            self._context.runner.hooks.listen('before_train_iter', self._note_batch)

    def after_run(self, runner: RunnerView) -> None:
        """Complete the entry."""
        runner.logger.removeHandler(self._inexact)
        if self._starts and runner.outcome is not None:
            self._end(runner, runner.outcome)
        elif runner.outcome is not None:
            self._leave_error(runner, runner.outcome)

    def fail(self, outcome: Outcome) -> None:
        """Complete the entry of a run that has failed before `before_run` of this hook, or after its `after_run`."""
        runner = self._context.runner
        if runner.rank > 0:
            self._leave_error(runner, outcome)
            return
        if not self._starts:
            self._begin(runner)
        if self._starts and self._starts[-1].get('outcome') != outcome.kind:
            self._end(runner, outcome)

    def _leave_error(self, runner: RunnerView, outcome: Outcome) -> None:
        """On another rank than the first, which will only see that this one is gone: leave the error where it looks."""
        if runner.rank > 0 and outcome.kind == 'failed' and not _is_of_another_rank(outcome.error):
            with self._trouble.instead_of_raising():
                text = f'rank {runner.rank}: {type(outcome.error).__name__}: {outcome.error}'
                write_atomically(self._error_of_rank, text.encode(errors='replace'))

    def _begin(self, runner: RunnerView) -> None:
        with self._trouble.instead_of_raising():
            self._error_of_rank.unlink(missing_ok=True)  # of a start that was killed
            starts = starts_in(self._path)
            if not starts and self._path.exists():  # it is damaged
                os.replace(self._path, self._path.with_suffix('.json.damaged'))
            number = number_of_starts(starts) + 1
            starts = [{'number': each, **start} for each, start in enumerate(starts, 1)]
            entry = {'number': number, **entry_of(self._context, runner), 'exactness': self._inexact.said}
            self._starts = [*starts[:1], *starts[1:][-(MOST_STARTS - 2) :], entry]
            self._write_starts()

    def _end(self, runner: RunnerView, outcome: Outcome) -> None:
        self._seconds['saving'] = self._context.runner.snapshots.saver.seconds
        self._starts[-1] |= {'end': time.time(), 'outcome': outcome.kind}
        self._starts[-1] |= {'iterations_at_end': runner.completed_iters, 'seconds': self._seconds}
        with self._trouble.instead_of_raising():  # an error of the user's may have no text
            error = outcome.error
            reason = outcome.reason if error is None or outcome.reason else f'{type(error).__name__}: {error}'
            if self._error_of_rank.exists() and _is_of_another_rank(error):
                reason = read_small(self._error_of_rank).decode()
            self._error_of_rank.unlink(missing_ok=True)
            self._starts[-1]['reason'] = (reason or '')[:500]
        self._write_starts()
        with self._trouble.instead_of_raising():
            work_dir = self._context.work_dir
            others = read_record(work_dir).get('others', ())  # no run wrote them
            write_record(work_dir, files=sorted({*os.listdir(work_dir)} - {*others}))

    def after_roll_back(self, runner: RunnerView) -> None:
        """Note the completed iterations to which the run has gone back."""
        if self._starts:
            self._starts[-1].setdefault('rolled_back', []).append(runner.completed_iters)
            self._write_starts()

    def _note_batch(self, runner: RunnerView) -> None:
        """Add checksums of the first batch to the entry; of the run's first, also its samples."""
        self._context.runner.hooks.unlisten('before_train_iter', self._note_batch)
        with self._trouble.instead_of_raising():
            self._starts[-1]['first_batch'] = batch_checksums(runner.data_batch)
            self._starts[-1]['rules'] = _rules(runner)
            if not is_trial(self._context) and not any('first_samples' in start for start in self._starts):
                dataset = getattr(getattr(runner.data_loader, 'dataloader', runner.data_loader), 'dataset', None)
                samples = keep_first_batch(runner.data_batch, dataset, self._context.work_dir)
                self._starts[-1]['first_samples'] = samples
            self._write_starts()

    def after_image(self, runner: RunnerView, name: str, pixels: Pixels) -> None:
        """Keep a picture of `runnerkit.report_image`."""
        if runner.rank == 0:
            file = self._context.work_dir / IMAGES / f'{quote(name, safe="")}_{runner.completed_iters}.png'
            with self._trouble.instead_of_raising():
                own_folder(file.parent)
                write_atomically(file, png_of(scaled_down(pixels, MOST_PIXELS)))

    @contextmanager
    def around_val(self, runner: RunnerView) -> Iterator[None]:
        """Measure an evaluation."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds['evaluation'] += time.monotonic() - began
        if self._starts and self._starts[-1].get('rules') != (rules := _rules(runner)):
            self._starts[-1]['rules'] = rules
            self._write_starts()

    def _write_starts(self) -> None:
        with self._trouble.instead_of_raising():
            for start in self._starts[:-MOST_WHOLE]:
                for rows in ('settings', 'modules'):
                    start.pop(rows, None)
            content = json.dumps({'version': 1, 'starts': self._starts}, indent=1, default=str).encode()
            try:
                write_atomically(self._path, content + b' ' * _ROOM)
            except OSError:  # a full disk has room for no second file
                size = os.path.getsize(self._path) if os.path.exists(self._path) else 0
                if len(content) > size:
                    raise
                with open(os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW), 'wb') as file:  # keeps its length
                    file.write(content.ljust(size))


def _rules(runner: RunnerView) -> dict[str, str]:
    """Whether ``'greater'`` or ``'less'`` is better, by the scores that choose best checkpoints. ``'auto'`` is decided
    by the first evaluation."""
    hooks = [hook for hook in runner.hooks if isinstance(hook, EvalHook)]
    return {hook.key_indicator: hook.rule for hook in hooks if hook.rule is not None}


def _is_of_another_rank(error: BaseException | None) -> bool:
    from runnerkit.distributed.watch import is_lost  # a run that goes well needs none of it

    return error is not None and is_lost(error)


class _Inexact(logging.Handler):
    """Keeps the sentences that a run logs about what is not exact."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, 'exactness', False) and len(self.said) < MOST_ROWS:
            self.said.append(record.getMessage()[:MOST_TEXT])


def entry_of(context: Context, runner: RunnerView) -> dict[str, Any]:
    """The entry of a run that begins."""
    cfg, device, model = context.cfg, context.device, unwrap(runner.model)
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
        'settings': settings_with_places(cfg)[:MOST_ROWS],
        'options': {key: value for key, value in asdict(context.options).items() if value != getattr(Options(), key)},
        'resumed_from': context.resume_from,
        'seed': context.seed,
        'host': socket.gethostname(),
        'process': os.getpid(),
        'ranks': context.world_size,
        'threads': torch.get_num_threads(),
        'device': str(device) + (f' ({torch.cuda.get_device_name(device)})' if device.type == 'cuda' else ''),
        'git': git_state(Path(cfg.filename).parent if cfg.filename else Path.cwd()),
        'versions': {'runnerkit': __version__, 'torch': torch.__version__, 'python': platform.python_version()},
        'model': type(model.model if isinstance(model, Supervised) else model).__name__,
        'parameters': sum(each.numel() for each in parameters) or None,
        'modules': modules_of(model),
        'data': dict(_sizes_of_data(context)),
    }


def _sizes_of_data(context: Context) -> Iterator[tuple[str, dict[str, int | None]]]:
    """Samples and batches of each loader whose length is known."""
    loaders = [(mode, loader) for (mode, _), loader in zip(context.workflow, context.loaders, strict=False)]
    validation = context.val_loader
    loaders += validation.items() if isinstance(validation, dict) else [('evaluation', validation)]
    for name, loader in loaders:
        with suppress(Exception):  # what a user's loader raises when it is asked for its length is no matter here
            if loader is not None:
                yield name, {'samples': length_of(getattr(loader, 'dataset', None)), 'batches': length_of(loader)}


def modules_of(model: nn.Module) -> list[dict[str, Any]]:
    """The model's outer modules, three deep: name, type, parameters, and how many of these are trainable."""
    found: list[dict[str, Any]] = []
    for name, module in model.named_modules():
        if name and name.count('.') < 3 and len(found) < MOST_ROWS:
            sizes = [(each.numel(), each.requires_grad) for each in module.parameters() if not is_lazy(each)]
            counts = {
                'parameters': sum(size for size, _ in sizes),
                'trainable': sum(size for size, does in sizes if does),
            }
            found.append({'name': name, 'type': type(module).__name__, **counts})
    return found
