"""Losses and scores over the iterations as a picture: the learning curve of a work dir, read from its JSON logs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.distributed.collectives import TIME_NAMES
from runnerkit.fileio.paths import shown
from runnerkit.flow.look.log_lines import Best, Points, best_of, curves_of, read_log
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.logging import print_result
from runnerkit.utils.numbers import names_a_loss

#: How many panels are drawn, apart from that of the learning rate.
MOST_PANELS = 9
#: A curve with more points has no marks, which would hide the line.
MOST_MARKS = 60

#: Values of a log line that have no panel.
_NO_PANEL = {'memory', 'grad_norm', *TIME_NAMES}


def limits(groups: Iterable[Points]) -> tuple[float, float] | None:
    """Limits of an axis that show all later values; the first tenth of each curve may take a third of the height.

    A loss begins far above all that follows, and a score far below. None: all values are equal, or there are none.
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


def first_non_finite(groups: Iterable[Points]) -> int | None:
    """The completed iterations at the first value that is NaN or infinite; None if all are finite."""
    return min((step for points in groups for step, value in points if not math.isfinite(value)), default=None)


def draw(axis: Any, label: str, group: Mapping[str, Points], best: Best | None, focus: bool) -> None:
    """Draw one panel: its curves, their first and last values, where they cease to be finite, and the best one."""
    is_rate = label == 'learning rate'
    for name, points in group.items():
        steps, values = zip(*sorted(points), strict=True)
        ends = '' if is_rate else f'{values[0]:.4g} → {values[-1]:.4g}'
        marker = '.' if len(steps) <= MOST_MARKS and not is_rate else None
        axis.plot(steps, values, marker=marker, linewidth=1.2, label=f'{name}  {ends}'.strip())
        diverged = first_non_finite([points])
        if diverged is not None:
            label_of_it = f'{name}: NaN or infinite from {diverged} on'
            axis.axvline(diverged, color='tab:red', linestyle='--', linewidth=1, label=label_of_it)
    if not any(math.isfinite(value) for points in group.values() for _, value in points):
        axis.text(0.5, 0.5, 'no finite value', transform=axis.transAxes, ha='center', color='grey')
    if best is not None and best.step is not None and not is_rate:
        axis.axvline(best.step, color='grey', linestyle=':', linewidth=1)
    if best is not None and best.value is not None and (label == best.score or best.score in group):
        is_there = any((best.step, best.value) in points for points in group.values())
        if is_there and math.isfinite(best.value):
            text = f'best {best.value:.4g}, {best.when}'
            axis.plot([best.step], [best.value], marker='*', markersize=12, color='tab:red', linestyle='', label=text)
    chosen = limits(group.values()) if focus else None
    if chosen is not None:
        axis.set_ylim(*chosen)
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    if any(group) or not is_rate:
        axis.legend(fontsize='small')


def plot(work_dir: str | Path, best: str | None = None, outcome: str = '') -> Path | None:
    """Draw the learning curve of ``work_dir`` into ``curve.png`` there; None if there is nothing to draw.

    The losses share one panel; each score has its own, since scores have different scales; the learning rate is the
    last one.
    """
    lines, title = read_log(work_dir).lines, f'{Path(work_dir).absolute().name}: learning curve'
    title += f' ({outcome} after {lines[-1]["step"]} iterations)' if outcome and lines else ''
    return draw_curve(lines, Path(work_dir) / 'curve.png', title, None if best is None else best_of(lines, best))


def draw_curve(
    lines: list[dict[str, Any]], path: Path, title: str, best: Best | None = None, focus: bool = True
) -> Path | None:
    """Draw log lines into the file ``path``, see `plot`; None if there is nothing to draw."""
    found = {key: points for key, points in curves_of(lines).items() if key[1] not in _NO_PANEL}
    rates = {name: points for (mode, name), points in found.items() if mode != 'val' and name.split(' ')[0] == 'lr'}
    drawn = {key: points for key, points in found.items() if key[1].split(' ')[0] not in ('lr', 'momentum')}
    if not drawn:
        return None
    from matplotlib.figure import Figure  # not pyplot, which depends on the user's backend
    from matplotlib.ticker import MaxNLocator

    panels: dict[str, dict[str, Points]] = {}
    for (mode, name), points in drawn.items():
        is_loss = names_a_loss(name)
        panels.setdefault('loss' if is_loss else name, {})[f'{mode} {name}' if is_loss else mode] = points
    left_out = list(panels)[MOST_PANELS:]
    panels = {label: panels[label] for label in sorted(panels, key=lambda label: label != 'loss')[:MOST_PANELS]}
    if rates:
        panels['learning rate'] = {name.removeprefix('lr').strip(): points for name, points in rates.items()}
    columns = 1 if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(7 if columns == 1 else 11, 0.6 + 2.2 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    diverged = first_non_finite(drawn.values())
    for axis, (label, group) in zip(axes, panels.items(), strict=False):
        draw(axis, label, group, best, focus)
        if diverged is not None and first_non_finite(group.values()) is None:  # else its own lines are there
            axis.axvline(diverged, color='tab:red', linestyle='--', linewidth=1)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in axes[len(panels) :]:
        axis.axis('off')
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel('iterations')
        axis.tick_params(labelbottom=True)
    figure.suptitle(title + (f' (without {", ".join(left_out)})' if left_out else ''), fontsize='medium')
    write_atomically(path, partial(figure.savefig, dpi=100))
    return path


def draw_and_tell(what: str, draw_it: Callable[[], Path | None], logger: logging.Logger) -> None:
    """Draw a picture and print where it is, or log why there is none, such as that matplotlib is missing."""
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
