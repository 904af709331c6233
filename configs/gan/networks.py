"""A generator and a discriminator of digits, and the model that trains them: by modes, or by one step."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import softplus


class Generator(nn.Module):
    """Noise `[n, size]` to images `[n, 1, 28, 28]` in ``[-1, 1]``.

    Args:
        size: of the noise.
        width: channels of the last hidden layer.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size, 2 * width * 7 * 7),
            nn.Unflatten(1, (2 * width, 7, 7)),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        return self.layers(noise)


class Discriminator(nn.Module):
    """Images `[n, 1, 28, 28]` to logits `[n, 1]`: positive for real ones.

    Args:
        width: channels of the first hidden layer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * 7 * 7, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class GAN(nn.Module):
    """Both networks, with the loss of Goodfellow et al., "Generative Adversarial Nets", 2014 (the non-saturating one).

    Args:
        size: of the noise.
        width: of both networks.
    """

    def __init__(self, size: int = 32, width: int = 16) -> None:
        super().__init__()
        self.generator = Generator(size, width)
        self.discriminator = Discriminator(width)

    def dis_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """The loss of the discriminator, which separates real images from fake ones."""
        return softplus(-self.discriminator(real)).mean() + softplus(self.discriminator(fake.detach())).mean()

    def gen_loss(self, fake: Tensor) -> Tensor:
        """The loss of the generator, whose images should count as real."""
        return softplus(-self.discriminator(fake)).mean()

    def dis_step(self, data: tuple[Tensor, Tensor], optimizer: Any) -> dict[str, Any]:
        """A step of the mode ``dis``, which updates the optimizer of that name."""
        real, noise = data
        loss = self.dis_loss(real, self.generator(noise))
        return dict(loss=loss, log_vars=dict(dis_loss=loss), num_samples=len(real))

    def gen_step(self, data: Tensor, optimizer: Any) -> dict[str, Any]:
        """A step of the mode ``gen``, which needs no real image."""
        loss = self.gen_loss(self.generator(data))
        return dict(loss=loss, log_vars=dict(gen_loss=loss), num_samples=len(data))

    def train_step(self, data: tuple[Tensor, Tensor], optimizer: Any) -> dict[str, Any]:
        """One step for both: the generator is called once."""
        real, noise = data
        fake = self.generator(noise)
        losses = dict(dis=self.dis_loss(real, fake), gen=self.gen_loss(fake))
        log_vars = {f'{name}_loss': loss for name, loss in losses.items()}
        return dict(loss=losses, log_vars=log_vars, num_samples=len(real))
