"""What the runner of a flow is built of, and experiments, which build the rest themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import runner_class
from runnerkit.registry import placed_errors
from runnerkit.runner import build_runner
from runnerkit.utils.lazy import loaded_class

if TYPE_CHECKING:
    from runnerkit.flow.experiment.experiment import Experiment


def experiment_of(cfg: Any) -> type[Experiment] | None:
    """The class of the config's runner, if it is an `Experiment`."""
    found = runner_class(cfg)
    kind = loaded_class('runnerkit.flow.experiment.experiment:Experiment')
    return found if isinstance(found, type) and issubclass(found, kind) else None


def runner_arguments(context: Context) -> dict[str, Any]:
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
        experiment = build_runner(context.cfg.runner, {**runner_arguments(context), **own})
    experiment.setup_in(context)
