"""Compare whole commands, from start to exit, in turns: CPU seconds with those of child processes, and the wall clock.

    python benchmarks/whole.py [--rounds 6] [--only lenet]

Each round runs the commands of a job once, in another order. Warm byte code: one round before is not counted. The jobs
of loops tell the CPU seconds of their loop themselves.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHOLE = ROOT / 'benchmarks' / 'whole'
TRAIN = ['-m', 'runnerkit', 'train', 'configs/mnist/lenet.py', '--cfg-options', 'runner.max_epochs=3']
JOBS = {
    'lenet': {
        'by hand': [str(WHOLE / 'lenet_by_hand.py'), '{work_dir}'],
        'by config': [*TRAIN, '--work-dir', '{work_dir}'],
        'by config, without a report': [*TRAIN, 'report=False', '--work-dir', '{work_dir}'],
    },
    **{
        f'{name} loop': {
            kind: [str(WHOLE / 'loops.py'), name, kind, '{work_dir}'] for kind in ('plain', 'loop', 'silent')
        }
        for name in ('tiny', 'lenet')
    },
}


def timed(command, tells):
    """CPU seconds (of the loop, if the command ``tells`` them) and wall seconds of one process."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, *(word.format(work_dir=f'{folder}/run') for word in command)]
        environ = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}
        before, began = os.times(), time.monotonic()
        done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True)
        after, wall = os.times(), time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f'{words} ended with {done.returncode}:\n{done.stderr}')
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return (float(done.stdout.splitlines()[-1]) if tells else children), wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=6)
    parser.add_argument('--only', choices=JOBS)
    options = parser.parse_args()
    for job, commands in JOBS.items():
        if options.only in (None, job):
            seen = {name: [] for name in commands}
            for number in range(options.rounds + 1):
                for name in random.sample(list(commands), len(commands)):
                    taken = timed(commands[name], tells='loop' in job)
                    seen[name] += [taken] if number else []
            first = next(iter(seen.values()))
            for name, taken in seen.items():
                ratios = sorted(one[0] / base[0] for one, base in zip(taken, first, strict=True))
                middle = [statistics.median(column) for column in zip(*taken, strict=True)]
                row = {'job': job, 'way': name, 'cpu': round(middle[0], 3), 'wall': round(middle[1], 2)}
                row |= {'ratio': round(statistics.median(ratios), 3), 'from': round(ratios[0], 3)}
                print(json.dumps({**row, 'to': round(ratios[-1], 3)}), flush=True)


if __name__ == '__main__':
    main()
