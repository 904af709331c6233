"""What the runner of a flow is built of, and experiments, which build the rest themselves."""

from __future__ import annotations

from typing import Any

from runnerkit.flow.context import Context
from runnerkit.flow.experiment.experiment import Experiment
from runnerkit.flow.stages.defaults import runner_class
from runnerkit.registry import placed_errors
from runnerkit.runner import build_runner


def experiment_of(cfg: Any) -> type[Experiment] | None:
    """The class of the config's runner, if it is an `Experiment`."""
    found = runner_class(cfg)
    return found if isinstance(found, type) and issubclass(found, Experiment) else None


def parts_of(context: Context) -> dict[str, Any]:
    """The arguments of a runner's constructor that its config need not say."""
    return {
        'model': context.model,
        'optimizer': context.optimizer,
        'work_dir': str(context.work_dir),
        'logger': context.logger,
        'meta': context.meta,
    }


def build_experiment(context: Context) -> None:
    """Build the config's `Experiment`, and what it sets up itself: a model and loaders that are not there yet."""
    own = {'config': context.cfg, 'args': context.options}
    with placed_errors(context.cfg, 'runner'):
        experiment = build_runner(context.cfg.runner, {**parts_of(context), **own})
    experiment.setup_in(context)
