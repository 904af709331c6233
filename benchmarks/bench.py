"""runnerkit beside the plain loop and its peers, in CPU time, start-up and memory: writes RESULTS.md.

    make bench                                       # builds the peers' environments first; about 25 minutes
    make bench ENGINES='plain runnerkit mmcv' ROUNDS=3
    make bench QUICK=1                               # a few minutes, to see that all works: its figures say nothing

Every training is a process of its own, in its engine's environment (`speed/worker.py`). First each one trains once,
untimed, and must end with the weights of the plain loop. Then, round by round, all train again in a new order, the
plain loops twice. An engine that cannot be installed, fails, or ends with other weights is reported as such.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speed import machine
from speed.report import report

HERE = Path(__file__).resolve().parent
KINDS = {
    'plain': ('epoch', 'iter'),
    'runnerkit': ('epoch', 'iter'),
    'mmcv': ('epoch', 'iter', 'epoch parallel', 'iter parallel'),
    'mmengine': ('epoch', 'iter'),
    'lightning': ('epoch',),
    'ignite': ('epoch',),
    'accelerate': ('epoch',),
}
ROWS = ('loops', 'modules', 'log_event', 'adamw', 'clipping', 'loading', 'long_run')
SCRATCH = HERE.parent / 'work_dirs' / 'bench'  # raw figures, and what a quick run writes
SAME = 1e-6  # how far a weight may be from the plain loop's


@dataclass(frozen=True)
class Entry:
    """One way to do a job."""

    engine: str
    kind: str
    default_like: bool
    job: str = 'tiny'


class Failed(Exception):
    """A training that cannot be measured; says why in a line."""


@dataclass
class Bench:
    """Starts the processes.

    Args:
        environments: the folder with a virtual environment for each peer.
        folder: where runs may write.
        sizes: of each job, as `speed.worker.Task` takes them.
    """

    environments: Path
    folder: Path
    sizes: dict[str, dict[str, int]]

    def train(self, entry: Entry, **options: Any) -> dict[str, Any]:
        """Train once, in a process of its own."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            reference = str(self.folder / f'{entry.job}_{entry.default_like}.pt')
            task = {**asdict(entry), **self.sizes[entry.job], 'folder': place, 'reference': reference, **options}
            result = self.start(entry.engine, 'speed.worker', json.dumps({**task, 'started': time.time()}))
        if not result['difference'] <= SAME:  # NaN is no number of any size
            raise Failed(f'ends with weights that differ by {result["difference"]:.1e}')
        return result

    def start(self, engine: str, *command: str) -> dict[str, Any]:
        """Run a module of ``speed`` in the environment of ``engine``."""
        paths = os.pathsep.join([str(HERE), str(HERE.parent)])  # this checkout, whatever is installed
        environment = {**os.environ, 'PYTHONPATH': paths, 'OMP_NUM_THREADS': '1', 'PYTHONHASHSEED': '0'}
        environment.pop('PYTHONDONTWRITEBYTECODE', None)  # pip has compiled the peers, and nobody this package
        command = (self.python(engine), '-m', *command)
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
        except subprocess.TimeoutExpired as error:
            raise Failed('takes more than 15 minutes') from error
        if done.returncode != 0:
            raise Failed((done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1])
        return json.loads(done.stdout.splitlines()[-1])

    def python(self, engine: str) -> str:
        """Its interpreter.

        Raises:
            Failed: there is none; says why it could not be installed.
        """
        if engine in ('plain', 'runnerkit'):
            return sys.executable
        place = self.environments / engine
        if not (place / '.done').exists():
            raise Failed(f'not installed: {why(place / "install.log")}')
        return str(place / 'bin' / 'python')


def why(log: Path) -> str:
    """The first error of pip's log."""
    if not log.exists():
        return 'make bench has not tried to'
    lines = [line.strip() for line in log.read_text().splitlines() if line.strip()]
    return next((line for line in lines if line.startswith('ERROR')), lines[-1] if lines else 'no message')


def prepare(bench: Bench, entries: list[Entry]) -> tuple[dict[Entry, dict[str, Any]], dict[Entry, str]]:
    """Train the tiny job once in every way: what each has counted, and why some will not be measured."""
    for job in bench.sizes:
        for default_like, kind in ((False, 'epoch'), (True, 'reference')):
            bench.train(Entry('plain', kind, default_like, job), writes_reference=True)
    counted, failed = {}, {}
    for entry in entries:
        if entry.job == 'tiny':
            try:
                counted[entry] = bench.train(entry, calls=True)
            except Failed as error:
                failed[entry] = str(error)
            say(f'checked {entry.engine}, {entry.kind}: {failed.get(entry, "ok")}')
    return counted, failed


