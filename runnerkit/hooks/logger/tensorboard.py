"""Curves for TensorBoard."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.numbers import plain_number


@HOOKS.register_module()
class TensorboardLoggerHook(LoggerHook):
    """Logs numbers, learning rates and texts; what was drawn beyond the point where a run begins is hidden.

    Each iteration is drawn once, however often a run is killed and resumed: what it has drawn by the time of a
    checkpoint is on the disk before the checkpoint is.

    TensorBoard, which takes longer to import than all of runnerkit, is imported when there is something to draw.

    Args:
        log_dir: where the event files go; by default ``tf_logs`` in the work dir.
        interval: as in `LoggerHook`.
        ignore_last: as in `LoggerHook`.
        reset_flag: as in `LoggerHook`.
        by_epoch: as in `LoggerHook`.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.log_dir = log_dir
        self._writer: Any = None
        self._purge_step: int | None = None  # where the next event file begins; None where none is to be opened
        self._redrawn: list[tuple[str, Any]] = []  # what it begins with
        self._last_step: int | None = None
        self._last_points: list[tuple[str, Any]] = []  # what was drawn at that step, by tag

    @property
    def writer(self) -> Any:
        """The ``SummaryWriter``, whose event file is opened when it is first asked for.

        None on other ranks than the first, outside of a run, and where the file cannot be written.
        """
        if self._purge_step is not None:
            step, self._purge_step = self._purge_step, None
            self._open(step)
        return self._writer

    @writer.setter
    def writer(self, writer: Any) -> None:
        self._writer, self._purge_step = writer, None

    def before_run(self, runner: RunnerView) -> None:
        """Make sure that there is TensorBoard, and a place to write to."""
        super().before_run(runner)
        if runner.rank != 0:
            return
        if find_spec('tensorboard') is None:
            raise ImportError("TensorboardLoggerHook needs tensorboard: pip install 'runnerkit[tensorboard]'")
        if self.log_dir is None:
            if runner.work_dir is None:
                raise ValueError(
                    'TensorboardLoggerHook has nowhere to write: give it a log_dir, or the runner a work_dir'
                )
            self.log_dir = os.path.join(runner.work_dir, 'tf_logs')
        self._trouble = WarnsOnce(f'the event file in {self.log_dir}')
        self._begin(runner)

    def after_roll_back(self, runner: RunnerView) -> None:
        """Hide what is going to be drawn again, as when a run is resumed."""
        if self._writer is not None or self._purge_step is not None:
            self._close()
            self._begin(runner)

    def _begin(self, runner: RunnerView) -> None:
        """Settle what the next event file hides of those that are there, and draws again."""
        done = runner.completed_iters
        # A validation may have been logged after the checkpoint and before the next iteration, at the same step: hide
        # what is there, and draw again what the checkpoint knows of.
        is_known = self._last_step is not None and done > 0
        self._redrawn = self._last_points if is_known and self._last_step == done else []
        self._purge_step = done if is_known else done + 1

    def _open(self, step: int) -> None:
        with self._tolerant():
            from torch.utils.tensorboard import SummaryWriter

            _wait_for_a_later_name(str(self.log_dir))
            self._writer = SummaryWriter(self.log_dir, purge_step=step)
            self._draw(self._redrawn, step)

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        state = self._saved_state(runner, checkpoint)
        self._last_step, self._last_points = state.get('step'), list(state.get('points', []))

    def state_dict(self) -> dict[str, Any]:
        return {'step': self._last_step, 'points': list(self._last_points)}

    @contextmanager
    def around_save(self, runner: RunnerView) -> Iterator[None]:
        """Put what is drawn so far on the disk: a resumed run does not draw it again."""
        if self._writer is not None:
            with self._tolerant():
                self._writer.flush()
        yield

    def log(self, runner: RunnerView) -> None:
        """Draw a point of each curve at the number of iterations done."""
        if self.writer is None:
            return
        step = runner.completed_iters  # not `get_iter`: a resumed run hides what lies beyond those that are done
        points = [(tag, plain_number(value)) for tag, value in self.get_loggable_tags(runner, allow_text=True).items()]
        if step != self._last_step:
            self._last_step, self._last_points = step, []
        self._last_points += [point for point in points if isinstance(point[1], (int, float, str))]
        with self._tolerant():
            self._draw(points, step)

    def _draw(self, points: list[tuple[str, Any]], step: int) -> None:
        for tag, value in points:
            if isinstance(value, str):
                self._writer.add_text(tag, value, step)
            elif self.is_scalar(value):
                self._writer.add_scalar(tag, value, step)

    def after_run(self, runner: RunnerView) -> None:
        """Close the event file."""
        self._close()

    def _close(self) -> None:
        self._purge_step = None
        if self._writer is not None:
            with self._tolerant():
                self._writer.close()
            self._writer = None

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """A file that cannot be written, or an installation that is broken, is given up, with a warning."""
        try:
            yield
        except (OSError, ImportError) as error:
            self._writer = None
            self._trouble(error)


def _wait_for_a_later_name(log_dir: str) -> None:
    """Wait, a second at most, until a new event file is read after those that are there.

    TensorBoard reads them in the order of their names: a second, and then a number without leading zeros.
    """
    names = os.listdir(log_dir) if os.path.isdir(log_dir) else []
    seconds = [int(name.split('.')[3]) for name in names if re.match(r'events\.out\.tfevents\.\d+\.', name)]
    until = time.monotonic() + 1
    while seconds and int(time.time()) <= max(seconds) and time.monotonic() < until:
        time.sleep(0.02)
