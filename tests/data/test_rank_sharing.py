"""Streams of unequal length on two ranks that train in step."""

import gc
import logging
import time

import pytest
import torch
from support import Tiny, tiny_runner
from torch.utils.data import DataLoader, Dataset, IterableDataset

from runnerkit.data import build_dataloader
from runnerkit.data.loader import SeededLoader
from runnerkit.data.rank_sharing import each_sample_once, in_step, may_have_unequal_lengths
from runnerkit.data.sampler import EpochSampler
from runnerkit.evaluation import single_gpu_test
from runnerkit.hooks import Hook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.utils.exceptions import ToldByFirstRank


class Stream(IterableDataset):
    """So many samples, numbered from ``start``."""

    def __init__(self, length, start=0):
        self.length, self.start = length, start

    def __iter__(self):
        for i in range(self.length):
            yield torch.full((4,), float(self.start + i)), torch.zeros(1)


class Sized(Stream):
    def __len__(self):
        return self.length


class Plain:
    """A loader of somebody else's, without a length."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Epochs(Hook):
    """Counts what passes, as a hook with a schedule does."""

    def __init__(self):
        self.iters, self.max_iters = [], []

    def after_train_epoch(self, runner):
        self.iters.append(runner.completed_iters)
        self.max_iters.append(runner.max_iters)


class Told(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def trained(kind, loader, **limits):
    """How a run over ``loader`` has gone: what the hooks saw, what was trained on, and what was told."""
    model, hook, told = MMDistributedDataParallel(Tiny()), Epochs(), Told()
    runner = tiny_runner(kind, model=model, **limits)
    runner.register_optimizer_hook({})
    runner.register_hook(hook)
    logger = logging.getLogger('runnerkit')
    logger.addHandler(told)
    try:
        runner.run([loader], [('train', 1)])
    except (ValueError, ToldByFirstRank) as error:
        return str(error)
    finally:
        logger.removeHandler(told)
    weight = float(sum(p.detach().double().sum() for p in model.parameters()))
    return hook.iters, hook.max_iters, runner.epoch, len(model.module.losses), weight, told.texts


def on_rank(rank):
    share = 100 * rank
    plain = [[torch.full((2, 4), float(i)), torch.zeros(2, 1)] for i in range(2 + rank)]
    return {
        'epochs': trained('epoch', build_dataloader(Stream(10 - 4 * rank, share), 2, 0), max_epochs=2),
        'with a worker': trained(
            'epoch', build_dataloader(Stream(6 + 4 * rank, share), 2, 1, multiprocessing_context='fork'), max_epochs=2
        ),
        'iterations': trained('iter', build_dataloader(Stream(10 - 4 * rank, share), 2, 0), max_iters=8),
        'equal': trained('epoch', build_dataloader(Stream(4, share), 2, 0), max_epochs=1),
        'sized': trained('epoch', build_dataloader(Sized(10 - 4 * rank, share), 2, 0), max_epochs=2),
        'wrongly sized': trained('epoch', build_dataloader(Lies(4 - 2 * rank, share), 2, 0), max_epochs=1),
        'sized, of torch': trained('epoch', DataLoader(Sized(10 - 4 * rank, share), 2), max_epochs=2),
        'lists': trained('iter', plain, max_iters=2),
        'samples': trained('epoch', build_dataloader(list(Stream(8 + 4 * rank)), 2, 0), max_epochs=1),
        'sized or not': trained('epoch', plain if rank else Plain(plain), max_epochs=2),
        'plain': trained('epoch', Plain(plain), max_epochs=1),
        'unshared': trained('epoch', build_dataloader(Stream(4), 2, 0), max_epochs=2),
        'empty': trained('epoch', build_dataloader(Stream(4 * rank), 2, 0), max_epochs=1),
        'empty, by iteration': trained('iter', build_dataloader(Stream(4 * rank), 2, 0), max_iters=1),
        'evaluated': evaluated(build_dataloader(Stream(4), 2, 0)),
    }


class Lies(Stream):
    def __len__(self):
        return 4


def evaluated(loader):
    told = Told()
    logging.getLogger('runnerkit').addHandler(told)
    runner = tiny_runner(max_epochs=1)
    for _ in range(2):
        runner.evaluate(loader)
    return told.texts


@pytest.fixture(scope='module')
def ranks(on_ranks):
    first, second = on_ranks(__file__, 'on_rank')
    return {name: (first[name], second[name]) for name in first}


@pytest.mark.parametrize(
    'name, iters, max_iters, first_ended',
    [
        ('epochs', [3, 6], [None, None], 1),
        ('with a worker', [3, 6], [None, None], 0),
        ('sized', [3, 6], [6, 6], None),
        ('wrongly sized', [1], [2], 1),
        ('plain', [2], [None], 0),
    ],
)
def test_an_epoch_ends_on_all_ranks_when_the_first_one_has_no_batch(ranks, name, iters, max_iters, first_ended):
    first, second = ranks[name]
    assert first[:5] == second[:5]  # the same weights, too
    assert first[:4] == (iters, max_iters, len(iters), iters[-1])
    if first_ended is not None:
        texts = [text for text in first[-1] if f'rank {first_ended} has no more batches after {iters[0]}' in text]
        assert len(texts) == len(iters)


def test_lengths_that_are_known_are_made_equal_at_the_start(ranks):
    (text,) = (text for text in ranks['sized'][0][-1] if 'batches' in text)
    assert 'the ranks have between 3 and 5 batches. The passes of all ranks, which train in step, end after 3' in text


def test_an_endless_loader_begins_the_next_pass_on_all_ranks(ranks):
    first, second = ranks['iterations']
    assert first[:5] == second[:5]
    assert first[2:4] == (2, 8)  # three batches a pass


def test_ranks_with_equally_much_have_nothing_to_tell(ranks):
    assert ranks['equal'][0][:4] == ([2], [None], 1, 2)
    assert [texts for *_, texts in ranks['equal']] == [[], []]


@pytest.mark.parametrize(
    'name, known',
    [
        ('sized, of torch', '5 batches on rank 0, 3 batches on rank 1'),
        ('lists', '2 batches on rank 0, 3 batches on rank 1'),
        (
            'samples',
            '2 batches (its data set has 8 samples) on rank 0, 3 batches (its data set has 12 samples) on rank 1',
        ),
        ('sized or not', 'no length on rank 0, 3 batches on rank 1'),
    ],
)
def test_other_loaders_of_unequal_length_are_refused_by_rank_0_for_all(ranks, name, known):
    told, elsewhere = ranks[name]
    assert f"the workflow entry ('train', 1) has {known}. The ranks train in step, and would wait" in told
    assert elsewhere == 'the ranks have unequally long data loaders, as rank 0 says'


def test_ranks_that_read_the_same_stream_are_told_once(ranks):
    for name in ('unshared', 'evaluated'):
        texts = [
            text for text in (ranks[name][0] if name == 'evaluated' else ranks[name][0][-1]) if 'same first' in text
        ]
        assert len(texts) == 1
        assert 'the ranks 0, 1 have the same first batch' in texts[0]
    assert not any('same first' in text for text in ranks['epochs'][0][-1])


@pytest.mark.parametrize('name', ['empty', 'empty, by iteration'])
def test_a_rank_without_any_batch_fails_on_all(ranks, name):
    for told in ranks[name]:
        assert 'no batches' in told


def test_alone_batches_are_as_they_are():
    batches = iter([1, 2])
    assert not may_have_unequal_lengths(Plain([1]))
    assert in_step(Plain([1]), batches) is batches


class Ends(Dataset):
    """Ends at the fifth sample, or at the first one."""

    def __init__(self, at=5):
        self.at = at

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == self.at:
            next(iter(()))
        return torch.full((4,), float(i)), torch.zeros(1)


class Estimate:
    """A user's batch sampler, whose length is a guess."""

    def __len__(self):
        return 8

    def __iter__(self):
        return iter([[0, 1], [2, 3]])


