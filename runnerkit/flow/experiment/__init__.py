"""A training that its user writes as a class: `Experiment`, and `main`, its command line."""

from runnerkit.flow.experiment.experiment import Experiment

__all__ = ['Experiment']
