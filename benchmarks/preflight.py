"""Measure the preflight for each config of the gallery, or for those named on the command line.

    python benchmarks/preflight.py [CONFIG ...]

Prints the median of several calls in milliseconds: for the config alone, and for the built run (without training).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from runnerkit.config import Config
from runnerkit.flow import Context, Flow, Options, RunnerBase
from runnerkit.flow.preflight import Plan, find

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 20


def gallery() -> list[Path]:
    """The configs below ``configs/``, without the Python files that they use."""
    return sorted(path for path in (ROOT / 'configs').rglob('*.py') if 'runner = dict(' in path.read_text())


class OnlyLook(RunnerBase):
    """Trains nothing."""

    def run(self, context: Context) -> None:
        """Do nothing."""


def milliseconds(call: Callable[[], Any]) -> float:
    """The median time of `REPEATS` calls."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return median(taken)


def measure(path: str | Path) -> tuple[float, float | None]:
    """The times for the config alone and for the built run; None if its libraries are not installed."""
    cfg = Config.fromfile(path)
    alone = milliseconds(lambda: find(Plan(cfg=cfg)))
    stages = {'startup': None, 'runner': OnlyLook}
    try:
        context = Flow(cfg, Options(dry_run=True, device='cpu'), stages=stages).run()
    except (KeyError, ImportError) as error:
        print(f'{path}: not built ({str(error)[:60]} …)', file=sys.stderr)
        return alone, None
    # A new plan each time, because a plan caches its results.
    return alone, milliseconds(lambda: find(Plan.of(context)))


def main(paths: list[str]) -> None:
    """Print a line for each config."""
    print(f'{"config":<40} {"config alone":>14} {"built run":>14}')
    for path in paths or gallery():
        alone, built = measure(path)
        name = Path(path).resolve()
        shown = name.relative_to(ROOT) if name.is_relative_to(ROOT) else name
        print(f'{shown!s:<40} {alone:>11.2f} ms ' + ('' if built is None else f'{built:>11.2f} ms'), flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
