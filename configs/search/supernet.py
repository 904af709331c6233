"""Differentiable architecture search: a network of all operations at once, and the resulting discrete one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnerkit.hooks import Hook
from runnerkit.parallel import unwrap


def convolution(width: int, size: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(width, width, size, padding=size // 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())


#: The operations of a layer by name, built from its width. They keep the width and the size of the image.
OPERATIONS: dict[str, Callable[[int], nn.Module]] = {
    'skip': lambda width: nn.Identity(),
    'max_pool': lambda width: nn.MaxPool2d(3, 1, 1),
    'conv_3': lambda width: convolution(width, 3),
    'conv_5': lambda width: convolution(width, 5),
}


class MixedOperation(nn.Module):
    """All operations at once: the sum of their outputs, with weights `[len(OPERATIONS)]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.operations = nn.ModuleList(make(width) for make in OPERATIONS.values())

    def forward(self, features: Tensor, weights: Tensor) -> Tensor:
        return sum(weight * operation(features) for weight, operation in zip(weights, self.operations, strict=True))


class Stacked(nn.Module):
    """Layers between a first convolution and a linear one, with a halved image after each second layer. Images
    `[n, 1, 28, 28]` to logits `[n, 10]`.

    Args:
        layers: each keeps the width and the size of the image.
        width: channels.
    """

    def __init__(self, layers: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layers = nn.ModuleList(layers)
        self.classifier = nn.Linear(width, 10)

    def forward(self, image: Tensor, weights: Tensor | None = None) -> Tensor:
        features = self.stem(image)
        for index, layer in enumerate(self.layers):
            features = layer(features) if weights is None else layer(features, weights[index])
            if index % 2:
                features = F.avg_pool2d(features, 2)
        return self.classifier(features.mean((2, 3)))


class FoundNetwork(Stacked):
    """A network with one operation a layer.

    Args:
        operations: their names.
        width: channels.
    """

    def __init__(self, operations: Sequence[str], width: int = 16) -> None:
        super().__init__([OPERATIONS[name](width) for name in operations], width)


class SuperNetwork(nn.Module):
    """A network with all operations in each layer, and the architecture's parameters: their softmax is the share of
    each operation in a layer.

    It has two modes, which take turns: ``weights`` learns the weights, ``architecture`` the architecture, each on its
    own data and with the optimizer of its name. This is the first-order variant of Liu, Simonyan, Yang: DARTS:
    Differentiable Architecture Search, 2019.

    Args:
        depth: layers.
        width: channels.
    """

    def __init__(self, depth: int = 4, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.network = Stacked([MixedOperation(width) for _ in range(depth)], width)
        self.architecture = nn.Parameter(1e-3 * torch.randn(depth, len(OPERATIONS)))

    def forward(self, image: Tensor) -> Tensor:
        return self.network(image, self.architecture.softmax(1))

    def weights_step(self, data: tuple[Tensor, Tensor], optimizer: Any) -> dict[str, Any]:
        """A step of the mode ``weights``."""
        return self._step('weights', data)

    def architecture_step(self, data: tuple[Tensor, Tensor], optimizer: Any) -> dict[str, Any]:
        """A step of the mode ``architecture``."""
        return self._step('architecture', data)

    def _step(self, mode: str, data: tuple[Tensor, Tensor]) -> dict[str, Any]:
        image, label = data
        logits = self(image)
        loss = F.cross_entropy(logits, label)
        accuracy = (logits.argmax(1) == label).float().mean()
        log_vars = {f'{mode}_loss': loss, f'{mode}_accuracy': accuracy}
        return dict(loss=loss, log_vars=log_vars, num_samples=len(label))

    def description(self) -> dict[str, Any]:
        """The network with the strongest operation of each layer, as the config of a model."""
        names = list(OPERATIONS)
        chosen = [names[index] for index in self.architecture.argmax(1).tolist()]
        return dict(type=f'{__file__}:FoundNetwork', operations=chosen, width=self.width)


class DescriptionHook(Hook):
    """Writes the description of the found network into ``desc.json`` of the work dir when the search is over."""

    def after_run(self, runner: Any) -> None:
        """Write the file; on rank 0."""
        if runner.rank:
            return
        model = unwrap(runner.model)
        shares = model.architecture.softmax(1).tolist()
        with open(os.path.join(runner.work_dir, 'desc.json'), 'w', encoding='utf-8') as file:
            json.dump(model.description(), file, indent=2)
        for index, layer in enumerate(shares):
            told = ', '.join(f'{name} {share:.2f}' for name, share in zip(OPERATIONS, layer, strict=True))
            runner.logger.info('Layer %d: %s', index, told)
