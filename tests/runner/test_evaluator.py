"""Evaluations of a runner: their scores, hooks and ranks."""

import logging
import random
import time
import warnings
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import numpy as np
import pytest
import torch
import torchmetrics
from support import Measured, Noisy, Recorder, Tiny, loader, tiny_runner, weights
from torch import nn
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, WeightedRandomSampler

from runnerkit.data import build_dataloader
from runnerkit.distributed import groups
from runnerkit.evaluation import multi_gpu_test
from runnerkit.hooks import CheckpointHook, ClosureHook, EvalHook, Hook
from runnerkit.hooks.hook import Score
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.utils.report import report
from runnerkit.utils.waiting import pulse


def test_evaluate_without_a_run():
    runner = tiny_runner(max_epochs=1)
    before = runner.log_buffer
    scores = runner.evaluate(loader(12), scope='test')
    assert set(scores) == {'loss'}
    assert runner.log_buffer is before
    assert runner.mode is None
    assert runner.model.training


def test_nested_hooks_hear_an_evaluation_and_the_runners_do_not():
    own, nested = Recorder(), Recorder()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(own)
    runner.evaluate(loader(4), hooks=[nested])
    assert own.names() == ['after_forward', 'after_evaluate']
    val_points = ['before_val_epoch', 'before_val_iter', 'after_forward', 'after_val_iter', 'after_val_epoch']
    assert nested.names() == ['before_run', *val_points, 'after_evaluate', 'after_run']


class Hears(Hook):
    """Notes each evaluation's scores, and what the runner's are then."""

    def __init__(self):
        self.heard = []

    def after_evaluate(self, runner, scores):
        assert runner.model.training
        self.heard.append(scores)
        assert runner.scores == {**runner.scores, **{n: Score(v, runner.completed_iters) for n, v in scores.items()}}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_every_hook_hears_the_scores_of_every_evaluation(kind):
    first, last = Hears(), Hears()
    limit = {'max_epochs': 2} if kind == 'epoch' else {'max_iters': 4}
    runner = tiny_runner(kind, model=Measured(), **limit)
    runner.register_hook(last, 'LOWEST')
    runner.register_hook(first, 'HIGHEST')
    runner.register_hook(EvalHook(loader(6), by_epoch=kind == 'epoch', interval=1 if kind == 'epoch' else 2))
    entry = ('val', 1) if kind == 'epoch' else ('val', 2)
    runner.run([loader(8), loader(8)], [('train', 1 if kind == 'epoch' else 2), entry])
    scores = runner.evaluate(loader(6))
    # Twice by the EvalHook, twice by the workflow, and once at the end.
    assert len(first.heard) == 5
    assert first.heard == last.heard
    assert all(set(each) == {'loss', 'error'} and {type(v) for v in each.values()} == {float} for each in first.heard)
    assert runner.scores == {name: Score(float(value), 4) for name, value in scores.items()}


def test_what_is_no_score_is_none_and_what_the_log_held_before_stays():
    hears = Hears()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(hears)
    runner.log_buffer.output.update(loss=3.0, acc=0.1)
    with runner.around_val():
        assert runner.log_buffer.output == {}
    assert (hears.heard, runner.scores) == ([], {})
    with runner.around_val():
        runner.log_buffer.output.update(acc=np.float32(0.5), eval_iter_num=7, table='a | b', each=torch.ones(2))
    assert hears.heard == [{'acc': 0.5}]
    assert list(runner.log_buffer.output) == ['loss', 'acc', 'eval_iter_num', 'table', 'each']
    with pytest.raises(ValueError, match='boom'), runner.around_val() as found:
        found['acc'] = 0.9
        raise ValueError('boom')
    assert hears.heard == [{'acc': 0.5}]
    assert runner.scores == {'acc': Score(0.5, 0)}


