"""A run that was saved on two ranks goes on with one and with four; one on four ranks is resumed to the bit."""

import logging
import re
import shutil
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.data import build_dataloader
from runnerkit.flow.look.log_lines import read_log
from runnerkit.hooks import CheckpointHook, Hook, TextLoggerHook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.parallel.buckets import GradientOrders
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

    val_step = train_step


class Pair(nn.Module):
    """Two networks, each in a wrapper of its own, whose weights the step changes itself, as in a GAN."""

    def __init__(self):
        super().__init__()
        self.first, self.second = wrapped(Net()), wrapped(Net())

    def train_step(self, data, optimizer):
        for net in (self.first, self.second):
            optimizer.zero_grad()
            loss = net(data[0]).square().mean()
            loss.backward()
            optimizer.step()
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}


class Sees(Hook):
    """Writes down which samples are trained on in which epoch; stops after so many iterations of its own."""

    def __init__(self, stop=None):
        self.stop = stop
        self.made = 0
        self.seen = []

    def before_train_iter(self, runner):
        self.seen += [(runner.epoch, runner.iter, i) for i in runner.data_batch[1].tolist()]

    def after_train_iter(self, runner):
        self.made += 1
        if self.made == self.stop:
            runner.stop('enough')


class OfItsRank(Hook):
    """Remembers the rank that it was on first; notes what it finds when the run begins, and what it leaves."""

    def __init__(self):
        self.rank = self.found = self.left = None

    def before_train_iter(self, runner):
        if self.found is None:
            self.found = self.rank, gradients(runner)
            self.rank = runner.rank if self.rank is None else self.rank

    def after_train_iter(self, runner):
        self.left = gradients(runner)
        if runner.iter + 1 == STOP and runner.rank == 0 and self.found[0] is None:
            runner.save_checkpoint(f'{runner.work_dir}/alone', 'iter_{}.pth')

    def state_dict(self):
        return {'rank': self.rank}

    def load_state_dict(self, state):
        self.rank = state['rank']


