"""The training of configs/mnist/lenet.py without a runner: one loop to read from top to bottom.

    python tools/plain_train.py configs/mnist/lenet.py --epochs 12

Model, data and optimizer are built from the config; the loop replaces the runner's hooks. Losses and weights
equal those of `EpochBasedRunner` bit for bit. Use it as a starting point for your own loop, and as the shortest
description of the runner. A test compares the two. There are no checkpoints, no log files and no evaluation here.
"""

from __future__ import annotations

import argparse
import math
import random
from typing import Any

import numpy as np
import torch
from torch import nn

from runnerkit.config import Config, DictAction
from runnerkit.data import build_dataloader, build_dataset, epoch_batches
from runnerkit.nn import build_model
from runnerkit.optim import build_optimizer

LR = {'policy', 'by_epoch', 'min_lr', 'warmup', 'warmup_iters', 'warmup_ratio'}


def learning_rate(initial: float, iteration: int, max_iters: int, lr_config: dict[str, Any]) -> float:
    """Half a cosine wave from ``initial`` to ``min_lr``, with linear warm-up in the first ``warmup_iters`` iterations.

    Args:
        initial: the optimizer's own learning rate.
        iteration: 0-based, of ``max_iters``.
        max_iters: the length of the run.
        lr_config: the config's section of that name.
    """
    min_lr = lr_config['min_lr']
    lr = min_lr + 0.5 * (initial - min_lr) * (1 + math.cos(math.pi * (iteration / max_iters)))
    if iteration < lr_config['warmup_iters']:
        missing = (1 - iteration / lr_config['warmup_iters']) * (1 - lr_config['warmup_ratio'])
        lr *= 1 - missing
    return lr


def train(cfg: Config, epochs: int | None = None) -> tuple[nn.Module, list[float]]:
    """Train as ``cfg`` says.

    Args:
        cfg: a config whose schedule is the one that this file writes out.
        epochs: the number of epochs; by default the config's ``runner.max_epochs``. The schedule ends with them.

    Returns:
        The model, and the loss of each iteration.

    Raises:
        ValueError: the config uses a feature that is not written out here.
    """
    check(cfg)
    epochs = cfg.runner.max_epochs if epochs is None else epochs
    torch.set_num_threads(cfg.get('num_threads') or torch.get_num_threads())

    # The seed comes right before the model, so that its first weights depend on nothing else. Order and augmentation of
    # the data have separate random streams, which depend only on (seed, epoch, position).
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    model = build_model(cfg.model)
    model.init_weights()
    optimizer = build_optimizer(model, cfg.optimizer)
    loader = build_dataloader(
        build_dataset(cfg.data.train), cfg.data.batch_size, cfg.data.workers, shuffle=True, seed=cfg.seed
    )

    max_iters = epochs * len(loader)
    losses = []
    model.train()
    for epoch in range(epochs):
        for batch in epoch_batches(loader, epoch):
            for group in optimizer.param_groups:  # LrUpdaterHook
                group['lr'] = learning_rate(cfg.optimizer.lr, len(losses), max_iters, cfg.lr_config)
            loss = model.train_step(batch)['loss']  # run_iter
            optimizer.zero_grad()  # OptimizerHook, from here
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())  # stays on its device, so that no iteration waits for it
        print(f'epoch {epoch + 1:3d} of {epochs}   loss {torch.stack(losses[-len(loader) :]).mean():.4f}', flush=True)
    return model, torch.stack(losses).tolist()


@torch.no_grad()
def evaluate(model: Any, cfg: Config, split: str) -> dict[str, float]:
    """The model's metrics over ``cfg.data[split]``."""
    loader = build_dataloader(build_dataset(cfg.data[split]), cfg.data.batch_size, 0, shuffle=False, seed=cfg.seed)
    model.eval()
    for batch in loader:
        outputs = model.val_step(batch)
        for metric in model.metrics.values():
            metric.update(outputs['preds'], outputs['target'])
    return {name: float(metric.compute()) for name, metric in model.metrics.items()}


def check(cfg: Config) -> None:
    """Refuse settings with which a runner would train differently."""
    lr_config = cfg.get('lr_config', {})
    written_out = lr_config.get('policy'), lr_config.get('by_epoch', True), lr_config.get('warmup')
    if written_out != ('CosineAnnealing', False, 'linear') or not LR.issuperset(lr_config):
        raise ValueError(f'only cosine annealing by iteration with a linear warm-up is written out, not {lr_config}')
    if (cfg.get('optimizer_config') or {}).get('grad_clip') is not None or cfg.get('fp16') or cfg.get('amp'):
        raise ValueError('clipping and mixed precision are not written out here: use tools/train.py')


def main() -> None:
    """Train, and print the accuracy on the test set."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('config', help='a config file, such as configs/mnist/lenet.py')
    parser.add_argument('--epochs', type=int, help='replaces runner.max_epochs of the config')
    parser.add_argument('--seed', type=int, help='replaces the seed of the config')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, help='change settings of the config, e.g. optimizer.lr=0.1'
    )
    args = parser.parse_args()
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options or {})
    if args.seed is not None:
        cfg.seed = args.seed
    model, _ = train(cfg, args.epochs)
    for name, value in evaluate(model, cfg, 'test').items():
        print(f'test {name} {value:.4f}')


if __name__ == '__main__':
    main()
