"""The trainings of cells, killed at random moments until they are complete."""

import pickle
import random
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from kills.attempts import Attempt, differences
from kills.cells import go_on, name_of

from runnerkit.checkpoint import find_latest_checkpoint, why_damaged


def undisturbed(cell, folder, seconds=60):
    """The result of an undisturbed run, and its duration."""
    attempt = Attempt(partial(go_on, cell), folder, 'whole')
    if attempt.kill_after(seconds) or not attempt.result.exists():
        raise RuntimeError(f'the undisturbed run of [{name_of(cell)}] failed:\n{attempt.errors.read_text()[-3000:]}')
    return pickle.loads(attempt.result.read_bytes()), time.monotonic() - attempt.started


class Tally:
    """The results so far."""

    def __init__(self):
        self.runs = self.kills = self.fresh = self.files = 0
        self.damaged, self.differing = [], []


def disturbed(cell, folder, name, kills, duration, draw, tally):
    """The result of a run that is killed up to ``kills`` times."""
    while True:
        attempt = Attempt(partial(go_on, cell), folder, name)
        killed = attempt.kill_after(draw.uniform(0, duration) if kills > 0 else 60)
        tally.damaged += [f'{path}: {why}' for path in checkpoints(folder / name, tally) if (why := why_damaged(path))]
        if not killed:
            break
        kills -= 1
        tally.kills += 1
        tally.fresh += find_latest_checkpoint(folder / name) is None
    if not attempt.result.exists():
        return {'error': attempt.errors.read_text()[-2000:]}
    return pickle.loads(attempt.result.read_bytes())


def checkpoints(work_dir, tally):
    """The files that a resume could choose; a dangling link counts as damaged."""
    found = [path for path in work_dir.glob('*.pth') if path.is_symlink() or path.is_file()]
    tally.files += len(found)
    return found


def prove(chosen, kills, kills_per_run=4, seed=0):
    """Cycle through the cells until this many kills; return the tally."""
    draw, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory(prefix='faults-') as temporary:
        folders = [Path(temporary) / str(i) for i in range(len(chosen))]
        wholes = []
        for cell, folder in zip(chosen, folders, strict=True):
            folder.mkdir()
            wholes.append(undisturbed(cell, folder))
        turn = 0
        while tally.kills < kills:
            turn += 1
            for cell, folder, (whole, duration) in zip(chosen, folders, wholes, strict=True):
                found = disturbed(cell, folder, f'killed{turn}', kills_per_run, duration, draw, tally)
                tally.runs += 1
                different = differences(whole, found)
                if different:
                    tally.differing.append(name_of(cell))
                    print(f'DIFFERENT {different}: {name_of(cell)}\n{found.get("error", "")}', flush=True)
                else:
                    shutil.rmtree(folder / f'killed{turn}')
    return tally
