"""A training of a user's own, which knows nothing of signals."""

import contextlib
import os
import time
from pathlib import Path

import torch
from support import Noisy, Tiny, tiny_runner

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.data import build_dataloader
from runnerkit.distributed import get_dist_info, init_dist, shutdown
from runnerkit.hooks import CheckpointHook, Hook
from runnerkit.parallel import MMDistributedDataParallel

WORKFLOWS = {'epoch': [('train', 1), ('val', 1)], 'iter': [('train', 4), ('val', 3)]}


class Slow(Tiny):
    """Takes its time, so that a signal comes in the middle of something."""

    seconds = 0.01

    def train_step(self, data, optimizer, **kwargs):
        time.sleep(self.seconds)
        return super().train_step(data, optimizer, **kwargs)

    def val_step(self, data, optimizer=None, **kwargs):
        time.sleep(self.seconds)
        return super().val_step(data, optimizer, **kwargs)


class Announcing(Hook):
    """Writes ``began_<rank>`` when the run has begun, which is when it listens to signals; then ``first_<rank>``."""

    def before_run(self, runner):
        self.is_first = True
        self.say(runner, 'began')

    def after_train_iter(self, runner):
        if self.is_first:
            self.is_first = False
            self.say(runner, 'first')

    def say(self, runner, what):
        Path(runner.work_dir, f'{what}_{runner.rank}').write_text(str(os.getpid()))


#: The file that a test writes into the work dir when it has sent its signal.
SENT = 'sent'


class Holds(Hook):
    """Waits at an iteration for the signal that the test sends, or a slow test would send it to a run that is over."""

    def __init__(self, at):
        self.at = at

    def after_train_iter(self, runner):
        while runner.iter + 1 == self.at and not Path(runner.work_dir, SENT).exists():
            time.sleep(0.01)


def build(work_dir, kind, epochs=3, seconds=0.01):
    torch.manual_seed(0)
    model = Slow()
    model.seconds = seconds
    runner = tiny_runner(kind, model=model, work_dir=work_dir, max_epochs=epochs)
    runner.register_training_hooks(
        {'policy': 'step', 'step': [2], 'by_epoch': kind == 'epoch'},
        {'grad_clip': {'max_norm': 5.0}},
        None,
        {'interval': 3, 'hooks': [{'type': 'TextLoggerHook'}]},
    )
    runner.register_hook(Announcing())
    return runner


def train(work_dir, kind='epoch', workers=0, epochs=3, seconds=0.01, saving=True, holds_at=None):
    """Train from the newest checkpoint in ``work_dir``; what the end is compared by lies in ``end.pth``."""
    runner = build(work_dir, kind, epochs, seconds)
    if runner.world_size > 1:
        runner.model = MMDistributedDataParallel(runner.model, find_unused_parameters=True)
    if saving:
        runner.register_hook(CheckpointHook(by_epoch=kind == 'epoch', interval=100))
    runner.register_hook(Holds(holds_at))
    newest = find_latest_checkpoint(work_dir)
    if newest is not None:
        runner.resume(str(newest))
    loaders = [build_dataloader(Noisy(20), 4, workers, seed=5) for _ in range(2)]
    runner.run(loaders, WORKFLOWS[kind])
    if runner.outcome.kind == 'completed' and runner.rank == 0:
        torch.save((runner.model.state_dict(), runner.optimizer.state_dict()), Path(work_dir, 'end.pth'))
    return runner


def on_a_rank(work_dir, seconds, holds_at=None, epochs=40):
    """Train as one of the processes of torch's launcher; how the run ended lies in ``ended_<rank>``."""
    init_dist('pytorch', backend='gloo')
    ended = 'KeyboardInterrupt'
    with contextlib.suppress(KeyboardInterrupt):
        done = train(work_dir, epochs=epochs, seconds=seconds, holds_at=holds_at)
        ended = f'{done.outcome} {done.stop_signal and done.stop_signal.name} {done.iter}'
    Path(work_dir, f'ended_{get_dist_info()[0]}').write_text(ended)
    shutdown()
