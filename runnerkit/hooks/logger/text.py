"""The log on the console, and the same values as JSON lines in a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.data.kinds import length_of
from runnerkit.data.named import name_of_scores
from runnerkit.distributed import reduce_extremes
from runnerkit.distributed.collectives import TIME_NAMES, TIMES
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.log_files import ENDING, files_of_run, set_aside
from runnerkit.optim.named import learning_rates, other_rates
from runnerkit.utils.env import acts_as_mmcv
from runnerkit.utils.logging import DETAIL, WarnsOnce
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.small_files import open_own

#: Entries that a console line shows in another place than among the values.
_ELSEWHERE = {'mode', 'epoch', 'iter', 'step', 'lr', 'lr_groups', 'memory', *TIME_NAMES}

#: How many learning rates of other groups a line of text names.
_MOST_RATES = 4


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class TextLoggerHook(LoggerHook):
    """Logs a line to the console and to ``<work_dir>/<timestamp>.log.json``.

    That file has one JSON object per line: first the run's meta, then ``mode``, ``epoch``, ``iter``, ``lr``,
    ``lr_groups`` (where parameter groups differ, see `runnerkit.optim.named.other_rates`), ``memory`` (CUDA, the
    maximum over all ranks, in MiB), all values, and ``timestamp``, when the line was written (seconds since 1970).
    Times are in seconds; with several ranks, ``time_max`` and ``data_time_max`` are those of the slowest rank, which
    ``time_max_rank`` and ``data_time_max_rank`` name. When a run is resumed, the lines in its work dir that it will
    write again are first moved to ``<timestamp>.log.json.superseded``. Each float is the shortest text that reads back
    as the same number. In code written for MMCV (`runnerkit.compat`), it is rounded to five decimals, and there is no
    ``lr_groups``.

    Args:
        by_epoch: as in `LoggerHook`; also whether lines start with the epoch or the iteration.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        interval_exp_name: iterations between two lines with the experiment's name; every epoch's end also has one.
        out_dir: a folder or URL; when the run is over, its files are copied to ``<out_dir>/<name of the work dir>``.
        out_suffix: the endings of the files to copy.
        keep_local: whether the files also stay in the work dir.
        file_client_args: arguments of `FileClient`, which writes to ``out_dir``; by default chosen by its URL.

    Raises:
        TypeError: ``out_dir`` is not a text.
        ValueError: ``file_client_args`` without ``out_dir``, or for an unknown storage.
    """

    by_epoch: bool = True
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    interval_exp_name: int = 1000
    out_dir: str | None = None
    out_suffix: str | Sequence[str] = ('.log.json', '.log', '.py')
    keep_local: bool = True
    file_client_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out_dir is not None and not isinstance(self.out_dir, str):
            raise TypeError(
                f'out_dir should be a folder, a URL or None, but got {type(self.out_dir)}: {self.out_dir!r}'
            )
        if self.file_client_args is not None and self.out_dir is None:
            raise ValueError('file_client_args should be None where there is no out_dir: give both or neither')
        if self.out_dir is not None:
            from runnerkit.fileio.file_client import FileClient

            self.file_client = FileClient.infer_client(self.file_client_args, self.out_dir)
        self.json_log_path: str | None = None
        self.start_iter = 0
        self.time_sec_tot = 0.0  # not used here; downstream subclasses add up time in it
        self._started = 0.0
        self._memory: int | None = None
        self._file: IO[str] | None = None
        self._as_mmcv = acts_as_mmcv()
        # The last logged moment, in completed iterations, and how many lines it has; None if unknown.
        self._logged_at: tuple[int, int] | None = None

    # --- when --------------------------------------------------------------------------------------------------------

    def before_run(self, runner: RunnerView) -> None:
        """Open the JSON file, write the run's meta as its first line, and start the clock."""
        super().before_run(runner)
        self._start(runner)
        if runner.rank != 0 or runner.work_dir is None:
            return
        self.json_log_path = os.path.join(runner.work_dir, f'{runner.timestamp}.log.json')
        self._trouble = WarnsOnce(f'the log file {self.json_log_path}')
        # A logger of an evaluation starts in the middle of a run; it has no lines that would be written again.
        self._open(runner, self.json_log_path, moves=self.start_iter > 0 and self in runner.hooks)
        if runner.meta:
            self._dump_log(runner.meta, runner)

    def after_roll_back(self, runner: RunnerView) -> None:
        """Move the lines aside that will be written again, as when a run is resumed."""
        self._start(runner)
        if self._file is not None and self.json_log_path is not None:
            self._close()
            self._open(runner, self.json_log_path, moves=True)

    def _start(self, runner: RunnerView) -> None:
        self.start_iter = runner.completed_iters
        self._started = time.monotonic()

    def _open(self, runner: RunnerView, path: str, moves: bool) -> None:
        try:
            if moves:
                self._set_aside(runner, os.path.dirname(path))
            self._file = open_own(path)
        except OSError as error:
            self._trouble(error)

    def _close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._trouble(error)
            self._file = None

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        saved = self._saved_state(runner, checkpoint).get('logged_at')
        self._logged_at = None if saved is None else (int(saved[0]), int(saved[1]))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last line."""
        return {'logged_at': self._logged_at or (0, 0)}

    def _set_aside(self, runner: RunnerView, work_dir: str) -> None:
        """Move aside what an interrupted run has logged beyond the point where this one resumes."""
        step, lines = self._logged_at or (self.start_iter, None)
        for path in set_aside(work_dir, self.start_iter, lines if step == self.start_iter else 0):
            runner.logger.info(
                'lines of %s beyond %d iterations, which will be repeated, are moved to %s',
                path.name,
                self.start_iter,
                path.name + ENDING,
            )

    def after_run(self, runner: RunnerView) -> None:
        """Close the JSON file; copy the log files to ``out_dir``."""
        super().after_run(runner)
        self._close()
        if runner.rank == 0 and self.out_dir is not None and runner.work_dir is not None:
            try:
                self._move_out(runner, Path(runner.work_dir), self.out_dir)
            except Exception as error:  # each storage has its own errors, and none of them should fail the training
                runner.logger.warning(
                    'the logs in %s could not all be copied to %s: %s: %s',
                    runner.work_dir,
                    self.out_dir,
                    type(error).__name__,
                    error,
                )

    def _average(self, runner: RunnerView, n: int) -> None:
        super()._average(runner, n)
        # Done here because all ranks call this method.
        self._memory = int(reduce_extremes(self._get_max_memory(runner))[1]) if torch.cuda.is_available() else None

    def _get_max_memory(self, runner: RunnerView) -> int:
        """Return the peak memory of tensors on the model's device so far, in MiB."""
        parameter = next(runner.model.parameters(), None)
        device = None if parameter is None or parameter.device.type != 'cuda' else parameter.device
        return torch.cuda.max_memory_allocated(device) // 2**20

    # --- what --------------------------------------------------------------------------------------------------------

    def log(self, runner: RunnerView) -> dict[str, Any]:
        """Write one line to the console and one to the file; returns the values."""
        values = dict(runner.log_buffer.output)
        done = self.get_iter(runner, inner_iter=True) if self.by_epoch else runner.completed_iters
        iters = values.pop('eval_iter_num', None) or done
        log_dict: dict[str, Any] = {'mode': self.get_mode(runner), 'epoch': self.get_epoch(runner), 'iter': iters}
        log_dict['step'] = runner.completed_iters  # the position in the run, whatever ``iter`` counts
        if runner.optimizer is not None:
            rates = learning_rates(runner.optimizer)
            log_dict['lr'] = {name: each[0] for name, each in rates.items()} if isinstance(rates, dict) else rates[0]
            if not self._as_mmcv and (others := other_rates(runner.optimizer)):
                log_dict['lr_groups'] = others
        if self._memory is not None and log_dict['mode'] != 'val':
            log_dict['memory'] = self._memory
        for name, value in values.items():
            log_dict[name] = value if type(value) is float else _to_json(value)
        self._log_info(log_dict, runner)
        for remark in runner.log_buffer.remarks:
            runner.logger.info('%s', remark)
        runner.log_buffer.remarks.clear()
        self._dump_log(log_dict, runner)
        return log_dict

    def _log_info(self, log_dict: dict[str, Any], runner: RunnerView) -> None:
        """Write ``log_dict`` as one line of text."""
        name = runner.meta.get('exp_name')
        if name is not None and (self.every_n_iters(runner, self.interval_exp_name) or self._is_last_of_epoch(runner)):
            runner.logger.info('Exp name: %s', name, extra=DETAIL)
        values = {name: _with_digits(value) for name, value in log_dict.items() if name not in _ELSEWHERE}
        mode = log_dict['mode']
        if mode == 'val' and runner.evaluates_on is not None:
            scores = ', '.join(f'{name} {value}' for name, value in values.items())
            named = name_of_scores(runner.data_loader) if runner.mode == 'val' else ''  # by the workflow's entry
            data_set = named or runner.evaluates_on
            runner.logger.info('%s evaluated on %s: %s', self._moment(runner), data_set, scores)
            return
        numbers = [] if mode == 'val' else self._progress(log_dict, runner)
        numbers += [f'{name}: {value}' for name, value in values.items()]
        kind = 'Epoch' if self.by_epoch else 'Iter'
        of_mode = '' if mode == 'train' else f'({mode})'
        epoch = f'[{log_dict["epoch"]}]' if self.by_epoch else ''
        end = length_of(runner.data_loader) if self.by_epoch else runner.max_iters
        of = '' if mode == 'val' or end is None else f'/{end}'
        runner.logger.info('%s%s %s[%s%s]\t%s', kind, of_mode, epoch, log_dict['iter'], of, ', '.join(numbers))

    def _moment(self, runner: RunnerView) -> str:
        """Return the text for what is trained before an evaluation: whole epochs, or some iterations."""
        if not (self.by_epoch and runner.by_epoch):
            return f'Iter [{runner.completed_iters}]'
        is_inside = runner.mode != 'val' and runner.completed_epochs == runner.epoch
        if is_inside and runner.iter < runner.completed_iters:
            end = length_of(runner.data_loader)
            return f'Epoch [{runner.epoch + 1}][{runner.inner_iter + 1}{"" if end is None else f"/{end}"}]'
        return f'Epoch [{runner.completed_epochs}]'

    def _progress(self, log_dict: dict[str, Any], runner: RunnerView) -> list[str]:
        """Return the texts for learning rate, time and memory."""
        shown = []
        lr = log_dict.get('lr')
        if isinstance(lr, dict):
            shown.append(' '.join(f'lr_{name}: {value:.3e}' for name, value in lr.items()))
        elif lr is not None:
            shown.append(f'lr: {lr:.3e}')
        others = log_dict.get('lr_groups', {})
        if len(others) <= _MOST_RATES:
            shown += [f'lr_{name}: {value:.3e}' for name, value in others.items()]
        else:
            low, high = min(others.values()), max(others.values())
            shown.append(f'{len(others)} other lrs: {low:.3e} to {high:.3e}')
        done = runner.completed_iters - self.start_iter
        if runner.max_iters is not None and done > 0:  # of this process, including evaluations
            average = (time.monotonic() - self._started) / done
            left = average * max(0, runner.max_iters - runner.completed_iters)
            shown.append(f'eta: {timedelta(seconds=int(left))}')
        for name in TIMES:
            if name in log_dict:
                largest = log_dict.get(f'{name}_max')  # of a rank, in a distributed run
                slowest = '' if largest is None else f' (max {largest:.3f}, rank {log_dict[f"{name}_max_rank"]:.0f})'
                shown.append(f'{name}: {log_dict[name]:.3f}{slowest}')
        if 'memory' in log_dict:
            shown.append(f'memory: {log_dict["memory"]}')
        return shown

    def _dump_log(self, log_dict: dict[str, Any], runner: RunnerView) -> None:
        """Write ``log_dict`` as one line of JSON."""
        if self._file is None:
            return
        step = log_dict.get('step')
        if step is not None:
            last, lines = self._logged_at or (step, 0)
            self._logged_at = (step, lines + 1 if step == last else 1)
            log_dict = log_dict if 'timestamp' in log_dict else {**log_dict, 'timestamp': round(time.time(), 3)}
        try:
            self._file.write(_ENCODER.encode(self._round_float(log_dict)) + '\n')
            self._file.flush()
            if os.fstat(self._file.fileno()).st_nlink == 0:
                raise FileNotFoundError('the file or its folder was deleted')
        except OSError as error:
            self._trouble(error)

    def _round_float(self, items: Any) -> Any:
        """Return ``items`` as they are; in code written for MMCV, with floats rounded to five decimals."""
        if not self._as_mmcv:
            return items
        if isinstance(items, dict):
            return {key: self._round_float(value) for key, value in items.items()}
        if isinstance(items, list):
            return [self._round_float(value) for value in items]
        return round(items, 5) if isinstance(items, float) else items

    def _move_out(self, runner: RunnerView, work_dir: Path, out_dir: str) -> None:
        endings = self.out_suffix if isinstance(self.out_suffix, str) else tuple(self.out_suffix)
        for name in files_of_run(work_dir, endings):
            path, copy = work_dir / name, self.file_client.join_path(out_dir, work_dir.name, name)
            self.file_client.put_text(path.read_text(encoding='utf-8'), copy)
            if not self.keep_local:
                path.unlink()
            runner.logger.info('%s is copied to %s%s', path, copy, '' if self.keep_local else ' and removed')


def _to_json(value: Any) -> Any:
    """Return tensors and arrays as plain numbers or lists."""
    number = plain_number(value)
    return number.tolist() if isinstance(number, (Tensor, np.ndarray)) else number


_ENCODER = json.JSONEncoder(default=lambda value: str(value) if (plain := _to_json(value)) is value else plain)


def _with_digits(value: Any) -> str:
    """Format a number with four decimals; one that would then look like zero, in scientific notation."""
    if not isinstance(value, float):
        return str(value)
    return f'{value:.4f}' if value == 0 or abs(value) >= 1e-4 else f'{value:.3e}'
