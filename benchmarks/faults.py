"""Kill trainings at random moments, resume them until they are done, and compare them with uninterrupted ones.

    python benchmarks/faults.py                     # 200 kills over all cells; some minutes
    python benchmarks/faults.py --kills 10 --cells 5
    python benchmarks/faults.py --list              # the cells
    python benchmarks/faults.py --loaders           # the table of loader_kinds.py: exact and silent, or with a warning
    python benchmarks/faults.py --loaders 'stream, 2 workers' 'prefetcher'
    python benchmarks/faults.py --ranks 20          # one of two ranks is killed, 20 times, under torchrun
    python benchmarks/faults.py --ranks 20 --wrapper FSDP2

A cell is a training run with one value of each dimension of `kills/cells.py`. Every pair of values that can occur
together is in at least one cell. A run is a process forked from this one (which has imported everything). It is killed
by SIGKILL after a random time, and restarted to resume by itself, until it is complete. It must end with the same bits
as an uninterrupted run: weights, averages, optimizer states, random states, hooks' states, the best score, and every
line of the log, each once. No checkpoint under its real name may be damaged at any time.

With ``--loaders`` the trainings are those of loader_kinds.py, each killed at chosen moments. They must end with the
bits of an uninterrupted run, or the resumed run must have warned that they may not.

With ``--ranks`` a training run on two ranks starts under torchrun's agent. One of the ranks is killed at a random
moment. The agent ends the other one and restarts both, and they resume by themselves. The run must end with the
weights, the optimizer's state and the log of an uninterrupted one, and leave no process behind. ``--wrapper`` names the
model's wrapper; under FSDP2 all checkpoints are folders, to which both ranks write.
"""

import argparse
import os
import sys
import time

os.environ.setdefault('OMP_NUM_THREADS', '1')

from kills.at_random import prove
from kills.attempts import warm_up
from kills.cells import cells, name_of
from kills.loaders import prove_loaders
from kills.ranks import prove_ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--kills', type=int, default=200, help='how many at least')
    parser.add_argument('--kills-per-run', type=int, default=4)
    parser.add_argument('--cells', type=int, help='only this many cells, from the first one')
    parser.add_argument('--seed', type=int, default=0, help='the seed of the moments of the kills')
    parser.add_argument('--list', action='store_true', help='print the cells and stop')
    parser.add_argument('--loaders', nargs='*', metavar='KIND', help='try these kinds of loaders, or all, instead')
    parser.add_argument('--moments', nargs='*', default=(), help='kill them at these moments only')
    parser.add_argument('--ranks', type=int, metavar='N', help='kill one of two ranks under torchrun, N times, instead')
    parser.add_argument('--wrapper', choices=['DDP', 'FSDP2'], default='DDP', help='model wrapper, with --ranks')
    args = parser.parse_args()
    if args.ranks is not None:
        warm_up([])
        return int(prove_ranks(args.ranks, args.seed, args.wrapper) > 0)
    if args.loaders is not None:
        warm_up([])
        return int(prove_loaders(args.loaders, args.moments) > 0)
    chosen = cells()[: args.cells]
    for i, cell in enumerate(chosen):
        print(f'{i:3}: {name_of(cell)}')
    if args.list:
        return 0
    warm_up(chosen)
    started = time.monotonic()
    tally = prove(chosen, args.kills, args.kills_per_run, args.seed)
    print(
        f'{len(chosen)} cells, {tally.runs} runs, {tally.kills} kills ({tally.fresh} before there was a checkpoint), '
        f'{len(tally.differing)} runs that ended differently, {len(tally.damaged)} damaged files of {tally.files} '
        f'looked at, {time.monotonic() - started:.0f} s'
    )
    print('\n'.join(tally.damaged))
    return int(bool(tally.differing or tally.damaged or tally.kills < args.kills))


if __name__ == '__main__':
    sys.exit(main())
