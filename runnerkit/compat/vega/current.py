"""The running step or training, which Vega's classes ask where they are given no config."""

from __future__ import annotations

from typing import Any

from runnerkit.compat.vega.config import NEEDED, STEP, config_of_step, metrics_of_step
from runnerkit.config import Config
from runnerkit.config.known_keys import TOP
from runnerkit.config.settings import read_literals
from runnerkit.runner.lifecycle import INNERMOST
from runnerkit.search.pipe_step import CURRENT
from runnerkit.utils.exceptions import WrongKey


def running_pipeline() -> Any:
    """The pipeline that runs in this context.

    Raises:
        RuntimeError: none is running.
    """
    found = CURRENT.get()
    if found is None:
        raise RuntimeError(
            'no pipeline is running here, so there is no report and no step: ask the Report that Pipeline.run returns, '
            'and give classes their names and configs'
        )
    return found


def running_section() -> dict[str, Any]:
    """What the running step says in Vega's sections; what it leaves out is that of the step before.

    Raises:
        RuntimeError: no pipeline is running.
    """
    pipeline = running_pipeline()
    found: dict[str, Any] = {}
    for name in pipeline.names[: pipeline.names.index(pipeline.current) + 1]:
        found = {**{key: found[key] for key in NEEDED if key in found}, **pipeline.cfg[name]}
    return {key: found[key] for key in found if key in (*STEP, *TOP, 'objectives')}


def running_part(key: str) -> Any:
    """One section of the running step.

    Raises:
        KeyError: it has none.
        RuntimeError: no pipeline is running.
    """
    found = running_section().get(key)
    if found is None:
        raise WrongKey(
            f'the running step {General.step_name!r} has no section {key}: write it, or give the config itself'
        )
    return found


def running_config() -> Any:
    """The config of the training that runs here; in a step, that of its trainings."""
    return config_of_training() or config_of_step(running_section())


def running_metrics() -> list[Any]:
    """The configs of the metrics of the running training or step."""
    cfg = config_of_training()
    return [*(metrics_of_step(running_section()) if cfg is None else cfg.model.metrics).values()]


def config_of_training() -> Any:
    """The config of the training that runs in this context; None if none does, or if it was built without a config."""
    runner = INNERMOST.get()
    text = None if runner is None else runner.meta.get('config')
    return None if text is None else Config(read_literals(text))


class _General:
    @property
    def step_name(self) -> str:
        """The name of the running step."""
        return str(running_pipeline().current)


#: Vega's general settings, of which only the name of the running step is here: ``General.step_name``.
General = _General()
