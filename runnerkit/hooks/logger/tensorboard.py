"""Curves for TensorBoard."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.pictures import Pixels
from runnerkit.utils.small_files import refuse_link


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class TensorboardLoggerHook(LoggerHook):
    """Logs numbers, learning rates and texts.

    Each iteration is drawn once, however often a run is killed and resumed. Points are on disk before the next
    checkpoint is, and a resumed run hides the points beyond its checkpoint. Only a validation after that, in an
    iteration that has drawn a picture, is there twice: to hide the first would hide the picture.

    TensorBoard takes longer to import than all of runnerkit, so it is imported when there is something to draw.

    Args:
        log_dir: where the event files go; by default ``tf_logs`` in the work dir.
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    sends_outside = True

    log_dir: str | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._writer: Any = None
        self._purge_step: int | None = None  # the first step of the next event file; None: do not open one
        self._redrawn: list[tuple[str, Any]] = []  # its first points
        self._pictured: int | None = None  # the step of the last picture, which cannot be drawn again

    @property
    def writer(self) -> Any:
        """The ``SummaryWriter``; its event file is opened at the first access.

        None on all ranks but the first, outside of a run, and if the file cannot be written.
        """
        if self._purge_step is not None:
            step, self._purge_step = self._purge_step, None
            self._open(step)
        return self._writer

    @writer.setter
    def writer(self, writer: Any) -> None:
        self._writer, self._purge_step = writer, None

    def check_client(self) -> None:
        """Check that TensorBoard is installed.

        Raises:
            ImportError: it is not.
        """
        if find_spec('tensorboard') is None:
            raise ImportError('TensorboardLoggerHook needs tensorboard: pip install tensorboard')

    def before_run(self, runner: RunnerView) -> None:
        """Check that TensorBoard is installed and that there is a folder to write to."""
        super().before_run(runner)
        if runner.rank != 0:
            return
        self.check_client()
        if self.log_dir is None:
            if runner.work_dir is None:
                raise ValueError(
                    'TensorboardLoggerHook has nowhere to write: give it a log_dir, or the runner a work_dir'
                )
            self.log_dir = refuse_link(os.path.join(runner.work_dir, 'tf_logs'))
        self._trouble = WarnsOnce(f'the event file in {self.log_dir}')
        self._begin(runner)

    def after_roll_back(self, runner: RunnerView) -> None:
        """Hide the points that will be drawn again, as when a run is resumed."""
        if self._writer is not None or self._purge_step is not None:
            self._close()
            self._begin(runner)

    def _begin(self, runner: RunnerView) -> None:
        """Decide which existing points the next event file hides, and which ones it draws again."""
        done = runner.completed_iters
        if done == 0 and self._step is None:
            self._step = 0  # known: nothing has been drawn
        # A validation may have been logged after the checkpoint and before the next iteration, at the same step. Hide
        # all points of this step and draw those again that are stored in the checkpoint.
        is_known = self._step is not None and done > 0 and done != self._pictured
        self._redrawn = [*self._drawn.items()] if is_known and self._step == done else []
        self._purge_step = done if is_known else done + 1

    def _open(self, step: int) -> None:
        with self._tolerant():
            from torch.utils.tensorboard import SummaryWriter

            _wait_for_a_later_name(str(self.log_dir))
            self._writer = SummaryWriter(self.log_dir, purge_step=step)
            self._draw(self._redrawn, step)

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        state = self._saved_state(runner, checkpoint)
        self._step, self._drawn = state.get('step'), dict(state.get('points', []))
        self._pictured = state.get('pictured')

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last points, which are on the disk: a resumed run does not draw them again."""
        if self._writer is not None:
            with self._tolerant():
                self._writer.flush()
        points = [point for point in self._drawn.items() if isinstance(point[1], (int, float, str))]
        return {'step': self._step, 'points': points, 'pictured': self._pictured}

    def log(self, runner: RunnerView) -> None:
        """Draw one point of each curve at the number of completed iterations."""
        if self.writer is None:
            return
        step = runner.completed_iters  # not `get_iter`: a resumed run hides steps beyond its completed iterations
        tags = self.get_loggable_tags(runner, allow_text=True)
        points = self._new_at(step, {tag: plain_number(value) for tag, value in tags.items()}, runner)
        with self._tolerant():
            self._draw(points.items(), step)

    def after_image(self, runner: RunnerView, name: str, pixels: Pixels) -> None:
        """Draw a picture of `runnerkit.report_image`, at the number of completed iterations."""
        if self.writer is not None:
            self._pictured = runner.completed_iters
            with self._tolerant():
                self._writer.add_image(name, pixels, self._pictured, dataformats='HWC')

    def _draw(self, points: Iterable[tuple[str, Any]], step: int) -> None:
        for tag, value in points:
            if isinstance(value, str):
                self._writer.add_text(tag, value, step)
            elif self.is_scalar(value):
                self._writer.add_scalar(tag, value, step)

    def after_run(self, runner: RunnerView) -> None:
        """Close the event file."""
        super().after_run(runner)
        self._close()

    def _close(self) -> None:
        self._purge_step = None
        if self._writer is not None:
            with self._tolerant():
                self._writer.close()
            self._writer = None

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Stop drawing, with a warning, if the file cannot be written or the installation is broken."""
        try:
            yield
        except (OSError, ImportError) as error:
            self._writer = None
            self._trouble(error)


def _wait_for_a_later_name(log_dir: str) -> None:
    """Wait, at most one second, until the name of a new event file sorts after the existing ones.

    TensorBoard reads event files in the order of their names, which begin with the time in seconds.
    """
    names = os.listdir(log_dir) if os.path.isdir(log_dir) else []
    seconds = [int(name.split('.')[3]) for name in names if re.match(r'events\.out\.tfevents\.\d+\.', name)]
    until = time.monotonic() + 1
    while seconds and int(time.time()) <= max(seconds) and time.monotonic() < until:
        time.sleep(0.02)