class Few(IterableDataset):
    """A stream of ``n`` samples; if it is read ``once``, a later pass finds none."""

    def __init__(self, n, once=False):
        self.samples = [(torch.ones(4), torch.ones(1))] * n
        self.iterator = iter(self.samples) if once else None

    def __iter__(self):
        return iter(self.samples) if self.iterator is None else self.iterator


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('as_workflow', [False, True])
@pytest.mark.parametrize('model', [Tiny, Measured])
@pytest.mark.parametrize(
    ('data', 'evaluations'),
    [(Few(0), 0), (Few(1), 0), ([], 0), (lambda: Few(2, once=True), 1), (lambda: Few(3), 2)],
    ids=['no sample', 'no full batch', 'an empty list', 'an iterator', 'samples'],
)
def test_an_evaluation_without_samples_is_an_error_that_names_the_loader(kind, as_workflow, model, data, evaluations):
    data, hears = data() if callable(data) else data, Hears()
    evaluated = DataLoader(data, 2, drop_last=True)
    runner = tiny_runner(kind, model=model(), **{f'max_{kind}s': 2})
    runner.register_hook(hears)
    loaders, workflow = [loader(4)], [('train', 1)]
    if as_workflow:
        loaders.append(evaluated)
        workflow.append(('val', 1))
    else:
        runner.register_hook(EvalHook(evaluated, by_epoch=kind == 'epoch'))
    name = r"workflow entry \('val', 1\) is empty" if as_workflow and data == [] else type(data).__name__
    with pytest.raises(ValueError, match=name) if evaluations < 2 else nullcontext():
        runner.run(loaders, workflow)
    assert len(hears.heard) == evaluations


class Visitor(Hook):
    """A hook of evaluations that may fail at a point."""

    def __init__(self, fails_at=None):
        self.heard, self.fails_at = [], fails_at

    def hear(self, point, runner):
        self.heard.append((point, runner.iter, runner.outcome and runner.outcome.kind))
        if point == self.fails_at:
            raise ValueError(point)

    def before_run(self, runner):
        self.hear('before_run', runner)

    def after_val_epoch(self, runner):
        self.hear('after_val_epoch', runner)

    def after_run(self, runner):
        self.hear('after_run', runner)


def test_hooks_of_an_evaluation_are_entered_once_and_leave_with_the_run():
    visitor = Visitor()
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EvalHook(loader(6), hooks=[visitor]))
    for until in (2, 3):
        runner._max_epochs = until
        runner.run([loader(8)], [('train', 1)])
    assert visitor.heard == [
        ('before_run', 2, None),
        ('after_val_epoch', 2, None),
        ('after_val_epoch', 4, None),
        ('after_run', 4, 'completed'),
        ('before_run', 6, None),
        ('after_val_epoch', 6, None),
        ('after_run', 6, 'completed'),
    ]


@pytest.mark.parametrize('point', ['before_run', 'after_val_epoch', 'after_run'])
def test_hooks_of_an_evaluation_that_fails_are_left(point):
    visitors = [Visitor(), Visitor(point), Visitor()]
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(EvalHook(loader(6), hooks=visitors))
    with pytest.raises(ValueError, match=point):
        runner.run([loader(8)], [('train', 1)])
    entered = visitors[:2] if point == 'before_run' else visitors
    outcome = 'completed' if point == 'after_run' else 'failed'
    assert {each.heard[-1][0::2] for each in entered} == {('after_run', outcome)}
    assert point != 'before_run' or visitors[2].heard == []
    alone = Visitor(point)
    with pytest.raises(ValueError, match=point):
        tiny_runner(max_epochs=1).evaluate(loader(6), hooks=[alone])
    assert alone.heard[-1][0] == 'after_run'


def test_the_runners_own_hooks_are_not_entered_again_by_an_evaluation():
    own = Visitor()
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(own)
    runner.evaluate(loader(6), hooks=[own])
    assert [point for point, *_ in own.heard] == ['after_val_epoch']


