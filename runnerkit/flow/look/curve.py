"""Losses and scores over the iterations as a picture: the learning curve of a work dir, read from its JSON logs."""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.distributed.slowest import NAMES
from runnerkit.fileio.paths import shown
from runnerkit.log_files import logs_in, parsed_line
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.logging import print_result
from runnerkit.utils.losses import names_a_loss

#: Pairs of (completed iterations, value).
Points = list[tuple[int, float]]

#: The name of a best checkpoint: its score, the unit, and how many of these were done.
_BEST = re.compile(r'best_(.+)_(epoch|iter)_(\d+)\.pth')

#: How many panels are drawn, apart from that of the learning rate.
MOST_PANELS = 9
#: A curve with more points has no marks, which would hide the line.
MOST_MARKS = 60

#: Values of a log line that are not drawn.
_NOT_CURVES = {'mode', 'epoch', 'iter', 'step', 'eta', 'memory', 'lr', 'momentum', 'eval_iter_num', 'grad_norm', *NAMES}


def read_log(work_dir: str | Path) -> list[dict[str, Any]]:
    """The log lines of ``work_dir``, one for each moment of the run.

    If a run was started again, or resumed without removing the old lines, a line whose ``step`` goes back replaces all
    lines from that step on. Incomplete lines of a killed run are left out.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    reached = 0
    for path in logs_in(work_dir):
        for text in path.read_text(encoding='utf-8', errors='replace').splitlines():
            line = parsed_line(text)
            if line is None or 'mode' not in line:
                continue
            step = line.get('step', reached)
            if step < reached:
                lines = {key: each for key, each in lines.items() if each.get('step', 0) < step}
            reached = step
            lines[line['mode'], line.get('epoch'), line.get('iter')] = line
    return list(lines.values())


def step_of(line: Mapping[str, Any]) -> int:
    """How many iterations were complete when ``line`` was logged."""
    return line.get('step', line.get('iter', 0))


def curves(lines: list[dict[str, Any]]) -> dict[str, Points]:
    """Pairs of (completed iterations, value) for each ``<mode> <name>``, in the order of the log."""
    found: dict[str, Points] = defaultdict(list)
    for line in lines:
        for name, value in line.items():
            if name not in _NOT_CURVES and isinstance(value, (int, float)):
                found[f'{line["mode"]} {name}'].append((step_of(line), value))
    return found


def learning_rates(lines: list[dict[str, Any]]) -> dict[str, Points]:
    """Pairs of (completed iterations, learning rate) of training lines, by optimizer and kind of parameter group; the
    first group of the only optimizer has no name."""
    found: dict[str, Points] = defaultdict(list)
    for line in (each for each in lines if each['mode'] != 'val'):
        rate = line.get('lr', {})
        for name, value in {**(rate if isinstance(rate, dict) else {'': rate}), **line.get('lr_groups', {})}.items():
            found[name].append((step_of(line), value))
    return found


class Best(NamedTuple):
    """The best evaluation.

    Attributes:
        score: the name of its score.
        value: of the score.
        step: the completed iterations.
        when: the epoch or iteration, as text.
    """

    score: str
    value: float
    step: int
    when: str


def best_of(lines: list[dict[str, Any]], checkpoint: str) -> Best | None:
    """The evaluation that a best checkpoint was saved after; None if the log does not have it.

    Args:
        lines: of the log.
        checkpoint: a path or name such as ``best_accuracy_epoch_7.pth``.
    """
    found = _BEST.search(checkpoint)
    if found is None:
        return None
    score, unit, number = found.groups()
    for line in reversed(lines):
        place = line.get('epoch') if unit == 'epoch' else line.get('step')
        if line['mode'] == 'val' and place == int(number) and isinstance(line.get(score), (int, float)):
            return Best(score, line[score], step_of(line), f'{unit} {number}')
    return None


def limits(groups: Iterable[Points]) -> tuple[float, float] | None:
    """Limits of an axis that show all later values; the first tenth of each curve may take a third of the height.

    A loss begins far above all that follows, and a score far below. None: all values are equal, or there are none.

    Args:
        groups: the curves, each in the order of iterations.
    """
    early: list[float] = []
    later: list[float] = []
    for points in groups:
        values = [value for _, value in points if math.isfinite(value)]
        first = -(-len(values) // 10) if len(values) > 3 else 0
        early += values[:first]
        later += values[first:]
    if not later or min(early + later) == max(early + later):
        return None
    low, high = min(later), max(later)
    room = (high - low) / 2 or abs(high) / 2 or 1
    low, high = max(min(early + later), low - room), min(max(early + later), high + room)
    margin = (high - low) / 20
    return (low - margin, high + margin) if math.isfinite(high - low + margin) else None


def draw(axis: Any, label: str, group: Mapping[str, Points], best: Best | None, focus: bool) -> None:
    """Draw one panel: its curves, their first and last values, where they cease to be finite, and the best one."""
    is_rate = label == 'learning rate'
    for name, points in group.items():
        steps, values = zip(*sorted(points), strict=True)
        ends = '' if is_rate else f'{values[0]:.4g} → {values[-1]:.4g}'
        marker = '.' if len(steps) <= MOST_MARKS and not is_rate else None
        axis.plot(steps, values, marker=marker, linewidth=1.2, label=f'{name}  {ends}'.strip())
        diverged = next((step for step, value in sorted(points) if not math.isfinite(value)), None)
        if diverged is not None:
            label_of_it = f'{name}: NaN or infinite from {diverged} on'
            axis.axvline(diverged, color='tab:red', linestyle='--', linewidth=1, label=label_of_it)
    if best is not None and not is_rate:
        axis.axvline(best.step, color='grey', linestyle=':', linewidth=1)
    if best is not None and math.isfinite(best.value) and (label == best.score or best.score in group):
        text = f'best {best.value:.4g}, {best.when}'
        axis.plot([best.step], [best.value], marker='*', markersize=12, color='tab:red', linestyle='', label=text)
    chosen = limits(group.values()) if focus else None
    if chosen is not None:
        axis.set_ylim(*chosen)
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    if any(group) or not is_rate:
        axis.legend(fontsize='small')


def plot(work_dir: str | Path, best: str | None = None) -> Path | None:
    """Draw the learning curve of ``work_dir`` into ``curve.png`` there; None if there is nothing to draw.

    The losses share one panel; each score has its own, since scores have different scales; the learning rate is the
    last one.

    Args:
        work_dir: the folder with the logs.
        best: the run's best checkpoint, whose evaluation is marked.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    lines, title = read_log(work_dir), f'{Path(work_dir).absolute().name}: learning curve'
    return picture(lines, Path(work_dir) / 'curve.png', title, None if best is None else best_of(lines, best))


