"""Write checkpoints of runnerkit's first format, and the ends of their runs, as reference data for the tests.

Run it with a checkout of commit a1af0bb, the last one that wrote format 1, on the path:

    PYTHONPATH=<that checkout> python benchmarks/format_1_checkpoints.py tests/data/old

For each run of `RUNS` it writes the checkpoint from the middle, ``format_1_<name>.pth.xz``,
and ``format_1_<name>.end.json``: the weights at the end of the uninterrupted run (``float.hex``) and the counts.
"""

import json
import logging
import lzma
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch
from torch import nn

SAMPLES, BATCH, TOTAL = 16, 4, 12  # 4 batches an epoch, 12 iterations in all

#: The number of iterations after which each run is saved; ``by_epoch``: at the end of the epoch that they complete.
RUNS = {
    'inside_an_epoch': dict(saved=6),
    'last_batch_of_an_epoch': dict(saved=8),
    'end_of_an_epoch': dict(saved=8, saved_by_epoch=True),
    'a_generator_of_the_process': dict(saved=5, own=False),
    'two_loaders_by_iteration': dict(saved=7, by_epoch=False, workflow=[('train', 2), ('train', 1)]),
}


class Points(torch.utils.data.Dataset):
    """Points with noise from all three global generators."""

    def __init__(self, seed):
        self.points = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        return dict(x=self.points[index] + noise / 8, y=torch.tensor(index % 2))


class Net(nn.Module):
    """Dropout between two layers; only the loss's last bits depend on the machine."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def train_step(self, data, optimizer):
        hidden = nn.functional.dropout(self.body(data['x']).relu(), 0.25, training=True)
        loss = nn.functional.cross_entropy(self.head(hidden), data['y'])
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['y']))


def loaders(count=1, own=True):
    """Typical shuffling DataLoaders, each with a separate generator if ``own``."""
    generators = [torch.Generator().manual_seed(3 + i) if own else None for i in range(count)]
    return [
        torch.utils.data.DataLoader(Points(i), BATCH, shuffle=True, generator=each) for i, each in enumerate(generators)
    ]


def build(work_dir, saved, by_epoch=True, own=True, workflow=None, saved_by_epoch=False):
    """A runner of one of `RUNS`, its loaders and its workflow."""
    from runnerkit.runner import build_runner

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Net()
    logger = logging.getLogger('format_1')
    logger.setLevel(logging.WARNING)
    kind = dict(type='EpochBasedRunner' if by_epoch else 'IterBasedRunner')
    kind['max_epochs' if by_epoch else 'max_iters'] = TOTAL * BATCH // SAMPLES if by_epoch else TOTAL
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runner = build_runner(kind, dict(model=model, optimizer=optimizer, work_dir=work_dir, logger=logger, meta={}))
    interval = saved * BATCH // SAMPLES if saved_by_epoch else saved
    runner.register_training_hooks(
        dict(policy='step', step=[2 if by_epoch else 8], warmup='linear', warmup_iters=3),
        optimizer_config={},
        checkpoint_config=dict(by_epoch=saved_by_epoch, interval=interval),
    )
    workflow = workflow or [('train', 1)]
    return runner, loaders(len(workflow), own), workflow


def weights(runner):
    """All weights, by name, as ``float.hex``."""
    return {name: [float(x).hex() for x in value.flatten()] for name, value in runner.model.state_dict().items()}


def main(folder):
    for name, options in RUNS.items():
        with tempfile.TemporaryDirectory() as work_dir:
            runner, data, workflow = build(work_dir, **options)
            runner.run(data, workflow)
            saved = options['saved']
            file = f'epoch_{saved * BATCH // SAMPLES}.pth' if 'saved_by_epoch' in options else f'iter_{saved}.pth'
            content = (pathlib.Path(work_dir) / file).read_bytes()
        # Most of the file are states of random generators, some of them twice.
        (folder / f'format_1_{name}.pth.xz').write_bytes(lzma.compress(content))
        text = json.dumps(dict(weights=weights(runner), epoch=runner.epoch, iter=runner.iter))
        (folder / f'format_1_{name}.end.json').write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]))
