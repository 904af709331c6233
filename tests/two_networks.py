"""A small GAN that several tests train, its data, and the plain loop that does the same."""

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import Dataset

NAMES = ('gen', 'dis')


class Points(Dataset):
    """Real points, and noise for fakes: a function of the sample alone, so that ranks divide them among themselves."""

    def __init__(self, length=24):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, generator=generator) + 1, torch.randn(2, generator=generator)


class Gan(nn.Module):
    """Two networks, a step for each of them, and one that returns both losses."""

    def __init__(self):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
        self.dis = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    def dis_loss(self, real, fake):
        return softplus(-self.dis(real)).mean() + softplus(self.dis(fake.detach())).mean()

    def gen_loss(self, fake):
        return softplus(-self.dis(fake)).mean()

    def dis_step(self, data, optimizer):
        real, noise = data
        loss = self.dis_loss(real, self.gen(noise))
        return dict(loss=loss, log_vars=dict(dis_loss=loss), num_samples=len(real))

    def gen_step(self, data, optimizer):
        real, noise = data
        loss = self.gen_loss(self.gen(noise))
        return dict(loss=loss, log_vars=dict(gen_loss=loss), num_samples=len(real))

    def train_step(self, data, optimizer):
        real, noise = data
        fake = self.gen(noise)
        losses = dict(gen=self.gen_loss(fake), dis=self.dis_loss(real, fake))
        return dict(loss=losses, log_vars={f'{k}_loss': v for k, v in losses.items()}, num_samples=len(real))


def gan(seed=0):
    torch.manual_seed(seed)
    return Gan()


def sgd(model, lr=0.2):
    """An optimizer for each network."""
    return {name: torch.optim.SGD(getattr(model, name).parameters(), lr=lr, momentum=0.9) for name in NAMES}


def plain_losses(model, optimizers, batches):
    """Train by one step that has both losses: first all backward passes, then all steps."""
    for data in batches:
        losses = model.train_step(data, None)['loss']
        grads = {
            k: torch.autograd.grad(v, list(getattr(model, k).parameters()), retain_graph=True)
            for k, v in losses.items()
        }
        for name in NAMES:
            for parameter, grad in zip(getattr(model, name).parameters(), grads[name], strict=True):
                parameter.grad = grad
        for name in NAMES:
            optimizers[name].step()


def plain_modes(model, optimizers, batches):
    """Train by ``batches``, pairs of a mode and a batch, each of which trains the network of that name."""
    for mode, data in batches:
        optimizers[mode].zero_grad()
        getattr(model, f'{mode}_step')(data, None)['loss'].backward(inputs=list(getattr(model, mode).parameters()))
        optimizers[mode].step()


def flat(model):
    """All weights in one vector."""
    inner = getattr(model, 'module', model)
    return torch.cat([each.detach().flatten() for each in inner.parameters()]).clone()