def run_over(loader, kind, mode):
    runner = tiny_runner(kind, **({'max_epochs': 2} if kind == 'epoch' else {'max_iters': 8}))
    runner.register_optimizer_hook({})
    if mode == 'evaluate':
        return runner.evaluate(loader)
    if mode == 'val':
        return runner.run([build_dataloader(Ends(None), 2, 0), loader], [('train', 1), ('val', 6)])
    return runner.run([loader], [('train', 1)])


@pytest.mark.parametrize(
    ('kind', 'mode', 'workers', 'at'),
    [
        ('epoch', 'train', 0, 5),
        ('epoch', 'train', 1, 5),
        ('epoch', 'train', 0, 0),
        ('iter', 'train', 0, 5),
        ('iter', 'train', 0, 0),
        ('epoch', 'val', 0, 5),
        ('iter', 'val', 0, 5),
        ('epoch', 'evaluate', 0, 5),
        ('epoch', 'evaluate', 0, 0),
    ],
)
def test_a_pass_that_ends_before_its_length_is_an_error(kind, mode, workers, at):
    with pytest.raises(RuntimeError, match=rf'DataLoader of Ends: the pass ended after {at // 2} of 6 batches'):
        run_over(DataLoader(Ends(at), 2, num_workers=workers), kind, mode)
    gc.collect()  # the error's frames hold the workers


