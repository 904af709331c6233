"""Measure entering the order of an epoch over a billion samples, compared with the list that randperm makes.

    python benchmarks/order.py [samples] [samples of the list]

Each line comes from a separate process: CPU seconds from a new sampler to its first index at a random position, the
largest growth of the process until then in MiB, and CPU seconds for a million indices from there. The list has 10**8
samples by default; its cost for a billion is extrapolated from that, since its size and time are proportional to the
number of samples.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path


def peak() -> float:
    """The most memory that this process has held so far, in MiB."""
    (line,) = (line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM'))
    return int(line.split()[1]) / 1024


def measure(order: str, samples: int) -> None:
    """Print what an order costs, as JSON."""
    import torch

    from runnerkit.data.sampler import EpochSampler, epoch_order

    torch.set_num_threads(1)
    for each in ('feistel', 'randperm'):  # load shared code once
        epoch_order(1000, 0, 0, order=each)
    before = peak()
    start = time.process_time()
    sampler = EpochSampler(range(samples), seed=1, order=order)
    sampler.set_epoch(3)
    sampler.start = random.randrange(samples - 10**6)
    indices = iter(sampler)
    next(indices)
    entered = time.process_time()
    grown = peak() - before
    count = sum(1 for _ in islice(indices, 10**6))
    print(json.dumps({'enter': entered - start, 'grown': grown, 'draw': (time.process_time() - entered) / count * 1e6}))


def main(samples: int = 10**9, listed: int = 10**8) -> None:
    """Measure in separate processes, and print the table."""
    print(f'{"order":<10}{"samples":>15}{"to enter, s":>15}{"MiB":>10}{"a million, s":>15}')
    for order, length in (('feistel', samples), ('feistel', listed), ('randperm', listed)):
        run = [sys.executable, __file__, 'one', order, str(length)]
        found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        print(f'{order:<10}{length:>15,}{found["enter"]:>15.4f}{found["grown"]:>10.1f}{found["draw"]:>15.3f}')
    scale = samples / listed
    print(f'{"randperm":<10}{samples:>15,}{found["enter"] * scale:>15.1f}{found["grown"] * scale:>10.0f}   (computed)')


if __name__ == '__main__':
    if sys.argv[1:2] == ['one']:
        measure(sys.argv[2], int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