class ByRank(Tiny):
    """A buffer and losses that differ from rank to rank, of a number of samples that does, too."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.register_buffer('mark', torch.tensor(float(rank)))

    def val_step(self, data, optimizer):
        log_vars = {'loss': 10.0 * (self.rank + 1), 'mark': self.mark}
        return {'loss': None, 'log_vars': log_vars, 'num_samples': self.rank + 1}


class Samples(Dataset):
    """Numbers, which a model predicts as they are."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return {'x': torch.tensor([float(i)])}


class Judged(Samples):
    def evaluate(self, results, logger=None):
        return {'number': len(results), 'sum': sum(results)}


class Unknown(IterableDataset):
    """A rank's share of the numbers, whose length it does not know."""

    def __init__(self, length):
        self.share = range(length)[torch.distributed.get_rank() :: torch.distributed.get_world_size()]

    def __iter__(self):
        return ({'x': torch.tensor([float(i)])} for i in self.share)


class Identity(nn.Module):
    """Reports what it sees, and predicts it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 1, bias=False))
        for layer in self.layers:
            nn.init.constant_(layer.weight, 0.5)
        self.metrics = {'sum': SumMetric(), 'all': CatMetric()}

    def forward(self, x, return_loss=True):
        return self.layers(x).flatten().tolist()

    def val_step(self, data, optimizer=None):
        x = data['x']
        report('seen', float(len(x)))
        y = self.layers(x)
        return {'log_vars': {'loss': x.mean()}, 'num_samples': len(x), 'preds': y, 'target': x}


class SumMetric(torchmetrics.SumMetric):
    def update(self, preds, target):
        super().update(preds.flatten())


class CatMetric(torchmetrics.CatMetric):
    def update(self, preds, target):
        super().update(preds.flatten())

    def compute(self):
        return {str(int(i)): i for i in super().compute().flatten().tolist()}


def sharded():
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    model = Identity()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    register_fsdp_forward_method(model, 'val_step')
    return model


def averaged():
    return MMDistributedDataParallel(Identity())


def evaluates_on_rank(rank):
    runner = tiny_runner(model=ByRank(rank), max_epochs=1)
    failure = fails_in_first_evaluation(rank)
    found = {'first buffers': (runner.evaluate([[0, 1]]), runner.scores)}
    told = []
    warnings.showwarning = lambda message, *args, **kwargs: told.append(str(message))
    for wrap in (Identity, averaged, sharded):
        recorder = Recorder()
        runner = tiny_runner(model=wrap(), max_epochs=1)
        runner.register_hook(recorder)
        own = Recorder()
        for length in LENGTHS:
            samples = {'losses': Samples(length), 'predictions': Judged(length), 'stream': Unknown(length)}
            for name, dataset in samples.items():
                loader = build_dataloader(dataset, 2, 0, shuffle=False, round_up=False)
                found[wrap.__name__, name, length] = runner.evaluate(loader, hooks=[own])
        found[wrap.__name__, 'steps'] = recorder.names().count('after_forward')
        found[wrap.__name__, 'batches'] = own.names().count('after_val_iter')
        runner = tiny_runner(model=wrap(), max_epochs=1)
        loader = build_dataloader(Samples(2), 2, 0, shuffle=False, round_up=False)
        runner.run([loader], [('val', 1)])
        found[wrap.__name__, 'workflow'] = {name: score.value for name, score in runner.scores.items()}
    runner = tiny_runner(model=Identity(), max_epochs=1)
    rounded = build_dataloader(Samples(7), 2, 0, shuffle=False)  # as in training
    found['rounded up'] = runner.evaluate(rounded), len(rounded), rounded.sampler.round_up
    logger, records = logging.getLogger('runnerkit'), []
    logger.addFilter(lambda record: records.append(record.getMessage()) or True)
    repeating = DataLoader(Samples(7), 2, sampler=DistributedSampler(Samples(7), shuffle=False))
    for _ in range(2):
        runner.evaluate(repeating)
    runner.evaluate(DataLoader(Samples(6), 2, sampler=DistributedSampler(Samples(6), shuffle=False)))
    found['repeated'] = [text for text in records if 'come twice' in text]
    runner = tiny_runner('iter', model=Identity(), max_iters=1)
    try:
        runner.run([build_dataloader(Samples(2), 2, 0, shuffle=False, round_up=False)], [('val', 2)])
    except ValueError as error:
        found['iterations'] = str(error)
    found['told'] = [text for text in told if 'not all ranks' in text]
    runner = tiny_runner(model=Identity(), max_epochs=1)
    try:
        runner.evaluate(build_dataloader(Unjudged(4), 2, 0, shuffle=False, round_up=False))
    except Exception as error:
        found['failed'] = repr(error)
    found['failed first'] = failure
    loader = build_dataloader(Slow(4), 2, 0, shuffle=False, round_up=False)
    found['slow'] = runner.evaluate(loader, hooks=[TimeOut(60)], test_fn=predictions_and_a_short_time_out)
    try:  # the last one, as rank 0 tells the others of its failure
        tiny_runner(model=Identity(), max_epochs=1).evaluate(build_dataloader(Unknown(0), 2, 0, shuffle=False))
    except ValueError as error:
        found['nothing'] = str(error)
    return found


def fails_in_first_evaluation(rank):
    """Rank 0 fails while the others wait for it in a collective of the evaluation, as under FSDP2."""
    groups._TO_TELL = 0.3
    try:
        with tiny_runner(max_epochs=1).around_val():
            if rank == 0:
                raise ValueError('a sample is broken')
            torch.distributed.barrier()
    except (RuntimeError, ValueError) as error:
        if rank == 0:
            torch.distributed.barrier()
        return repr(error)


class Unjudged(Judged):
    def evaluate(self, results, logger=None):
        raise KeyError('an annotation is missing')


class Slow(Judged):
    def evaluate(self, results, logger=None):
        time.sleep(1.5)  # several times the other ranks' time-out
        return super().evaluate(results)


class TimeOut(Hook):
    """Gives the default group another time-out after an evaluation."""

    def __init__(self, seconds):
        self.seconds = seconds

    def after_evaluate(self, runner, scores):
        _set_pg_timeout(timedelta(seconds=self.seconds), torch.distributed.group.WORLD)


def predictions_and_a_short_time_out(model, loader):
    predictions = multi_gpu_test(model, loader)
    if predictions is None:  # rank 0 does not wait
        TimeOut(0.3).after_evaluate(None, {})
    return predictions


#: Of the data sets: fewer than the three ranks, as many, and some that they share unequally.
LENGTHS = (1, 2, 3, 4, 6, 7, 8, 13)


@pytest.fixture(scope='module')
def ranks(on_ranks):
    return on_ranks(__file__, 'evaluates_on_rank', world_size=3)


def test_ranks_evaluate_the_first_ones_buffers_and_average_over_all_samples(ranks):
    scores = {'loss': pytest.approx((10 * 1 + 20 * 2 + 30 * 3) / 6), 'mark': 0.0}
    for rank in ranks:
        found, remembered = rank['first buffers']
        assert found == scores
        assert {name: score.value for name, score in remembered.items()} == scores


@pytest.mark.parametrize('wrapper', ['Identity', 'averaged', 'sharded'])
def test_every_sample_counts_once_on_any_number_of_ranks(ranks, wrapper):
    for length in LENGTHS:
        numbers = [float(i) for i in range(length)]
        scores = {'loss': pytest.approx(sum(numbers) / length), 'sum': sum(numbers)}
        scores |= {f'all_{i}': float(i) for i in range(length)}
        for i, rank in enumerate(ranks):
            for name in ('losses', 'stream'):
                found = dict(rank[wrapper, name, length])
                seen = found.pop('seen')
                assert found == scores, name
                assert 1 <= seen <= 2  # averaged over batches
            assert rank[wrapper, 'predictions', length] == {'number': length, 'sum': sum(numbers)}
    for i, rank in enumerate(ranks):
        batches = 2 * sum(-(-len(range(i, length, 3)) // 2) for length in LENGTHS)
        assert rank[wrapper, 'steps'] == rank[wrapper, 'batches'] == batches  # of the two that take val_steps
        assert rank[wrapper, 'workflow'] == {'loss': 0.5, 'sum': 1.0, 'all_0': 0.0, 'all_1': 1.0, 'seen': 1.0}


def test_a_loader_of_a_training_gives_every_sample_once_in_an_evaluation(ranks):
    for rank in ranks:
        scores, length, round_up = rank['rounded up']
        assert (scores['sum'], scores['loss'], length, round_up) == (21.0, pytest.approx(3.0), 2, True)


def test_samples_that_a_sampler_of_torchs_repeats_are_told(ranks):
    first, *others = [rank['repeated'] for rank in ranks]
    assert len(first) == 1
    assert 'so that 2 samples come twice' in first[0]
    assert others == [[], []]


def test_a_rank_without_samples_is_none_to_warn_of(ranks):
    assert [text for rank in ranks for text in rank['told'] if 'loss' in text and 'seen' in text] == []


def test_ranks_none_of_which_has_a_sample_fail(ranks):
    assert all('SeededLoader of Unknown gave no batches on any rank' in rank['nothing'] for rank in ranks)


def test_ranks_wait_for_the_first_ones_evaluation_longer_than_a_collective_may_take(ranks):
    assert [rank['slow'] for rank in ranks] == [{'number': 4, 'sum': 6.0}] * 3


def test_a_rank_0_that_fails_in_the_first_evaluation_waits_for_nobody(ranks):
    first, *others = [rank['failed first'] for rank in ranks]
    assert first == "ValueError('a sample is broken')"
    for other in others:
        assert other.startswith('ToldByFirstRank("rank 0 has failed: ValueError(')


def test_a_data_set_that_cannot_evaluate_keeps_no_rank_waiting(ranks):
    first, *others = [rank['failed'] for rank in ranks]
    assert first == "KeyError('an annotation is missing')"
    assert others == [f'ToldByFirstRank("rank 0 has failed: {first}")'] * 2


def test_an_iteration_runner_needs_samples_on_every_rank(ranks):
    for rank in ranks:
        assert "('val', 2) validates on 2 samples, fewer than the 3 ranks" in rank['iterations']


def test_the_heartbeat_changes_with_each_iteration_and_is_none_where_a_pause_may_be_long(tmp_path):
    seen, pauses = [], []

    class Looks(Hook):
        def before_train_iter(self, runner):
            seen.append(runner.heartbeat)

        def after_train_iter(self, runner):
            seen.append(runner.heartbeat)

        def after_evaluate(self, runner, scores):
            pauses.append(('scored', runner.heartbeat is None))

        def before_val_iter(self, runner):
            pauses.append(('evaluates', runner.heartbeat is None))

        def after_save(self, runner):
            pauses.append(('saves', runner.heartbeat is None))

    class Nests(Hook):
        def after_train_epoch(self, runner):
            with runner.nested('inside'):
                child = tiny_runner(max_epochs=1)
                child.register_hook(Sees(runner))
                child.run([loader(8)], [('train', 1)])

    class Sees(Hook):
        def __init__(self, outer):
            self.outer = outer

        def after_train_iter(self, runner):
            inside.append(self.outer.heartbeat)

    inside = []
    hook = Looks()
    runner = tiny_runner(max_epochs=1, work_dir=str(tmp_path))
    for each in (hook, Nests(), EvalHook(loader(4), by_epoch=False, interval=1, hooks=[hook])):
        runner.register_hook(each)
    runner.register_checkpoint_hook({'interval': 1})
    assert runner.heartbeat is None
    runner.run([loader(12)], [('train', 1)])
    assert runner.heartbeat is None
    assert None not in seen
    assert len(set(seen)) >= 3
    assert [beat[0] for beat in seen[:2]] == [0, 1]
    assert set(pauses) == {('scored', False), ('evaluates', True), ('saves', True)}
    assert None not in inside
    assert len(set(inside)) == 2


def test_the_heartbeat_goes_on_while_a_stream_has_nothing():
    runner = tiny_runner(max_epochs=1)
    beats = []

    class Waits(Hook):
        def before_train_iter(self, runner):
            beats.append(runner.heartbeat)
            pulse()
            beats.append(runner.heartbeat)

    runner.register_hook(Waits())
    runner.run([loader(4)], [('train', 1)])
    assert beats[0] != beats[1]


class Onion(Hook):
    """A guest with all rings, which notes what happens in them."""

    def __init__(self, fails=False):
        self.heard, self.fails = [], fails

    def before_run(self, runner):
        self.heard.append('before_run')

    def after_run(self, runner):
        self.heard.append('after_run')

    def after_forward(self, runner):
        self.heard.append('after_forward')

    def after_val_iter(self, runner):
        self.heard.append('after_val_iter')
        if self.fails:
            raise ValueError('boom')

    def after_evaluate(self, runner, scores):
        self.heard.append('after_evaluate')


def ring(name):
    @contextmanager
    def around(self, runner):
        self.heard.append(f'> {name}')
        try:
            yield
        finally:
            self.heard.append(f'< {name}')

    return around


for _name in ('run', 'epoch', 'iter', 'val', 'save'):
    setattr(Onion, f'around_{_name}', ring(_name))

ITERATION = ['> iter', 'after_forward', 'after_val_iter', '< iter']
PASS = ['> val', '> epoch', *ITERATION, *ITERATION, '< epoch', '< val', 'after_evaluate']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_guests_are_whole_onions(kind, tmp_path):
    guest = Onion()
    tiny_runner(max_epochs=1).evaluate(loader(6), hooks=[guest])
    assert guest.heard == ['> run', 'before_run', *PASS, 'after_run', '< run']
    guest = Onion()
    by_epoch = kind == 'epoch'
    runner = tiny_runner(kind, work_dir=tmp_path, **({'max_epochs': 2} if by_epoch else {'max_iters': 4}))
    runner.register_hook(EvalHook(loader(6), hooks=[guest], by_epoch=by_epoch, interval=1 if by_epoch else 2))
    runner.register_hook(CheckpointHook(by_epoch=by_epoch))
    runner.run([loader(8)], [('train', 1)])
    # Each evaluation is an onion; the hook itself is entered once, and left with the run.
    assert guest.heard == ['> run', 'before_run', *PASS, '< run', '> run', *PASS, '< run', 'after_run']


def test_rings_of_guests_are_inside_the_runners_and_are_left_after_an_error():
    own, guest = Onion(), Onion(fails=True)
    own.heard = guest.heard
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(own)
    with pytest.raises(ValueError, match='boom'):
        runner.evaluate(loader(4), hooks=[guest])
    assert guest.heard == [
        *['> run', 'before_run', '> val', '> val', '> epoch', '> epoch', '> iter', '> iter'],
        *['after_forward', 'after_forward', 'after_val_iter', '< iter', '< iter', '< epoch', '< epoch'],
        *['< val', '< val', 'after_run', '< run'],
    ]


def test_a_ring_of_a_guest_that_sets_a_state_leaves_the_training_as_it_was():
    class Bf16(Hook):
        def around_run(self, runner):
            return torch.autocast('cpu', torch.bfloat16)

        def after_val_iter(self, runner):
            assert torch.is_autocast_enabled('cpu')

    class Looks(Hook):
        def before_train_iter(self, runner):
            assert torch.is_grad_enabled()
            assert not torch.is_autocast_enabled('cpu')

    runner = tiny_runner('iter', max_iters=3)
    runner.register_hook(Looks())
    runner.register_hook(EvalHook(loader(4), hooks=[Bf16()], by_epoch=False))
    runner.run([loader(8)], [('train', 1)])
    assert not torch.is_autocast_enabled('cpu')


class Draws(Measured):
    """Draws from all generators of the process when it is evaluated."""

    def val_step(self, data, optimizer=None):
        torch.rand(3), random.random(), np.random.rand()
        return super().val_step(data)

    def forward(self, x, return_loss=True):
        torch.rand(1)
        return super().forward(x)


class Asked(Noisy):
    """Scored by itself, as MMCV's are."""

    def __getitem__(self, i):
        return {'x': super().__getitem__(i)[0]}

    def evaluate(self, results, logger=None):
        return {'acc': len(results) + np.random.rand()}