def test_predictions_of_a_pass_that_has_ended_early_are_an_error():
    class Predicts(torch.nn.Module):
        def forward(self, return_loss, **data):
            return list(data['x'])

    loader = DataLoader(Ends(), 2, collate_fn=lambda samples: {'x': [x for x, _ in samples]})
    with pytest.raises(RuntimeError, match='ended after 2 of 6'):
        single_gpu_test(Predicts(), loader)


@pytest.mark.parametrize('mode', ['train', 'evaluate'])
def test_a_length_that_may_be_an_estimate_is_warned_of_once(mode, caplog):
    run_over(DataLoader(Ends(None), batch_sampler=Estimate()), 'epoch', mode)
    assert caplog.text.count('the pass ended after 2 of 8 batches') == 1


@pytest.mark.filterwarnings('ignore:Length of IterableDataset')
def test_streams_may_be_shorter_than_they_say(caplog):
    class Short(Sized):
        def __len__(self):
            return self.length + 4

    run_over(DataLoader(Short(4), 2), 'epoch', 'train')
    assert 'the pass ended' not in caplog.text


def test_a_pass_that_the_run_cuts_short_is_none_that_ended_early():
    runner = tiny_runner(max_iters=3)
    runner.run([DataLoader(Ends(None), 2)], [('train', 1)])
    assert runner.iter == 3


def ends_on_the_second_rank(rank):
    """What each rank raises, and after how long."""
    runner = tiny_runner(model=MMDistributedDataParallel(Tiny()), max_epochs=2)
    runner.register_optimizer_hook({})
    began = time.monotonic()
    try:
        runner.run([build_dataloader(Ends(5 if rank else None), 2, 0, shuffle=False)], [('train', 1)])
    except Exception as error:
        return str(error), time.monotonic() - began


def test_a_stop_iteration_on_one_rank_ends_the_run_on_all(on_ranks):
    (first, _), (second, _) = found = on_ranks(__file__, 'ends_on_the_second_rank')
    assert 'sample 5 of the data set Ends: StopIteration' in second
    assert 'StopIteration' not in first
    assert max(seconds for _, seconds in found) < 50  # gloo would wait for 60


def test_an_evaluation_gives_each_sample_once_and_a_training_as_much_to_each_rank():
    loaders = [SeededLoader(range(3), 1, EpochSampler(range(3), False, rank=rank, world_size=2)) for rank in range(2)]

    def given():
        return [torch.cat(list(each)).tolist() for each in loaders]

    assert given() == [[0, 2], [1, 0]]
    with each_sample_once(loaders[0]), each_sample_once(loaders[1]):
        assert given() == [[0, 2], [1]]
    assert given() == [[0, 2], [1, 0]]
