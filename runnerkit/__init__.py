"""A hook-driven training engine in the MMCV style, on today's PyTorch.

The packages; each imports only those above it::

    utils/          logging, environment, seeds, paths, `report`, `report_image`
    fileio/         load and dump by format, storages, files by URL
    registry.py     Registry, build_from_cfg
    config/         Config, ConfigDict, DictAction
    distributed/    launching, collectives, collecting results
    parallel/       model wrappers, batches in containers
    checkpoint/     saving atomically, loading without running code
    nn/             BaseModule, weight initialisation, Supervised
    optim/          optimizers and schedules by name, the update
    data/           loaders, samplers, seeded samples
    evaluation.py   predictions and scores
    log_buffer.py   values between two log lines
    log_files.py    the lines of a log
    hooks/          one behaviour per file
    runner/         EpochBasedRunner, IterBasedRunner
    flow/           the five stages of a run
    search/         spaces, algorithms, executors, pipelines
    cli/            what the tools call

    compat/         other systems' files and names, a room for each: mmcv, paddlerec, vega

The names below are imported at their first use, so that ``import runnerkit`` is fast. As in MMCV, the names of
`runnerkit.utils` and `runnerkit.fileio` are also available here.
"""

import sys
from typing import TYPE_CHECKING, Any

from runnerkit.utils.lazy import lazy_getattr
from runnerkit.version import __version__

if TYPE_CHECKING:  # what type checkers and editors see; at run time, `__getattr__` imports at first use
    from runnerkit.checkpoint import load_checkpoint as load_checkpoint
    from runnerkit.config import Config as Config
    from runnerkit.config import ConfigDict as ConfigDict
    from runnerkit.config import DictAction as DictAction
    from runnerkit.data import DATASETS as DATASETS
    from runnerkit.data import build_dataloader as build_dataloader
    from runnerkit.fileio import *  # noqa: F403 (as in MMCV)
    from runnerkit.flow import Context as Context
    from runnerkit.flow import Flow as Flow
    from runnerkit.flow import Options as Options
    from runnerkit.flow import TrainResult as TrainResult
    from runnerkit.flow import fit as fit
    from runnerkit.flow import loop as loop
    from runnerkit.flow import train as train
    from runnerkit.flow.moment.replay import replay as replay
    from runnerkit.flow.report.comparison import runs as runs
    from runnerkit.flow.use.export import export as export
    from runnerkit.flow.use.load import load_model as load_model
    from runnerkit.flow.use.predict import predict as predict
    from runnerkit.flow.use.publish import publish as publish
    from runnerkit.flow.use.testing import test as test
    from runnerkit.hooks import HOOKS as HOOKS
    from runnerkit.hooks import Hook as Hook
    from runnerkit.nn import MODELS as MODELS
    from runnerkit.optim import build_optimizer as build_optimizer
    from runnerkit.registry import Registry as Registry
    from runnerkit.registry import build_from_cfg as build_from_cfg
    from runnerkit.runner import EpochBasedRunner as EpochBasedRunner
    from runnerkit.runner import IterBasedRunner as IterBasedRunner
    from runnerkit.runner import build_runner as build_runner
    from runnerkit.search.study_page import write_report as write_report
    from runnerkit.utils import *  # noqa: F403 (as in MMCV)
    from runnerkit.utils.report import report as report
    from runnerkit.utils.report import report_image as report_image

__all__ = [
    'DATASETS',
    'HOOKS',
    'MODELS',
    'Config',
    'ConfigDict',
    'Context',
    'DictAction',
    'EpochBasedRunner',
    'Flow',
    'Hook',
    'IterBasedRunner',
    'Options',
    'Registry',
    'TrainResult',
    '__version__',
    'build_dataloader',
    'build_from_cfg',
    'build_optimizer',
    'build_runner',
    'export',
    'fit',
    'load_checkpoint',
    'load_model',
    'loop',
    'predict',
    'publish',
    'replay',
    'report',
    'report_image',
    'runs',
    'test',
    'train',
    'write_report',
]

__getattr__ = lazy_getattr(__name__)

#: Packages that are attributes without being imported explicitly.
_PARTS = (
    'checkpoint',
    'config',
    'data',
    'distributed',
    'fileio',
    'flow',
    'hooks',
    'nn',
    'optim',
    'parallel',
    'runner',
    'utils',
)


def __dir__() -> list[str]:
    """The names above and the packages; those of MMCV in `runnerkit.utils` and `runnerkit.fileio` are left out."""
    return sorted({*__all__, *_PARTS, *(name for name in globals() if name.startswith('__'))})


class _OtherPaths:
    """Python's last finder: at the first path below runnerkit that leads nowhere, it loads those of other systems."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        """What the finders that packages offer as ``runnerkit.paths`` say; None for other packages' modules."""
        if not name.startswith(f'{__name__}.') or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        from runnerkit.utils.lazy import EntryPoints

        offered = EntryPoints('runnerkit.paths')
        specs = (offered.load(package)().find_spec(name, path, target) for package in offered.names())
        return next((spec for spec in specs if spec is not None), None)


if _OtherPaths not in sys.meta_path:
    sys.meta_path.append(_OtherPaths)
