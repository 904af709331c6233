"""A small residual network whose channels can be pruned, for `runnerkit.compat.vega.prune`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class PruneResNet(nn.Module):
    """A residual network without some of its channels. Images `[n, 1, 28, 28]` to logits.

    The first layer and each stage have their own width, ``base_chn_node``, which the blocks of the stage share. Each
    block has a width between its two convolutions, ``base_chn``. All stages have the same number of blocks. From the
    second stage on, they begin with stride 2.

    Args:
        base_chn: widths inside the blocks of the whole network.
        base_chn_node: widths of the first layer and of the stages of the whole network.
        num_classes: number of logits.
        chn: the widths that are kept inside the blocks; None: all.
        chn_node: the same for the first layer and the stages.
        masks: ``chn_mask``, ``chn_node_mask`` and ``encoding``: which channels are kept. A network that is trained from
            scratch needs only their number.
    """

    def __init__(
        self,
        base_chn: Sequence[int] = (8, 8, 16, 16),
        base_chn_node: Sequence[int] = (8, 8, 16),
        num_classes: int = 10,
        chn: Sequence[int] | None = None,
        chn_node: Sequence[int] | None = None,
        **masks: Sequence[Any],
    ) -> None:
        super().__init__()
        inner = list(base_chn if chn is None else chn)
        first, *stages = base_chn_node if chn_node is None else chn_node
        if not stages or len(inner) % len(stages):
            raise ValueError(
                f'{len(inner)} blocks (base_chn) cannot be dealt out to {len(stages)} stages (base_chn_node, without '
                'the first layer)'
            )
        self.stem = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(2)
        )
        blocks: list[nn.Module] = []
        width, depth = first, len(inner) // len(stages)
        for index, between in enumerate(inner):
            stage = stages[index // depth]
            blocks.append(Block(width, between, stage, stride=2 if index >= depth and index % depth == 0 else 1))
            width = stage
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(self.blocks(self.stem(image)).mean((2, 3)))


class Block(nn.Module):
    """Two convolutions with batch norm, and a skip connection.

    Args:
        inputs: input channels.
        between: channels between the convolutions.
        outputs: output channels.
        stride: of the first convolution.
    """

    def __init__(self, inputs: int, between: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, between, 3, stride, 1, bias=False),
            nn.BatchNorm2d(between),
            nn.ReLU(),
            nn.Conv2d(between, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, features: Tensor) -> Tensor:
        return F.relu(self.residual(features) + self.shortcut(features))