def bare(entry: Entry) -> Entry:
    """The plain loop of the same kind, with which ``entry`` is compared."""
    return Entry('plain', entry.kind.split()[0], False, entry.job)


def measure(
    bench: Bench, entries: list[Entry], rounds: int, failed: dict[Entry, str]
) -> dict[Entry, list[list[dict[str, Any]]]]:
    """What each entry took, in each round once; the plain loops twice. What fails now leaves, too."""
    taken: dict[Entry, list[list[dict[str, Any]]]] = {entry: [] for entry in entries if entry not in failed}
    for turn in range(rounds):
        order = [*taken, *(entry for entry in taken if entry == bare(entry))]
        random.Random(turn).shuffle(order)
        for each in taken.values():
            each.append([])
        for entry in order:
            try:
                taken[entry][-1].append(bench.train(entry))
            except Failed as error:
                if entry == bare(entry):
                    raise
                failed[entry] = f'in round {turn + 1}: {error}'
                del taken[entry]
        say(f'round {turn + 1} of {rounds}')
    return taken


def say(text: str) -> None:
    print(f'{time.strftime("%H:%M:%S")} {text}', flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--environments', type=Path, default=Path('.venv/bench'), help='a folder of one for each peer')
    parser.add_argument('--engines', nargs='+', default=list(KINDS), choices=list(KINDS))
    parser.add_argument('--rounds', type=int, help='5; with --quick 1')
    parser.add_argument('--quick', action='store_true', help='as short as can be: to see that all works')
    parser.add_argument('--rows', nargs='*', default=list(ROWS), choices=ROWS, help='the closer looks at runnerkit')
    parser.add_argument('--jobs', nargs='+', default=['tiny', 'digits'], choices=['tiny', 'digits'])
    parser.add_argument('--out', type=Path, help='a folder; benchmarks, and with --quick work_dirs/bench')
    args = parser.parse_args()
    args.engines = list(dict.fromkeys(['plain', *args.engines]))  # nothing is measured without it
    args.rounds = args.rounds or (1 if args.quick else 5)
    args.out = args.out or (SCRATCH if args.quick else HERE)
    return args


def main() -> None:
    args = arguments()
    began = time.time()
    found = machine.describe(HERE.parent)
    tiny = {'epochs': 4, 'length': 1000, 'warmup': 250}
    sizes = {'tiny': {**tiny, **({'epochs': 2} if args.quick else {})}, 'digits': {'epochs': 1 if args.quick else 6}}
    entries = [
        *(
            Entry(engine, kind, default_like)
            for engine in args.engines
            for kind in KINDS[engine]
            for default_like in (False, True)
            if 'tiny' in args.jobs and not (engine == 'plain' and default_like)
        ),
        *(Entry(engine, 'epoch', engine != 'plain', 'digits') for engine in args.engines if 'digits' in args.jobs),
    ]
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.environments, Path(folder), {job: sizes[job] for job in args.jobs})
        counted, failed = prepare(bench, entries)
        taken = measure(bench, entries, args.rounds, failed)
        for row in args.rows if 'runnerkit' in args.engines else ():
            options = {'folder': folder, 'rounds': args.rounds}
            if args.quick:
                options.update(warmup=20, measured=100, long=20_000)
            try:
                rows[row] = bench.start('runnerkit', 'speed.rows', row, json.dumps(options))
                say(f'measured {row}')
            except Failed as error:
                say(f'{row} is left out: {error}')
    results = {
        'machine': found,
        'quick': args.quick,
        'rounds': args.rounds,
        'minutes': (time.time() - began) / 60,
        'sizes': sizes,
        'entries': [
            {
                **asdict(entry),
                'failed': failed.get(entry),
                'counted': counted.get(entry),
                'rounds': taken.get(entry, []),
            }
            for entry in entries
        ],
        'rows': rows,
    }
    for place in (SCRATCH, args.out):
        place.mkdir(parents=True, exist_ok=True)
    (SCRATCH / 'results.json').write_text(json.dumps(results, indent=1), encoding='utf-8')
    (args.out / 'RESULTS.md').write_text(report(results), encoding='utf-8')
    print(args.out / 'RESULTS.md')


if __name__ == '__main__':
    main()
