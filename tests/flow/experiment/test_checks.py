"""What is said of an experiment that cannot train, before it does."""

import re

import pytest
import torch
from experiments import Line, config
from support import Noisy, Tiny

from runnerkit.config import Config
from runnerkit.data import build_dataloader
from runnerkit.flow.experiment.checks import TRAINING, experiment_config, is_shared_by_all, misspelt, problem_of_loader


def test_the_config_is_copied_and_filled_in():
    mine = {'training': {'max_iteration': 5}, 'free': {'key': 1}}
    made = Line(mine)
    assert mine == {'training': {'max_iteration': 5}, 'free': {'key': 1}}
    assert made.config.training == {**TRAINING, 'max_iteration': 5}
    assert made.config.free.key == 1
    assert (made.max_iters, made.iteration, made.model) == (5, 0, None)
    own = Config({'training': {'valid_interval': 3}})
    assert Line(own, max_iters=7).config.training == {**TRAINING, 'valid_interval': 3, 'max_iteration': 7}
    assert own.training == {'valid_interval': 3}
    assert Line().config.training == TRAINING == experiment_config(None).training
    assert TRAINING == {'max_iteration': 900000, 'valid_interval': 1000, 'save_interval': 10000}


@pytest.mark.parametrize(
    'given, error, told',
    [
        (torch.nn.Linear(1, 1), TypeError, r'config must be a Config, a dict or None.*Experiment\(config, args\)'),
        ({'training': 5}, TypeError, r'training must be a dict such as dict\(max_iteration=1000\), but got 5'),
        (config(valid_interval=0), ValueError, r'training\.valid_interval must be a whole number of at least 1.*got 0'),
        (config(max_iteration='12'), TypeError, r'training\.max_iteration must be a whole number'),
        (config(seed=-1), ValueError, 'seed must be'),
    ],
)
def test_wrong_configs(given, error, told):
    with pytest.raises(error, match=told):
        experiment_config(given)


def test_keys_that_look_like_others_are_named():
    given = {'trainning': {}, 'training': {'valid_intervall': 3, 'rate': 1}, 'log_confg': {}, 'lr': 1, 'amp': None}
    assert dict(misspelt(experiment_config(given))) == {
        'trainning': 'training',
        'log_confg': 'log_config',
        'training.valid_intervall': 'training.valid_interval',
    }


def loader():
    return build_dataloader(Noisy(8), 4, 0)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 1


@pytest.mark.parametrize(
    'make, told',
    [
        (lambda: [loader(), loader()], 'got a list of loaders: give several in a dict, dict(clean=…, noisy=…)'),
        (lambda: Noisy(8), 'got the data set Noisy: give a loader over it, such as runnerkit.data.build_dataloader('),
        (lambda: iter(loader()), 'an iterator, which ends after one pass'),
        (lambda: (batch for batch in loader()), 'got generator, an iterator'),
        (lambda: 5, 'got 5'),
    ],
)
def test_what_is_no_loader_is_told(make, told):
    class Wrong(Line):
        def setup_dataloader(self):
            self.train_loader = {'one': loader(), 'two': make()}

    assert told in problem_of_loader(make())
    made = Wrong(config(), model=Tiny())
    made.setup_dataloader()
    with pytest.raises(TypeError, match=re.escape("self.train_loader['two'] must be a loader, but got")):
        made.run()
    for right in (loader(), [1, 2], torch.utils.data.DataLoader(Noisy(8)), Stream()):
        assert problem_of_loader(right) is None


def test_an_empty_valid_loader_is_told(tmp_path):
    class Empty(Line):
        def setup_dataloader(self):
            self.train_loader, self.valid_loader = loader(), []

    with pytest.raises(ValueError, match=r'self\.valid_loader is empty: got \[\]\. Set one with batches, or None'):
        Empty(config(), {'output': tmp_path, 'device': 'cpu'}).setup()


def test_a_loader_that_all_ranks_would_read_alike_is_told(caplog):
    data = Noisy(8)
    shared = [torch.utils.data.DataLoader(data, 4, shuffle=shuffle) for shuffle in (True, False)]
    parts = torch.utils.data.DistributedSampler(data, 2, 0)
    mine = torch.utils.data.DataLoader(data, batch_sampler=[[0, 1]])
    right = [loader(), [1, 2], mine, torch.utils.data.DataLoader(data, 4, sampler=parts)]
    assert [is_shared_by_all(each) for each in [*shared, *right]] == [True] * 2 + [False] * 4
    made = Line(config(), model=Tiny())
    made.train_loader = shared[0]
    made.check_loaders()
    assert caplog.text == ''
    made._world_size = 2
    for _ in range(2):
        made.check_loaders()
    assert caplog.text.count('each of the 2 processes trains on all samples of self.train_loader, not on its own') == 1
