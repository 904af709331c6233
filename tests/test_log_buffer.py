"""The numbers between two log lines: averages, memory, where tensors stay, several ranks, checkpoints."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runnerkit.distributed import reduce_named_sums
from runnerkit.log_buffer import LogBuffer


class Transfers(TorchDispatchMode):
    """Lists the operations that bring numbers to the host, or gather them for it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.split('.')[0] in ('_local_scalar_dense', 'stack'):
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
    assert not buffer.val_history['one'][0].requires_grad
    buffer.average()
    expected = {'half': 0.5, 'one': 2.0, 'large': 2.0**40 + 1, 'numpy': 1.5, 'array': 3, 'int': 4, 'true': 1}
    assert buffer.output == expected
    assert list(buffer.output) == list(tensors)


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
    assert set(transfers.seen) <= {'stack'}  # in the averages of old values, which are not read
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


def test_a_logged_tensor_keeps_the_value_that_it_had():
    temperature = torch.nn.Parameter(torch.tensor(1.0))
    running, host, scalar = torch.zeros(1), np.zeros(1), torch.zeros(())
    buffer = LogBuffer()
    for i in range(3):
        loss = torch.ones(()) * i  # as a step computes it anew
        values = {'temperature': temperature, 'running': running, 'part': running[0], 'host': host, 'scalar': scalar}
        buffer.update({**values, 'loss': loss})
        with torch.no_grad():
            temperature += 1
            loss /= 2
            for each in (running, host, scalar):
                each += 3
    with torch.inference_mode():
        buffer.update({'inference': torch.ones(()), 'scalar': torch.ones(()) * 3})
    buffer.average()
    threes = dict.fromkeys(('running', 'part', 'host', 'scalar'), 3.0)
    assert buffer.output == {'temperature': 2.0, 'loss': 1.0, 'inference': 1.0, **threes}


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


def test_checkpoints_and_averages_meanwhile_change_no_bit():
    """They read tensors; the run that goes on from a checkpoint must log what the undisturbed one logs."""
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)).unbind()
    averages = []
    for looks in (1, 7, 10**6):
        buffer = LogBuffer(window=5)
        for i, value in enumerate(values):
            buffer.update({'loss': value}, i % 3 + 1)
            if i % looks == 0:
                buffer.average(2)
                state, buffer = buffer.state_dict(), LogBuffer(window=5)
                buffer.load_state_dict(state)
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


def test_ranks_meet_at_every_average_whatever_is_known_already():
    calls = []

    def reduce(sums):
        calls.append(sums)
        return sums, set()

    buffer = filled([1.0, 3.0])
    for _ in range(2):
        buffer.average(2, reduce)
    assert calls == [{'loss': (4.0, 2.0)}] * 2
    LogBuffer().average(reduce=reduce)
    assert calls[2] == {}


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


def averages_on_a_rank(rank):
    """What one of two ranks finds in its output, after an average and after what follows."""
    own = [filled([1.0, torch.tensor(2.0)], [1, 2]), filled([5.0], [4])][rank]
    own.update([{'acc': 1.0, 'b': 2.0}, {'b': 4.0, 'acc': 0.0}][rank])
    own.average(reduce=reduce_named_sums)
    same = dict(own.output)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for _ in range(2):
            own.update({f'only on {rank}': 7.0 + rank, 'loss': 2.0 * rank}, 9)
            own.average(1, reduce=reduce_named_sums)
    one_sided = LogBuffer()
    for _ in range(2):  # the second average comes without an update on the second rank
        if rank == 0:
            one_sided.update({'score': 3.0})
        one_sided.average(reduce=reduce_named_sums)
    return same, own.output, [str(each.message) for each in caught], one_sided.output


def test_ranks_average_together_whatever_each_of_them_logs(on_ranks):
    results = on_ranks(Path(__file__), 'averages_on_a_rank')
    for same, different, _, one_sided in results:
        assert same == {'loss': 25 / 7, 'acc': 0.5, 'b': 3.0}  # weighted by samples
        assert different == {'loss': 1.0, 'acc': 0.5, 'b': 3.0, 'only on 0': 7.0, 'only on 1': 8.0}
        assert one_sided == {'score': 3.0}
    told = [result[2] for result in results]  # once, by the first rank
    assert told == [["not all ranks log 'only on 0', 'only on 1': averages are over those that do"], []]


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


def test_the_state_of_older_files():
    """They keep what was folded as sums."""
    state = {
        'lengths': {'loss': 2, 'time': 1},
        'values': torch.tensor([4.0, 5.0, 0.5], dtype=torch.float64),
        'counts': torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64),
        'prefix': {'loss': (6.0, 3), 'nothing': (0.0, 0)},
        'output': {'score': 1.0},
        'ready': True,
        'averaged': False,
        'window': 2,
    }
    state['lengths']['nothing'] = 0
    buffer = LogBuffer(window=1)
    buffer.load_state_dict(state)
    assert buffer.val_history == {'loss': [2.0, 4.0, 5.0], 'time': [0.5], 'nothing': [0.0]}
    buffer.average()
    assert buffer.output == {'score': 1.0, 'loss': 3.0, 'time': 0.5}
    buffer.average(2)
    assert buffer.output['loss'] == 4.5


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


def test_a_prefix_renames_all_but_times():
    buffer = LogBuffer()
    buffer.update({'loss': 1.0, 'time': 2.0, 'data_time': 3.0}, 4)
    buffer.add_prefix('clean/')
    buffer.update({'loss': 5.0})
    buffer.average()
    assert buffer.output == {'clean/loss': 1.0, 'time': 2.0, 'data_time': 3.0, 'loss': 5.0}
    assert set(buffer.n_history) == set(buffer.val_history)


def test_what_is_added_after_the_mark_is_averaged_alone():
    buffer = LogBuffer(window=2)
    buffer.update({'loss': 8.0})
    assert buffer.late == {}
    buffer.average_late()
    assert not buffer.ready  # nobody has marked anything
    buffer.mark()
    buffer.average_late()
    assert not buffer.ready
    buffer.update({'loss': 2.0, 'mine': 3.0})
    buffer.update({'mine': 6.0}, 2)
    assert buffer.late == {'loss': 1, 'mine': 2}
    buffer.average_late()
    assert (buffer.output, buffer.ready, buffer.averaged) == ({'loss': 2.0, 'mine': 5.0}, True, True)
    assert buffer.late == {}


@pytest.mark.parametrize('kind', [float, torch.tensor])
def test_losses_that_are_not_finite_are_known_until_they_are_marked(kind):
    buffer = LogBuffer(window=4)

    def add(value, name='loss'):
        buffer.update({name: kind(value)})

    add(float('nan'), 'accuracy')  # not a loss
    add(1.0)
    assert buffer.losses_are_finite()
    add(float('inf'), 'loss_cls')
    for _ in range(30):  # they are folded, and forgotten
        add(1.0)
        add(1.0, 'loss_cls')
    assert not buffer.losses_are_finite()
    buffer.clear()
    assert not buffer.losses_are_finite()
    buffer.mark_losses()
    assert buffer.losses_are_finite()
    for _ in range(30):
        add(1.0)
        add(1.0, 'loss_cls')
    assert buffer.losses_are_finite()
    add(float('nan'))
    buffer.mark_losses()
    for _ in range(30):  # the NaN is part of an average of old values, and was before the mark
        add(1.0)
    assert buffer.losses_are_finite()
    copy = LogBuffer()
    add(float('nan'))
    copy.load_state_dict(buffer.state_dict())
    assert copy.losses_are_finite()  # those were the saved run's
