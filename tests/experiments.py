"""Experiments that several tests share."""

import torch
from support import Noisy, Tiny
from torch.nn import functional

from runnerkit.data import build_dataloader
from runnerkit.flow import Experiment


class Line(Experiment):
    """`Tiny` on `Noisy`; ``config.reads`` batches in each iteration."""

    def setup_dataloader(self):
        workers = self.config.get('workers', 0)
        self.train_loader = build_dataloader(Noisy(20), 4, workers, seed=self.seed)
        self.valid_loader = build_dataloader(Noisy(8), 4, 0, seed=self.seed, shuffle=False)

    def setup_model(self):
        self.model = Tiny()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def batch(self):
        """The next batch, or as many as ``config.reads`` says; noise for none."""
        reads = [self.read_batch() for _ in range(self.config.get('reads', 1))]
        if not reads:
            return torch.randn(4, 4), torch.zeros(4, 1)
        return [torch.cat(parts) for parts in zip(*reads)]

    def train_batch(self):
        x, y = self.batch()
        loss = functional.mse_loss(self.model(x), y)
        self.update(loss)
        return {'loss': loss}

    def valid(self):
        errors = [functional.mse_loss(self.model(x), y) for x, y in self.valid_loader]
        return {'error': torch.stack(errors).mean()}


def config(max_iteration=12, valid_interval=3, save_interval=4, **others):
    """A config without TensorBoard, which takes its time to be imported."""
    training = {'max_iteration': max_iteration, 'valid_interval': valid_interval, 'save_interval': save_interval}
    log = {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]}
    return {'training': training, 'log_config': log, **others}


def started(kind, folder, **options):
    """An experiment that is set up, in its newest state."""
    made = kind(config(**options), {'output': str(folder), 'device': 'cpu'})
    made.setup()
    made.resume_or_load()
    return made


def trained(kind, folder, **options):
    """An experiment that has run."""
    made = started(kind, folder, **options)
    made.run()
    return made
