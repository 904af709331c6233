"""What `runnerkit.fit` trains: batches are pairs, and the loss is one number."""

import pytest
import torch

from runnerkit.nn.pairs import Pairs

X, Y = torch.ones(4, 2), torch.zeros(4, 1)


def model(loss):
    return Pairs(torch.nn.Linear(2, 1), loss)


def test_the_loss_is_a_number_or_terms():
    terms = model(lambda x, y: {'loss': (x - y).abs().mean(), 'others': x.mean()[None]})
    assert set(terms.train_step((X, Y))['log_vars']) == {'loss', 'others'}
    with pytest.raises(ValueError, match=r'has the shape \(4, 1\): take its mean'):
        model(lambda x, y: {'loss': x}).train_step((X, Y))


@pytest.mark.parametrize(
    ('batch', 'words'),
    [({'x': X, 'y': Y}, 'a dict'), ((X,), 'a tuple of 1'), ([X, Y, Y], 'a list of 3'), (X, 'a Tensor')],
)
def test_other_batches_are_refused(batch, words):
    with pytest.raises(TypeError, match=rf'batches \(x, y\), but this one is {words}: .*inputs=…, targets=…'):
        model('MSELoss').val_step(batch)


def test_new_samples_need_no_targets():
    assert model('MSELoss').predict(X).shape == (4, 1)
