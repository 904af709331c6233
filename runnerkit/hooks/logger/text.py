"""The log that people read, and the one that programs read."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import warnings
from collections import OrderedDict
from typing import IO, Any

import torch
import torch.distributed as dist

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook


@HOOKS.register_module()
class TextLoggerHook(LoggerHook):
    """A line through the runner's logger, and one of JSON in ``<work dir>/<timestamp>.log.json``, for each log event.

    Args:
        by_epoch: whether to count within epochs.
        interval: iterations between two lines.
        ignore_last: whether a last interval of an epoch that is shorter is left out.
        reset_flag: whether this hook clears what it has logged.
        interval_exp_name: iterations between two lines with the experiment's name.
        out_dir: a folder to which the logs are copied when the run is over: to ``<out_dir>/<name of the work dir>``.
        out_suffix: what the names of these files end with.
        keep_local: whether the copied files stay in the work dir, too.
        file_client_args: MMCV's way to choose a storage.
    """

    def __init__(
        self,
        by_epoch: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        interval_exp_name: int = 1000,
        out_dir: str | None = None,
        out_suffix: str | tuple[str, ...] = ('.log.json', '.log', '.py'),
        keep_local: bool = True,
        file_client_args: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        if out_dir is None and file_client_args is not None:
            raise ValueError('file_client_args has no effect without out_dir: give both or neither')
        if out_dir is not None and not isinstance(out_dir, str):
            raise TypeError(f'out_dir should be a folder\'s name or None, but got {out_dir!r}')
        self.time_sec_tot = 0.0
        self.interval_exp_name = interval_exp_name
        self.out_dir = out_dir
        self.out_suffix = out_suffix
        self.keep_local = keep_local
        self.file_client_args = file_client_args
        self._file: IO[str] | None = None
        self._broken = False

    def before_run(self, runner: RunnerView) -> None:
        super().before_run(runner)
        self.start_iter = runner.iter
        self.time_sec_tot = 0.0
        if self.out_dir is not None and runner.work_dir is not None:
            self.out_dir = os.path.join(self.out_dir, os.path.basename(runner.work_dir.rstrip('/\\')))
        if runner.rank == 0 and runner.work_dir is not None:
            self.json_log_path = os.path.join(runner.work_dir, f'{runner.timestamp}.log.json')
            if runner.meta:
                about = {key: value for key, value in runner.meta.items() if key != 'hook_msgs'}
                self._write(json.dumps(about, default=str))

    def after_run(self, runner: RunnerView) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.out_dir is not None and runner.rank == 0 and runner.work_dir is not None:
            self._copy_out(runner)

    def log(self, runner: RunnerView) -> None:
        line = self.line(runner)
        if runner.rank == 0:
            runner.logger.info(self.text(line, runner))
            self._write(json.dumps({key: rounded(value) for key, value in line.items()}, default=str))

    def line(self, runner: RunnerView) -> OrderedDict[str, Any]:
        """What this log event says, by name."""
        output = runner.log_buffer.output
        mode = self.get_mode(runner)
        iteration = output.get('eval_iter_num', self.get_iter(runner, inner_iter=True))
        line: OrderedDict[str, Any] = OrderedDict(
            mode=mode, epoch=self.get_epoch(runner), iter=iteration, step=runner.completed_iters
        )
        lr = runner.current_lr() if runner.optimizer is not None else []
        line['lr'] = {name: groups[0] for name, groups in lr.items()} if isinstance(lr, dict) else lr[0] if lr else None
        if 'time' in output and torch.cuda.is_available():
            line['memory'] = max_memory(runner)
        line.update((name, value) for name, value in output.items() if name != 'eval_iter_num')
        return line

    def text(self, line: OrderedDict[str, Any], runner: RunnerView) -> str:
        """The line for people."""
        parts = []
        if line['mode'] not in ('val', 'test') and 'time' in line:
            parts += [f'lr: {_format_lr(line["lr"])}', f'eta: {self._eta(line["time"], runner)}']
        elif line['mode'] not in ('val', 'test'):
            parts += [f'lr: {_format_lr(line["lr"])}']
        if 'memory' in line:
            parts.append(f'memory: {line["memory"]}')
        first = ('time', 'data_time')
        shown = [name for name in first if name in line]
        shown += [name for name in line if name not in (*first, 'mode', 'epoch', 'iter', 'step', 'lr', 'memory')]
        parts += [f'{name}: {f"{line[name]:.4f}" if isinstance(line[name], float) else line[name]}' for name in shown]
        name = ''
        if runner.meta and 'exp_name' in runner.meta and (self.every_n_iters(runner, self.interval_exp_name)):
            name = f'Exp name: {runner.meta["exp_name"]}\n'
        return f'{name}{self._place(line, runner)}\t{", ".join(parts)}'

    def _place(self, line: OrderedDict[str, Any], runner: RunnerView) -> str:
        mode, epoch, iteration = line['mode'], line['epoch'], line['iter']
        marked = '' if mode == 'train' else f'({mode})'
        if not self.by_epoch:
            return f'Iter{marked} [{runner.completed_iters}/{runner.max_iters}]'
        if mode == 'val':
            return f'Epoch{marked} [{epoch}][{iteration}]'
        length = len(runner.data_loader) if hasattr(runner.data_loader, '__len__') else '?'
        return f'Epoch{marked} [{epoch}][{iteration}/{length}]'

    def _eta(self, seconds: float, runner: RunnerView) -> str:
        """How long the rest will take, at the average speed since the run started (or was resumed)."""
        self.time_sec_tot += seconds * self.interval
        if runner.max_iters is None:
            return 'unknown'
        per_iter = self.time_sec_tot / (runner.iter - self.start_iter + 1)
        return str(datetime.timedelta(seconds=int(per_iter * (runner.max_iters - runner.iter - 1))))

    def _write(self, text: str) -> None:
        """Append a line to the JSON file; a full disk is warned about once, and the training goes on."""
        path = getattr(self, 'json_log_path', None)
        if path is None or self._broken:
            return
        try:
            if self._file is None:
                self._file = open(path, 'a', encoding='utf-8')  # noqa: SIM115 (stays open until after_run)
            self._file.write(text + '\n')
            self._file.flush()
        except OSError as error:
            self._broken = True
            warnings.warn(f'{path} cannot be written, the training goes on without it: {error}', stacklevel=2)

    def _copy_out(self, runner: RunnerView) -> None:
        os.makedirs(str(self.out_dir), exist_ok=True)
        for name in sorted(os.listdir(runner.work_dir)):
            if name.endswith(self.out_suffix):
                source = os.path.join(str(runner.work_dir), name)
                shutil.copyfile(source, os.path.join(str(self.out_dir), name))
                if not self.keep_local:
                    os.remove(source)
        runner.logger.info('logs are copied to %s', self.out_dir)


def rounded(value: Any) -> Any:
    """Numbers as a log file wants them: five decimals, lists too."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(float(value), 5) if isinstance(value, float) else value


def max_memory(runner: RunnerView) -> int:
    """The most GPU memory that any rank has used, in MiB."""
    memory = torch.tensor([torch.cuda.max_memory_allocated() // 2**20], dtype=torch.int64, device='cuda')
    if runner.world_size > 1:
        dist.reduce(memory, 0, op=dist.ReduceOp.MAX)
    return int(memory.item())


def _format_lr(lr: Any) -> str:
    if isinstance(lr, dict):
        return ' '.join(f'{name}: {value:.3e}' for name, value in lr.items())
    return 'none' if lr is None else f'{lr:.3e}'
