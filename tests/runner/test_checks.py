"""What a runner may be built from."""

import pytest
import torch
from support import Tiny, tiny_runner
from torch import nn

from runnerkit.optim.builder import check_optimizer
from runnerkit.parallel.steps import check_step
from runnerkit.runner import EpochBasedRunner


def test_wrapped_models_are_judged_by_what_is_inside():
    from runnerkit.parallel import MMDataParallel

    with pytest.warns(DeprecationWarning, match='batch_processor') as caught:
        EpochBasedRunner(MMDataParallel(nn.Linear(1, 1), device_ids=[-1]), batch_processor=print, max_epochs=1)
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match='Linear has no train_step'):
        EpochBasedRunner(MMDataParallel(nn.Linear(1, 1), device_ids=[-1]), max_epochs=1)


def test_what_is_fine():
    class Steps(nn.Module):
        def train_step(self, data, optimizer): ...

    class Modes(nn.Module):
        def dis_step(self, data, optimizer): ...

    check_step(Steps(), None)
    check_step(Modes(), None)
    with pytest.warns(DeprecationWarning, match='batch_processor'):
        check_step(nn.Linear(1, 1), print)
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    for each in (None, optimizer, {'a': optimizer}):
        check_optimizer(each)


def test_steps_of_other_libraries_are_none_of_ours():
    class Lit(nn.Module):
        def training_step(self, batch, index): ...

    with pytest.raises(TypeError, match='Lit has no train_step'):
        check_step(Lit(), None)


@pytest.mark.parametrize(
    'arguments, error, text',
    [
        ({'batch_processor': 3, 'model': nn.Linear(1, 1)}, TypeError, 'batch_processor must be callable'),
        ({'batch_processor': print}, RuntimeError, 'cannot be both available'),
        ({'model': nn.Linear(1, 1)}, TypeError, 'Linear has no train_step'),
        ({'optimizer': 'SGD'}, TypeError, 'optimizer must be a torch.optim.Optimizer object or dict or None, but got'),
        ({'optimizer': {'a': 1}}, TypeError, r'optimizer\["a"\] is a'),
        ({'logger': 'x'}, TypeError, 'logger must be a logging.Logger object'),
        ({'meta': 'x'}, TypeError, 'meta must be a dict or None'),
        ({'work_dir': 3}, TypeError, '"work_dir" must be a str'),
        ({'max_epochs': 1, 'max_iters': 1}, ValueError, 'Only one of `max_epochs` or `max_iters`'),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        EpochBasedRunner(**{'model': Tiny(), **arguments})


@pytest.mark.parametrize('limits', [{'max_epochs': 'ten'}, {'max_epochs': 12.0}, {'max_iters': -1}])
def test_limits_are_whole_numbers(limits):
    with pytest.raises((TypeError, ValueError), match='must be a whole number of at least 0, or None, but got'):
        tiny_runner(**limits)


def test_a_work_dir_is_on_this_machine(tmp_path):
    assert EpochBasedRunner(Tiny(), work_dir=f'file://{tmp_path}/run', max_epochs=1).work_dir == str(tmp_path / 'run')
    with pytest.raises(ValueError, match=r"out_dir='memory://run'"):
        EpochBasedRunner(Tiny(), work_dir='memory://run', max_epochs=1)
