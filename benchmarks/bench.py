"""Compare runnerkit with the plain loop and its peers in CPU time, start-up and memory, and write RESULTS.md.

    make bench                                       # builds the peers' environments first; about 25 minutes
    make bench ENGINES='plain runnerkit mmcv' ROUNDS=3
    make bench QUICK=1                               # a few minutes, to check that it works; its figures mean nothing
    python benchmarks/bench.py --calls               # only runnerkit's calls of Python functions in an iteration

Every training is a separate process, in its engine's environment (`speed/worker.py`). First each one trains once
without timing, and must end with the weights of the plain loop. Then all train again, round by round, the plain loops
twice. They start one after another, wait for each other once they are warm, and then take turns, so that other load on
the machine affects all of them alike (28 processes, about 9 GiB). An engine that cannot be installed, fails, or ends
with other weights is reported as such. The report is rewritten after each round of a job and each closer look, so an
interrupted run keeps its results so far.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from speed import machine
from speed.report import NOT_YET, report

HERE = Path(__file__).resolve().parent
KINDS = {
    'plain': ('epoch', 'iter'),
    'expert': ('epoch', 'iter'),
    'runnerkit': ('epoch', 'iter'),
    'mmcv': ('epoch', 'iter', 'epoch parallel', 'iter parallel'),
    'mmengine': ('epoch', 'iter'),
    'lightning': ('epoch',),
    'ignite': ('epoch',),
    'accelerate': ('epoch',),
}
NO_WAY = {('plain', True), ('expert', False)}  # the plain loop has no additions, and is the minimal hand-written loop
OWN = ('plain', 'expert', 'runnerkit')  # in the environment of this script
ROWS = ('loops', 'first_step', 'epoch_end', 'modules', 'log_event', 'adamw', 'clipping', 'loading', 'long_run')
SCRATCH = HERE.parent / 'work_dirs' / 'bench'  # raw figures, and the output of a quick run
SAME = 1e-6  # the largest difference of a weight from the plain loop's


@dataclass(frozen=True)
class Entry:
    """One way to do a job."""

    engine: str
    kind: str
    default_like: bool
    job: str = 'tiny'


class Failed(Exception):
    """A training run that cannot be measured; the message is one line."""


class Process:
    """A process that prints the line ``turn`` and waits, any number of times, and then prints its result.

    Args:
        command: the command line.
        environment: its environment variables.
        patience: the longest time without output, in seconds.
    """

    def __init__(self, command: list[str], environment: dict[str, str], patience: float = 900) -> None:
        self._patience = patience
        self._errors = tempfile.TemporaryFile('w+')  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def go_on(self) -> None:
        """Give it its turn."""
        with contextlib.suppress(BrokenPipeError):  # it has died: `read` reports the reason
            self._process.stdin.write('\n')
            self._process.stdin.flush()

    def read(self) -> dict[str, Any] | None:
        """Wait for its next output: its result, or None if its turn is over.

        Raises:
            Failed: it has died, or prints nothing.
        """
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._process.kill()

        watch = threading.Timer(self._patience, give_up)
        watch.daemon = True
        watch.start()
        try:
            line = self._process.stdout.readline()
            if line == 'turn\n':
                return None
            code = self._process.wait()
        finally:
            watch.cancel()
        if is_late.is_set():
            raise Failed(f'prints nothing for {self._patience / 60:.0f} minutes')
        if code != 0:
            self._errors.seek(0)
            raise Failed((self._errors.read().strip().splitlines() or [f'exit code {code}'])[-1])
        try:
            return json.loads(line)
        except json.JSONDecodeError as error:
            raise Failed(f'ends with {line!r} instead of a result') from error


def checked(result: dict[str, Any]) -> dict[str, Any]:
    """Return ``result`` if its training ended with the right weights.

    Raises:
        Failed: it has ended with other weights.
    """
    if not result['difference'] <= SAME:  # NaN compares as neither
        raise Failed(f'ends with weights that differ by {result["difference"]:.1e}')
    return result


@dataclass
class Bench:
    """Starts the processes.

    Args:
        environments: the folder with a virtual environment for each peer.
        folder: the folder for files of runs.
        sizes: the sizes of each job, as `speed.worker.Task` takes them.
    """

    environments: Path
    folder: Path
    sizes: dict[str, dict[str, int]]

    def train(self, entry: Entry, **options: Any) -> dict[str, Any]:
        """Train once, alone."""
        with self.begin(entry, **options) as process:
            return checked(process.read())

    def take_turns(self, entries: list[Entry], order: random.Random) -> list[tuple[Entry, dict[str, Any] | Failed]]:
        """Train all ``entries`` in turns, and return the costs of each, or why it failed."""
        ended: list[tuple[Entry, dict[str, Any] | Failed]] = []
        with contextlib.ExitStack() as stack:
            waiting: list[tuple[Entry, Process | None]] = [(entry, None) for entry in entries]  # None: not started
            while waiting:
                turn, waiting = waiting, []
                order.shuffle(turn)
                for entry, process in turn:
                    try:
                        if process is None:
                            process = stack.enter_context(self.begin(entry, turns=True))
                        else:
                            process.go_on()
                        result = process.read()
                        if result is None:
                            waiting.append((entry, process))
                        else:
                            ended.append((entry, checked(result)))
                    except Failed as error:
                        ended.append((entry, error))
        return ended

    @contextlib.contextmanager
    def begin(self, entry: Entry, **options: Any) -> Iterator[Process]:
        """A training run in a separate process."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            reference = str(self.folder / f'{entry.job}_{entry.default_like}.pt')
            size = self.sizes.get(entry.job, {})  # `first_steps` brings its own
            task = {**asdict(entry), **size, 'folder': place, 'reference': reference, **options}
            with self.start(entry.engine, 'speed.worker', json.dumps({**task, 'started': time.time()})) as process:
                yield process

    def start(self, engine: str, *command: str) -> Process:
        """Run a module of ``speed`` in the environment of ``engine``."""
        paths = os.pathsep.join([str(HERE), str(HERE.parent)])  # this checkout, whatever is installed
        environment = {**os.environ, 'PYTHONPATH': paths, 'OMP_NUM_THREADS': '1', 'PYTHONHASHSEED': '0'}
        environment.pop('PYTHONDONTWRITEBYTECODE', None)  # pip has compiled the peers, but not this package
        return Process([self.python(engine), '-m', *command], environment)

    def python(self, engine: str) -> str:
        """Its interpreter.

        Raises:
            Failed: it is not installed; the message says why.
        """
        if engine in OWN:
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
    """Train the tiny job once in every way; return the counts of each, and why some will not be measured."""
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
    """The plain loop of the same kind, which ``entry`` is compared with."""
    return Entry('plain', entry.kind.split()[0], False, entry.job)


