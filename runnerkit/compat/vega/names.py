"""Vega's names for networks, losses, metrics, callbacks and search algorithms; importing them registers its classes."""

from __future__ import annotations

import os

from runnerkit.compat.vega.algorithms import Codec, Generator, SearchAlgorithm
from runnerkit.compat.vega.callbacks import CALLBACKS, Callback, ModelStatistics, VegaCallbacks, calc_model_flops_params
from runnerkit.compat.vega.class_factory import ClassFactory, ClassType
from runnerkit.compat.vega.current import General
from runnerkit.compat.vega.metrics import Accuracy, MetricBase, Metrics, accuracy
from runnerkit.compat.vega.networks import NetTypes, Network, NetworkDesc, NetworkFactory, SearchSpace
from runnerkit.compat.vega.report import ReportClient, ReportRecord, ReportServer
from runnerkit.search.algorithm import Proposal
from runnerkit.search.benchmark import BenchmarkPipeStep
from runnerkit.search.pipe_step import PipeStep
from runnerkit.search.pipeline import Pipeline
from runnerkit.search.report import Report
from runnerkit.search.search_pipe_step import SearchPipeStep
from runnerkit.search.train_pipe_step import TrainPipeStep

__all__ = [
    'CALLBACKS',
    'Accuracy',
    'BenchmarkPipeStep',
    'Callback',
    'ClassFactory',
    'ClassType',
    'Codec',
    'General',
    'Generator',
    'MetricBase',
    'Metrics',
    'ModelStatistics',
    'NetTypes',
    'Network',
    'NetworkDesc',
    'NetworkFactory',
    'PipeStep',
    'Pipeline',
    'Proposal',
    'ReportClient',
    'ReportRecord',
    'ReportServer',
    'SearchAlgorithm',
    'SearchPipeStep',
    'SearchSpace',
    'TrainPipeStep',
    'VegaCallbacks',
    'accuracy',
    'calc_model_flops_params',
    'is_tf_backend',
    'is_torch_backend',
    'run',
]


def run(config: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None = None) -> Report:
    """Do the steps of a pipeline; see `runnerkit.search.pipeline.Pipeline`."""
    return Pipeline(config, work_dir).run()


def is_torch_backend() -> bool:
    """True: PyTorch is the only backend."""
    return True


def is_tf_backend() -> bool:
    """False: TensorFlow is not supported."""
    return False