class Records(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.texts = []

    def emit(self, record):
        self.texts.append((record.levelname, record.getMessage()))


def gradients(runner):
    return [None if p.grad is None else p.grad.clone() for p in runner.model.parameters()]


def train(case, folder, stop=None, wrap=lambda model: model, hooks=(), logger=None, optimizer_config=None):
    """Go on from the newest checkpoint in ``folder``, if there is one, to ``stop`` or to the end."""
    name, drop_last, shuffle = case
    torch.manual_seed(0)
    model = wrap(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runner = RUNNERS[name](model, optimizer=optimizer, work_dir=str(folder), logger=logger, **LIMITS[name])
    runner.register_training_hooks({'policy': 'fixed'}, optimizer_config or {}, CheckpointHook(1000, by_epoch=False))
    sees = Sees(stop)
    for hook in (*hooks, sees):
        runner.register_hook(hook)
    checkpoint = find_latest_checkpoint(folder)
    if checkpoint is not None:
        runner.resume(str(checkpoint))
    loader = build_dataloader(Numbered(), BATCH, 0, seed=5, shuffle=shuffle, drop_last=drop_last)
    runner.run([loader], [('train', 1)])
    return sees.seen, runner.iter, torch.cat([p.detach().flatten() for p in model.parameters()])


#: By iteration, and one by epoch, which stays where it is.
SCHEDULES = [
    {'policy': 'poly', 'by_epoch': False},
    {'policy': 'ExponentialLR', 'gamma': 0.9, 'by_epoch': False},
    {'policy': 'OneCycleLR', 'max_lr': 0.2, 'by_epoch': False},
    {'policy': 'StepLR', 'step_size': 1},
]

#: Workflows of an epoch runner.
TRAIN, VAL_TRAIN, TRAIN_VAL = [('train', 1)], [('val', 1), ('train', 1)], [('train', 1), ('val', 1)]


class Rates(Hook):
    """Notes the rate of each iteration."""

    def __init__(self):
        self.used = {}

    def before_train_iter(self, runner):
        self.used[runner.iter] = runner.current_lr()[0]


def scheduled(folder, schedule, stop=None, batch=BATCH, kind='epoch', hooks=(), workflow=TRAIN, **limits):
    """Go on from the newest checkpoint in ``folder``, if there is one; returns the rates and the log."""
    records, rates = Records(), Rates()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    limits = limits or {'max_epochs': 2}
    runner = RUNNERS[kind](model, optimizer=optimizer, work_dir=str(folder), logger=logger_to(records), **limits)
    runner.register_training_hooks(schedule, {}, CheckpointHook(1000, by_epoch=False))
    for hook in (*hooks, Sees(stop)):
        runner.register_hook(hook)
    runner.register_hook(rates, 'VERY_LOW')
    checkpoint = find_latest_checkpoint(folder)
    if checkpoint is not None:
        runner.resume(str(checkpoint))
    runner.run([build_dataloader(Numbered(), batch, 0, seed=5) for _ in workflow], workflow)
    return rates.used, texts(records, 'INFO')


def places(folder):
    """A folder for each schedule with its stop: inside the first epoch (0), or after it (1)."""
    return {(i, i % 2): Path(folder) / f'schedule {i}' for i in range(len(SCHEDULES))}


def begin_schedules(folder, stops):
    """Stop all of them: at 12 samples of the first epoch, or after it."""
    for (i, k), place in places(folder).items():
        scheduled(place, SCHEDULES[i], stops[k])


def go_on_with_schedules(folder):
    """Of each run that goes on, what it has used and logged; and what one used that was always like this."""
    wholes = [scheduled(Path(folder) / f'whole {i}', schedule)[0] for i, schedule in enumerate(SCHEDULES)]
    return {key: (*scheduled(place, SCHEDULES[key[0]]), wholes[key[0]]) for key, place in places(folder).items()}


def begin_on_rank(rank, folder):
    begin_schedules(folder, (STOP, 8))
    seen = [train(case, Path(folder) / str(i), stop=STOP)[0] for i, case in enumerate(CASES)]
    return seen, states_around(Path(folder) / 'states', STOP)


def go_on_on_rank(rank, folder):
    """What is found behind the checkpoints of two ranks; and, on four, whether a run of theirs is resumed exactly."""
    folder = Path(folder)
    found = {'went on': [train(case, folder / str(i))[:2] for i, case in enumerate(CASES)]}
    found['schedules'] = go_on_with_schedules(folder)
    if (folder / 'of one').exists():
        found['schedules of one'] = go_on_with_schedules(folder / 'of one')
    found |= {name: states_around(folder / name, 1) for name in ('states', 'states/alone')}
    if torch.distributed.is_initialized():
        found['epoch'] = resumed_exactly('epoch', folder / 'epoch')
        found['pair'] = resumed_exactly('iter', folder / 'pair', wrap=lambda _: Pair())
        found['static'] = [told_of_a_static_graph(folder / 'static', 1) for _ in range(2)]
    return found


def states_around(folder, stop):
    """What a rank has at the beginning and at the end, inside a cycle of accumulated gradients; and what is told."""
    hook, records = OfItsRank(), Records()
    settings = {
        'stop': stop,
        'hooks': [hook],
        'logger': logger_to(records),
        'optimizer_config': {'cumulative_iters': 9},
    }
    train(CASES[0], folder, **settings)
    return {'found': hook.found, 'rank': hook.rank, 'left': hook.left, 'told': texts(records, 'WARNING')}


def told_of_a_static_graph(folder, stop):
    records = Records()
    train(CASES[0], folder, stop, wrap=lambda net: wrapped(net, static_graph=True), logger=logger_to(records))
    return [text for level in ('INFO', 'WARNING') for text in texts(records, level) if 'static_graph' in text]


def logger_to(records):
    logger = logging.Logger('ranks', logging.INFO)
    logger.addHandler(records)
    return logger


def texts(records, level):
    return [text for each, text in records.texts if each == level]


def resumed_exactly(name, folder, wrap=None):
    """Whether the samples and the weights of a run that stops and is resumed are those of one that does not; and
    whether the weights would be if sums were taken in any order."""
    case = (name, False, True)
    wrap = wrap or wrapped
    whole = train(case, folder / 'whole', wrap=wrap)
    first = train(case, folder / 'cut', stop=STOP, wrap=wrap)
    rest = train(case, folder / 'cut', wrap=wrap)
    train(case, folder / 'other', stop=STOP, wrap=wrap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientOrders, 'start', lambda *_: None)
        other = train(case, folder / 'other', wrap=wrap)
    return first[0] + rest[0] == whole[0], torch.equal(rest[2], whole[2]), torch.equal(other[2], whole[2])


def wrapped(model, **options):
    """Several buckets, so that rebuilding them changes the order of sums."""
    return MMDistributedDataParallel(model, bucket_cap_mb=0.002, **options)


@pytest.fixture(scope='module')
def begun(on_ranks, tmp_path_factory):
    """Two ranks that stopped inside the first epoch: their checkpoints, what both have seen, by case; and the states
    of each."""
    folder = tmp_path_factory.mktemp('ranks')
    ranks = on_ranks(__file__, 'begin_on_rank', str(folder))
    seen = [sum(parts, []) for parts in zip(*(seen for seen, _ in ranks), strict=True)]
    return folder, seen, [states for _, states in ranks]


@pytest.fixture(scope='module')
def one_rank(begun):
    """What one process found that went on."""
    folder = begun[0].with_name('one')
    shutil.copytree(begun[0], folder)
    return [go_on_on_rank(0, folder)]


@pytest.fixture(scope='module')
def four_ranks(on_ranks, begun):
    """What each of four processes found."""
    folder = begun[0].with_name('four')
    shutil.copytree(begun[0], folder)
    begin_schedules(folder / 'of one', (6, 16))
    return on_ranks(__file__, 'go_on_on_rank', str(folder), world_size=4)


@pytest.fixture(scope='module')
def gone_on(one_rank, four_ranks):
    """By number of ranks and case: what all ranks have seen behind the checkpoint, and their iterations."""
    found = {}
    for ranks in (one_rank, four_ranks):
        for i, case in enumerate(CASES):
            went_on = [rank['went on'][i] for rank in ranks]
            found[len(ranks), case] = sum((seen for seen, _ in went_on), []), went_on[0][1]
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
def test_iterations_of_an_epoch_run_are_rescaled_and_those_of_an_iteration_run_stay(case, world_size, gone_on):
    """The former run had made 3 iterations, and 12 of 31 samples are seen."""
    name, drop_last, _ = case
    after, iterations = gone_on[world_size, case]
    made = sorted({iteration for _, iteration, _ in after})
    length = {1: 15 if drop_last else 16, 4: 3 if drop_last else 4}[world_size]
    first = {1: 6, 4: 1}[world_size] if name == 'epoch' else STOP
    assert iterations == (2 * length if name == 'epoch' else LIMITS['iter']['max_iters'])
    assert made == list(range(first, iterations))


#: Where a run goes on in its own iterations, inside the first epoch and after it: from 2 ranks, or from 1, to others.
NOW = {(2, 1): (6, 16), (2, 4): (1, 4), (1, 4): (1, 4)}
LENGTHS = {1: 16, 2: 8, 3: 6, 4: 4}


@pytest.mark.parametrize('was, now', NOW)
def test_a_schedule_by_iteration_goes_on_at_its_part_of_the_run(was, now, one_rank, four_ranks):
    ranks = one_rank if now == 1 else four_ranks
    check_schedules([rank['schedules' if was == 2 else 'schedules of one'] for rank in ranks], was, now, NOW[was, now])


def check_schedules(ranks, was, now, firsts):
    stops = {1: (6, 16), 2: (3, 8), 3: (2, 6)}[was]
    for rank in ranks:
        for (_, k), (used, told, whole) in rank.items():
            assert list(whole) == list(range(2 * LENGTHS[now]))
            assert used == {i: rate for i, rate in whole.items() if i >= firsts[k]}
            text = f'the iteration number is changed from {stops[k]} to {firsts[k]}: an epoch had {LENGTHS[was]} '
            assert [each for each in told if each.startswith('the iteration number')] == [
                f'{text}iterations and has {LENGTHS[now]}'
            ]


def begin_schedules_on_rank(rank, folder):
    begin_schedules(folder, (2, 6))


def go_on_with_schedules_on_rank(rank, folder):
    return go_on_with_schedules(folder)


@pytest.mark.thorough  # as from 2 ranks to 1 and to 4, which the other tests start anyway
def test_from_three_ranks_to_two(on_ranks, tmp_path):
    on_ranks(__file__, 'begin_schedules_on_rank', str(tmp_path), world_size=3)
    ranks = on_ranks(__file__, 'go_on_with_schedules_on_rank', str(tmp_path))
    check_schedules(ranks, 3, 2, (3, 8))


@pytest.mark.parametrize('stops, now', [((6, 16), 4), ((3, 8), 1)])
def test_another_batch_size_is_another_number_of_iterations(stops, now, tmp_path):
    """4 ranks' batches of 2 are one rank's of 8."""
    if now == 4:
        begin, then = BATCH, 4 * BATCH
    else:
        begin, then = 2 * BATCH, BATCH
    for (i, k), place in places(tmp_path).items():
        whole, _ = scheduled(tmp_path / f'whole {i}', SCHEDULES[i], batch=then)
        scheduled(place, SCHEDULES[i], stops[k], batch=begin)
        used, _ = scheduled(place, SCHEDULES[i], batch=then)
        assert used == {at: rate for at, rate in whole.items() if at >= NOW[2, now][k]}


@pytest.mark.parametrize('kind', RUNNERS)
def test_a_run_whose_length_is_in_iterations_keeps_their_number(kind, tmp_path):
    for schedule in SCHEDULES[:2]:
        place = tmp_path / schedule['policy']
        first, _ = scheduled(place, schedule, 5, kind=kind, max_iters=20)
        rest, told = scheduled(place, schedule, kind=kind, batch=4, max_iters=20)
        whole, _ = scheduled(tmp_path / f'whole {schedule["policy"]}', schedule, kind=kind, max_iters=20)
        assert {**first, **rest} == whole
        assert not any('iteration number' in text for text in told)


class GoesBack(Hook):
    """Goes back to a file, once."""

    def __init__(self, at, file):
        self.at, self.file = at, file

    def after_train_iter(self, runner):
        if runner.iter == self.at:
            self.at = None
            runner.roll_back(str(self.file))


def test_a_run_that_goes_back_to_a_file_of_other_batches_counts_as_its_own(tmp_path):
    scheduled(tmp_path, SCHEDULES[1], 6)
    file = tmp_path / 'iter_6.pth'
    used, told = scheduled(tmp_path, SCHEDULES[1], batch=4, hooks=[GoesBack(5, file)])
    whole, _ = scheduled(tmp_path / 'whole', SCHEDULES[1], batch=4)
    assert used == {i: rate for i, rate in whole.items() if i >= 3}
    assert sum('changed from 6 to 3' in text for text in told) == 2


@pytest.mark.parametrize(
    ('was', 'now'), [(TRAIN, VAL_TRAIN), (VAL_TRAIN, TRAIN), (TRAIN_VAL, VAL_TRAIN), (VAL_TRAIN, VAL_TRAIN)]
)
def test_iterations_are_rescaled_wherever_the_workflow_trains(was, now, tmp_path):
    scheduled(tmp_path, SCHEDULES[1], 6, workflow=was)
    used, _ = scheduled(tmp_path, SCHEDULES[1], batch=4, workflow=now)
    whole, _ = scheduled(tmp_path / 'whole', SCHEDULES[1], batch=4)
    assert used == {i: rate for i, rate in whole.items() if i >= 3}


def test_log_and_files_of_the_old_count_are_no_longer_of_the_run(tmp_path):
    """Lines beyond the new count are moved aside; files have the numbers of the new one."""
    options = {'interval': 1, 'ignore_last': False}
    scheduled(tmp_path, SCHEDULES[0], 12, hooks=[TextLoggerHook(**options)])
    scheduled(tmp_path, SCHEDULES[0], batch=4, hooks=[TextLoggerHook(**options)])
    assert [line['step'] for line in read_log(tmp_path).lines] == [*range(1, 6), *range(7, 17)]
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['iter_12.pth', 'iter_16.pth', 'latest.pth']


# --- what belongs to each rank ---------------------------------------------------------------------------------------


def test_hook_states_are_those_of_the_rank_and_new_ranks_take_those_of_the_first(begun, one_rank, four_ranks):
    assert [states['rank'] for states in begun[2]] == [0, 1]
    assert [rank['states']['found'][0] for rank in one_rank] == [0]
    assert [rank['states']['found'][0] for rank in four_ranks] == [0, 1, 0, 0]


def test_an_unfinished_cycle_goes_to_other_ranks_as_the_mean_of_their_gradients(begun, one_rank, four_ranks):
    left = [states['left'] for states in begun[2]]
    assert not any(torch.equal(*pair) for pair in zip(*left, strict=True))
    mean = [(a + b) / 2 for a, b in zip(*left, strict=True)]
    for rank in [*one_rank, *four_ranks]:
        assert all(map(torch.equal, rank['states']['found'][1], mean))


def test_what_ranks_lose_is_told(one_rank, four_ranks):
    [changes, dropped] = one_rank[0]['states']['told']
    assert re.search(r'world size +2 +1 ', changes)
    assert 'ranks from 1 on are dropped' in dropped
    for rank in four_ranks:
        assert 'random states derived from those of rank 0 and their rank' in rank['states']['told'][1]


def test_what_a_rank_has_saved_alone_goes_to_all_and_is_told(begun, four_ranks):
    for rank in four_ranks:
        alone = rank['states/alone']
        assert alone['found'][0] == 0
        assert all(map(torch.equal, alone['found'][1], begun[2][0]['left']))
        assert any('holds the state of 1 of 2 ranks' in text for text in alone['told'])


# --- four ranks throughout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['epoch', 'pair'])  # the pair is trained by iterations
def test_four_ranks_are_resumed_to_the_bit(name, four_ranks):
    assert [rank[name] for rank in four_ranks] == [(True, True, False)] * 4


def test_a_static_graph_is_told_at_the_first_start_and_at_the_resume(four_ranks):
    [[at_start], [at_resume]] = four_ranks[0]['static']
    assert at_start.endswith(at_resume)
