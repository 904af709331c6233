import os
import random
import runpy
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import Fork

import runnerkit
from runnerkit.config import Config
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.hooks.hook import Hook
from runnerkit.nn import build_model
from runnerkit.optim import build_optimizer, schedules
from runnerkit.runner import build_runner
from runnerkit.utils.imports import import_object

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/mnist/lenet.py'
TOOL = ROOT / 'tools/plain_train.py'
train, learning_rate = (import_object(f'{TOOL}:{name}') for name in ('train', 'learning_rate'))


def config(**changes):
    cfg = Config.fromfile(str(CONFIG))
    # seven iterations an epoch; the last batch is smaller
    cfg.merge_from_dict({'data.batch_size': 512, 'lr_config.warmup_iters': 3, **changes})
    return cfg


def test_the_runner_gives_the_same_bits():
    cfg = config()
    model, losses = train(cfg, epochs=2)
    assert len(losses) == 14
    assert losses[-1] < 0.6 * losses[0]

    class Losses(Hook):
        def __init__(self):
            self.seen = []

        def after_train_iter(self, runner):
            self.seen.append(runner.outputs['loss'].item())

    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    net = build_model(cfg.model)
    runner = build_runner(
        {'type': 'EpochBasedRunner', 'max_epochs': 2},
        default_args={'model': net, 'optimizer': build_optimizer(net, cfg.optimizer)},
    )
    runner.register_training_hooks(lr_config=cfg.lr_config, optimizer_config=cfg.optimizer_config)
    hook = Losses()
    runner.register_hook(hook)
    loader = build_dataloader(build_dataset(cfg.data.train), cfg.data.batch_size, 0, seed=cfg.seed)
    runner.run([loader], [('train', 1)])

    assert hook.seen == losses
    assert net.state_dict().keys() == model.state_dict().keys()
    assert all(map(torch.equal, net.state_dict().values(), model.state_dict().values()))


def train_in_a_loop(cfg, epochs, work_dir, kill_at=None):
    """The same training as a user's own loop, which saves every third iteration."""
    torch.set_num_threads(1)
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    net = build_model(cfg.model)
    net.init_weights()
    optimizer = build_optimizer(net, cfg.optimizer)
    loader = build_dataloader(build_dataset(cfg.data.train), cfg.data.batch_size, 0, shuffle=True, seed=cfg.seed)
    draws = torch.get_rng_state()
    saves = dict(interval=3, by_epoch=False, max_keep_ckpts=2)
    run = runnerkit.loop(work_dir, model=net, optimizer=optimizer, seed=cfg.seed, checkpoint_config=saves)
    if not run.iter:
        torch.set_rng_state(draws)  # which the plain loop has after its first weights
    net.train()
    for _ in run.epochs(epochs):
        for batch in run.batches(loader):
            for group in optimizer.param_groups:
                group['lr'] = learning_rate(cfg.optimizer.lr, run.iter, epochs * len(loader), cfg.lr_config)
            loss = net.train_step(batch)['loss']
            if run.iter == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
    torch.save(net.state_dict(), f'{work_dir}.pth')


@pytest.mark.parametrize('kills', [1, pytest.param(50, marks=pytest.mark.thorough)])
def test_a_loop_of_ones_own_gives_the_same_bits_after_kills(kills, tmp_path):
    cfg = config(**{'data.train.part': 'val', 'data.batch_size': 64, 'model.model.hidden': 16})
    model, _ = train(cfg, epochs=2)
    places = random.Random(0).choices(range(1, 16), k=kills)
    for number, place in enumerate(places):
        work_dir = tmp_path / f'run{number}'
        assert Fork(train_in_a_loop, cfg, 2, work_dir, place, folder=tmp_path).code() == -signal.SIGKILL
        again = Fork(train_in_a_loop, cfg, 2, work_dir, folder=tmp_path)
        assert again.code() == 0, again.said()
        ended = torch.load(f'{work_dir}.pth')
        assert all(torch.equal(value, ended[name]) for name, value in model.state_dict().items())


@pytest.mark.thorough  # test_the_runner_gives_the_same_bits
def test_another_seed_gives_other_losses():
    short = {'data.train.part': 'val', 'data.train.augment': False, 'lr_config.warmup_iters': 1}
    first, same, other = (train(config(seed=seed, **short), epochs=2)[1] for seed in (0, 0, 1))
    assert len(first) == 2
    assert first == same
    assert first[0] != other[0]


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


def test_the_command(monkeypatch, capsys):
    options = ['--epochs', '1', '--seed', '3', '--cfg-options', 'data.batch_size=512', 'lr_config.warmup_iters=3']
    monkeypatch.setattr(sys, 'argv', [str(TOOL), str(CONFIG), *options])
    runpy.run_path(str(TOOL), run_name='__main__')
    epoch, accuracy = capsys.readouterr().out.splitlines()
    assert epoch.startswith('epoch   1 of 1   loss ')
    assert 0.2 < float(accuracy.removeprefix('test accuracy ')) <= 1
