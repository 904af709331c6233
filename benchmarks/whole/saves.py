"""A save and a resume of the runner over torch's functions, in turns in one process: CPU and wall clock.

    python benchmarks/whole/saves.py [--rounds 9]

``large`` has 40 million weights in eight tensors, ``many`` 1,000 tensors of 10,000 weights; AdamW has no state before
its first step. A save by hand is torch.save and a flush to the disk. What a save in the background waits for is
compared with a copy of each tensor into memory that is there already. A resume by hand is torch.load with mmap,
load_state_dict, and a CRC-32 of the file, since the runner checks each byte.
"""

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.optim import AdamW

from runnerkit.runner import EpochBasedRunner


class Weights(nn.ParameterList):
    """A model of nothing but weights."""

    def train_step(self, data, optimizer):
        """Is never called."""
        raise NotImplementedError


def networks():
    """Each network by its name."""
    yield 'large', Weights(torch.randn(5_000_000) for _ in range(8))
    yield 'many', Weights(torch.randn(10_000) for _ in range(1000))


def state(net, optimizer):
    """What a save by hand holds."""
    return {'state_dict': net.state_dict(), 'optimizer': optimizer.state_dict(), 'meta': {}}


def save_by_hand(net, optimizer, path):
    torch.save(state(net, optimizer), path)
    with open(path, 'rb+') as file:
        os.fsync(file.fileno())


def resume_by_hand(net, optimizer, path):
    found = torch.load(path, mmap=True)
    net.load_state_dict(found['state_dict'])
    optimizer.load_state_dict(found['optimizer'])
    check = 0
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            check = zlib.crc32(block, check)


def timed(function):
    """CPU and wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


def compared(name, rounds, by_hand, by_runner, after=lambda: None):
    """Print one row: by hand, by the runner, and the ratios in a round."""
    taken = {by_hand: [], by_runner: []}
    for number in range(rounds + 1):
        for way in list(taken)[:: 1 if number % 2 else -1]:
            seconds = timed(way)
            after()
            taken[way] += [seconds] if number else []
    row = {'what': name}
    for i, kind in enumerate(('CPU', 'wall')):
        pairs = [(hand[i], ours[i]) for hand, ours in zip(*taken.values(), strict=True)]
        ratios = statistics.quantiles([ours / hand for hand, ours in pairs])
        hand, ours = (round(statistics.median(each) * 1e3, 1) for each in zip(*pairs, strict=True))
        row |= {f'{kind} by hand, ms': hand, f'{kind} ours, ms': ours, f'{kind} ratio': round(ratios[1], 3)}
        row[f'{kind} middle half'] = [round(ratios[0], 3), round(ratios[2], 3)]
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=9, help='at least 2')
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    logging.disable()
    for name, net in networks():
        optimizer = AdamW(net.parameters())
        with tempfile.TemporaryDirectory() as folder:
            runner = EpochBasedRunner(
                net, optimizer=optimizer, work_dir=folder, logger=logging.getLogger('silent'), max_epochs=1
            )
            saver = runner.snapshots.saver
            own, theirs = Path(folder, 'epoch_1.pth'), Path(folder, 'theirs.pt')
            compared(
                f'save, {name}',
                rounds,
                lambda net=net, optimizer=optimizer, path=theirs: save_by_hand(net, optimizer, path),
                saver.save,
            )
            copies = [torch.empty_like(each) for each in net.parameters()]
            compared(
                f'async_save, {name}',
                rounds,
                lambda net=net, copies=copies: torch._foreach_copy_(copies, [each.detach() for each in net]),
                lambda save=saver.save: save(async_save=True),
                after=saver.finish,
            )
            compared(
                f'resume, {name}',
                rounds,
                lambda net=net, optimizer=optimizer, path=theirs: resume_by_hand(net, optimizer, path),
                lambda resume=runner.resume, path=own: resume(str(path)),
            )


if __name__ == '__main__':
    main()
