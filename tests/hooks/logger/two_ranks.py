"""A training in two processes, for `test_base.py`."""

import json
import tempfile
from pathlib import Path

import torch
from support import Tiny

from runnerkit.hooks import Hook, LoggerHook, TextLoggerHook
from runnerkit.runner import EpochBasedRunner


class ByRank(Tiny):
    """Losses of 10 and 20 by rank, with as many samples on both; in validation 100."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def train_step(self, data, optimizer):
        return {'loss': None, 'log_vars': {'loss': torch.tensor(10.0 * (self.rank + 1))}, 'num_samples': 4}

    def val_step(self, data, optimizer):
        return {'loss': None, 'log_vars': {'loss': 100.0}, 'num_samples': 4}


class Kept(LoggerHook):
    kept = ()

    def log(self, runner):
        self.kept = [*self.kept, (self.get_mode(runner), self.get_iter(runner), runner.log_buffer.output['loss'])]


class Times(Hook):
    """Rank 1 waits for its data, and rank 0 is slow otherwise."""

    def after_train_iter(self, runner):
        runner.log_buffer.update({'time': 3.0 - runner.rank, 'data_time': 0.5 + runner.rank})


class FirstRankOnly(Hook):
    """Logs on rank 0 alone, after the averages of the validation were made."""

    def after_val_epoch(self, runner):
        if runner.rank == 0:
            runner.log_buffer.update({'mine': 7.0})


def train(rank):
    with tempfile.TemporaryDirectory() as folder:
        model = ByRank(rank)
        runner = EpochBasedRunner(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), work_dir=folder, max_epochs=1
        )
        hook = Kept(interval=2)
        runner.register_hook(FirstRankOnly())
        runner.register_hook(Times())
        runner.register_hook(hook)
        runner.register_hook(TextLoggerHook(interval=2))
        said = []
        runner.logger.addFilter(lambda record: said.append(record.getMessage()) or True)
        runner.run([[0, 1], [0] * (1 + rank)], [('train', 1), ('val', 1)])
        lines = [json.loads(line) for path in Path(folder).glob('*.json') for line in path.read_text().splitlines()]
    return {
        'kept': list(hook.kept),
        'json': [(line['mode'], line['loss'], line.get('mine')) for line in lines],
        'times': [{key: line[key] for key in line if 'time' in key} for line in lines if line['mode'] == 'train'],
        'said': [text for text in said if text.startswith('Epoch [1]')],
        'output': runner.log_buffer.output,
    }
