"""Names of losses, and names that only contain the letters."""

import pytest

from runnerkit.utils.texts import names_a_loss


@pytest.mark.parametrize(
    'name',
    ['loss', 'loss_cls', 'decode.loss_ce', 'val/loss', 'celoss', 'd_losses', 'losses', 'loss2', 'trainLossCls', 'LOSS'],
)
def test_losses(name):
    assert names_a_loss(name)


@pytest.mark.parametrize('name', ['glossary_accuracy', 'glossiness', 'accuracy', ''])
def test_others(name):
    assert not names_a_loss(name)
