"""Progress bars on a text stream, around a loop, a function over tasks, or one over tasks in several processes."""

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
    """One line that says how much is done, how fast, and when it will be over.

    Args:
        task_num: how many tasks there are; 0 where nobody knows.
        bar_width: the bar's length in characters, on a line that is long enough.
        start: whether time runs from now.
        file: where it is drawn; None is what ``sys.stdout`` is now.
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
        """Characters on a line of the terminal."""
        return shutil.get_terminal_size().columns

    def start(self) -> None:
        """Draw the bar, empty; time runs from now."""
        if self.task_num > 0:
            self._draw(f'[{" " * self.bar_width}] 0/{self.task_num}, elapsed: 0s, ETA:')
        else:
            self._draw('completed: 0, elapsed: 0s')
        self.timer = Timer()

    def update(self, num_tasks: int = 1) -> None:
        """Count ``num_tasks`` more tasks, at least one, as done."""
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
        # The line's last column stays free, or some terminals go on to the next; a short line keeps a stub of the bar.
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
        func: what is done with each task.
        tasks: the tasks, in something that has a length, or a pair of an iterable and the number of tasks in it.
        bar_width: the bar's length in characters.
        file: where it is drawn; None for stdout.
        **kwargs: more arguments of ``func``.

    Returns:
        What it gave for each task.
    """
    return [func(task, **kwargs) for task in track_iter_progress(tasks, bar_width, file)]


def track_iter_progress(tasks: Any, bar_width: int = 50, file: TextIO | None = None) -> Iterator[Any]:
    """The tasks one by one, with a progress bar that counts each as done when the next is asked for.

    Args:
        tasks: as in `track_progress`.
        bar_width: the bar's length in characters.
        file: where it is drawn; None for stdout.
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

    An error in one of them ends them all, and is raised here.

    Args:
        func: what is done with each task; processes must be able to receive it.
        tasks: as in `track_progress`.
        nproc: how many processes.
        initializer: what each does at its start, if anything.
        initargs: the arguments of that.
        bar_width: the bar's length in characters.
        chunksize: how many tasks a process takes at a time.
        skip_first: whether to leave the first task of each process, which may take longer, out of the estimate.
        keep_order: whether results come in the order of tasks, rather than as they get ready.
        file: where the bar is drawn; None for stdout.

    Returns:
        What ``func`` gave for each task.
    """
    each, number = _counted(tasks)
    uncounted = nproc * chunksize if skip_first else 0
    results = []
    with start_pool(nproc, initializer, initargs) as pool:
        # Time runs when the processes are there.
        bar = ProgressBar(max(number - uncounted, 0), bar_width, start=not skip_first, file=file)
        for result in (pool.imap if keep_order else pool.imap_unordered)(func, each, chunksize):
            results.append(result)
            if len(results) > uncounted:
                bar.update()
            elif len(results) == uncounted:
                bar.start()
        # Left by an error, the pool is terminated; done, its processes end by themselves.
        pool.close()
        pool.join()
    bar.file.write('\n')
    return results


def start_pool(
    process_num: int, initializer: Callable[..., Any] | None = None, initargs: tuple[Any, ...] | None = None
) -> Pool:
    """A pool of processes.

    Args:
        process_num: how many.
        initializer: what each does at its start, if anything.
        initargs: the arguments of that.

    Raises:
        TypeError: ``initargs`` is no tuple.
    """
    from multiprocessing import Pool

    if initargs is not None and not isinstance(initargs, tuple):
        raise TypeError(f'"initargs" must be a tuple, but got {type(initargs)}: {initargs!r}')
    return Pool(process_num, _begin, (initializer, initargs or ()))


def _begin(initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
    # The pool ends its processes by SIGTERM. A handler of Python's that they have inherited may never be called: the
    # signal can come just before they wait for a task, for ever.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if initializer is not None:
        initializer(*initargs)


def _counted(tasks: Any) -> tuple[Iterable[Any], int]:
    """The tasks, and how many they are."""
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
