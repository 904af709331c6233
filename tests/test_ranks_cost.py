"""What a run's ranks cost each other: a count in real processes, and benchmarks/ranks.py with few iterations."""

import tempfile

import pytest
import torch
from support import Tiny, benchmark, loader, tiny_runner

from runnerkit.hooks import Hook
from runnerkit.parallel import MMDistributedDataParallel

bench = benchmark('ranks')


class Marks(Hook):
    """Notes how many collectives there were when an iteration was over."""

    def __init__(self, calls):
        self.calls, self.after, self.begun = calls, [], None

    def before_train_iter(self, runner):
        self.begun = len(self.calls) if self.begun is None else self.begun

    def after_train_iter(self, runner):
        self.after.append(len(self.calls))


def trains_on_rank(rank):
    """One epoch of 25 iterations with the hooks of an ordinary config, two loggers, and a checkpoint."""
    with tempfile.TemporaryDirectory() as folder, bench.counted() as calls:
        runner = tiny_runner(model=MMDistributedDataParallel(Tiny()), work_dir=folder, max_epochs=1)
        marks = Marks(calls)
        runner.register_training_hooks(
            {'policy': 'step', 'step': [10]},
            {'grad_clip': {'max_norm': 1.0}},
            {'interval': 1},
            {'interval': 10, 'hooks': [{'type': 'TextLoggerHook'}, {'type': 'TensorboardLoggerHook'}]},
        )
        runner.register_hook(marks, 'LOWEST')
        began = len(calls)
        runner.run([loader(200, dist=True)], [('train', 1)])
        return {
            'start': marks.begun - began,
            'after': [n - marks.begun for n in marks.after],
            'all': len(calls) - began,
        }


def test_ranks_talk_once_a_log_line_and_in_no_other_iteration(on_ranks):
    for found in on_ranks(__file__, 'trains_on_rank'):
        # DDP's own, which are not torch.distributed's functions, are not among them.
        assert found['after'] == [0] * 9 + [1] * 10 + [2] * 6
        assert found['start'] == 2  # the lengths of the loaders, and a checksum of the weights
        # At the end of the epoch one for its late values, and the save: a broadcast of an object is two, a gather two.
        # Whether all is finite is one of the save, and one of the run's end; whether all ranks have ended well is one.
        assert found['all'] == 2 + 2 + 1 + (2 + 2 + 2 + 1) + 1 + 1


@pytest.fixture(scope='module')
def runs():
    bench.train(8, 40)  # imports at first use
    found = {}
    for ranks in (1, 8, 64, 1024):
        with bench.counted_calls() as python:
            found[ranks] = (bench.train(ranks, 40)[1], python[0])
    return found


def test_a_rank_says_as_much_among_a_thousand_as_among_eight(runs):
    assert runs[1][0] == []
    for ranks in (8, 64, 1024):
        sizes = [size for size, _ in runs[ranks][0]]
        # One for the lengths, one for the weights, four log lines, two at the end.
        assert [name for _, name in runs[ranks][0]] == ['all_reduce'] * (1 + 1 + 4 + 2)
        assert sizes[0] == 16  # the lengths of the loaders
        assert max(sizes) <= 512 + 16 * ranks  # the times of each rank, if they are compared, are two numbers


def test_a_rank_does_as_much_among_a_thousand_as_among_eight(runs):
    first, *others = (calls for _, calls in (runs[ranks] for ranks in (8, 64, 1024)))
    assert others == pytest.approx([first] * 2, rel=0.02)  # a thread more or less, and what is made at first use


def test_what_a_save_gathers_does_not_grow_with_the_model_but_within_a_cycle():
    small, large = bench.Net(), bench.Net((4, 400, 400, 1))
    parameters = sum(each.numel() for each in large.parameters())
    sizes = [bench.gathered(small, 12), bench.gathered(large, 12), bench.gathered(large, 12, accumulation=5)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
    assert sizes[0] < 100_000
    assert sizes[2] - sizes[1] == pytest.approx(4 * parameters, rel=0.05)
    assert not torch.distributed.is_initialized()
