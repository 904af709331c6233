"""MMCV's functions that apply a function to tasks, in one or several processes, with a progress bar."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.progress import ProgressBar

if TYPE_CHECKING:
    from multiprocessing.pool import Pool


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
    # The pool ends its processes with SIGTERM, once, and waits for them. One that is still starting would handle it as
    # this process does, perhaps not at all; so the signal is blocked until `_begin`. The pool's threads, which replace
    # processes, inherit that.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return Pool(process_num, _begin, (initializer, initargs or ()))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin(initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
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
