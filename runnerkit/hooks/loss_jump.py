"""The hook that logs when a training loss jumps, and how to replay that moment."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.log_files import replay_command
from runnerkit.utils.numbers import check_whole_number, names_a_loss

#: A normal distribution has this many median deviations in a standard deviation.
_DEVIATION = 1.4826

#: Noise that is always allowed for, as a share of the loss with which the run began.
_FLOOR = 0.01


@HOOKS.register_module()
class LossJumpHook(Hook):
    """Logs a warning when a training loss jumps, with the iteration and the command that replays it.

    A run by config has this hook. It looks at log lines alone: a loss has jumped if it exceeds the median of the last
    ``window`` lines by more than ``factor`` times their spread. The spread is their median absolute deviation, scaled
    to a standard deviation, and at least 1 % of the loss with which the run began. Nothing else happens. A jump is
    logged once, until a line is below that limit again.

    Args:
        window: how many log lines to compare with, at least 5. The first so many lines are not judged.
        factor: how many spreads above the median count as a jump.
    """

    needs_training = True

    def __init__(self, window: int = 20, factor: float = 12.0) -> None:
        check_whole_number('window', window, at_least=5)
        if not 0 < factor < math.inf:
            raise ValueError(f'factor must be a finite number above 0, but got {factor!r}')
        self.window, self.factor = window, factor
        self._lines: dict[str, deque[float]] = {}
        self._begun: dict[str, float] = {}  # the median of the first lines
        self._high: set[str] = set()
        self._seen = 0

    def before_run(self, runner: RunnerView) -> None:
        self._seen = runner.completed_iters

    def after_log(self, runner: RunnerView) -> None:
        """Judge the losses of a line; called on rank 0."""
        buffer, done, before = runner.log_buffer, runner.completed_iters, self._seen
        if runner.mode == 'val' or not buffer.averaged:
            return
        self._seen = done
        for name, value in buffer.output.items():
            if not names_a_loss(name) or not isinstance(value, float) or not math.isfinite(value):
                continue
            lines = self._lines.setdefault(name, deque(maxlen=self.window))
            if len(lines) == self.window:
                median = statistics.median(lines)
                spread = _DEVIATION * statistics.median(abs(each - median) for each in lines)
                spread = max(spread, _FLOOR * self._begun.setdefault(name, abs(median)))
                if value <= median + self.factor * spread:
                    self._high.discard(name)
                elif name not in self._high:
                    self._high.add(name)
                    place = _iteration_of_highest(buffer.val_history.get(name, []), done, done - before)
                    command = replay_command(runner.work_dir, place - 1)
                    runner.logger.warning(
                        '%s has jumped to %.4g, most of it at iteration %d: the median of the %d log lines before is '
                        '%.4g.%s',
                        *(name, value, place, self.window, median),
                        f' To replay that iteration: {command}' if command else '',
                    )
            lines.append(value)

    def state_dict(self) -> dict[str, Any]:
        """Return the last lines."""
        lines = {name: list(values) for name, values in self._lines.items()}
        return {'lines': lines, 'begun': dict(self._begun), 'high': sorted(self._high), 'seen': self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._lines = {name: deque(map(float, values), maxlen=self.window) for name, values in state['lines'].items()}
        self._begun = {name: float(value) for name, value in state['begun'].items()}
        self._high, self._seen = set(state['high']), state['seen']


def _iteration_of_highest(values: list[Any], done: int, count: int) -> int:
    """The number, from 1, of the iteration with the highest of the last ``count`` values, one for each iteration;
    ``done`` if none is known. Those of an epoch's last iterations, which are in no line, are gone."""
    last = values[-count:] if count > 0 else []
    known = [i for i, value in enumerate(last) if isinstance(value, float)]
    return done - len(last) + 1 + max(known, key=last.__getitem__) if known else done
