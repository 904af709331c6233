"""Pictures as bytes, and as PNG files."""

import io

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from runnerkit.utils.pictures import as_pixels, png_of, scaled_down

GREY, RGB, RGBA = (np.arange(6 * n, dtype=np.uint8).reshape(2, 3, n) for n in (1, 3, 4))


@pytest.mark.parametrize(
    'image, pixels',
    [
        (GREY[:, :, 0], GREY),
        (RGB, RGB),
        (RGBA, RGBA),
        (RGB / 255, RGB),
        (RGB[:, :, ::-1][:, :, ::-1], RGB),
        (GREY[:, :, 0] > 2, np.where(GREY > 2, 255, 0)),
        (torch.tensor(RGB).permute(2, 0, 1), RGB),
        (torch.tensor(RGB / 255, requires_grad=True).permute(2, 0, 1), RGB),
        (torch.tensor(GREY[:, :, 0] / 255).float(), GREY),
    ],
)
def test_what_is_taken_and_its_png(image, pixels):
    found = as_pixels(image)
    assert (found.dtype, found.tolist()) == (np.uint8, pixels.tolist())
    read = np.asarray(Image.open(io.BytesIO(png_of(found))))
    assert read.reshape(found.shape).tolist() == found.tolist()


def test_a_figure_has_its_size_and_keeps_its_canvas():
    figure = Figure(figsize=(3, 2), dpi=50)
    figure.subplots().plot([1, 2])
    canvas = figure.canvas
    found = as_pixels(figure)
    assert found.shape == (100, 150, 4)
    assert len(np.unique(found)) > 2
    assert figure.canvas is canvas


@pytest.mark.parametrize(
    'image, error, text',
    [
        ([[1, 2]], TypeError, 'a matplotlib figure, but got a list'),
        (RGB.astype(int), TypeError, 'but got int64: convert it'),
        (np.zeros((3, 5, 5)), ValueError, r'but got the shape \(3, 5, 5\)\. Give image\.transpose\(1, 2, 0\)'),
        (np.zeros((2, 5, 5)), ValueError, r'but got the shape \(2, 5, 5\)$'),
        (np.zeros((0, 5)), ValueError, 'but got the shape'),
        (np.full((2, 2), 1.5), ValueError, 'but got values from 1.5 to 1.5: scale them'),
        (np.full((2, 2), np.nan), ValueError, 'but got values from nan to nan'),
    ],
)
def test_what_is_refused(image, error, text):
    with pytest.raises(error, match=text):
        as_pixels(image)


def test_a_large_picture_is_made_smaller():
    assert scaled_down(np.zeros((100, 30, 3), np.uint8), 50).shape == (50, 15, 3)
    assert scaled_down(RGB, 3).tolist() == RGB.tolist()
