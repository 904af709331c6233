"""The network of this gallery: LeNet with modern layers."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two blocks of convolution, batch norm and pooling, then two linear layers. Images `[n, 1, 28, 28]` to logits.

    Args:
        channels: width of the two blocks.
        hidden: width of the hidden linear layer.
        dropout: share of hidden units dropped while training, in ``[0, 1)``.
        num_classes: number of logits.
    """

    def __init__(
        self,
        channels: tuple[int, int] = (16, 32),
        hidden: int = 128,
        dropout: float = 0.25,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        first, second = channels
        self.features = nn.Sequential(
            *_block(1, first),  # 28 -> 12
            *_block(first, second),  # 12 -> 4
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(second * 4 * 4, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(self.features(image))


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 5, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
