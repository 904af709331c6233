"""Measure the overhead of a study, and check that a killed study ends like an undisturbed one.

    python benchmarks/search.py costs     # milliseconds a trial, at trial 10, 100 and 1,000
    python benchmarks/search.py kills     # a study killed at 20 random moments

For the costs, an executor ends each trial at once, after a score in each of three epochs. This measures the algorithm,
its storage, the record, the report and the command line. The kills are SIGKILL to a study of wine.py (TPE
with ASHA, one trial after another) at random moments; at the end its trials, their values, scores and lengths must be
those of the undisturbed study.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runnerkit.search import Categorical, Float, Space  # noqa: E402
from runnerkit.search.executors import Ended, SerialExecutor  # noqa: E402
from runnerkit.search.job import Job, Report, Result  # noqa: E402
from runnerkit.search.study import Study  # noqa: E402

CONFIG = ROOT / 'configs' / 'tabular' / 'wine.py'
PROMISED = 50.0  # milliseconds a trial

SPACE = Space({'optimizer.lr': Float(1e-4, 1e-1, log=True), 'data.batch_size': Categorical([8, 16, 32])})

#: The algorithms to measure.
ALGORITHMS = {
    'RandomSearch': {'type': 'RandomSearch'},
    'TPE': {'type': 'TPE'},
    'TPE with ASHA': {'type': 'TPE', 'pruner': 'ASHA'},
}


class AtOnce(SerialExecutor):
    """Ends each job at once, with a score that depends on its values."""

    def start(self, job: Job, report: Report) -> None:
        """Report three epochs, unless the study prunes the trial."""
        lr = job.overrides['optimizer.lr']
        for epoch in (1, 2, 3):
            scores = {'accuracy': 1 - abs(lr - 0.01) - 0.1 / epoch}
            if report(epoch, scores):
                self._ended.append(Ended(job, Result('pruned', scores, step=epoch)))
                return
        self._ended.append(Ended(job, Result('completed', scores, step=3)))


def costs(folder: Path, algorithm: dict[str, Any], trials: int) -> list[tuple[float, float]]:
    """Milliseconds per trial, including the report and the records: wall time and CPU time."""
    moments: list[tuple[float, float]] = []

    class Timed(AtOnce):
        def start(self, job: Job, report: Report) -> None:
            moments.append((time.perf_counter(), time.process_time()))
            super().start(job, report)

    study = Study(CONFIG, SPACE, {'accuracy': 'max'}, folder, {**algorithm, 'trials': trials}, Timed(), seed=0)
    study.logger.setLevel('WARNING')
    study.run()
    moments.append((time.perf_counter(), time.process_time()))
    return [
        tuple(1000 * (late - early) for early, late in zip(before, after, strict=True))
        for before, after in pairwise(moments)
    ]


def table_of_costs(trials: int) -> str:
    """The costs of all algorithms, as a table."""
    places = [each for each in (10, 100, 1000) if each <= trials]
    lines = [
        'Milliseconds a trial (those of the CPU; the rest is waiting for the disk). Medians of ten trials.',
        '',
        '| algorithm | ' + ' | '.join(f'at trial {place:,}' for place in places) + ' | mean | most |',
        '| --- |' + ' ---: |' * (len(places) + 2),
    ]
    for name, algorithm in ALGORITHMS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = costs(Path(folder), algorithm, trials)
        wall, cpu = ([each[index] for each in found] for index in (0, 1))
        cells = [
            [*(median(values[max(0, place - 10) : place]) for place in places), sum(values) / len(values), max(values)]
            for values in (wall, cpu)
        ]
        shown = ' | '.join(f'{one:.1f} ({other:.1f})' for one, other in zip(*cells, strict=True))
        lines.append(f'| {name} | {shown} |')
    return '\n'.join(lines)


# --- kills -----------------------------------------------------------------------------------------------------------


def study_of_wines(folder: Path, trials: int) -> Study:
    """A study whose trials are real trainings of a second or less."""
    algorithm = {'type': 'TPE', 'pruner': {'type': 'ASHA', 'min_resource': 2}, 'trials': trials}
    changes = {'runner.max_epochs': 8, 'custom_hooks': [], 'checkpoint_config.interval': 1}
    return Study(CONFIG, SPACE, {'accuracy': 'max'}, folder, algorithm, seed=1, device='cpu', overrides=changes)


def outcome(study: Study) -> list[tuple[Any, ...]]:
    """The results that must be equal in two runs of a study."""
    return [
        (each.number, each.status, each.hps, each.performance, each.epoch, each.seed)
        for each in study.report.all_records
    ]


def in_fork(folder: Path, trials: int) -> int:
    """Run the study in a separate process; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        said = os.open(folder.parent / 'output.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        study_of_wines(folder, trials).run()
        code = 0
    finally:
        os._exit(code)


def lived(pid: int, seconds: float) -> bool:
    """Whether a process has succeeded within ``seconds``; else it is killed.

    Raises:
        RuntimeError: it has failed.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.002)
    else:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f'the study failed with the exit code {code}')
    return code == 0


def prove(folder: Path, kills: int, trials: int, seed: int = 0, longest: float | None = None) -> dict[str, Any]:
    """Run a study undisturbed and with kills, and compare.

    Args:
        folder: an empty folder.
        kills: the number of kills.
        trials: the number of trials.
        seed: the seed of the moments.
        longest: the longest life before a kill in seconds; None: chosen so that the kills are spread over the study.

    Raises:
        RuntimeError: the trials differ, or the study was over before all kills.
    """
    import torch

    torch.set_num_threads(1)
    whole = study_of_wines(folder / 'whole', trials)
    began = time.monotonic()
    whole.run()
    took = time.monotonic() - began
    longest = 1.2 * took / kills if longest is None else longest
    draw, records, killed = random.Random(seed), [], 0
    work_dir = folder / 'killed'
    while not lived(in_fork(work_dir, trials), draw.uniform(0.0, longest) if killed < kills else 600.0):
        killed += 1
        records.append(len([*work_dir.glob('trials/*/record.json')]))
    if killed < kills:
        raise RuntimeError(f'the study was over after {killed} of {kills} kills: give more trials')
    again = study_of_wines(work_dir, trials)
    again.run()
    different = [one for one, other in zip(outcome(whole), outcome(again), strict=True) if one != other]
    if different:
        raise RuntimeError(f'trials differ from those of the undisturbed study: {different}')
    statuses = [each.status for each in again.report.all_records]
    return {
        'kills': killed,
        'seconds undisturbed': round(took, 1),
        'trials begun at each kill': records,
        'trials': {status: statuses.count(status) for status in sorted(set(statuses))},
        'their values, scores, lengths and seeds': 'those of the undisturbed study',
    }


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument('what', choices=['costs', 'kills'])
    parse.add_argument('--trials', type=int, help='1,000 for costs, 24 for kills')
    parse.add_argument('--kills', type=int, default=20)
    parse.add_argument('--seed', type=int, default=0)
    args = parse.parse_args()
    if args.what == 'costs':
        print(table_of_costs(args.trials or 1000))
        return
    with tempfile.TemporaryDirectory() as folder:
        for key, value in prove(Path(folder), args.kills, args.trials or 24, args.seed).items():
            print(f'{key}: {value}')


if __name__ == '__main__':
    main()
