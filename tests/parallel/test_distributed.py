"""The wrapper for several processes, in two real ones."""

import pytest
import torch
from parallel import ddp_runs as runs

from runnerkit.parallel import MODULE_WRAPPERS, MMDistributedDataParallel, is_module_wrapper


def alone(rank, scale=1.0):
    """The gradients that a rank would have by itself."""
    torch.manual_seed(0)
    model = runs.Net()
    model.train_step(runs.batch(rank), None, scale=scale)['loss'].backward()
    return runs.grads(model)


def same(left, right):
    return all(torch.allclose(a, b, atol=1e-7) for a, b in zip(left, right, strict=True))


def test_gradients_of_a_step_are_the_mean_over_ranks(results):
    own = [alone(rank, scale=2.0) for rank in range(2)]
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


def test_forward_synchronises_too(results):
    mean = [(a + b) / 2 for a, b in zip(alone(0), alone(1))]
    assert all(same(result['forward'], mean) for result in results)


def test_without_synchronisation_gradients_are_each_ranks_own(results):
    for rank, result in enumerate(results):
        assert same(result['no_sync'], alone(rank))


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


def test_containers_are_unpacked(results):
    mean = [(a + b) / 2 for a, b in zip(alone(0), alone(1))]
    for grads, unpacked, kwargs, same_loss in (result['containers'] for result in results):
        assert same(grads, mean)
        assert unpacked
        assert kwargs == ({'a': [1]},)
        assert same_loss


# --- averages of each backward pass -----------------------------------------------------------------------------------


@pytest.fixture
def passes(results):
    return [result['each_backward'] for result in results]


MEAN = (runs.pair(0) + runs.pair(1)).sum(0, keepdim=True) / 2


def test_only_what_is_reached_is_averaged(passes):
    for result in passes:
        assert torch.equal(result['one part']['left.weight'], MEAN)
        assert all(grad is None for name, grad in result['one part'].items() if 'left' not in name)


def test_gradients_of_several_passes_add_up(passes):
    for result in passes:
        assert torch.equal(result['added']['left.weight'], 2 * MEAN)
        assert torch.equal(result['added']['right.weight'], MEAN)


def test_within_no_sync_and_switched_off_nothing_is_averaged(passes):
    for rank, result in enumerate(passes):
        own = runs.pair(rank).sum(0, keepdim=True)
        assert torch.equal(result['no_sync']['left.weight'], own)
        assert torch.equal(result['off']['left.weight'], 2 * own)


def test_ranks_may_differ_with_find_unused_parameters(passes):
    for result in passes:
        assert torch.equal(result['differ']['left.weight'], MEAN)
        assert torch.equal(result['differ']['right.weight'], runs.pair(1).sum(0, keepdim=True) / 2)
        assert result['differ']['norm.weight'] is None


def test_sparse_gradients_stay_sparse_and_are_averaged(passes):
    expected = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0], [1.0, 1.0]])
    assert all(torch.equal(result['sparse']['table.weight'], expected) for result in passes)


def test_a_pass_that_fails_leaves_nothing_behind(passes):
    assert torch.equal(passes[0]['after an error'], passes[1]['after an error'])


def test_buffers_are_those_of_the_first_rank_unless_told_otherwise(passes):
    assert [result['buffers'] for result in passes] == [[0.0, 0.0], [0.0, 1.0]]


def test_steps_without_gradients_go_to_the_model(passes):
    assert [result['without gradients'] for result in passes] == [False, False]
