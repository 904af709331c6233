"""Pictures as arrays of bytes, and as PNG files."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A picture ``[height, width, channels]`` with 1 (grey), 3 (RGB) or 4 (RGBA) channels.
Pixels: TypeAlias = 'NDArray[np.uint8]'

_ALLOWED = (
    'a picture is an array [height, width], [height, width, 3] or [height, width, 4], a torch tensor [height, width] '
    'or [channels, height, width], both with uint8 or floats in [0, 1], or a matplotlib figure'
)


def as_pixels(image: Any) -> Pixels:
    """An array, a torch tensor or a matplotlib figure as bytes."""
    if hasattr(image, 'savefig') and hasattr(image, 'set_canvas'):
        return _drawn(image)
    is_tensor = hasattr(image, 'detach')
    if is_tensor:
        image = image.detach().cpu()
        image = (image.float() if image.is_floating_point() else image).numpy()
    if not isinstance(image, np.ndarray):
        raise TypeError(f'{_ALLOWED}, but got a {type(image).__name__}')
    shape, array = image.shape, image
    if is_tensor and array.ndim == 3 and shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size:
        is_turned = array.ndim == 3 and shape[0] in (1, 3, 4)
        hint = '. Give image.transpose(1, 2, 0), with the channels last' if is_turned else ''
        raise ValueError(f'{_ALLOWED}, but got the shape {tuple(shape)}{hint}')
    return np.ascontiguousarray(_as_bytes(array))


def _as_bytes(array: NDArray[Any]) -> Pixels:
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != 'f':
        raise TypeError(f'{_ALLOWED}, but got {array.dtype}: convert it with image.astype("uint8")')
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # also NaN
        raise ValueError(
            f'{_ALLOWED}, but got values from {low:.4g} to {high:.4g}: scale them, '
            '(image - image.min()) / (image.max() - image.min())'
        )
    return (array * 255 + 0.5).astype(np.uint8)


def _drawn(figure: Any) -> Pixels:
    """A matplotlib figure, without the backend of the user's screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    before, canvas = figure.canvas, FigureCanvasAgg(figure)
    try:
        canvas.draw()
        return np.array(canvas.buffer_rgba())
    finally:
        figure.set_canvas(before)


def scaled_down(pixels: Pixels, side: int) -> Pixels:
    """Every n-th row and column of a picture, so that neither side is longer than ``side``."""
    step = -(-max(pixels.shape[:2]) // side)
    return np.ascontiguousarray(pixels[::step, ::step])


def png_of(pixels: Pixels) -> bytes:
    """A picture as the content of a PNG file."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: no filter
    head = struct.pack('>IIBBBBB', width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = ((b'IHDR', head), (b'IDAT', zlib.compress(rows.tobytes(), 9)), (b'IEND', b''))
    return b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data)) for kind, data in parts
    )
