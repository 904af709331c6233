"""The processes that a process has started, and what is left of them when tests end."""

import contextlib
import ctypes
import sys
import time
from pathlib import Path

from runnerkit.utils.env import is_alive

#: Processes that Python's own multiprocessing starts, and that end with the one that has started them.
HELPERS = ('multiprocessing.forkserver', 'multiprocessing.resource_tracker')

#: The same of torch's compiler, where the default is several processes (torch 2.6).
COMPILERS = 'torch/_inductor/compile_worker/__main__.py'


def adopt_orphans():
    """Make this process the parent of all that it starts in however many steps and whose own parent dies."""
    if sys.platform == 'linux':
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def parent(pid):
    return int(Path(f'/proc/{pid}/stat').read_text(errors='replace').rpartition(')')[2].split()[1])


def family(root):
    """The processes that a process has started, and those that they have; none without /proc."""
    children = {}
    for entry in Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError, IndexError):
            children.setdefault(parent(entry.name), []).append(int(entry.name))
    found, new = [], [root]
    while new:
        new = [child for each in new for child in children.get(each, [])]
        found += new
    return found


def left_by(root, within=30.0):
    """What lives of the family of ``root`` though it got so many seconds to end: a line about each process.

    The helpers of multiprocessing do not count as long as ``root`` itself is their parent; what they have forked does.
    Nor do those of torch's compiler that work for ``root``.
    """
    deadline = time.monotonic() + within
    looks_without = 0
    while True:
        found = [line for pid in family(root) if is_alive(pid) and (line := _about(pid, root))]
        # One look is not enough: it may read of a process before, and of its parent after the parent has ended.
        looks_without = 0 if found else looks_without + 1
        if looks_without == 3 or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _about(pid, root):
    try:
        words = Path(f'/proc/{pid}/cmdline').read_text(errors='replace').split('\0')
        if parent(pid) == root and any(f'{helper} import main' in word for helper in HELPERS for word in words):
            return None
        if any(word.endswith(COMPILERS) for word in words) and f'--parent={root}' in words:
            return None
        variables = Path(f'/proc/{pid}/environ').read_text(errors='replace').split('\0')
    except (OSError, IndexError):
        return None if not is_alive(pid) else f'process {pid}'
    names = [each.partition('=')[2] for each in variables if each.startswith('PYTEST_CURRENT_TEST=')]
    return f'process {pid}: {" ".join(words).strip()[:300]}' + (f', begun in {names[0]}' if names else '')
