"""A small study that many tests share, and running it in a process that is killed."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import torch
from plans import CONFIG

from runnerkit.config import Config
from runnerkit.search.executors import Ended, SerialExecutor
from runnerkit.search.job import Result
from runnerkit.search.study import Study


class Line:
    """A space of two values."""

    def draw(self, suggest):
        return {
            'optimizer.lr': suggest.suggest_float('optimizer.lr', 1e-3, 1e-1, log=True),
            'data.samples_per_gpu': suggest.suggest_categorical('data.samples_per_gpu', [2, 4, 8]),
        }


def config_file(folder, **changes):
    path = Path(folder) / 'config.py'
    Config({**CONFIG, **changes}).dump(str(path))
    return path


def small_study(folder, algorithm=None, space=None, **options):
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / 'config.py'
    if not path.exists():
        config_file(folder)
    algorithm = {'type': 'TPE', 'trials': 5, 'pruner': 'ASHA', **(algorithm or {})}
    return Study(path, space or Line(), {'error': 'min'}, Path(folder) / 'study', algorithm, seed=3, **options)


class AtOnce(SerialExecutor):
    """Trains nothing: each job reports three epochs, whose error its values decide."""

    def start(self, job, report):
        lr = job.overrides.get('optimizer.lr', 0.01)  # a rehearsal has none
        for epoch in (1, 2, 3):
            scores = {'error': abs(lr - 0.01) + 0.1 / epoch, 'loss': lr}
            if report(epoch, scores):
                self._ended.append(Ended(job, Result('pruned', scores, step=epoch)))
                return
        self._ended.append(Ended(job, Result('completed', scores, step=3)))


def outcome(report):
    """What two runs of a study must agree on."""
    return [
        (each.number, each.status, each.hps, each.performance, each.epoch, each.seed) for each in report.all_records
    ]


def in_process(path, name, *args, kill_after=None):
    """Call a function of a test file in a process of its own; with ``kill_after``, kill it after so many seconds."""
    process = torch.multiprocessing.get_context('forkserver').Process(target=_call, args=(path, name, args))
    process.start()
    process.join(600 if kill_after is None else kill_after)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode


def _call(path, name, args):
    sys.path.insert(0, str(Path(__file__).parent))
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location('in_process', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, name)(*args)
