"""The base of all loggers: when they log, and under which names."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.data.kinds import length_of
from runnerkit.distributed import reduce_and_find_slowest, reduce_named_sums
from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.log_files import replay_command
from runnerkit.optim.named import learning_rates, momenta, other_rates
from runnerkit.utils.numbers import check_whole_number, names_a_loss

_WAY_OUT = 'Lower the learning rate, clip gradients (optimizer_config=dict(grad_clip=dict(max_norm=…)))'
_FIND_IT = (
    ", or find the batch: custom_hooks=[dict(type='NonFiniteHook')] stops at the first such "
    'training iteration and names it'
)


class LoggerHook(Hook):
    """Logs every ``interval`` iterations; subclasses implement `log`.

    In a distributed run all ranks call this hook, to average their values together; only rank 0 logs.

    Args:
        interval: iterations between two log lines, at least 1.
        ignore_last: whether to skip the last iterations of an epoch if they are fewer than ``interval``.
        reset_flag: whether to clear the log buffer's output after logging; the last logger of a run always does.
        by_epoch: whether iterations are counted from each epoch's beginning.

    Raises:
        ValueError: ``interval`` is less than 1.
    """

    needs_training = True
    hears_evaluations = False

    def __init__(
        self, interval: int = 10, ignore_last: bool = True, reset_flag: bool = False, by_epoch: bool = True
    ) -> None:
        self.interval = interval
        self.ignore_last = ignore_last
        self.reset_flag = reset_flag
        self.by_epoch = by_epoch
        LoggerHook.__post_init__(self)

    _loader: Any = None  # whose length was looked up since the last line: it may be new in each epoch
    _length: int | None = None
    _step: Any = None  # the last step of the curves
    _drawn: dict[str, Any] = {}  # their values at that step
    _told: frozenset[str] = frozenset()  # curves with a second value at a step, about which a warning was given

    def __post_init__(self) -> None:
        """Check the interval; for subclasses that are dataclasses."""
        check_whole_number(f'{type(self).__name__}: interval', self.interval)

    def log(self, runner: RunnerView) -> Any:
        """Write ``runner.log_buffer.output`` somewhere."""
        raise NotImplementedError(f'{type(self).__name__} must have a method log(runner)')

    # --- when --------------------------------------------------------------------------------------------------------

    def before_run(self, runner: RunnerView) -> None:
        """Prepare; subclasses call this first."""
        loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
        if loggers:
            loggers[-1].reset_flag = True
        runner.log_buffer.window = max(runner.log_buffer.window, self.interval)

    def before_epoch(self, runner: RunnerView) -> None:
        """Start with an empty buffer."""
        self._warn_of_late_values(runner)
        self._loader = None
        runner.log_buffer.clear()

    def after_train_iter(self, runner: RunnerView) -> None:
        """Log every ``interval`` iterations, and when a hook has put something into the output."""
        # Called in every iteration, so it makes as few calls as possible.
        done = (runner.inner_iter if self.by_epoch else runner.iter) + 1
        if done % self.interval == 0 or (not self.ignore_last and self._is_last_of_epoch(runner)):
            self._average(runner, self.interval)
        if runner.log_buffer.ready:
            self._log(runner)

    def after_val_iter(self, runner: RunnerView) -> None:
        """Log at the end of a validation of the iteration runner; in an epoch runner, `after_val_epoch` does."""
        if runner.log_buffer.ready:
            self._log(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        """Log what hooks have put into the output, such as an evaluation's scores, and what they have added to the
        buffer since the last iteration."""
        if self._is_first_at(runner, 'late'):
            runner.log_buffer.average_late(reduce=reduce_named_sums)
        if runner.log_buffer.ready:
            self._log(runner)

    def after_val_epoch(self, runner: RunnerView) -> None:
        """Log the averages of all batches."""
        self._average(runner, 0)
        self._log(runner)

    def after_run(self, runner: RunnerView) -> None:
        """Tell what was logged too late; subclasses call this first."""
        self._warn_of_late_values(runner)

    def _warn_of_late_values(self, runner: RunnerView) -> None:
        """Warn of values that came after the epoch's last line."""
        late = runner.log_buffer.late
        if late and runner.rank == 0:
            runner.logger.warning(
                '%s: logged after the last line of the epoch, and so in no line. Log it in after_train_iter or '
                "after_train_epoch, by a hook that comes before the loggers (priority='NORMAL'), or return it from "
                'val_step',
                ', '.join(late),
            )
        if late:
            runner.log_buffer.mark()

    def _is_last_of_epoch(self, runner: RunnerView) -> bool:
        loader = runner.data_loader
        if loader is not self._loader:
            self._loader, self._length = loader, length_of(loader)
        return self._length is not None and runner.inner_iter + 1 == self._length

    def _average(self, runner: RunnerView, n: int) -> None:
        if self._is_first_at(runner, n):
            runner.log_buffer.average(n, reduce=reduce_and_find_slowest)

    def _is_first_at(self, runner: RunnerView, what: Any) -> bool:
        """Whether no other logger has averaged the same at this moment; equal on all ranks."""
        moment = (runner.mode, runner.iter, what)
        is_first, runner.log_buffer.averaged_at = moment != runner.log_buffer.averaged_at, moment
        return is_first

    def _log(self, runner: RunnerView) -> None:
        self._loader = None
        if runner.rank == 0:
            self.log(runner)
        if self.reset_flag:
            if runner.rank == 0:
                self._report_losses(runner)
                if (dispatch := getattr(runner.hooks, 'dispatch', None)) is not None:  # MMCV's runner has none
                    dispatch('after_log', runner)
            runner.log_buffer.clear_output()

    def _new_at(self, step: Any, values: Mapping[str, Any], runner: RunnerView) -> dict[str, Any]:
        """Those of ``values`` that their curves lack at ``step``: all lines of a step are one point of a curve."""
        if step != self._step:
            self._step, self._drawn = step, {}
        for name in values.keys() & self._drawn.keys() - self._told:
            if self.is_scalar(values[name]) and repr(values[name]) != repr(self._drawn[name]):
                self._told |= {name}
                text = '%s has several values at step %s: %s keeps the first. To keep all, name the loaders: %s'
                way_out = 'runnerkit.data.name_scores(loader, name)'
                runner.logger.warning(text, name, step, type(self).__name__, way_out)
        new = {name: value for name, value in values.items() if name not in self._drawn}
        self._drawn = {**self._drawn, **new}
        return new

    def _report_losses(self, runner: RunnerView) -> None:
        """Log an error at the first line with a NaN or infinite loss, and let the run's last lines repeat it."""
        notices = runner.notices if hasattr(runner, 'notices') else {}  # MMCV's runner has none
        for name, value in runner.log_buffer.output.items():
            if not isinstance(value, float) or (math.isfinite(value) and not notices) or not names_a_loss(name):
                continue
            subject = f'{self.get_mode(runner)} {name}'
            since = f'{subject} is not finite since iteration '
            if not math.isfinite(value) and not notices.get(subject, '').startswith(since):
                notices[subject] = f'{since}{runner.completed_iters} ({value}). {_ways_out(runner)}'
                runner.logger.error('%s', notices[subject])
            elif math.isfinite(value) and notices.get(subject, '').startswith(since):
                notices[subject] = notices[subject].replace(since, f'{subject} was not finite at iteration ')

    def _saved_state(self, runner: RunnerView, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return this logger's state in ``checkpoint``, for loggers that need it before the run begins."""
        kind = type(self).__name__
        place = [hook for hook in runner.hooks if type(hook).__name__ == kind].index(self)
        saved = checkpoint.get('runnerkit', {})
        hooks = saved['ranks'][0].get('hooks', {}) if saved.get('ranks') else {}
        state: dict[str, Any] = saved.get('hooks', hooks).get(f'{kind}#{place}', {})
        return state

    # --- under which names -------------------------------------------------------------------------------------------

    @staticmethod
    def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
        """Whether ``val`` is one number.

        Args:
            val: anything.
            include_np: whether a 0-dimensional array counts.
            include_torch: whether a one-element tensor counts.
        """
        if isinstance(val, numbers.Number):
            return True
        if isinstance(val, np.ndarray):
            return include_np and val.ndim == 0
        return include_torch and isinstance(val, Tensor) and val.numel() == 1

    def get_mode(self, runner: RunnerView) -> str:
        """Return ``'val'`` for the results of an evaluation, else the running mode, usually ``'train'``."""
        if runner.mode != 'val' and (runner.log_buffer.averaged or 'time' in runner.log_buffer.output):
            return str(runner.mode)
        return 'val'

    def get_epoch(self, runner: RunnerView) -> int:
        """Return the number, from 1, of the running epoch; for the results of an evaluation, that of the last training
        iteration, or 0 before the first one."""
        return runner.trained_epoch if self.get_mode(runner) == 'val' else runner.epoch + 1

    def get_iter(self, runner: RunnerView, inner_iter: bool = False) -> int:
        """Return the running iteration, from 1; between two iterations, the next one.

        Args:
            runner: the run.
            inner_iter: count from the epoch's beginning, if ``by_epoch``; between two iterations, this is the last one.
        """
        return (runner.inner_iter if self.by_epoch and inner_iter else runner.iter) + 1

    def get_lr_tags(self, runner: RunnerView) -> dict[str, float]:
        """Return the learning rate of the first parameter group, for each optimizer, and those that differ from it
        (`runnerkit.optim.named.other_rates`), as ``learning_rate/x0.1``."""
        others = {f'learning_rate/{name}': rate for name, rate in other_rates(runner.optimizer).items()}
        return {**_tags('learning_rate', learning_rates(runner.optimizer)), **others}

    def get_momentum_tags(self, runner: RunnerView) -> dict[str, float]:
        """Return the momentum of the first parameter group, for each optimizer."""
        return _tags('momentum', momenta(runner.optimizer))

    def get_loggable_tags(
        self,
        runner: RunnerView,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: Sequence[str] = ('time', 'data_time'),
    ) -> dict[str, Any]:
        """Return everything to log by name, including learning rates and momenta.

        Values that are neither numbers nor texts, such as images or histograms, are always included.

        Args:
            runner: the run.
            allow_scalar: include numbers.
            allow_text: include texts.
            add_mode: prefix names with the mode: ``train/loss``.
            tags_to_skip: names to leave out.
        """
        prefix = f'{self.get_mode(runner)}/' if add_mode else ''
        tags: dict[str, Any] = {}
        for name, value in runner.log_buffer.output.items():
            allowed = allow_text if isinstance(value, str) else allow_scalar or not self.is_scalar(value)
            if name not in (*tags_to_skip, 'eval_iter_num') and allowed:  # which the text log names
                tags[prefix + name] = value
        if runner.optimizer is not None:
            tags.update(self.get_lr_tags(runner))
            tags.update(self.get_momentum_tags(runner))
        return tags


def _ways_out(runner: RunnerView) -> str:
    """What to do about a loss that is not finite."""
    batch = runner.data_batch if hasattr(runner, 'data_batch') else None
    bad = next(_bad_inputs('batch', batch), None)
    first = '' if bad is None else f'Look at the data first: the input {bad}. '
    has_hook = any(type(hook).__name__ == 'NonFiniteHook' for hook in runner.hooks)
    command = replay_command(runner.work_dir, runner.completed_iters - 1)
    replay = f' To replay that iteration: {command}' if command else ''
    return f'{first}{_WAY_OUT}{"" if has_hook else _FIND_IT}.{replay}'


def _bad_inputs(place: str, value: Any) -> Iterator[str]:
    """What of a batch is not finite: places with numbers."""
    if isinstance(value, Tensor):
        bad = 0 if value.is_sparse or value.is_nested else int((~torch.isfinite(value)).sum())
        if bad:
            yield f'{place} has {bad} numbers that are NaN or infinite'
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _bad_inputs(f'{place}[{key!r}]', each)
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from _bad_inputs(f'{place}[{i}]', each)


def _tags(name: str, values: Any) -> dict[str, float]:
    if isinstance(values, dict):
        return {f'{name}/{optimizer}': each[0] for optimizer, each in values.items()}
    return {name: values[0]}