def same_start(model):
    model.load_state_dict({name: torch.ones_like(each) / 9 for name, each in model.state_dict().items()})


#: Loaders to evaluate on, each made with the generator that the training loader has.
LOADERS = {
    'plain': lambda generator: DataLoader(Noisy(6), batch_size=4),
    'shuffled': lambda generator: DataLoader(Noisy(6), batch_size=4, shuffle=True),
    'a shared generator': lambda generator: DataLoader(Noisy(6), batch_size=4, shuffle=True, generator=generator),
    'a sampler that draws': lambda generator: DataLoader(
        Noisy(6), batch_size=4, sampler=WeightedRandomSampler([0.5] * 6, 6, generator=generator)
    ),
    'workers': lambda generator: DataLoader(Noisy(6), batch_size=4, num_workers=1),
    'own data set': lambda generator: DataLoader(Asked(6), batch_size=4),
    'list': lambda generator: [tuple(each[None] for each in Noisy(6)[i]) for i in (0, 1)],
}


def trained(made, by_hook=False, kind='iter'):
    """The weights after a training over a plain loader, with evaluations unless ``made`` is None."""
    generator = torch.Generator().manual_seed(7)
    training = DataLoader(Noisy(12), batch_size=4, shuffle=True, generator=generator)
    evaluated = None if made is None else made(generator)
    runner = tiny_runner(kind, model=Draws(), **({'max_iters': 6} if kind == 'iter' else {'max_epochs': 2}))
    same_start(runner.model)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(3)
    if evaluated is not None and by_hook:
        runner.keeps_random_states = True  # as in a run by config
        runner.register_hook(EvalHook(evaluated, by_epoch=kind == 'epoch'))
    elif evaluated is not None:
        runner.register_hook(ClosureHook('after_train_iter', lambda runner: runner.evaluate(evaluated)))
    runner.register_optimizer_hook({'grad_clip': None})
    runner.run([training], [('train', 1)])
    assert bool(runner.scores) == (made is not None)
    return weights(runner.model)


