"""A progress bar in text."""

from __future__ import annotations

import shutil
import sys
from time import perf_counter
from typing import TextIO

from runnerkit.utils.exceptions import WrongValue


class ProgressBar:
    """A progress bar with speed and remaining time, on one line.

    Args:
        task_num: the number of tasks; 0 if unknown.
        bar_width: the bar's width in characters, if the line is long enough.
        start: start the timer now.
        file: where to draw it; by default the current ``sys.stdout``.
    """

    def __init__(self, task_num: int = 0, bar_width: int = 50, start: bool = True, file: TextIO | None = None) -> None:
        self.task_num = task_num
        self.bar_width = bar_width
        self.completed = 0
        self.file = sys.stdout if file is None else file
        if start:
            self.start()

    @property
    def terminal_width(self) -> int:
        """The terminal's width in characters."""
        return shutil.get_terminal_size().columns

    def start(self) -> None:
        """Draw the empty bar and start the timer."""
        if self.task_num > 0:
            self._draw(f'[{" " * self.bar_width}] 0/{self.task_num}, elapsed: 0s, ETA:')
        else:
            self._draw('completed: 0, elapsed: 0s')
        self._began = perf_counter()

    def update(self, num_tasks: int = 1) -> None:
        """Count ``num_tasks`` more tasks, at least 1, as done."""
        if num_tasks < 1:
            raise WrongValue(f'num_tasks must be at least 1, but got {num_tasks}')
        self.completed += num_tasks
        elapsed = perf_counter() - self._began
        per_second = self.completed / elapsed if elapsed > 0 else float('inf')
        if self.task_num <= 0:
            self._draw(f'completed: {self.completed}, elapsed: {int(elapsed + 0.5)}s, {per_second:.1f} tasks/s')
            return
        done = self.completed / self.task_num
        left = int(elapsed * (1 - done) / done + 0.5)
        told = (
            f'{self.completed}/{self.task_num}, {per_second:.1f} task/s, elapsed: {int(elapsed + 0.5)}s, ETA: {left:5}s'
        )
        # The last column stays empty, since some terminals wrap there. On a short line, the bar keeps two characters.
        room = self.terminal_width - len('[] ') - len(told) - 1
        width = max(2, min(self.bar_width, room, int(self.terminal_width * 0.6)))
        self._draw(f'\r[{"".ljust(int(width * done), ">").ljust(width)}] {told}')

    def _draw(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()
