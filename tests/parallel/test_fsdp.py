"""`FSDP2` in two real processes (once four), against one process with the whole batch."""

from pathlib import Path

import fsdp_runs
import pytest
import torch

from runnerkit.parallel import FSDP2

RUNS = Path(fsdp_runs.__file__)


@pytest.fixture(scope='module')
def results(on_ranks):
    return on_ranks(RUNS, 'everything')


def test_it_needs_a_process_group():
    with pytest.raises(RuntimeError, match='torchrun'):
        FSDP2(fsdp_runs.build())


def test_all_ranks_begin_with_what_the_first_one_has_built(results):
    expected = [each.detach() for each in fsdp_runs.build(seed=0).parameters()]
    for result in results:
        for key in ('weights', 'meta'):
            assert all(map(torch.equal, result['start'][key], expected))
        assert [each.tolist() for each in result['start']['buffers']] == [0.0, [0.0, 0.0]]
        assert [each.tolist() for each in result['start']['meta buffers']] == [0.0]


def test_each_training_step_begins_with_the_first_ranks_buffers_which_steps_may_replace(results):
    assert [result['replaced_buffers'] for result in results] == [([0.0, 2.0, 4.0], 0.0), ([0.0, 2.0, 4.0], 1.0)]


def test_each_rank_holds_a_part_of_every_weight(results):
    total = sum(each.numel() for each in fsdp_runs.build().parameters())
    held = [result['start']['local'] for result in results]
    assert sum(held) == total
    assert max(held) < 0.55 * total
    assert results[0]['start']['units'] == 4
    assert results[0]['start']['is wrapper']
    assert results[0]['start']['names'] == [name for name, _ in fsdp_runs.build().named_parameters()]


@pytest.mark.parametrize(
    'case',
    ['plain', 'by size', 'one unit', 'kept', 'offloaded', 'recomputed', 'recomputed classes', 'accumulated', 'adam'],
)
def test_it_trains_as_one_process_with_the_whole_batch(results, case):
    plain = fsdp_runs.build()
    options = {'accumulated': {'accumulate': 2}, 'adam': {'optimizer': torch.optim.AdamW, 'fused': True}}
    fsdp_runs.train(plain, None, **options.get(case, {}))
    for result in results:
        for own, other in zip(result['trained'][case][0], plain.parameters(), strict=True):
            torch.testing.assert_close(own, other.detach(), rtol=2e-5, atol=2e-6)


def test_its_runs_are_bit_identical(results):
    weights = [result['trained'][case][0] for result in results for case in ('plain', 'again')]
    assert all(all(map(torch.equal, each, weights[0])) for each in weights[1:])
    assert results[0]['trained']['plain'][1] == results[0]['trained']['again'][1]


def test_no_weights_stay_gathered_after_a_step(results):
    for result in results:
        assert result['gathered']['sharded'] == [True, True]
        before, after, expected = result['gathered']['losses']
        assert after == pytest.approx(expected, rel=1e-5)
        assert after != pytest.approx(before, rel=1e-3)
        assert result['gathered']['called']


@pytest.mark.parametrize('name', ['train_step', 'val_step', 'stem_step'])
def test_every_step_has_the_gradients_of_one_process(results, name):
    for result in results:
        for own, other in result['steps'][name]:
            if other is None:
                assert own is None
            else:
                torch.testing.assert_close(own, other)


def test_other_methods_a_step_with_its_own_update_and_two_backward_passes(results):
    for result in results:
        assert result['steps']['encode']
        for key, factor in (('own', 1), ('twice', 2)):
            for own, other in zip(*result['steps'][key], strict=True):
                torch.testing.assert_close(own * factor, other)


def test_a_step_that_fails_leaves_nothing_behind(results):
    for result in results:
        told, loss, expected = result['errors']
        assert told == 'in the step'
        assert loss == pytest.approx(expected, rel=1e-6)


def test_a_gradient_that_is_bad_in_one_ranks_part_is_left_out_on_all(results):
    for result in results:
        assert result['guarded'] == [(True, (1, 0), False)] * 2


def test_containers_are_unpacked(results):
    assert [result['batches'] for result in results] == [True, True]


def test_units_compute_in_lower_precision_and_keep_their_weights(results):
    plain = fsdp_runs.build()
    losses = fsdp_runs.train(plain, None, steps=2)
    for result in results:
        dtype, own, weights = result['lower_precision']
        assert dtype == torch.bfloat16
        assert weights == {torch.float32}
        assert own != losses
    assert sum(result['lower_precision'][1][0] for result in results) / 2 == pytest.approx(losses[0], rel=0.05)


@pytest.mark.parametrize(
    ('name', 'told'),
    [
        ('class', "no module of a class 'Blok'; did you mean 'Block'?"),
        ('container', 'no forward'),
        ('both', 'give one of them'),
        ('tied', 'tied weights'),
        ('recomputed', "did you mean 'Block'"),
        ('nothing recomputed', 'name classes of modules'),
        ('policy', "did you mean 'param_dtype'?"),
        ('type', "must be one of 'bf16', 'fp16', 'fp32', but got 'bfloat'"),
        ('method', "did you mean 'encode'?"),
        ('differ', 'models of the ranks 0 and 1 differ, here in 0.bias, 0.weight'),
    ],
)
def test_wrong_arguments(results, name, told):
    for result in results:
        if name != 'differ':
            assert told in result['wrong'][name]
    assert told in results[1]['wrong'][name]


def test_four_ranks_train_as_one_process(on_ranks):
    results = on_ranks(RUNS, 'on_four', world_size=4)
    plain = fsdp_runs.build()
    fsdp_runs.train(plain, None)
    for result in results:
        for own, other in zip(result, plain.parameters(), strict=True):
            torch.testing.assert_close(own, other.detach(), rtol=2e-5, atol=2e-6)
