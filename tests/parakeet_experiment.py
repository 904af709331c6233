"""An experiment file as Parakeet's users write it, changed only where the table of docs/from_parakeet.md says so."""

import time
from collections import defaultdict

import torch
from support import Noisy
from torch import nn
from torch.utils.data import DataLoader

from runnerkit.distributed import get_dist_info
from runnerkit.flow import Experiment as ExperimentBase


class Tacotron(nn.Module):
    """As little of it as can be trained."""

    def __init__(self, width):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, width), nn.LSTM(width, 4, batch_first=True)

    def forward(self, texts):
        outputs, _ = self.decoder(self.encoder(texts)[:, None])
        return {'mel_output': outputs[:, 0], 'alignments': outputs.sigmoid()}


class Experiment(ExperimentBase):
    def compute_losses(self, mels, outputs):
        mel_loss = self.criterion(outputs['mel_output'], mels)
        return {'loss': 2 * mel_loss, 'mel_loss': mel_loss}

    def train_batch(self):
        start = time.time()
        texts, _ = self.read_batch()
        data_loader_time = time.time() - start

        self.optimizer.zero_grad()
        self.model.train()
        outputs = self.model(texts)
        losses = self.compute_losses(texts, outputs)
        losses['loss'].backward()
        self.optimizer.step()
        iteration_time = time.time() - start

        losses_np = {k: float(v.detach()) for k, v in losses.items()}
        msg = f'Rank: {get_dist_info()[0]}, step: {self.iteration}, '
        msg += f'time: {data_loader_time:>.3f}s/{iteration_time:>.3f}s, '
        msg += ', '.join(f'{k}: {v:>.6f}' for k, v in losses_np.items())
        self.logger.info(msg)

        if get_dist_info()[0] == 0:
            for k, v in losses_np.items():
                self.visualizer.add_scalar(f'train_loss/{k}', v, self.iteration)

    def valid(self):
        valid_losses = defaultdict(list)
        for i, (texts, _) in enumerate(self.valid_loader):
            outputs = self.model(texts)
            for k, v in self.compute_losses(texts, outputs).items():
                valid_losses[k].append(float(v))
            picture = outputs['alignments'][0]
            self.visualizer.add_image(f'valid_sentence_{i}', picture, self.iteration, dataformats='HW')
        valid_losses = {k: sum(v) / len(v) for k, v in valid_losses.items()}

        msg = 'Valid: ' + ', '.join(f'{k}: {v:>.6f}' for k, v in valid_losses.items())
        self.logger.info(msg)
        for k, v in valid_losses.items():
            self.visualizer.add_scalar(f'valid/{k}', v, self.iteration)

    def setup_model(self):
        config = self.config
        model = Tacotron(config.model.width)
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config.training.lr, weight_decay=config.training.weight_decay
        )
        self.model = model
        self.optimizer = optimizer
        self.criterion = nn.MSELoss()

    def setup_dataloader(self):
        batch_size = self.config.data.batch_size
        self.train_loader = DataLoader(Noisy(20), batch_size, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(Noisy(8), batch_size, shuffle=False)
        self.logger.info('%d batches for training', len(self.train_loader))


def get_cfg_defaults():
    return {
        'model': {'width': 8},
        'data': {'batch_size': 4},
        'training': {
            'lr': 0.01,
            'weight_decay': 0.0,
            'max_iteration': 6,
            'valid_interval': 3,
            'save_interval': 3,
        },
    }
