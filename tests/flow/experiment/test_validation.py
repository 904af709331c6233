"""When an experiment validates."""

import pytest
import torch
from experiments import Line, started, trained

from runnerkit.data import build_dataloader
from runnerkit.flow.experiment.validation import ValidHook


def test_it_is_called_by_intervals_from_a_start_on(tmp_path):
    seen = []

    class Sees(Line):
        def valid(self):
            seen.append(self.iteration)

    trained(Sees, tmp_path, valid_interval=4, evaluation={'start': 3})
    assert seen == [3, 7, 11]
    seen.clear()
    trained(Sees, tmp_path / 'none', evaluation=None)
    assert seen == []


def test_what_the_valid_loader_holds_is_part_of_a_checkpoint(tmp_path):
    """A loader that shuffles goes on shuffling as it would have, also one of several by name."""
    orders = []

    class Shuffles(Line):
        def setup_dataloader(self):
            super().setup_dataloader()
            generator = torch.Generator().manual_seed(3)
            shuffled = torch.utils.data.DataLoader(range(30), 30, shuffle=True, generator=generator)
            self.valid_loader = {'one': build_dataloader(range(3), 1, 0), 'two': shuffled}

        def valid(self):
            orders.append(next(iter(self.valid_loader['two'])).tolist())

    trained(Shuffles, tmp_path / 'whole')
    whole = orders.copy()
    orders.clear()
    trained(Shuffles, tmp_path / 'cut', max_iteration=8)
    trained(Shuffles, tmp_path / 'cut')
    assert orders == whole
    assert len(orders) == 4


def test_a_valid_without_scores_is_told(tmp_path, caplog):
    class Empty(Line):
        def valid(self):
            pass

    caplog.set_level('INFO')
    trained(Empty, tmp_path / 'one')
    assert caplog.text.count('Empty.valid has returned and reported no scores: none are logged') == 1
    with pytest.raises(KeyError, match=r"save_best='accuracy', but Empty\.valid has returned and reported no scores"):
        trained(Empty, tmp_path / 'two', evaluation={'save_best': 'accuracy'})


def test_wrong_options(tmp_path):
    with pytest.raises(ValueError, match='by_epoch=True: an Experiment validates by iterations'):
        ValidHook(None, by_epoch=True)
    with pytest.raises(TypeError, match='intervall'):
        started(Line, tmp_path, evaluation={'intervall': 3})
