"""DeepFM (Guo et al. 2017): which user will like which film?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runnerkit.nn import Supervised


class DeepFM(nn.Module):
    """A weight for each feature, a product of vectors for each pair of features, and a network on all vectors.

    Features `[n, fields]`, whose numbers are distinct between fields, to logits `[n]`.

    Args:
        fields: features per sample.
        features: the number of features in all fields together.
        size: of the vector of each feature.
        widths: of the hidden layers.
        dropout: share of hidden units dropped while training, in ``[0, 1)``.
    """

    def __init__(self, fields: int, features: int, size: int, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))
        self.weights = nn.Embedding(features, 1)
        self.vectors = nn.Embedding(features, size)
        nn.init.zeros_(self.weights.weight)
        nn.init.normal_(self.vectors.weight, std=0.01)
        layers: list[nn.Module] = []
        for before, width in zip([fields * size, *widths], widths, strict=False):
            layers += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(dropout)]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        vectors = self.vectors(features)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2  # the products of all pairs, summed
        return self.bias + self.weights(features).sum((1, 2)) + pairs + self.deep(vectors.flatten(1)).squeeze(1)


class Model(Supervised):
    """The class that PaddleRec expects in the file of a phase's ``model``: the network with its loss and its metric.

    Its arguments, those of `DeepFM`, are the config's hyper-parameters.
    """

    def __init__(self, fields: int, features: int, size: int, widths: list[int], dropout: float) -> None:
        net = DeepFM(fields, features, size, widths, dropout)
        super().__init__(net, nn.BCEWithLogitsLoss(), {'auc': {'type': 'BinaryAUROC'}})