def measure(
    bench: Bench, entries: list[Entry], rounds: int, failed: dict[Entry, str]
) -> Iterator[dict[Entry, list[list[dict[str, Any]]]]]:
    """The costs of each entry so far, once per round; the plain loops twice. Entries that fail now are dropped."""
    taken: dict[Entry, list[list[dict[str, Any]]]] = {entry: [] for entry in entries if entry not in failed}
    for number in range(rounds):
        order = random.Random(number)
        for job in bench.sizes:
            chosen = [entry for entry in taken if entry.job == job]
            for entry in chosen:
                taken[entry].append([])
            for entry, result in bench.take_turns([*chosen, *(one for one in chosen if one == bare(one))], order):
                if not isinstance(result, Failed):
                    taken[entry][-1].append(result)
                elif entry == bare(entry):
                    raise result
                else:
                    failed[entry] = f'in round {number + 1}: {result}'
                    del taken[entry]
            say(f'round {number + 1} of {rounds}, {job} job')
            yield taken


def first_steps(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Seconds from the start of a process to the end of its first iteration, of processes that alternate."""
    short = {'epochs': 2, 'length': 300, 'warmup': 150, 'reference': None}
    spent: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for engine in ('plain', 'runnerkit')[:: 1 if number % 2 else -1]:
            result = bench.train(Entry(engine, 'epoch', default_like=False), **short)
            for clock in ('cpu', 'wall') if number else ():  # the first round fills the caches
                spent.setdefault(f'{engine}, {clock}', []).append(result[f'startup_{clock}_s'])
    return spent


@dataclass
class Report:
    """All results so far.

    Args:
        folder: the folder of RESULTS.md.
        results: the figures, as `speed.report.report` takes them.
    """

    folder: Path
    results: dict[str, Any]
    began: float = field(default_factory=time.time)

    def write(self, **found: Any) -> None:
        """Rewrite it, with the new results ``found``."""
        self.results.update(found, minutes=(time.time() - self.began) / 60)
        texts = {
            SCRATCH / 'results.json': json.dumps(self.results, indent=1),
            self.folder / 'RESULTS.md': report(self.results),
        }
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix('.tmp')
            unfinished.write_text(text, encoding='utf-8')
            unfinished.replace(path)


def figures(
    entries: list[Entry],
    counted: dict[Entry, dict[str, Any]],
    failed: dict[Entry, str],
    taken: dict[Entry, list[list[dict[str, Any]]]],
) -> list[dict[str, Any]]:
    """The results of each entry."""
    return [
        {**asdict(entry), 'failed': failed.get(entry), 'counted': counted.get(entry), 'rounds': taken.get(entry, [])}
        for entry in entries
    ]


def say(text: str) -> None:
    print(f'{time.strftime("%H:%M:%S")} {text}', flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--environments', type=Path, default=Path('.venv/bench'), help='folder of the environments')
    parser.add_argument('--engines', nargs='+', choices=list(KINDS), help='all; with --calls runnerkit')
    parser.add_argument('--rounds', type=int, help='5; with --quick 1')
    parser.add_argument('--quick', action='store_true', help='a minimal run, to check that everything works')
    parser.add_argument('--calls', action='store_true', help='only count calls of Python functions in an iteration')
    parser.add_argument('--rows', nargs='*', default=list(ROWS), choices=ROWS, help='the closer looks at runnerkit')
    parser.add_argument('--jobs', nargs='+', default=['tiny', 'digits'], choices=['tiny', 'digits'])
    parser.add_argument('--out', type=Path, help='a folder; benchmarks, and with --quick work_dirs/bench')
    args = parser.parse_args()
    args.engines = args.engines or (['runnerkit'] if args.calls else list(KINDS))
    args.rounds = args.rounds or (1 if args.quick else 5)
    args.out = args.out or (SCRATCH if args.quick else HERE)
    return args


def ways(engines: list[str]) -> list[Entry]:
    """All ways to do the tiny job."""
    return [
        Entry(engine, kind, default_like)
        for engine in engines
        for kind in KINDS[engine]
        for default_like in (False, True)
        if (engine, default_like) not in NO_WAY
    ]


def count_calls(bench: Bench, entries: list[Entry]) -> None:
    """Print the number of Python calls in an iteration."""
    for entry in entries:
        calls = bench.train(entry, calls=True, reference=None)['calls']
        title = 'default-like' if entry.default_like else 'minimal'
        print(f'{entry.engine}, {entry.kind}, {title}: {calls:.2f}', flush=True)


def main() -> None:
    args = arguments()
    tiny = {'epochs': 2 if args.quick or args.calls else 4, 'length': 1000, 'warmup': 250}
    sizes = {'tiny': tiny, 'digits': {'epochs': 1 if args.quick else 6}}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.environments, Path(folder), {job: sizes[job] for job in args.jobs})
        if args.calls:
            count_calls(bench, ways(args.engines))
        else:
            compare(bench, args, sizes)


def compare(bench: Bench, args: argparse.Namespace, sizes: dict[str, dict[str, int]]) -> None:
    """Measure everything, and write each result at once."""
    engines = list(dict.fromkeys(['plain', *args.engines]))  # it is the reference for all others
    entries = ways(engines) if 'tiny' in args.jobs else []
    if 'digits' in args.jobs:
        entries += [Entry(engine, 'epoch', engine != 'plain', 'digits') for engine in engines]
    rows: dict[str, Any] = {}  # filled below, while `missing` is emptied
    missing = {row: NOT_YET for row in args.rows if 'runnerkit' in engines}
    wanted = {'quick': args.quick, 'wanted_rounds': args.rounds, 'sizes': sizes}
    found = Report(args.out, {'machine': machine.describe(HERE.parent), **wanted, 'rows': rows, 'missing': missing})
    counted, failed = prepare(bench, entries)
    found.write(entries=figures(entries, counted, failed, {}))
    for taken in measure(bench, entries, args.rounds, failed):
        found.write(entries=figures(entries, counted, failed, taken))
    for row in list(missing):
        options = {'folder': str(bench.folder), 'rounds': args.rounds}
        if args.quick:
            options.update(warmup=20, measured=100, long=20_000)
        try:
            if row == 'first_step':
                rows[row] = first_steps(bench, 1 if args.quick else 4 * args.rounds)
            else:
                with bench.start('runnerkit', 'speed.rows', row, json.dumps(options)) as process:
                    rows[row] = process.read()
            del missing[row]
            say(f'measured {row}')
        except Failed as error:
            missing[row] = str(error)
            say(f'{row} is left out: {error}')
        found.write()
    print(args.out / 'RESULTS.md')


if __name__ == '__main__':
    main()
