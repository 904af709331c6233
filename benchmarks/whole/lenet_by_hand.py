"""What `runnerkit train configs/mnist/lenet.py` does, written by hand: three epochs, log, checkpoints, best one, curve.

python benchmarks/whole/lenet_by_hand.py WORK_DIR
"""

import json
import math
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / 'configs' / 'mnist'))

import matplotlib
import numpy as np
import torch
from digits import Digits
from networks import LeNet
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from torchmetrics.classification import MulticlassAccuracy

matplotlib.use('Agg')
from matplotlib import pyplot

EPOCHS, RATE, WARM_UP = 3, 0.05, 50


def evaluated(net, loader, accuracy):
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            accuracy.update(net(x), y)
    score = float(accuracy.compute())
    accuracy.reset()
    return score


def saved(path, net, optimizer, **state):
    torch.save({'model': net.state_dict(), 'optimizer': optimizer.state_dict(), **state}, path)


def main(work_dir):
    work_dir = Path(work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    net = LeNet(channels=(16, 32), hidden=128, dropout=0.25)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    train = DataLoader(Digits('train', augment=True), batch_size=64, shuffle=True)
    val = DataLoader(Digits('val'), batch_size=64)
    accuracy, board = MulticlassAccuracy(10, average='micro'), SummaryWriter(work_dir / 'tf_logs')
    total, step, best, curve, sums = EPOCHS * len(train), 0, 0.0, [], [0.0, 0]
    log = open(work_dir / 'train.log.json', 'w')  # noqa: SIM115

    def line(values):
        text = json.dumps(values)
        print(text)
        log.write(text + '\n')
        log.flush()
        for name, value in values.items():
            board.add_scalar(name, value, step)

    for epoch in range(EPOCHS):
        net.train()
        began = time.perf_counter()
        for x, y in train:
            rate = 0.5 * RATE * (1 + math.cos(math.pi * step / total))
            if step < WARM_UP:
                rate *= 1 - (1 - step / WARM_UP) * 0.9
            for group in optimizer.param_groups:
                group['lr'] = rate
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            sums[0] += loss.detach() * len(x)
            sums[1] += len(x)
            if step % 25 == 0:
                curve.append((step, float(sums[0] / sums[1])))
                line({'epoch': epoch + 1, 'loss': curve[-1][1], 'lr': rate, 'time': time.perf_counter() - began})
                sums = [0.0, 0]
        score = evaluated(net, val, accuracy)
        line({'epoch': epoch + 1, 'accuracy': score})
        place = {'epoch': epoch, 'step': step}
        saved(work_dir / f'epoch_{epoch + 1}.pth', net, optimizer, **place, rng=torch.get_rng_state())
        if score > best:
            best = score
            saved(work_dir / 'best.pth', net, optimizer, **place)
    board.close()
    figure, axes = pyplot.subplots()
    axes.plot(*zip(*curve, strict=True))
    figure.savefig(work_dir / 'curve.png')


if __name__ == '__main__':
    main(sys.argv[1])
