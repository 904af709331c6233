"""The numbers between two log lines: averages, memory, where tensors stay, several ranks, checkpoints."""

import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks import on_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from runnerkit.distributed import reduce_sums
from runnerkit.runner.log_buffer import LogBuffer


class Transfers(TorchDispatchMode):
    """Lists the operations that bring numbers to the host, or gather them for it, or copy them."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.split('.')[0] in ('_local_scalar_dense', '_to_copy', 'stack'):
            self.seen.append(func.__name__.split('.')[0])
        return func(*args, **(kwargs or {}))


def filled(values, counts=None, name='loss', **options):
    buffer = LogBuffer(**options)
    for i, value in enumerate(values):
        buffer.update({name: value}, counts[i] if counts else 1)
    return buffer


@pytest.mark.parametrize('n', [0, 1, 7, 100])
def test_averages_are_weighted_and_are_mmcvs_but_for_the_last_bit(n):
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=30), rng.integers(1, 9, size=30)
    buffer = filled(values.tolist(), counts.tolist())
    buffer.average(n)
    expected = np.sum(values[-n:] * counts[-n:]) / np.sum(counts[-n:])
    assert buffer.output == {'loss': pytest.approx(expected, rel=1e-15, abs=1e-16)}
    assert type(buffer.output['loss']) is float
    assert buffer.ready


def test_numbers_of_every_kind():
    buffer = LogBuffer()
    tensors = {
        'half': torch.tensor(0.5, dtype=torch.bfloat16),
        'one': torch.tensor([[2.0]], requires_grad=True),
        'large': torch.tensor(2**40 + 1),
        'numpy': np.float32(1.5),
        'array': np.array([3]),
        'int': 4,
        'true': True,
    }
    buffer.update(tensors)
    buffer.average()
    expected = {'half': 0.5, 'one': 2.0, 'large': 2.0**40 + 1, 'numpy': 1.5, 'array': 3, 'int': 4, 'true': 1}
    assert buffer.output == expected
    assert list(buffer.output) == list(tensors)
    assert not buffer.val_history['one'][0].requires_grad


@pytest.mark.parametrize('value', [torch.ones(2), torch.tensor(1j), 'text', None, np.ones(3), [1.0]])
def test_other_values_are_refused_by_name(value):
    with pytest.raises(TypeError, match="the log value 'acc' must be a number or a tensor of one element, but got"):
        LogBuffer().update({'acc': value})
    with pytest.raises(TypeError, match='log values must be a dict'):
        LogBuffer().update([('acc', 1)])


def test_updates_move_nothing_and_an_average_moves_once():
    buffer = LogBuffer(window=8)
    with Transfers() as transfers:
        for i in range(40):
            buffer.update({'loss': torch.tensor(float(i)), 'acc': torch.tensor(1.0), 'time': 0.1}, 2)
        assert len(buffer.val_history['loss']) <= 16
    assert set(transfers.seen) == {'stack', '_to_copy'}  # which copy the first of each name, and sum up what is folded
    with Transfers() as transfers:
        buffer.average(5)
    assert transfers.seen == ['stack']  # of all tensors, and read at once
    assert buffer.output == pytest.approx({'loss': 37.0, 'acc': 1.0, 'time': 0.1})


def test_a_graph_or_a_large_batch_is_not_kept_alive():
    weight = torch.ones(3, requires_grad=True)
    logits = torch.randn(1000) * weight.sum()
    buffer = filled([logits[3]])
    kept = buffer.val_history['loss'][0]
    assert kept.grad_fn is None
    assert kept.untyped_storage().nbytes() == 4
    assert kept == logits[3]


def test_tensors_that_change_afterwards_leave_the_history_as_it_was():
    temperature = torch.nn.Parameter(torch.tensor(1.0))
    running, host = torch.zeros(1), np.zeros(1)
    buffer = LogBuffer()
    for _ in range(3):
        buffer.update({'temperature': temperature, 'running': running, 'part': running[0], 'host': host})
        with torch.no_grad():
            temperature += 1
            running += 3
            host += 3
    buffer.average()
    assert buffer.output == {'temperature': 2.0, 'running': 3.0, 'part': 3.0, 'host': 3.0}


def test_what_a_step_has_just_computed_is_kept_and_not_copied():
    buffer = LogBuffer()
    for fresh in [torch.ones(3, requires_grad=True).sum() for _ in range(3)]:
        buffer.update({'loss': fresh, 'acc': (values := torch.ones(3)).mean(), 'first': values[0]})
        kept = {name: history[-1] for name, history in buffer.val_history.items()}
        later = len(buffer.val_history['loss']) > 1
        assert (kept['loss'].data_ptr() == fresh.data_ptr()) == later
        assert kept['loss'].grad_fn is None
        assert kept['first'].untyped_storage().nbytes() == 4
    buffer = LogBuffer(copies=True)  # CUDA graphs write the next step's results to the same place
    buffer.update({'loss': fresh})
    buffer.update({'loss': fresh})
    assert buffer.val_history['loss'][-1].data_ptr() != fresh.data_ptr()


def test_a_scalar_that_changes_from_step_to_step_is_copied():
    running = torch.zeros(())
    buffer = LogBuffer()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(3):
            buffer.update({'running': running})
            running += 3
        with torch.inference_mode():
            buffer.update({'other': torch.ones(()), 'running': torch.ones(()) * 3})
        buffer.average()
    assert buffer.output == {'running': 3.0, 'other': 1.0}


def test_a_kept_tensor_that_is_written_to_is_told_once():
    buffer = LogBuffer()
    for i in range(4):
        loss = torch.ones(()) * i
        buffer.update({'loss': loss, 'time': 0.1})
        loss /= 2
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter('always')
        buffer.average(2)
        buffer.average(3)
    assert "'loss' was changed in place after it was logged" in str(told[0].message)
    assert 'loss.clone()' in str(told[0].message)
    assert len(told) == 1


@pytest.mark.parametrize('as_value', [float, torch.tensor])
def test_memory_is_bounded_and_averages_of_everything_stay_right(as_value):
    values = np.random.default_rng(0).normal(size=1000).tolist()
    counts = np.random.default_rng(1).integers(1, 5, size=1000).tolist()
    buffer = LogBuffer(window=10)
    longest = 0
    for value, count in zip(values, counts):
        buffer.update({'loss': as_value(value)}, count)
        longest = max(longest, len(buffer.val_history['loss']))
    assert longest == 20
    assert len(buffer.n_history['loss']) == len(buffer.val_history['loss'])
    buffer.average()
    assert buffer.output['loss'] == pytest.approx(np.average(values, weights=counts), rel=1e-5)
    buffer.average(10)
    assert buffer.output['loss'] == pytest.approx(np.average(values[-10:], weights=counts[-10:]), rel=1e-5)
    with pytest.raises(ValueError, match=r'n must be in \[0, 10\].*set a larger window'):
        buffer.average(11)
    buffer.clear()
    buffer.update({'loss': 1.0})
    buffer.average()
    assert buffer.output == {'loss': 1.0}


def test_sums_do_not_depend_on_who_has_looked_meanwhile():
    """A checkpoint looks: the run that goes on from it must say what the undisturbed one says, to the last bit."""
    values = np.random.default_rng(0).normal(size=1000).tolist()
    averages = []
    for looks in (1, 7, 10**6):
        buffer = LogBuffer(window=5)
        for i, value in enumerate(values):
            buffer.update({'loss': torch.tensor(value)})
            if i % looks == 0:
                assert len(buffer.n_history['loss']) <= 10
        buffer.average()
        averages.append(buffer.output['loss'])
    assert averages[0] == averages[1] == averages[2]


@pytest.mark.parametrize(
    ('values', 'expected'), [([np.inf, -np.inf], np.nan), ([np.nan, 1.0], np.nan), ([1.5e308, 1.5e308], np.inf)]
)
def test_a_run_that_diverges_is_logged_as_it_is(values, expected):
    buffer = filled(values)
    buffer.average()
    assert buffer.output == {'loss': pytest.approx(expected, nan_ok=True)}


def test_a_change_is_told_also_of_what_is_summed_up_before_the_average():
    buffer = LogBuffer(window=3)
    for i in range(20):
        loss = torch.ones(())
        buffer.update({'loss': loss})
        if i == 5:
            loss *= 7
    with pytest.warns(RuntimeWarning, match="'loss' was changed in place"):
        buffer.average(2)


def test_more_than_there_is_means_all_of_it():
    buffer = filled([1.0, 2.0])
    buffer.average(5000)
    assert buffer.output == {'loss': 1.5}
    with pytest.raises(ValueError, match='n must be in'):
        buffer.average(-1)


def test_folded_values_may_be_numbers_and_tensors_by_turns():
    buffer = filled([1.0, torch.tensor(2.0)] * 20, window=2)
    buffer.average()
    assert buffer.output == {'loss': 1.5}


def test_a_second_average_costs_nothing_unless_something_came_in():
    calls = []

    def reduce(values):
        calls.append(list(values))
        return values

    buffer = filled([1.0, 3.0])
    for _ in range(2):
        buffer.average(2, reduce=reduce)
    assert len(calls) == 1
    buffer.clear_output()
    assert (buffer.output, buffer.ready) == ({}, False)
    buffer.average(2, reduce=reduce)
    assert (buffer.output, len(calls)) == ({'loss': 2.0}, 1)
    buffer.average(1, reduce=reduce)
    assert (buffer.output, len(calls)) == ({'loss': 3.0}, 2)
    buffer.update({'loss': 5.0})
    buffer.average(1, reduce=reduce)
    assert (buffer.output, len(calls)) == ({'loss': 5.0}, 3)


def test_output_and_history_are_cleared_apart():
    buffer = filled([1.0])
    buffer.output['score'] = 0.5
    buffer.average()
    assert buffer.output == {'score': 0.5, 'loss': 1.0}
    assert buffer.averaged
    buffer.clear_output()
    assert (buffer.output, buffer.ready, buffer.averaged) == ({}, False, False)
    assert buffer.val_history == {'loss': [1.0]}
    buffer.clear()
    assert (buffer.val_history, buffer.n_history) == ({}, {})
    buffer.average()
    assert (buffer.output, buffer.ready, buffer.averaged) == ({}, True, False)


def test_a_value_that_stands_for_nothing_has_no_average():
    buffer = filled([1.0], [0])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        buffer.average()
    assert buffer.output == {}


def together(*buffers, n=0):
    """Average on several ranks at once: first what each of them gives, then all with the sums."""
    given = []

    def note(values):
        given.append(list(values))
        return values

    for buffer in buffers:
        buffer._averages(n, note)
    calls = []
    sums = [sum(column) for column in zip(*given, strict=True)]

    def reduce(values):
        calls.append(values)
        return sums

    for buffer in buffers:
        buffer.average(n, reduce=reduce)
    assert len(calls) == len(buffers)
    return [buffer.output for buffer in buffers]


def test_ranks_average_together_weighted_by_their_samples():
    first = filled([1.0, torch.tensor(2.0)], [1, 2])
    second = filled([5.0], [4])
    first.update({'acc': 1.0})
    second.update({'acc': 0.0})
    assert together(first, second) == [{'loss': 25 / 7, 'acc': 0.5}] * 2


def test_the_order_in_which_names_come_up_may_differ():
    first, second = LogBuffer(), LogBuffer()
    first.update({'a': 1.0, 'b': 10.0})
    second.update({'b': 20.0, 'a': 3.0})
    assert together(first, second) == [{'a': 2.0, 'b': 15.0}] * 2


def test_ranks_that_log_different_names_are_told_once_and_go_on_by_themselves():
    first, second = filled([1.0]), filled([3.0])
    first.update({'only here': 7.0})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        assert together(first, second) == [{'loss': 1.0, 'only here': 7.0}, {'loss': 3.0}]
        first.update({'loss': 1.0})
        second.update({'loss': 3.0})
        together(first, second)
    assert len(caught) == 2  # each rank once
    assert 'the ranks log different names (this one: loss, only here)' in str(caught[0].message)


def test_one_warning_does_not_stand_in_for_the_other():
    first, second = LogBuffer(), filled([3.0])
    for _ in range(2):
        loss = torch.ones(())
        first.update({'loss': loss, 'only here': 7.0})
    loss += 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        together(first, second)
    told = [str(each.message) for each in caught]
    assert sum('different names' in each for each in told) == 2  # a rank each
    assert sum('changed in place' in each for each in told) == 1


#: Around the numbers of names at which one vector is full, at which a second would be, and far beyond.
NUMBERS = (0, 1, 28, 29, 30, 31, 32, 33, 59, 61, 62, 200)


def numbered(number, value):
    buffer = LogBuffer()
    buffer.update({f'name{i}': value * i for i in range(number)}, 3)
    return buffer


#: A name with the checksum of forty others, those of ``numbered(40)``.
CHANCE = 'chance2995820'


def averages_of_any_number_of_names(rank):
    """For each number of names: the averages if all ranks have them, and if the second rank has one more."""
    found = {}
    for number in NUMBERS:
        same, different = numbered(number, 1.0 + 2 * rank), numbered(number + rank, 1.0 + 2 * rank)
        same.average(reduce=reduce_sums)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            different.average(reduce=reduce_sums)
            different.update({'name0': 0.0})
            different.average(1, reduce=reduce_sums)
            different.clear_output()
            different.average(reduce=reduce_sums)
        found[number] = same.output, different.output, [str(each.message) for each in caught]
    by_chance = [numbered(40, 1.0), LogBuffer()][rank]
    by_chance.update({CHANCE: 5.0} if rank else {})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        by_chance.average(reduce=reduce_sums)
    found['by chance'] = by_chance.output
    return found


def test_any_number_of_names_is_averaged_and_any_difference_survived():
    results = on_ranks(Path(__file__), 'averages_of_any_number_of_names')
    for number in NUMBERS:
        for rank, result in enumerate(results):
            same, different, caught = result[number]
            assert same == {f'name{i}': 2.0 * i for i in range(number)}
            assert len(caught) == 1
            assert caught[0].startswith('the ranks log different names')
            own = {f'name{i}': (1.0 + 2 * rank) * i for i in range(max(number + rank, 1))}
            assert different == own
    names = '\n'.join(sorted(numbered(40, 1.0).val_history))
    assert (zlib.crc32(names.encode()) - zlib.crc32(CHANCE.encode())) % 2**20 == 0
    assert [result['by chance'] for result in results] == [{f'name{i}': float(i) for i in range(40)}, {CHANCE: 5.0}]


def test_a_half_filled_buffer_survives_a_file_that_may_hold_no_code(tmp_path):
    buffer = LogBuffer(window=4)
    for i in range(13):
        buffer.update({'loss': torch.tensor(i / 3), 'time': i / 7}, i + 1)
    buffer.average(2)
    buffer.output.update(
        note='text', score=np.float64(0.5), tensor=torch.tensor([1.0]), image=torch.zeros(2), own=object()
    )
    torch.save(buffer.state_dict(), tmp_path / 'buffer.pth')
    other = LogBuffer(window=4)
    other.update({'old': 1.0})
    other.load_state_dict(torch.load(tmp_path / 'buffer.pth', weights_only=True))
    assert (other.ready, other.averaged) == (True, True)
    kept = ('loss', 'time', 'note', 'score', 'tensor')
    assert other.output == {name: buffer.output[name] for name in kept}
    for each in (buffer, other):
        each.clear_output()
        each.update({'loss': 1.0, 'time': 2.0}, 3)
    for n in (0, 1, 3):
        buffer.average(n)
        other.average(n)
        assert other.output == buffer.output


def test_a_loggers_larger_window_is_kept_when_a_state_is_loaded():
    buffer, state = LogBuffer(window=3), LogBuffer(window=2).state_dict()
    buffer.load_state_dict(state)
    assert buffer.window == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_on_a_gpu_nothing_waits_for_it_before_the_average():
    buffer = LogBuffer(window=4)
    ones = torch.ones((), device='cuda')
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode('error')
    try:
        for i in range(20):
            buffer.update({'loss': ones * i, 'half': ones.half()}, i + 1)
    finally:
        torch.cuda.set_sync_debug_mode('default')
    buffer.average(2)
    assert buffer.output == pytest.approx({'loss': (18 * 19 + 19 * 20) / 39, 'half': 1.0})
    buffer.average()
    assert buffer.output['loss'] == pytest.approx(np.average(range(20), weights=range(1, 21)))
