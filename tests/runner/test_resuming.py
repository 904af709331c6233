"""What goes to other ranks; runs that are resumed are in test_checkpoints.py, test_resume_cells.py and
test_ranks_change.py."""

import pytest
import torch

from runnerkit.runner.resuming import mean_gradients


@pytest.mark.parametrize('states', [[{'accumulated': 1}, {'accumulated': 2}], [{'accumulated': 1}, {'accumulated': 0}]])
def test_ranks_at_different_places_of_a_cycle_have_no_mean(states):
    with pytest.raises(ValueError, match='same number of ranks'):
        mean_gradients([{**state, 'grads': [torch.ones(2)]} for state in states])


def test_the_mean_counts_ranks_that_have_not_used_a_parameter():
    grads = [[torch.ones(2), None, None], [None, None, torch.ones(1)]]
    means = mean_gradients([{'accumulated': 1, 'grads': each} for each in grads])
    assert [mean if mean is None else mean.tolist() for mean in means] == [[0.5, 0.5], None, [0.5]]
