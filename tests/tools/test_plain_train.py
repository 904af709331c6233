import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runnerkit.config import Config
from runnerkit.optim import schedules
from runnerkit.utils.imports import import_object

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/mnist/lenet.py'
TOOL = ROOT / 'tools/plain_train.py'
train, learning_rate = (import_object(f'{TOOL}:{name}') for name in ('train', 'learning_rate'))


def config(**changes):
    cfg = Config.fromfile(str(CONFIG))
    # seven iterations an epoch; the last batch is smaller
    cfg.merge_from_dict({'data.samples_per_gpu': 512, 'lr_config.warmup_iters': 3, **changes})
    return cfg


def test_it_learns_and_is_a_function_of_the_seed():
    model, losses = train(config(), epochs=2)
    assert len(losses) == 14
    assert losses[-1] < 0.6 * losses[0]
    again, same = train(config(), epochs=2)
    assert same == losses
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    assert train(config(seed=1), epochs=1)[1][0] != losses[0]


def test_the_learning_rate_is_that_of_the_library():
    lr_config = config().lr_config
    for iteration in range(101):
        wanted = schedules.annealing_cos(0.3, 0.0, iteration / 101)
        if iteration < 3:
            wanted *= schedules.warmup_factor('linear', iteration, 3, 0.1)
        assert learning_rate(0.3, iteration, 101, lr_config) == wanted
    assert learning_rate(0.3, 0, 100, lr_config) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'lr_config.policy': 'step'}, 'only cosine annealing'),
        ({'lr_config.by_epoch': True}, 'only cosine annealing'),
        ({'lr_config.min_lr_ratio': 0.1}, 'only cosine annealing'),
        ({'optimizer_config.grad_clip.max_norm': 1}, 'clipping and mixed precision'),
        ({'amp': 'bf16'}, 'clipping and mixed precision'),
    ],
)
def test_what_is_not_written_out_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        train(config(**changes), epochs=1)


def test_the_command():
    command = [sys.executable, str(TOOL), str(CONFIG), '--epochs', '1', '--seed', '3']
    done = subprocess.run(
        [*command, '--cfg-options', 'data.samples_per_gpu=512', 'lr_config.warmup_iters=3'],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    epoch, accuracy = done.stdout.splitlines()
    assert epoch.startswith('epoch   1 of 1   loss ')
    assert 0.2 < float(accuracy.removeprefix('test accuracy ')) <= 1
