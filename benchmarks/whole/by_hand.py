"""The loop of an expert: text and JSON log, evaluation and complete checkpoint after each epoch, and the curve.

``fused`` sets torch's fused optimizer. DeepFM's checkpoint is evaluated afterwards, and its scores drawn, as its config
does.
"""

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from job import begun
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader


def evaluated(net, loader, loss_of, metric):
    """The scores of a network."""
    net.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            total += float(loss_of(out, y)) * len(x)
            if metric is not None:
                metric[1].update(out, y)
    net.train()
    scores = {'loss': total / len(loader.dataset)}
    if metric is not None:
        scores[metric[0]] = float(metric[1].compute())
        metric[1].reset()
    return scores


def saved(path, net, average, optimizer, epoch, step):
    """Write all that a resume needs; the file is whole or missing, even after a power failure."""
    state = {'model': net.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch, 'step': step}
    if average is not None:
        state['average'] = average.state_dict()
    state['rng'] = random.getstate(), np.random.get_state(), torch.get_rng_state()
    with open(f'{path}.tmp', 'wb') as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f'{path}.tmp', path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def drawn(path, values):
    import matplotlib as mpl

    mpl.use('Agg')
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(*zip(*values, strict=True))
    figure.savefig(path)


def main(name, work_dir, *options):
    job, work_dir = begun(name), Path(work_dir)
    work_dir.mkdir(parents=True)
    random.seed(0), np.random.seed(0)
    train, val = job.data()
    net = job.network(train)
    train, val = DataLoader(train, job.batch, shuffle=True), DataLoader(val, job.val_batch)
    optimizer = job.optimizer(net.parameters(), **({'fused': True} if 'fused' in options else {}))
    average = job.momentum and AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(1 - job.momentum))
    metric = job.metric and job.metric()
    total, step, losses, curve = job.epochs * len(train), 0, [], []
    log = open(work_dir / 'log.json', 'w')  # noqa: SIM115

    def line(values):
        print(values)
        log.write(json.dumps(values) + '\n')
        log.flush()

    for epoch in range(job.epochs):
        began = time.perf_counter()
        for x, y in train:
            rate = job.rate * job.share(step, total)
            for group in optimizer.param_groups:
                group['lr'] = rate
            loss = job.loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            norm = clip_grad_norm_(net.parameters(), job.clip) if job.clip else None
            optimizer.step()
            if average is not None:
                average.update_parameters(net)
            step += 1
            losses.append(loss.detach())
            if step % job.log_every == 0:
                mean = float(torch.stack(losses).mean())
                losses.clear()
                curve.append((step, mean))
                seconds = time.perf_counter() - began
                grad_norm = {} if norm is None else {'grad_norm': float(norm)}
                line({'epoch': epoch + 1, 'iter': step, 'lr': rate, 'loss': mean, **grad_norm, 'time': seconds})
        path = work_dir / f'epoch_{epoch + 1}.pth'
        if name != 'deepfm':
            scored = net if average is None else average
            line({'epoch': epoch + 1, **evaluated(scored, val, job.loss, metric)})
        saved(path, net, average, optimizer, epoch, step)
    drawn(work_dir / 'curve.png', curve)
    if name == 'deepfm':
        scores = []
        for epoch in range(job.epochs):
            state = torch.load(work_dir / f'epoch_{epoch + 1}.pth', weights_only=False)
            net.load_state_dict(state['model'])
            scores.append({'epoch': epoch + 1, **evaluated(net, val, job.loss, metric)})
        (work_dir / 'scores.json').write_text(json.dumps(scores))
        drawn(work_dir / 'scores.png', [(each['epoch'], each['auc']) for each in scores])
