"""The CPU seconds of a plain loop, or of the same one with `runnerkit.loop`, after the first epoch, without its end.

    python benchmarks/whole/loops.py tiny|lenet plain|loop|silent WORK_DIR

``silent`` is `runnerkit.loop` without ``run.log``. Nothing is saved.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / 'configs' / 'mnist'))

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import runnerkit


def job(name):
    """The network, its loader, and how many epochs."""
    torch.manual_seed(0)
    if name == 'tiny':
        data = TensorDataset(torch.randn(1600, 16), torch.randint(4, (1600,)))
        net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        return net, DataLoader(data, batch_size=16, shuffle=True), 21
    from digits import Digits
    from networks import LeNet

    data = Digits('train')
    return LeNet(), DataLoader(TensorDataset(data.images, data.labels), batch_size=64, shuffle=True), 4


def main(name, kind, work_dir):
    torch.set_num_threads(1)
    net, loader, epochs = job(name)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    run = None
    if kind != 'plain':
        run = runnerkit.loop(work_dir, model=net, optimizer=optimizer, seed=0, checkpoint_config=None)
    for epoch in range(epochs) if run is None else run.epochs(epochs):
        if epoch == 1:
            began = time.process_time()
        for x, y in loader if run is None else run.batches(loader):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if kind == 'loop':
                run.log(loss=loss)
        ended = time.process_time()  # before the run's end, which draws the curve and the report
    print(ended - began)


main(*sys.argv[1:])
