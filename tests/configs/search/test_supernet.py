"""Differentiable architecture search: who moves what, the middle of a run, and the network at its end."""

import json
from pathlib import Path

import pytest
import torch

from runnerkit.checkpoint.loader import load_tensors
from runnerkit.config import Config
from runnerkit.flow import Flow, Options
from runnerkit.hooks import Hook
from runnerkit.nn import build_model
from runnerkit.utils.imports import import_object

FOLDER = Path(__file__).parents[3] / 'configs/search'
FoundNetwork, MixedOperation, SuperNetwork, OPERATIONS = (
    import_object(f'{FOLDER}/supernet.py:{name}')
    for name in ('FoundNetwork', 'MixedOperation', 'SuperNetwork', 'OPERATIONS')
)


class Look(Hook):
    """Notes which parameters an iteration moves; ends the run by an exception if it is told to."""

    def __init__(self, dies_after=None):
        self.moved, self.dies_after = [], dies_after

    def before_train_iter(self, runner):
        if runner.completed_iters == self.dies_after:
            raise KeyboardInterrupt
        self.before = {name: each.clone() for name, each in runner.model.named_parameters()}

    def after_train_iter(self, runner):
        moved = [name for name, each in runner.model.named_parameters() if not torch.equal(each, self.before[name])]
        self.moved.append((runner.mode, moved))


def train(folder, dies_after=None):
    """Eight iterations of the config, with a narrow network."""
    cfg = Config.fromfile(str(FOLDER / 'darts.py'))
    cfg.merge_from_dict({'model.width': 4, 'runner.max_iters': 8, 'checkpoint_config.interval': 1})
    cfg.merge_from_dict({'data.batch_size': 8})
    look = Look(dies_after)
    try:
        Flow(cfg, Options(work_dir=str(folder), device='cpu', auto_resume=True), hooks=[(look, 'LOWEST')]).run()
    except KeyboardInterrupt:
        pass
    return look.moved


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    return folder, train(folder)


def test_each_optimizer_moves_its_own_parameters_only(whole):
    modes = [mode for mode, _ in whole[1]]
    assert sorted(set(modes)) == ['architecture', 'weights']
    for mode, moved in whole[1]:
        if mode == 'architecture':
            assert moved == ['architecture']
        else:
            assert 'network.stem.0.weight' in moved
            assert all(name.startswith('network.') for name in moved)


@pytest.mark.parametrize('dies_after', [3, 4])
def test_a_killed_search_ends_like_a_whole_one(dies_after, whole, tmp_path):
    moved = train(tmp_path, dies_after) + train(tmp_path)
    assert moved == whole[1]
    ours, theirs = (load_tensors(folder / 'latest.pth') for folder in (tmp_path, whole[0]))
    for name, value in theirs['state_dict'].items():
        assert torch.equal(ours['state_dict'][name], value)
    for name in ('weights', 'architecture'):
        for key, state in theirs['optimizer'][name]['state'].items():
            for part, value in state.items():
                assert torch.equal(torch.as_tensor(ours['optimizer'][name]['state'][key][part]), torch.as_tensor(value))


def test_the_description_is_that_of_a_model(whole):
    desc = json.loads((whole[0] / 'desc.json').read_text())
    weights = load_tensors(whole[0] / 'latest.pth')['state_dict']['architecture']
    assert desc['operations'] == [list(OPERATIONS)[index] for index in weights.argmax(1)]
    assert build_model(desc)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_a_mixed_operation_with_one_weight_is_that_operation():
    torch.manual_seed(0)
    mixed, features = MixedOperation(3).eval(), torch.randn(2, 3, 6, 6)
    for index, operation in enumerate(mixed.operations):
        assert torch.allclose(mixed(features, torch.eye(len(OPERATIONS))[index]), operation(features))


def test_the_gallery_trains_the_network_that_was_found():
    cfg = Config.fromfile(str(FOLDER / 'darts_found.py'))
    search = Config.fromfile(str(FOLDER / 'darts.py'))
    network = build_model(cfg.model).model
    assert len(network.layers) == search.model.depth
    assert network.classifier.in_features == search.model.width
