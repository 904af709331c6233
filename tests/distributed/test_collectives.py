"""Sums, averages and objects, alone and among two."""

import pytest
import torch

from runnerkit import distributed as d
from runnerkit.distributed.collectives import TIME_NAMES, _buckets


def test_alone_nothing_changes():
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor(3)]
    d.allreduce_params(tensors)
    assert torch.equal(tensors[0], torch.tensor([1.0, 2.0]))
    d.allreduce_grads([torch.nn.Parameter(torch.ones(1))])
    assert d.reduce_sums((1.5, 2)) == [1.5, 2]
    assert d.reduce_extremes(3.0) == (3.0, 3.0)
    thing = object()
    assert d.broadcast_object(thing) is thing
    assert d.gather_objects(thing) == d.all_gather_objects(thing) == [thing]
    assert d.reduce_named_sums({'a': (1.0, 2.0)}) == ({'a': (1.0, 2.0)}, set())
    assert d.reduce_named_sums_and_row({'a': (1.0, 2.0)}, (3.0,)) == ({'a': (1.0, 2.0)}, set(), [3.0])
    assert d.from_first_rank(lambda: thing) is thing
    assert d.run_on_all_ranks(lambda: thing) is thing
    d.barrier()


def test_sums_are_exact_in_double_precision(ranks):
    assert ranks['reduce_sums'] == ([2.0, 2.0, 2.0**41 + 1],) * 2
    assert ranks['reduce_extremes'] == ((9.0, 10.0),) * 2


def test_sums_by_name_whatever_names_each_rank_has(ranks):
    for found in ranks['named_sums']:
        for number in (0, 1, 27, 28, 29, 30, 57, 58, 200):  # around those at which the first vector is full
            expected = {f'name{i}': (3.0 * i, 2.0) for i in range(number)}
            own = {f'name{number}': (2.0 * number, 1.0)}
            assert found[number] == [(expected, set()), (expected | own, set(own))]
        own = {'rank0': (5.0, 1.0), 'rank1': (5.0, 1.0)}
        for number in (0, 30, 300):
            expected = {f'name{i}': (3.0 * i, 2.0) for i in range(number)}
            row = [1.0, 4.0, 1.0]
            assert found[f'{number} and a row'] == [(expected, set(), row), (expected | own, set(own), row)]
        assert found['collectives'] == 2 + 1
        assert found['other names'] == ({'both': (2.0, 4.0), **own}, set(own))


def test_objects(ranks):
    assert ranks['broadcast'] == ({'from': 0},) * 2
    assert ranks['broadcast_from_1'] == ([1],) * 2
    assert ranks['all_gather'] == ([{'rank': 0}, {'rank': 1}],) * 2
    assert ranks['gather'] == ([{'rank': 0}, {'rank': 1}], [])
    assert ranks['in_a_group'] == ((0, [0, 1]),) * 2


def test_what_only_the_first_rank_does(ranks):
    assert ranks['from_first'] == ({'called on': 0},) * 2
    own, others = ranks['from_first_failed']
    assert own == "KeyError('what is missing')"
    assert others.startswith('ToldByFirstRank("rank 0 has failed: KeyError')


def test_what_fails_on_one_rank_fails_on_all(ranks):
    assert ranks['together'] == (0, 1)
    first, own = ranks['together_failed']
    assert own == 'KeyError(1)'
    assert first == "PeerFailed('rank 1 has failed: KeyError(1)')"


def test_seeds(ranks):
    torch.manual_seed(4)
    assert ranks['shifted_seed'][1] == torch.rand(1).item()
    assert ranks['shifted_seed'][0] != ranks['shifted_seed'][1]


@pytest.mark.parametrize('way', ['averaged', 'averaged_one_by_one', 'averaged_in_buckets'])
def test_averages_of_every_kind_of_buffer(ranks, way):
    expected = [
        torch.tensor([1.5, 3.0]),
        torch.tensor(3),
        torch.tensor([True, True]),
        torch.tensor([1.5 + 3j, 1.5j]),
        torch.tensor([[6.0]], dtype=torch.float64),
        torch.full((3, 2), 0.5),
    ]
    for tensors in ranks[way]:
        assert [tensor.dtype for tensor in tensors] == [tensor.dtype for tensor in expected]
        assert all(torch.equal(a, b) for a, b in zip(tensors, expected))


def test_buffers_of_the_first_rank_in_one_message_for_each_type(ranks):
    (first, calls), (second, _) = ranks['broadcast_buffers']
    assert calls == 8  # float32, int64, bool, complex64, float64, int16, float8; and one by itself
    for one, other in zip(first, second, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.float(), other.float()) if not one.is_complex() else torch.equal(one, other)
    assert second[0].tolist() == [1.0, 2.0]


def test_gradients_are_averaged_where_there_are_some(ranks):
    for weight, bias, unused in ranks['gradients']:
        assert torch.equal(weight, torch.tensor([[1.5, 4.5]]))
        assert bias is None
        assert unused is None


def test_buckets_are_of_one_type_and_within_the_limit():
    tensors = [torch.zeros(n) for n in (2, 3, 100, 1)] + [torch.zeros(1, dtype=torch.int64)]
    sizes = [[tensor.nbytes for tensor in bucket] for bucket in _buckets(tensors, 20)]
    assert sizes == [[8, 12], [400], [4], [8]]
    assert [len(bucket) for bucket in _buckets(tensors, None)] == [4, 1]


def test_the_slowest_rank(ranks):
    for sums, partial in ranks['slowest']:
        assert sums == {
            'a': (2.0, 2.0),
            'time': (12.0, 6.0),
            'time_max': (3.0, 1.0),
            'time_max_rank': (0.0, 1.0),
            'data_time': (3.0, 2.0),
            'data_time_max': (2.0, 1.0),
            'data_time_max_rank': (1.0, 1.0),
        }
        assert set(sums) == {'a', *TIME_NAMES}
        assert partial == set()
    alone = {'time': (4.0, 2.0), 'time_max': (2.0, 1.0), 'time_max_rank': (0.0, 1.0)}
    assert ranks['slowest_of_some'] == ((alone, {'time'}),) * 2
    assert d.reduce_and_find_slowest({'time': (1.0, 2.0)}) == ({'time': (1.0, 2.0)}, set())
