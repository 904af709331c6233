"""The wrapper for several processes, in two real ones."""

from pathlib import Path

import pytest
import torch

from runnerkit.parallel import MODULE_WRAPPERS, MMDistributedDataParallel, is_module_wrapper

HERE = Path(__file__).parent


@pytest.fixture(scope='module')
def results(on_ranks):
    return on_ranks(HERE / 'ddp_runs.py', 'everything')


@pytest.fixture(scope='module')
def runs():
    import importlib.util

    spec = importlib.util.spec_from_file_location('ddp_runs', HERE / 'ddp_runs.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alone(runs, rank, scale=1.0):
    """The gradients that a rank would have by itself."""
    torch.manual_seed(0)
    model = runs.Net()
    model.train_step(runs.batch(rank), None, scale=scale)['loss'].backward()
    return runs.grads(model)


def same(left, right):
    return all(torch.allclose(a, b, atol=1e-7) for a, b in zip(left, right, strict=True))


def test_gradients_of_a_step_are_the_mean_over_ranks(results, runs):
    own = [alone(runs, rank, scale=2.0) for rank in range(2)]
    mean = [(a + b) / 2 for a, b in zip(*own)]
    assert not same(own[0], own[1])
    for result in results:
        assert same(result['train_step']['grads'], mean)


def test_the_step_runs_once_and_the_models_own_call_inside_it(results):
    for result in results:
        assert result['train_step']['calls'] == ['train_step', 'forward']
        assert result['train_step']['keys'] == ['log_vars', 'loss', 'num_samples']
        assert result['train_step']['left_behind'] == set()


def test_hooks_on_the_model_see_its_own_calls_and_not_the_steps(results):
    own = [('before', 'Net', 'Tensor'), ('after', 'Net', 'Tensor')]
    for result in results:
        step, call = result['hooks']
        assert step == [*own, ('around', 'MMDistributedDataParallel', 'dict')]
        assert call == [*own, ('around', 'MMDistributedDataParallel', 'Tensor')]


def test_forward_synchronises_too(results, runs):
    mean = [(a + b) / 2 for a, b in zip(alone(runs, 0), alone(runs, 1))]
    assert all(same(result['forward'], mean) for result in results)


def test_without_synchronisation_gradients_are_each_ranks_own(results, runs):
    for rank, result in enumerate(results):
        assert same(result['no_sync'], alone(runs, rank))


def test_parameters_stay_equal(results):
    assert all(torch.equal(a, b) for a, b in zip(results[0]['trained'], results[1]['trained']))


def test_ranks_may_validate_different_numbers_of_batches(results):
    assert [len(result['val_step']['seen']) for result in results] == [3, 9]
    assert [result['val_step']['mean'] for result in results] == [[1.0] * 3, [2.0] * 3]


def test_other_modes_synchronise_like_train_step(results):
    for result in results:
        assert result['other_modes']['has'] is False
        assert result['other_modes']['state'] == ['module.body.weight', 'module.body.bias']
    assert same(results[0]['other_modes']['grads'], results[1]['other_modes']['grads'])


def test_a_step_that_fails_leaves_the_model_as_it_was(results):
    assert all(result['errors'] == ('in the step', True, True) for result in results)


def test_it_is_a_registered_wrapper():
    assert MODULE_WRAPPERS.get('MMDistributedDataParallel') is MMDistributedDataParallel
    assert issubclass(MMDistributedDataParallel, torch.nn.parallel.DistributedDataParallel)
    assert not is_module_wrapper(torch.nn.Linear(1, 1))


def test_containers_are_unpacked(results, runs):
    mean = [(a + b) / 2 for a, b in zip(alone(runs, 0), alone(runs, 1))]
    for grads, unpacked, kwargs, same_loss in (result['containers'] for result in results):
        assert same(grads, mean)
        assert unpacked
        assert kwargs == ({'a': [1]},)
        assert same_loss
