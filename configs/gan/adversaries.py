"""The GAN as an experiment: a batch is a step of the discriminator, and one of the generator."""

from __future__ import annotations

from torch import Tensor

from runnerkit.data import build_dataloader
from runnerkit.flow import Experiment
from runnerkit.parallel import unwrap
from runnerkit.utils.imports import import_object

FILE = __file__.rpartition('/')[0] + '/digits.py'
Noise, RealAndNoise = (import_object(f'{FILE}:{name}') for name in ('Noise', 'RealAndNoise'))


class Adversaries(Experiment):
    """Two networks from the config, with a loader for each."""

    def setup_dataloader(self) -> None:
        batch_size, size = self.config.batch_size, self.config.model['size']
        datasets = {'dis': RealAndNoise(size), 'gen': Noise(size)}
        self.train_loader = {
            name: build_dataloader(dataset, batch_size, 0, seed=self.seed, dist=self.parallel)
            for name, dataset in datasets.items()
        }

    def train_batch(self) -> dict[str, Tensor | int]:
        model = unwrap(self.model)
        real, noise = self.read_batch('dis')
        dis_loss = model.dis_loss(real, model.generator(noise))
        self.update(dis_loss, 'dis')
        gen_loss = model.gen_loss(model.generator(self.read_batch('gen')))
        self.update(gen_loss, 'gen')
        return dict(dis_loss=dis_loss, gen_loss=gen_loss, num_samples=len(real))