def picture(
    lines: list[dict[str, Any]], path: Path, title: str, best: Best | None = None, focus: bool = True
) -> Path | None:
    """Draw log lines into the file ``path``, see `plot`; None if there is nothing to draw.

    Args:
        lines: of the log.
        path: of the picture.
        title: the line above it.
        best: the evaluation to mark.
        focus: cut off values at the beginning that would squash the rest, see `limits`.
    """
    found = curves(lines)
    if not found:
        return None
    from matplotlib.figure import Figure  # not pyplot, which depends on the user's backend
    from matplotlib.ticker import MaxNLocator

    panels: dict[str, dict[str, Points]] = {}
    for name, points in found.items():
        mode, _, value = name.partition(' ')
        is_loss = names_a_loss(value)
        panels.setdefault('loss' if is_loss else value, {})[name if is_loss else mode] = points
    left_out = list(panels)[MOST_PANELS:]
    panels = {label: panels[label] for label in sorted(panels, key=lambda label: label != 'loss')[:MOST_PANELS]}
    rates = learning_rates(lines)
    if rates:
        panels['learning rate'] = rates
    columns = 1 if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(7 if columns == 1 else 11, 0.6 + 2.2 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    for axis, (label, group) in zip(axes, panels.items(), strict=False):
        draw(axis, label, group, best, focus)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in axes[len(panels) :]:
        axis.axis('off')
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel('iterations')
        axis.tick_params(labelbottom=True)
    figure.suptitle(title + (f' (without {", ".join(left_out)})' if left_out else ''), fontsize='medium')
    figure.savefig(path, dpi=100)
    return path


def draw_and_tell(what: str, draw_it: Callable[[], Path | None], logger: logging.Logger) -> None:
    """Draw a picture and print where it is, or log that matplotlib is missing, or any other reason why there is none.

    Args:
        what: it shows, such as ``'learning curve'``.
        draw_it: returns the picture's path, or None if there is nothing to draw.
        logger: for the message.
    """
    try:
        path = draw_it()
    except ModuleNotFoundError:
        logger.info('no %s is drawn: it needs matplotlib (pip install matplotlib)', what)
        return
    except Exception as error:  # what was trained is worth more than its picture
        logger.warning('no %s is drawn: %s: %s', what, type(error).__name__, one_line(error))
        logger.debug('no %s is drawn', what, exc_info=True)
        return
    if path is not None:
        print_result(f'{what.capitalize()} {shown(path)}', logger)
