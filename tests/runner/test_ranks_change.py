"""A run that was saved on two ranks goes on with one and with four; one on four ranks is resumed to the bit."""

import shutil
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from torch import nn
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, Hook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.runner import EpochBasedRunner, IterBasedRunner

#: Of the data set and of each rank's batches; two ranks consume 12 of the 31 samples before they stop.
LENGTH, BATCH, STOP = 31, 2, 3
RUNNERS = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}
#: At least two epochs on any number of ranks.
LIMITS = {'epoch': {'max_epochs': 2}, 'iter': {'max_iters': 30}}
#: What runs: the runner, whether what does not fill a batch on every rank is left out, and whether it is shuffled.
CASES = [*product(RUNNERS, [False, True], [True]), ('epoch', False, False)]


class Numbered(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        return torch.tensor([i / LENGTH, 1.0]), i


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 40), nn.Dropout(0.2), nn.Linear(40, 40), nn.Linear(40, 1))

    def forward(self, x):
        return self.layers(x)

    def train_step(self, data, optimizer=None):
        loss = self(data[0]).square().mean()
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}


class Sees(Hook):
    """Writes down which samples are trained on in which epoch; stops after so many iterations."""

    def __init__(self, stop=None):
        self.stop = stop
        self.seen = []

    def before_train_iter(self, runner):
        self.seen += [(runner.epoch, runner.iter, i) for i in runner.data_batch[1].tolist()]

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.stop:
            runner.stop('enough')


def train(case, folder, stop=None, wrap=lambda model: model):
    """Go on from the newest checkpoint in ``folder``, if there is one, to ``stop`` or to the end."""
    name, drop_last, shuffle = case
    torch.manual_seed(0)
    model = wrap(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runner = RUNNERS[name](model, optimizer=optimizer, work_dir=str(folder), **LIMITS[name])
    runner.register_training_hooks({'policy': 'fixed'}, {}, CheckpointHook(1000, by_epoch=False))
    sees = Sees(stop)
    runner.register_hook(sees)
    checkpoint = find_latest_checkpoint(folder)
    if checkpoint is not None:
        runner.resume(str(checkpoint))
    loader = build_dataloader(Numbered(), BATCH, 0, seed=5, shuffle=shuffle, drop_last=drop_last)
    runner.run([loader], [('train', 1)])
    return sees.seen, runner.iter, torch.cat([p.detach().flatten() for p in model.parameters()])


def begin_on_rank(rank, folder):
    return [train(case, Path(folder) / str(i), stop=STOP)[0] for i, case in enumerate(CASES)]


def go_on_on_rank(rank, folder):
    """What is seen behind the checkpoints of two ranks; and, on four, whether a run of theirs is resumed exactly."""
    went_on = [train(case, Path(folder) / str(i))[:2] for i, case in enumerate(CASES)]
    return went_on, [
        resumed_exactly(name, Path(folder) / name) for name in RUNNERS if torch.distributed.is_initialized()
    ]


def resumed_exactly(name, folder):
    """Whether the samples and the weights of a run that stops and is resumed are those of one that does not."""
    case = (name, False, True)
    whole = train(case, folder / 'whole', wrap=wrapped)
    first = train(case, folder / 'cut', stop=STOP, wrap=wrapped)
    rest = train(case, folder / 'cut', wrap=wrapped)
    return first[0] + rest[0] == whole[0], torch.equal(rest[2], whole[2])


def wrapped(model):
    """Several buckets, so that rebuilding them changes the order of sums."""
    return MMDistributedDataParallel(model, bucket_cap_mb=0.002)


@pytest.fixture(scope='module')
def begun(tmp_path_factory):
    """Two ranks that stopped inside the first epoch: what each has seen, by case; and their checkpoints."""
    folder = tmp_path_factory.mktemp('ranks')
    ranks = on_ranks(__file__, 'begin_on_rank', str(folder))
    return folder, [sum(parts, []) for parts in zip(*ranks, strict=True)]


@pytest.fixture(scope='module')
def one_rank(begun):
    """What one process found that went on."""
    folder = begun[0].with_name('one')
    shutil.copytree(begun[0], folder)
    return [go_on_on_rank(0, folder)]


@pytest.fixture(scope='module')
def four_ranks(begun):
    """What each of four processes found."""
    folder = begun[0].with_name('four')
    shutil.copytree(begun[0], folder)
    return on_ranks(__file__, 'go_on_on_rank', str(folder), world_size=4)


@pytest.fixture(scope='module')
def gone_on(one_rank, four_ranks):
    """By number of ranks and case: what all ranks have seen behind the checkpoint, and their iterations."""
    found = {}
    for ranks in (one_rank, four_ranks):
        for i, case in enumerate(CASES):
            found[len(ranks), case] = sum((went_on[i][0] for went_on, _ in ranks), []), ranks[0][0][i][1]
    return found


def counts(seen, epoch):
    return Counter(i for e, _, i in seen if e == epoch)


@pytest.mark.parametrize('world_size', [1, 4])
@pytest.mark.parametrize('number, case', list(enumerate(CASES)))
def test_each_sample_of_the_open_epoch_is_seen_once(number, case, world_size, begun, gone_on):
    before, (after, _) = begun[1][number], gone_on[world_size, case]
    assert len(before) == len(counts(before, 0)) == STOP * BATCH * 2
    rest = LENGTH - len(before)
    seen = counts(after, 0)
    drop_last = case[1]
    if drop_last:
        assert counts(before, 0).keys().isdisjoint(seen)
        assert set(seen.values()) == {1}
        assert len(seen) == rest // (world_size * BATCH) * world_size * BATCH
    else:
        assert counts(before, 0).keys() | seen.keys() == set(range(LENGTH))
        # Every rank gets the same number; what is missing to that is repeated.
        assert sum(seen.values()) == -(-rest // world_size) * world_size
        assert sum((counts(before, 0) + seen).values()) - LENGTH == -rest % world_size


@pytest.mark.parametrize('world_size', [1, 4])
@pytest.mark.parametrize('number, case', list(enumerate(CASES)))
def test_the_next_epoch_is_a_whole_one(number, case, world_size, gone_on):
    after, _ = gone_on[world_size, case]
    seen = counts(after, 1)
    if case[1]:
        assert set(seen.values()) == {1}
        assert len(seen) == LENGTH // world_size // BATCH * BATCH * world_size
    else:
        assert seen.keys() == set(range(LENGTH))
        assert sum(seen.values()) == -(-LENGTH // world_size) * world_size


@pytest.mark.parametrize('world_size', [1, 4])
@pytest.mark.parametrize('case', CASES)
def test_iterations_are_the_updates_made(case, world_size, gone_on):
    after, iterations = gone_on[world_size, case]
    made = sorted({iteration for _, iteration, _ in after})
    assert made == list(range(STOP, STOP + len(made)))
    assert iterations == made[-1] + 1


@pytest.mark.parametrize('number, name', list(enumerate(RUNNERS)))
def test_four_ranks_are_resumed_to_the_bit(number, name, four_ranks):
    assert [exact[number] for _, exact in four_ranks] == [(True, True)] * 4
