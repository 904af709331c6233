"""Pictures of a search, drawn by Optuna: its history, which values have mattered, and the front of two objectives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from runnerkit.flow.look.curve import draw_and_tell
from runnerkit.search.optuna_algorithm import OptunaAlgorithm, direction_of, import_optuna
from runnerkit.search.record import COMPLETED, Record

#: The files, in the folder of a step.
HISTORY, IMPORTANCE, FRONT = 'history.png', 'importance.png', 'front.png'


def draw_search(records: Sequence[Record], folder: Path, algorithm: Any, logger: Logger) -> None:
    """Draw the pictures of a search, and log where they are; nothing if no trial has completed.

    Args:
        records: of its trials.
        folder: of the pictures.
        algorithm: the search algorithm; only one of Optuna's knows which values have mattered.
        logger: for messages; without matplotlib, for how to install it.
    """
    if not any(map(has_scores, records)):
        return
    names = list(records[0].objectives)
    first: dict[str, Any] = {'target': lambda trial: trial.values[0], 'target_name': names[0]}
    study = study_of(records)

    def draw(what: str, file: str, plot: Callable[[Any], Any]) -> None:
        draw_and_tell(what, lambda: _drawn(plot, folder / file), logger)

    draw('history of the search', HISTORY, lambda plots: plots.plot_optimization_history(study, **first))
    if isinstance(algorithm, OptunaAlgorithm) and len(records[0].hps) > 1:
        evaluator = import_optuna().importance.PedAnovaImportanceEvaluator()
        draw(
            'importance of the values',
            IMPORTANCE,
            lambda plots: plots.plot_param_importances(algorithm.study, evaluator, **first),
        )
    if len(names) == 2:
        draw('front', FRONT, lambda plots: plots.plot_pareto_front(study, target_names=names))


def study_of(records: Sequence[Record]) -> Any:
    """A study of Optuna, in memory, of the trials of any algorithm; those that have not completed count as failed."""
    optuna = import_optuna()
    study = optuna.create_study(directions=list(map(direction_of, records[0].objectives.values())))
    for record in records:
        ended: dict[str, Any] = {'state': optuna.trial.TrialState.FAIL}
        study.add_trial(optuna.trial.create_trial(**({'values': record.values} if has_scores(record) else ended)))
    return study


def has_scores(record: Record) -> bool:
    """Whether a trial has completed with a score for each objective."""
    return record.status == COMPLETED and record.values is not None


def _drawn(plot: Callable[[Any], Any], path: Path) -> Path | None:
    """Save what ``plot`` draws; None if Optuna cannot, as for the importance of values that never varied."""
    from matplotlib import pyplot

    with warnings.catch_warnings(), pyplot.rc_context():  # Optuna sets its style for all
        warnings.simplefilter('ignore')
        import optuna.visualization.matplotlib as plots

        try:
            axis = plot(plots)
        except (ValueError, RuntimeError):
            return None
        axis.figure.savefig(path, dpi=100, bbox_inches='tight')
        pyplot.close(axis.figure)
    return path
