"""Pictures of a search: its history, which values have mattered, and the front of two objectives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import accumulate
from logging import Logger
from pathlib import Path
from typing import Any

from runnerkit.flow.look.curve import draw_and_tell
from runnerkit.search.optuna_algorithm import OptunaAlgorithm
from runnerkit.search.record import COMPLETED, PRUNED, Record, front

#: The files, in the folder of a step.
HISTORY, IMPORTANCE, FRONT = 'history.png', 'importance.png', 'front.png'


def draw_search(records: Sequence[Record], folder: Path, algorithm: Any, logger: Logger) -> None:
    """Draw what there is to see of a search, and tell where.

    Args:
        records: of its trials.
        folder: of the pictures.
        algorithm: the search algorithm.
        logger: for messages; without matplotlib, it is told how to get it.
    """
    draw_and_tell('history of the search', lambda: draw_history(records, folder / HISTORY), logger)
    found = importances(algorithm, logger)
    if len(found) > 1:
        draw_and_tell('importance of the values', lambda: draw_importances(found, folder / IMPORTANCE), logger)
    if records and len(records[0].objectives) == 2:
        draw_and_tell('front', lambda: draw_front(records, folder / FRONT), logger)


def draw_history(records: Sequence[Record], path: Path) -> Path | None:
    """Draw the first objective of each trial, and the best one so far; None if no trial has a score."""
    if not records:
        return None
    name, rule = next(iter(records[0].objectives.items()))
    known = [(each.number, each.performance[name], each.status) for each in records if name in each.performance]
    completed = [(number, value) for number, value, status in known if status == COMPLETED]
    if not known:
        return None
    figure, axis = _axis()
    for status, marker, colour in ((COMPLETED, 'o', 'tab:blue'), (PRUNED, 'x', 'tab:grey')):
        points = [(number, value) for number, value, each in known if each == status]
        if points:
            axis.plot(*zip(*points, strict=True), linestyle='', marker=marker, color=colour, label=status)
    if completed:
        best = list(accumulate((value for _, value in completed), max if rule == 'max' else min))
        numbers = [number for number, _ in completed]
        axis.step(numbers, best, where='post', color='tab:red', label=f'best {best[-1]:.4g}')
    axis.set_xlabel('trial')
    axis.set_ylabel(f'{name} ({rule})')
    return _saved(figure, axis, path, 'history')


def importances(algorithm: Any, logger: Logger) -> dict[str, float]:
    """How much each value has mattered for the first objective, in ``[0, 1]``; empty if that cannot be told.

    PED-ANOVA of Optuna compares the values of the best tenth of the trials with those of all.
    """
    if not isinstance(algorithm, OptunaAlgorithm):
        return {}
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            return optuna.importance.get_param_importances(
                algorithm.study,
                evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
                target=lambda trial: trial.values[0],
            )
        except (ValueError, RuntimeError, ImportError) as error:
            logger.info('no importance of the values is drawn: %s', error)
            return {}


def draw_importances(found: Mapping[str, float], path: Path) -> Path:
    """Draw one bar for each value."""
    figure, axis = _axis(0.8 + 0.4 * len(found))
    names = sorted(found, key=lambda name: found[name])
    axis.barh(names, [found[name] for name in names])
    axis.set_xlabel('share of the importance')
    return _saved(figure, axis, path, 'importance of the values', legend=False)


def draw_front(records: Sequence[Record], path: Path) -> Path | None:
    """Draw two objectives of all completed trials, and their front; None if none has completed."""
    completed = [each for each in records if each.status == COMPLETED and each.values is not None]
    if not completed:
        return None
    best = sorted((tuple(each.values or ()), each.number) for each in front(completed))
    figure, axis = _axis()
    points = [tuple(each.values or ()) for each in completed]
    axis.plot(*zip(*points, strict=True), linestyle='', marker='o', color='tab:grey', label='completed')
    axis.plot(*zip(*(values for values, _ in best), strict=True), marker='o', color='tab:red', label='front')
    for values, number in best:
        axis.annotate(str(number), values, textcoords='offset points', xytext=(4, 4), fontsize='small')
    first, second = (f'{name} ({rule})' for name, rule in completed[0].objectives.items())
    axis.set_xlabel(first)
    axis.set_ylabel(second)
    return _saved(figure, axis, path, 'front')


def _axis(height: float = 4.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot, which depends on the user's backend

    figure = Figure(figsize=(7, max(2.0, height)), layout='constrained')
    return figure, figure.subplots()


def _saved(figure: Any, axis: Any, path: Path, what: str, legend: bool = True) -> Path:
    axis.set_title(f'{path.parent.name}: {what}', fontsize='medium')
    axis.grid(alpha=0.3)
    if legend:
        axis.legend(fontsize='small')
    figure.savefig(path, dpi=100)
    return path
