"""A training run on two ranks under torchrun's agent, one of which is killed at random moments."""

import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from kills.attempts import Attempt, differences, digest, log_of
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.checkpoint.loader import load_folder
from runnerkit.utils.env import is_alive

RANKS_CONFIG = """
model = dict(type='Supervised', model=[
    dict(type='Linear', in_features=8, out_features=64), dict(type='ReLU'), dict(type='Dropout', p=0.2),
    dict(type='Linear', in_features=64, out_features=1)], loss=dict(type='MSELoss'))
data = dict(samples_per_gpu=4, workers_per_gpu=1, train=dict(type='kills.ranks.Noise'))
optimizer = dict(type='SGD', lr=0.02, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy='CosineAnnealing', min_lr=0.0, by_epoch=False)
runner = dict(type='EpochBasedRunner', max_epochs=4)
checkpoint_config = dict(interval=3, by_epoch=False, max_keep_ckpts=2)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
flow = dict(terminal=None)
seed = 7
model_wrapper = dict(type='{wrapper}')
"""
#: The units of FSDP2.
UNITS = "model_wrapper['module_classes'] = ['Linear']\n"


class Noise(Dataset):
    """Random points, drawn again at each access; a batch takes long enough for a kill inside it."""

    def __len__(self):
        return 80

    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.randn(8) + i / 80, torch.tensor([i % 2.0])


def rank_job(config, work_dir):
    """One rank, in a process of torchrun's agent."""
    from runnerkit.cli.train import main

    (work_dir / f'pid {os.environ["TORCHELASTIC_RESTART_COUNT"]} {os.environ["RANK"]}').write_text(str(os.getpid()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # a fork inherits the agent's handlers, a new process does not
    code = main([str(config), '--launcher', 'pytorch', '--device', 'cpu', '--work-dir', str(work_dir / 'run')])
    if code:
        sys.exit(code)
    (work_dir / f'through {os.environ["RANK"]}').touch()


def agent_job(config, work_dir):
    """Train on two ranks; return the results that must not depend on kills."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    work_dir.mkdir()
    how = {'rdzv_backend': 'c10d', 'rdzv_endpoint': 'localhost:0', 'run_id': 'faults', 'start_method': 'fork'}
    elastic_launch(LaunchConfig(1, 1, 2, **how, max_restarts=3, monitor_interval=0.05), rank_job)(config, work_dir)
    latest = find_latest_checkpoint(work_dir / 'run')  # a kill may come before latest.pth was moved
    last = load_folder(latest) if latest.is_dir() else torch.load(latest, weights_only=True)
    counts = {name: last['meta'][name] for name in ('epoch', 'iter')}
    return {
        'weights': digest(last['state_dict']),
        'optimizer': digest(last['optimizer']),
        'counts': counts,
        'log': log_of(work_dir / 'run'),
    }


def pids_of(work_dir):
    """The ranks' process ids, by number of restarts and by rank."""
    found = [(path.name.split()[1:], path.read_text()) for path in work_dir.glob('pid *')]
    return {(int(restart), int(rank)): int(pid) for (restart, rank), pid in found if pid}


class RankKill(NamedTuple):
    """A killed rank: the time of the kill, the iterations in its log, and the consequences."""

    rank: int
    seconds: float
    resumed: str
    took: float
    different: list


def kill_a_rank(config, folder, name, rank, seconds, whole):
    """Run the training with ``rank`` killed ``seconds`` after it began; None if it was complete by then.

    A complete rank is left alone: it waits for its agent on a condition of multiprocessing, with which the agent
    would then wait forever (torch 2.13; processes of the command torchrun do not wait).
    """
    work_dir = folder / name
    attempt = Attempt(partial(agent_job, config), folder, name)
    deadline = time.monotonic() + 60
    while (0, rank) not in pids_of(work_dir) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    was_killed = not (work_dir / f'through {rank}').exists()
    if was_killed:
        os.kill(pids_of(work_dir)[0, rank], signal.SIGKILL)
    killed_at = time.monotonic()
    attempt.kill_after(time.monotonic() - attempt.started + 100)
    if not was_killed:
        return None
    took = time.monotonic() - killed_at
    said = attempt.errors.read_text()
    resumed = [line.rpartition('resumed from ')[2] for line in said.splitlines() if 'resumed from ' in line]
    if attempt.result.exists():
        different = differences(whole, pickle.loads(attempt.result.read_bytes()))
    else:
        different = [said[-2000:]]
    left = [pid for pid in pids_of(work_dir).values() if is_alive(pid)]
    different += [f'process {pid} is left' for pid in left]
    return RankKill(rank, seconds, resumed[-1] if resumed else 'from the beginning', took, different)


def prove_ranks(kills, seed=0, wrapper='DDP'):
    """Print the results of killing single ranks; return the number of trainings that ended differently."""
    draw, bad, done = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(prefix='ranks-') as temporary:
        folder = Path(temporary)
        config = folder / 'config.py'
        config.write_text(RANKS_CONFIG.replace('{wrapper}', wrapper) + (UNITS if wrapper == 'FSDP2' else ''))
        attempt = Attempt(partial(agent_job, config), folder, 'whole')
        attempt.kill_after(100)
        if not attempt.result.exists():
            raise RuntimeError(f'the undisturbed run failed:\n{attempt.errors.read_text()[-3000:]}')
        whole, duration = pickle.loads(attempt.result.read_bytes()), time.monotonic() - attempt.started
        print(f'undisturbed: {whole["counts"]["iter"]} iterations, {duration:.1f} s', flush=True)
        while done < kills:
            found = kill_a_rank(config, folder, f'killed{done}', done % 2, draw.uniform(0, duration), whole)
            shutil.rmtree(folder / f'killed{done}')
            (folder / f'killed{done}.result').unlink(missing_ok=True)
            if found is None:
                continue
            done, bad = done + 1, bad + bool(found.different)
            print(
                f'rank {found.rank} killed after {found.seconds:.2f} s: {found.resumed}; through {found.took:.1f} s '
                f'later, {"the same" if not found.different else f"DIFFERENT {found.different}"}',
                flush=True,
            )
    print(f'{done} kills of a rank under {wrapper}, {bad} runs that ended differently')
    return bad
