"""An alias of `runnerkit.flow.experiment.main`, under which programs of users import it."""

from runnerkit.flow.experiment.main import main, parser

__all__ = ['main', 'parser']