@pytest.mark.parametrize('made', LOADERS)
def test_an_evaluation_moves_no_random_states_of_the_training(made):
    assert torch.equal(trained(None), trained(LOADERS[made]))


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('made', ['shuffled', 'a shared generator', 'own data set'])
def test_an_eval_hook_keeps_them_where_it_is_told_to(made, kind):
    assert torch.equal(trained(None, kind=kind), trained(LOADERS[made], True, kind))


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_so_does_an_entry_of_the_workflow(kind):
    """Also where the iteration runner begins the passes over all loaders before its first iteration."""

    def run(*entries, keeps=True):
        runner = tiny_runner(kind, model=Draws(), **({'max_iters': 6} if kind == 'iter' else {'max_epochs': 2}))
        same_start(runner.model)
        runner.keeps_random_states = keeps
        runner.register_optimizer_hook({'grad_clip': None})
        workflow = [('train', 2), *entries]
        runner.run([DataLoader(Noisy(12), batch_size=4, shuffle=True) for _ in workflow], workflow)
        return weights(runner.model)

    alone = run()
    assert torch.equal(alone, run(('val', 1)))
    assert kind == 'epoch' or not torch.equal(alone, run(('val', 1), keeps=False))


def test_mmcvs_evaluations_move_the_random_states_and_say_so_once(caplog):
    def run(*workflow, hook=None):
        caplog.clear()
        runner = tiny_runner(max_epochs=3)
        if hook is not None:
            runner.register_hook(hook)
        runner.run([DataLoader(Noisy(8), batch_size=4) for _ in workflow], list(workflow))
        return sum('random numbers that the training' in record.getMessage() for record in caplog.records)

    assert run(('train', 1)) == 0
    assert run(('train', 1), ('val', 1)) == 1
    assert run(('train', 1), hook=EvalHook(DataLoader(Asked(6), batch_size=4), test_fn=lambda *_: [1])) == 1
    assert run(('train', 1), hook=EvalHook(loader(6))) == 0  # which keeps them apart itself


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('saves_at', ['after_val_iter', 'after_evaluate'])
def test_a_resume_from_inside_an_evaluation_trains_on_as_if_undisturbed(saves_at, kind, tmp_path):
    """Its random states are those of the training, whatever the evaluation has drawn by then."""

    def run(name, resume=None):
        limits = {'max_epochs': 3} if kind == 'epoch' else {'max_iters': 9}
        runner = tiny_runner(kind, model=Draws(), work_dir=tmp_path / name, **limits)
        same_start(runner.model)
        runner.keeps_random_states = True
        saves = []
        save = lambda runner, *args: saves.append(runner.save(filename_tmpl=f'{len(saves)}.pth'))  # noqa: E731
        hook = Hook()
        setattr(hook, saves_at, save)
        runner.register_hook(hook)
        runner.register_optimizer_hook({'grad_clip': None})
        if resume is not None:
            runner.resume(resume)
        loaders = [DataLoader(Noisy(12), batch_size=4, shuffle=True) for _ in range(2)]
        runner.run(loaders, [('train', 1), ('val', 1)] if kind == 'epoch' else [('train', 3), ('val', 2)])
        return weights(runner.model), saves

    whole, saves = run('whole')
    assert len(saves) >= 2
    for number, path in enumerate(saves[:2]):
        assert torch.equal(whole, run(f'again_{number}', path)[0])


