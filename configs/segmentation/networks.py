"""The network and the loss of this gallery: a small U-Net, cross-entropy and Dice."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UNet(nn.Module):
    """Two levels down and up again, with skips (Ronneberger et al. 2015). Images `[n, 1, h, w]` to logits `[n, h, w]`.

    Args:
        width: channels at full resolution; they double with each level.
    """

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.level_1 = _block(1, width)
        self.level_2 = _block(width, 2 * width)
        self.bottom = _block(2 * width, 4 * width)
        self.up_2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join_2 = _block(4 * width, 2 * width)
        self.up_1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join_1 = _block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        if image.shape[-1] % 4 or image.shape[-2] % 4:
            raise ValueError(f'height and width must be multiples of 4, but the image has {tuple(image.shape[-2:])}')
        skip_1 = self.level_1(image)
        skip_2 = self.level_2(F.max_pool2d(skip_1, 2))
        x = self.bottom(F.max_pool2d(skip_2, 2))
        x = self.join_2(torch.cat([skip_2, self.up_2(x)], 1))
        x = self.join_1(torch.cat([skip_1, self.up_1(x)], 1))
        return self.head(x).squeeze(1)


class MaskLoss(nn.Module):
    """Binary cross-entropy and soft Dice (Milletari et al. 2016) of a batch, as two terms.

    Args:
        dice_weight: the factor of the Dice term, which is in ``[0, 1]``.
    """

    def __init__(self, dice_weight: float = 1.0) -> None:
        super().__init__()
        self.dice_weight = dice_weight

    def forward(self, logits: Tensor, mask: Tensor) -> dict[str, Tensor]:
        wanted = mask.to(logits.dtype)
        chance = logits.sigmoid()
        dice = 1 - 2 * (chance * wanted).sum() / (chance.sum() + wanted.sum()).clamp(min=1)
        return {
            'loss_bce': F.binary_cross_entropy_with_logits(logits, wanted),
            'loss_dice': self.dice_weight * dice,
        }


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)
