"""Progress bars in text, for a loop, or a function that is applied to tasks in one or several processes."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.timer import Timer

if TYPE_CHECKING:
    from multiprocessing.pool import Pool


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
        self.timer = Timer()

    def update(self, num_tasks: int = 1) -> None:
        """Count ``num_tasks`` more tasks, at least 1, as done."""
        if num_tasks < 1:
            raise WrongValue(f'num_tasks must be at least 1, but got {num_tasks}')
        self.completed += num_tasks
        elapsed = self.timer.since_start()
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


def track_progress(
    func: Callable[..., Any], tasks: Any, bar_width: int = 50, file: TextIO | None = None, **kwargs: Any
) -> list[Any]:
    """``func(task, **kwargs)`` for every task, with a progress bar.

    Args:
        func: called with each task.
        tasks: the tasks: an iterable with a length, or a tuple of an iterable and its length.
        bar_width: the bar's width in characters.
        file: where to draw it; None for stdout.
        **kwargs: more arguments of ``func``.

    Returns:
        The result for each task.
    """
    return [func(task, **kwargs) for task in track_iter_progress(tasks, bar_width, file)]


def track_iter_progress(tasks: Any, bar_width: int = 50, file: TextIO | None = None) -> Iterator[Any]:
    """Iterate over the tasks, with a progress bar; a task counts as done when the next one is requested.

    Args:
        tasks: as in `track_progress`.
        bar_width: the bar's width in characters.
        file: where to draw it; None for stdout.
    """
    each, number = _counted(tasks)
    bar = ProgressBar(number, bar_width, file=file)
    for task in each:
        yield task
        bar.update()
    bar.file.write('\n')


def track_parallel_progress(
    func: Callable[[Any], Any],
    tasks: Any,
    nproc: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] | None = None,
    bar_width: int = 50,
    chunksize: int = 1,
    skip_first: bool = False,
    keep_order: bool = True,
    file: TextIO | None = None,
) -> list[Any]:
    """``func(task)`` for every task in several processes, with a progress bar.

    An error in a process ends all of them and is raised here.

    Args:
        func: called with each task; it must be picklable.
        tasks: as in `track_progress`.
        nproc: the number of processes.
        initializer: called in each process at its start.
        initargs: arguments of ``initializer``.
        bar_width: the bar's width in characters.
        chunksize: how many tasks a process gets at a time.
        skip_first: leave the first tasks, which may take longer, out of the estimate.
        keep_order: return the results in the order of the tasks, not of their completion.
        file: where to draw the bar; None for stdout.

    Returns:
        The result for each task.
    """
    each, number = _counted(tasks)
    uncounted = nproc * chunksize if skip_first else 0
    results = []
    with start_pool(nproc, initializer, initargs) as pool:
        # The timer starts when the processes exist.
        bar = ProgressBar(max(number - uncounted, 0), bar_width, start=not skip_first, file=file)
        for result in (pool.imap if keep_order else pool.imap_unordered)(func, each, chunksize):
            results.append(result)
            if len(results) > uncounted:
                bar.update()
            elif len(results) == uncounted:
                bar.start()
        # An error terminates the pool; otherwise its processes end by themselves.
        pool.close()
        pool.join()
    bar.file.write('\n')
    return results


def start_pool(
    process_num: int, initializer: Callable[..., Any] | None = None, initargs: tuple[Any, ...] | None = None
) -> Pool:
    """A pool of processes.

    Args:
        process_num: the number of processes.
        initializer: called in each process at its start.
        initargs: arguments of ``initializer``.

    Raises:
        TypeError: ``initargs`` is not a tuple.
    """
    from multiprocessing import Pool

    if initargs is not None and not isinstance(initargs, tuple):
        raise TypeError(f'"initargs" must be a tuple, but got {type(initargs)}: {initargs!r}')
    return Pool(process_num, _begin, (initializer, initargs or ()))


def _begin(initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
    # The pool ends its processes with SIGTERM. An inherited Python handler might never be called: the signal can arrive
    # just before the process blocks, waiting for a task.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if initializer is not None:
        initializer(*initargs)


def _counted(tasks: Any) -> tuple[Iterable[Any], int]:
    """The tasks and their number."""
    if isinstance(tasks, tuple):
        if len(tasks) != 2 or not isinstance(tasks[0], Iterable) or not isinstance(tasks[1], int):
            raise WrongType(f'"tasks" as a tuple must hold an iterable and the number of tasks in it, but is {tasks!r}')
        return tasks
    if not isinstance(tasks, Iterable):
        raise TypeError(f'"tasks" must be an iterable object or a (iterator, int) tuple, but got {type(tasks)}')
    try:
        return tasks, len(tasks)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f'{error}: give it with the number of its tasks, (tasks, number)') from None
