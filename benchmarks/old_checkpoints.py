"""Write checkpoints with the real MMCV 1.x, and the ends of its runs, as reference data for the tests.

Run it with the Python of a virtual environment with mmcv 1.7.2 (no compiled ops are needed):

    python benchmarks/old_checkpoints.py tests/data/old

For each run of `RUNS` it writes the checkpoint from the middle, ``<name>.pth``, and ``<name>.end.json``: the weights
at the end of the uninterrupted run (``float.hex``; with averages, both halves as in training) and the counts.
"""

import json
import logging
import pathlib
import sys
import tempfile
import time
import types

import numpy as np
import torch
from torch import nn

BATCHES, EPOCHS = 4, 4
STEP = dict(policy='step', step=[3], warmup='linear', warmup_iters=6)
EMA = dict(type='EMAHook', momentum=0.25, warm_up=1)
RUNS = {
    'epochs': dict(),
    'iterations': dict(by_epoch=False, optimizer=dict(type='Adam', lr=0.01)),
    'averages_normal': dict(ema=dict(EMA, priority='NORMAL')),
    'averages_early': dict(ema=dict(EMA, priority=49)),
    'averages_by_iteration': dict(ema=dict(EMA, priority=49), by_epoch=False),
    'two_optimizers': dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9), two=True),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, 2)

    def train_step(self, data, optimizer):
        loss = nn.functional.cross_entropy(self.head(self.body(data['x']).relu()), data['y'])
        if isinstance(optimizer, dict):  # as in GANs: the step updates the weights itself
            for each in optimizer.values():
                each.zero_grad()
            loss.backward()
            for each in optimizer.values():
                each.step()
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['y']))


def loader():
    generator = torch.Generator().manual_seed(3)
    data = [dict(x=torch.randn(3, generator=generator), y=torch.tensor(i % 2)) for i in range(6 * BATCHES)]
    return torch.utils.data.DataLoader(data, batch_size=6)


def build(library, work_dir, by_epoch=True, optimizer=None, ema=None, two=False):
    """A runner with the hooks of one of `RUNS`, by the library of that name."""
    runner_module = __import__(f'{library}.runner', fromlist=['runner'])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    config = optimizer or dict(type='SGD', lr=0.1, momentum=0.9)
    parts = {'body': model.body, 'head': model.head} if two else {'': model}
    made = {name: runner_module.build_optimizer(part, dict(config)) for name, part in parts.items()}
    kind = dict(type='EpochBasedRunner', max_epochs=EPOCHS)
    if not by_epoch:
        kind = dict(type='IterBasedRunner', max_iters=BATCHES * EPOCHS)
    logger = logging.getLogger('old')
    logger.setLevel(logging.ERROR)
    model.CLASSES = ('no', 'yes')
    defaults = dict(model=model, optimizer=made if two else made[''], work_dir=work_dir, logger=logger, meta={})
    runner = runner_module.build_runner(kind, defaults)
    runner.register_training_hooks(
        dict(STEP),
        optimizer_config=None if two else {},
        checkpoint_config=dict(interval=2 if by_epoch else 2 * BATCHES),
        custom_hooks_config=[dict(ema)] if ema else None,
    )
    return runner


def main(folder):
    sys.modules['torchvision'] = types.ModuleType('torchvision')  # imported only for URLs of models
    time.sleep = lambda seconds: None  # two seconds before each epoch
    folder.mkdir(exist_ok=True, parents=True)
    for name, options in RUNS.items():
        with tempfile.TemporaryDirectory() as work_dir:
            runner = build('mmcv', work_dir, **options)
            # Evaluation hooks leave numpy numbers there.
            runner.meta['hook_msgs'] = dict(best_score=np.float64(0.75), best_ckpt='best_acc_epoch_1.pth')
            runner.run([loader()], [('train', 1)])
            middle = 'epoch_2.pth' if options.get('by_epoch', True) else f'iter_{2 * BATCHES}.pth'
            (folder / f'{name}.pth').write_bytes((pathlib.Path(work_dir) / middle).read_bytes())
        state = runner.model.state_dict()
        if options.get('ema') and options.get('by_epoch', True):
            # The last epoch has left the averages under the model's own names.
            swapped = {each: f'ema_{each.replace(".", "_")}' for each in dict(runner.model.named_parameters())}
            for own, twin in swapped.items():
                state[own], state[twin] = state[twin], state[own]
        end = {each: [float(x).hex() for x in value.flatten()] for each, value in state.items()}
        text = json.dumps(dict(weights=end, epoch=runner.epoch, iter=runner.iter))
        (folder / f'{name}.end.json').write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]))
