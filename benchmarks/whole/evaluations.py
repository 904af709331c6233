"""An evaluation by the runner over the same one by hand: loss and accuracy of all batches, in turns in one process.

    python benchmarks/whole/evaluations.py [--rounds 60]

``rows`` is a linear layer on batches of 32 rows of a tensor, so that nothing but the machinery costs; ``lenet`` is that
of configs/mnist, in batches of 64. By hand, torch's DataLoader gives the batches.
"""

import argparse
import json
import logging
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / 'configs' / 'mnist'))

import torch
from digits import Digits
from networks import LeNet
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from runnerkit.data import build_dataloader
from runnerkit.nn import Supervised
from runnerkit.runner import EpochBasedRunner


def jobs():
    """Each job's name, network, samples, batch size and number of classes."""
    yield 'rows', nn.Linear(16, 4), TensorDataset(torch.randn(3200, 16), torch.randint(4, (3200,))), 32, 4
    yield 'lenet', LeNet(), Digits('val'), 64, 10


def by_hand(net, samples, batch_size, classes):
    """A function that evaluates with a plain loop."""
    loader, accuracy = DataLoader(samples, batch_size), MulticlassAccuracy(classes, average='micro')
    loss = nn.CrossEntropyLoss()

    def evaluate():
        net.eval()
        total = 0
        with torch.no_grad():
            for x, y in loader:
                preds = net(x)
                total += loss(preds, y) * len(x)
                accuracy.update(preds, y)
        result = float(total) / len(samples), float(accuracy.compute())
        accuracy.reset()
        return result

    return evaluate


def by_runner(net, samples, batch_size, classes):
    """A function that evaluates as a run does, with the hooks that each run has."""
    model = Supervised(net, nn.CrossEntropyLoss(), {'accuracy': MulticlassAccuracy(classes, average='micro')})
    runner = EpochBasedRunner(model, logger=logging.getLogger('silent'), max_epochs=1)
    runner.register_training_hooks(None, None)
    loader = build_dataloader(samples, batch_size, 0, shuffle=False, seed=0)

    def evaluate():
        model.eval()
        with runner.around_val() as found:
            found.update(runner.evaluator.validate(loader, runner.hooks, 'val'))
        return found['loss'], found['accuracy']

    return evaluate


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable()
    for name, *about in jobs():
        ways, ratios = (by_hand(*about), by_runner(*about)), []
        for number in range(options.rounds + 1):
            used, results = [], []
            for way in ways:
                began = time.process_time()
                results.append(way())
                used.append(time.process_time() - began)
            if max(abs(a - b) for a, b in zip(*results, strict=True)) > 1e-6:
                raise RuntimeError(f'{name}: by hand {results[0]}, by the runner {results[1]}')
            ratios += [used[1] / used[0]] if number else []
        quarters = statistics.quantiles(ratios)
        row = {'job': f'evaluation of {name}', 'ratio': round(quarters[1], 3)}
        print(json.dumps({**row, 'middle half': [round(quarters[0], 3), round(quarters[2], 3)]}))


if __name__ == '__main__':
    main()
