"""A small study that many tests share, and running it in a process that is killed."""

import importlib.util
import os
import sys
import time
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
        lr = job.overrides['optimizer.lr']
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


def in_process(path, name, *args):
    """Call a function of a test file in a process of its own, and wait for its end: its exit code."""
    process = _begun(path, name, args)
    process.join(600)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def kills_on_the_way(path, name, folder, whole, seconds, rng, times):
    """Call a function with ``folder``, and kill its process at random moments, until it ends by itself.

    A moment is known by the number of files in ``folder``, not by seconds, which mean little on a busy machine; what
    comes between two files, by a part of the seconds that an undisturbed call takes for one.

    Args:
        path: of the test file.
        name: of the function.
        folder: what the function gets, and writes to.
        whole: the folder of an undisturbed call.
        seconds: that the undisturbed call has taken.
        rng: draws the moments.
        times: how many processes at most are begun.

    Returns:
        How many were killed.
    """
    for kills in range(times):
        process, most = _begun(path, name, (str(folder),)), number_of_files(whole)
        enough, pause = number_of_files(folder) + int(rng.uniform(0, 0.4) * most), rng.uniform(0, seconds / most)
        while process.is_alive() and number_of_files(folder) < enough:
            time.sleep(0.002)
        process.join(pause)
        process.kill()
        process.join()
        if process.exitcode == 0:
            return kills
    return times


def number_of_files(folder):
    """In ``folder`` and below."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _begun(path, name, args):
    process = torch.multiprocessing.get_context('forkserver').Process(target=_call, args=(path, name, args))
    process.start()
    return process


def _call(path, name, args):
    sys.path.insert(0, str(Path(__file__).parent))
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location('in_process', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, name)(*args)