@pytest.mark.parametrize('make', [lambda: DataLoader(Noisy(8), 4), lambda: loader(8)], ids=['plain', 'seeded'])
def test_a_validation_in_which_the_run_was_saved_is_repeated_with_all_that_it_draws(make, tmp_path):
    """Also where the loader's order follows from nothing that is drawn."""

    def run(resume=None):
        runner = tiny_runner(model=Draws(), work_dir=tmp_path, max_epochs=2)
        runner.register_optimizer_hook({})
        same_start(runner.model)
        save = lambda runner: runner.epoch == 1 and runner.save(filename_tmpl='inside.pth')  # noqa: E731
        runner.register_hook(ClosureHook('after_val_iter', save))
        if resume is not None:
            runner.resume(resume)
        runner.run([loader(), make()], [('train', 1), ('val', 1)])
        return weights(runner.model)

    assert torch.equal(run(), run(str(tmp_path / 'inside.pth')))


def test_a_checkpoint_inside_an_evaluation_has_the_shared_generators_of_the_training():
    generator = torch.Generator().manual_seed(7)
    training = DataLoader(Noisy(8), batch_size=4, shuffle=True, generator=generator)
    found = []

    def look(runner):
        before = generator.get_state()
        own = runner.snapshots.saver.rank_state()['readers'][0]['held']
        assert torch.equal(before, generator.get_state())
        found.append([state['generator']['torch'] for state in own.values() if 'generator' in state])

    def evaluate(runner):
        at = generator.get_state()
        inside = DataLoader(Noisy(6), batch_size=4, shuffle=True, generator=generator)
        runner.evaluate(inside, hooks=[ClosureHook('after_val_iter', look)])
        found.append(at)
        assert torch.equal(at, generator.get_state())

    runner = tiny_runner('iter', max_iters=1)
    runner.register_hook(ClosureHook('after_train_iter', evaluate))
    runner.run([training], [('train', 1)])
    *inside, at = found
    assert inside[0]
    assert all(torch.equal(state, at) for states in inside for state in states)


def test_an_evaluation_leaves_what_the_training_logs_alone():
    class Evaluates(Hook):
        def after_train_iter(self, runner):
            runner.evaluate(loader(8))

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Evaluates())
    runner.run([loader(12)], [('train', 1)])
    assert runner.log_buffer.val_history['loss'] == pytest.approx(runner.model.losses)
