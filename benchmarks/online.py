"""Kill a training run on a stream at random moments, and check that each event was trained on once.

    python benchmarks/online.py --kills 20

A server sends MovieLens ratings (configs/online/serve.py), one process trains (configs/online/clicks.py), a third sends
commands (runnerkit ctl), and this one kills the training with SIGKILL. In the end every rating must have been trained
on once, the weights must be those of an undisturbed run bit for bit, and at every kill the acknowledged ratings must
have been in the newest checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runnerkit.checkpoint import find_latest_checkpoint  # noqa: E402
from runnerkit.cli.main import main as runnerkit  # noqa: E402
from runnerkit.utils.control import read_address  # noqa: E402
from runnerkit.utils.logging import close_logger  # noqa: E402

CONFIG = ROOT / 'configs' / 'online' / 'clicks.py'


def serve(folder: Path, events: int, rate: float) -> tuple[subprocess.Popen[str], str]:
    """A server in a separate process: the process, and its URL."""
    words = [sys.executable, str(ROOT / 'configs/online/serve.py'), '--port', '0', '--events', str(events)]
    words += ['--rate', str(rate), '--acknowledged', str(folder / 'acknowledged')]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().split(' at ')[1].strip()


def train(work_dir: Path, url: str) -> int:
    """Train in a fork, which need not import torch again; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(work_dir.parent / f'{work_dir.name}.out', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        close_logger('runnerkit')
        torch.set_num_threads(1)
        options = ['--auto-resume', '--device', 'cpu', '--cfg-options', f'data.train.source.url={url}']
        code = runnerkit(['train', str(CONFIG), '--work-dir', str(work_dir), *options])
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code of a process that ends within ``seconds``, negative for a signal; else None."""
    end = time.monotonic() + seconds
    while True:
        if has_ended(pid):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def has_ended(pid: int) -> bool:
    """Whether the process has ended; `ended` can still be asked."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def command(work_dir: Path, *words: str) -> subprocess.Popen[bytes]:
    """Send a command from a third process; it may come too early, or too late."""
    asked = [sys.executable, '-m', 'runnerkit', 'ctl', str(work_dir), *words, '--timeout', '10']
    own = {**os.environ, 'PYTHONPATH': str(ROOT)}
    return subprocess.Popen(asked, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def acknowledged(folder: Path) -> int:
    """The number of acknowledged ratings; offsets never decrease."""
    path = folder / 'acknowledged'
    offsets = [int(line) for line in path.read_text().split()] if path.exists() else []
    if offsets != sorted(offsets):
        raise RuntimeError(f'acknowledged offsets went back: {offsets}')
    return offsets[-1] + 1 if offsets else 0


def times_in(work_dir: Path) -> torch.Tensor:
    """How often each rating was trained on, by the newest checkpoint."""
    found = find_latest_checkpoint(work_dir)
    if found is None:
        return torch.zeros(100_000, dtype=torch.int32)
    return torch.load(found, weights_only=True)['state_dict']['times']


def undisturbed(folder: Path, events: int) -> Path:
    """Train on all events at once; the work dir."""
    server, url = serve(folder, events, 1e9)
    try:
        check_code(ended(train(folder / 'whole', url), 600), folder / 'whole')
    finally:
        server.kill()
        server.communicate()
    (folder / 'acknowledged').unlink()
    return folder / 'whole'


def live(work_dir: Path, url: str, seconds: float, words: list[str] | None, from_start: bool) -> tuple[int, list[str]]:
    """Train for a while, and send a command in the middle.

    Args:
        work_dir: the training's work dir.
        url: the server's URL.
        seconds: the duration.
        words: the command.
        from_start: whether the start of the process counts, which takes seconds on a busy machine.

    Returns:
        the exit code, and the command if it was executed.
    """
    pid = train(work_dir, url)
    while not from_start and read_address(work_dir).get('pid') != pid and not has_ended(pid):
        time.sleep(0.005)
    code, asking = ended(pid, seconds / 2), []
    if code is None and words is not None:
        asking = [command(work_dir, *words)] + [command(work_dir, 'resume')] * (words == ['pause'])
    code = ended(pid, seconds / 2) if code is None else code
    if code is None:
        os.kill(pid, signal.SIGKILL)
        code = ended(pid, 60)
    answers = [(each.communicate()[0], each.returncode) for each in asking]
    return check_code(code, work_dir), [words[0]] if answers and answers[0][1] == 0 else []


def check_code(code: int | None, work_dir: Path) -> int:
    """The exit code of a training that has succeeded or was killed."""
    if code not in (0, -signal.SIGKILL):
        said = work_dir.parent / f'{work_dir.name}.out'
        raise RuntimeError(f'the training failed ({code}): {said.read_text()[-2000:]}')
    return code


def check_once(folder: Path, times: torch.Tensor) -> None:
    """Whether all acknowledged ratings are in the newest checkpoint, and none is in it twice."""
    done = acknowledged(folder)
    if times[:done].ne(1).any() or times.gt(1).any():
        raise RuntimeError(f'{done} ratings are acknowledged, and trained on {times[:done].tolist()} times')


def check_same(whole: Path, killed: Path, events: int) -> None:
    """Whether both have the same weights, and each rating was trained on once."""
    one, other = (
        torch.load(find_latest_checkpoint(folder), weights_only=True)['state_dict'] for folder in (whole, killed)
    )
    if other['times'][:events].ne(1).any():
        raise RuntimeError('a rating was lost or trained on twice')
    different = [name for name in one if not torch.equal(one[name], other[name])]
    if different:
        raise RuntimeError(f'the weights differ from those of the undisturbed run: {different}')


def prove(folder: Path, kills: int, events: int, rate: float, seed: int = 0, longest: float = 2.0) -> dict[str, object]:
    """Train undisturbed and with kills, and compare.

    Args:
        folder: an empty folder.
        kills: the number of kills.
        events: the number of ratings.
        rate: the largest number of ratings per second.
        seed: the seed of the moments.
        longest: the longest life of a training in seconds before its kill. Every fourth one is measured from the start
            of its process, the others from the moment when they can be controlled.

    Raises:
        RuntimeError: an event was lost, trained on twice, or acknowledged too early.
    """
    draw, work_dir = random.Random(seed), folder / 'killed'
    obeyed, places, killed, code = [], [], 0, -signal.SIGKILL
    whole = undisturbed(folder, events)
    server, url = serve(folder, events, rate)
    try:
        while code != 0:
            seconds = longest * draw.random() if killed < kills else 600.0
            words = draw.choice((['pause'], ['save'], ['status'], ['lr', '0.1'])) if killed < kills else None
            code, done = live(work_dir, url, seconds, words, from_start=killed % 4 == 3)
            obeyed += done
            killed += code != 0
            times = times_in(work_dir)
            places.append(int(times.sum()))
            check_once(folder, times)
    finally:
        server.kill()
        server.communicate()
    if killed < kills:
        raise RuntimeError(f'the training was over after {killed} of {kills} kills: give more events')
    check_same(whole, work_dir, events)
    return {
        'kills': killed,
        'events': events,
        'acknowledged': acknowledged(folder),
        'in the checkpoint after each start': places,
        'commands that were obeyed': {name: obeyed.count(name) for name in sorted(set(obeyed))},
        'weights': 'bit-identical to those of the undisturbed run, each rating trained on once',
    }


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument('--kills', type=int, default=20)
    parse.add_argument('--events', type=int, default=30_000)
    parse.add_argument('--rate', type=float, default=1000.0)
    parse.add_argument('--seed', type=int, default=0)
    args = parse.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(prove(Path(folder), args.kills, args.events, args.rate, args.seed), indent=1))


if __name__ == '__main__':
    main()
