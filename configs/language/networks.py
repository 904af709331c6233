"""The network of this gallery: a transformer that predicts the next byte (Vaswani et al. 2017; pre-norm like GPT-2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Attention to the bytes so far, then a perceptron, each added to its input: `[n, length, width]` to the same.

    Args:
        width: features of a byte.
        heads: of the attention; ``width`` is a multiple.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        queries, keys, values = (
            each.view(n, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.attention(self.norm_1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.perceptron(self.norm_2(x))


class ByteModel(nn.Module):
    """Bytes `[n, length]` to logits of the next byte after each of them, `[n, 256, length]`.

    Args:
        width: features of a byte.
        blocks: how many blocks.
        heads: of each attention; ``width`` is a multiple.
        longest: the greatest ``length``.
    """

    def __init__(self, width: int = 256, blocks: int = 4, heads: int = 4, longest: int = 128) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f'width must be a multiple of heads, but got {width} and {heads}')
        self.embedding = nn.Embedding(256, width)
        self.position = nn.Parameter(torch.zeros(longest, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text) + self.position[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).transpose(1, 2).contiguous()  # FSDP2 warns about views
