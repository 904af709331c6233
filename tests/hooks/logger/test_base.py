"""When loggers log, and under which names."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import Hook, IterTimerHook, LoggerHook, NonFiniteError, NonFiniteHook
from runnerkit.log_buffer import LogBuffer


class Kept(LoggerHook):
    """Keeps what it could log."""

    def __init__(self, **options):
        super().__init__(**options)
        self.lines = []

    def log(self, runner):
        counts = (
            self.get_mode(runner),
            self.get_epoch(runner),
            self.get_iter(runner),
            self.get_iter(runner, inner_iter=True),
        )
        self.lines.append((*counts, self.get_loggable_tags(runner), sorted(runner.log_buffer.output)))


class Counting(Tiny):
    """Its loss is 1, 2, 3 … in training and 100 in validation."""

    count = 0

    def train_step(self, data, optimizer, **kwargs):
        self.count += 1
        return {
            'loss': torch.zeros(()),
            'log_vars': {'loss': torch.tensor(float(self.count))},
            'num_samples': len(data[0]),
        }

    def val_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'loss': 100.0}, 'num_samples': len(data[0])}

    dis_step = train_step


def run(hook, kind='epoch', workflow=(('train', 1),), length=28, timer=True, **limits):
    """Seven batches a pass, from 28 samples."""
    runner = tiny_runner(kind, model=Counting(), **(limits or {'max_epochs': 2}))
    if timer:
        runner.register_hook(IterTimerHook(), 'LOW')
    for each in hook if isinstance(hook, list) else [hook]:
        runner.register_hook(each, 'VERY_LOW')
    runner.run([loader(length) for _ in workflow], list(workflow))
    return runner


def test_every_interval_and_the_whole_of_each_validation():
    hook = Kept(interval=3)
    run(hook, workflow=[('train', 1), ('val', 1)])
    assert [line[:4] for line in hook.lines] == [
        ('train', 1, 3, 3),
        ('train', 1, 6, 6),
        ('val', 1, 8, 7),
        ('train', 2, 10, 3),
        ('train', 2, 13, 6),
        ('val', 2, 15, 7),
    ]
    tags = [line[4] for line in hook.lines]
    assert tags[1] == {'train/loss': 5.0, 'learning_rate': 0.1, 'momentum': 0.9}
    assert tags[2] == {'val/loss': 100.0, 'learning_rate': 0.1, 'momentum': 0.9}
    assert hook.lines[1][5] == ['data_time', 'loss', 'time']


def test_the_rest_of_an_epoch_if_asked_for():
    hook = Kept(interval=3, ignore_last=False)
    run(hook)
    assert [line[2] for line in hook.lines] == [3, 6, 7, 10, 13, 14]
    assert hook.lines[2][4]['train/loss'] == 6.0  # of the last three iterations


def test_loggers_that_log_at_the_same_moment_share_one_average(monkeypatch):
    moments, average = [], LogBuffer.average
    monkeypatch.setattr(
        LogBuffer, 'average', lambda self, n=0, **options: moments.append(n) or average(self, n, **options)
    )
    hooks = [Kept(interval=3), Kept(interval=3)]
    run(hooks, max_epochs=1)
    assert hooks[0].lines == hooks[1].lines
    assert moments == [3, 3]


def test_by_iteration_the_count_goes_on_over_epochs():
    hook = Kept(interval=3, by_epoch=False)
    run(hook, 'iter', max_iters=14)
    assert [line[:4] for line in hook.lines] == [
        ('train', 1, 3, 3),
        ('train', 1, 6, 6),
        ('train', 2, 9, 9),
        ('train', 2, 12, 12),
    ]


def test_validation_in_the_iteration_runner_is_logged_at_its_end():
    hook = Kept(interval=5, by_epoch=False)
    run(hook, 'iter', workflow=[('train', 5), ('val', 2)], max_iters=10)
    assert [(line[0], line[2], line[4][f'{line[0]}/loss']) for line in hook.lines] == [
        ('train', 5, 3.0),
        ('val', 6, 100.0),  # between two iterations, MMCV names the next one
        ('train', 10, 8.0),
        ('val', 11, 100.0),
    ]


@pytest.mark.parametrize('timer', [True, False])
def test_other_modes_keep_their_name_and_scores_of_hooks_are_of_val(timer):
    class Scores(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.output['acc'] = 0.5
            runner.log_buffer.ready = True

    hook = Kept(interval=7)
    runner = tiny_runner(model=Counting(), max_epochs=1)
    for each in [Scores(), *([IterTimerHook()] if timer else []), hook]:
        runner.register_hook(each)
    runner.run([loader(28)], [('dis', 1)])
    assert [(line[0], line[1], set(line[4])) for line in hook.lines] == [
        ('dis', 1, {'dis/loss', 'learning_rate', 'momentum'}),
        ('val', 1, {'val/acc', 'learning_rate', 'momentum'}),
    ]


class Adds(Hook):
    """Adds a value to the log buffer at one point, with the epoch (from 1) as its value."""

    def __init__(self, point):
        setattr(self, point, lambda runner, *scores: runner.log_buffer.update({'mine': runner.epoch + 1.0}))


def lines_with_mine(point, priority, workflow, hooks=()):
    kept = Kept(interval=7)
    runner = tiny_runner(model=Counting(), max_epochs=2)
    runner.register_hook(Adds(point), priority)
    for each in hooks:
        runner.register_hook(each, 'LOW')
    runner.register_hook(kept, 'VERY_LOW')
    runner.run([loader(28)] * len(workflow), workflow)
    return [(line[0], line[4][f'{line[0]}/mine']) for line in kept.lines if 'mine' in line[5]], kept.lines


@pytest.mark.parametrize('point', ['after_train_epoch', 'after_epoch'])
def test_what_a_hook_adds_at_the_end_of_an_epoch_has_a_line(point, caplog):
    mine, lines = lines_with_mine(point, 'NORMAL', [('train', 1)])
    assert mine == [('train', 1.0), ('train', 2.0)]
    assert [line[4].get('train/loss') for line in lines] == [4.0, None, 11.0, None]  # the others are as they were
    assert 'in no line' not in caplog.text


@pytest.mark.parametrize(
    ('point', 'priority', 'workflow'),
    [
        ('after_train_epoch', 'LOWEST', [('train', 1)]),
        ('after_evaluate', 'NORMAL', [('train', 1), ('val', 1)]),
    ],
)
def test_what_comes_after_the_last_line_is_told(point, priority, workflow, caplog):
    mine, _ = lines_with_mine(point, priority, workflow)
    assert mine == []
    told = [record.getMessage() for record in caplog.records if 'in no line' in record.getMessage()]
    assert len(told) == 2  # one an epoch
    assert told[0].startswith('mine: logged after the last line of the epoch')


def test_a_stream_has_no_last_iteration():
    class Stream:
        def __iter__(self):
            return iter(list(loader(28)))

    hook = Kept(interval=5, ignore_last=False)
    runner = tiny_runner(model=Counting(), max_epochs=1)
    runner.register_hook(hook)
    runner.run([Stream()], [('train', 1)])
    assert [line[2] for line in hook.lines] == [5]


@pytest.mark.parametrize(
    'value, plain, without_numpy, without_torch',
    [
        (1, True, True, True),
        (True, True, True, True),
        (np.float32(1), True, True, True),
        (np.array(1.0), True, False, True),
        (np.array([1.0]), False, False, False),
        (torch.tensor(1.0), True, True, False),
        (torch.tensor([1.0]), True, True, False),
        (torch.tensor([1.0, 2.0]), False, False, False),
        ('1', False, False, False),
        (None, False, False, False),
    ],
)
def test_is_scalar(value, plain, without_numpy, without_torch):
    assert LoggerHook.is_scalar(value) is plain
    assert LoggerHook.is_scalar(value, include_np=False) is without_numpy
    assert LoggerHook.is_scalar(value, include_torch=False) is without_torch


def test_tags_of_several_optimizers_and_texts():
    def two(model):
        return {
            'body': torch.optim.SGD(model.body.parameters(), lr=0.1, momentum=0.5),
            'head': torch.optim.Adam(model.head.parameters(), lr=0.3),
        }

    runner = tiny_runner(optimizer=two, max_epochs=1)
    runner.mode = 'train'
    image = np.ones(3)
    runner.log_buffer.output.update(loss=2.0, time=1.0, note='text', image=image)
    hook = Kept()
    rates = {'learning_rate/body': 0.1, 'learning_rate/head': 0.3, 'momentum/body': 0.5, 'momentum/head': 0.9}
    assert hook.get_loggable_tags(runner) == {'train/loss': 2.0, 'train/image': image, **rates}
    assert hook.get_loggable_tags(runner, allow_scalar=False, allow_text=True) == {
        'train/note': 'text',
        'train/image': image,
        **rates,
    }
    everything = hook.get_loggable_tags(runner, allow_text=True, add_mode=False, tags_to_skip=())
    assert everything == {'loss': 2.0, 'time': 1.0, 'note': 'text', 'image': image, **rates}


def test_a_run_without_optimizer_has_no_rates():
    runner = tiny_runner(optimizer=lambda model: None, max_epochs=1)
    runner.log_buffer.output['loss'] = 1.0
    assert Kept().get_loggable_tags(runner) == {'val/loss': 1.0}


def test_mistakes():
    with pytest.raises(ValueError, match='Kept: interval must be a whole number of at least 1, but got 0'):
        Kept(interval=0)
    with pytest.raises(NotImplementedError, match=r'LoggerHook must have a method log\(runner\)'):
        LoggerHook().log(None)


def test_ranks_average_together_and_the_first_one_logs(on_ranks):
    results = on_ranks(Path(__file__).with_name('two_ranks.py'), 'train')
    assert results[0]['kept'] == [('train', 2, 15.0), ('val', 3, 100.0)]
    assert results[1]['kept'] == []
    assert results[0]['json'] == [('train', 15.0, None), ('val', 100.0, 7.0)]  # the latter by rank 0 alone
    assert [result['output'] for result in results] == [{}, {}]
    (times,) = results[0]['times']
    assert (times['time'], times['time_max'], times['time_max_rank']) == (2.5, 3.0, 0)
    assert (times['data_time'], times['data_time_max'], times['data_time_max_rank']) == (1.0, 1.5, 1)
    assert 'time: 2.500 (max 3.000, rank 0), data_time: 1.000 (max 1.500, rank 1), loss' in results[0]['said'][0]


class Diverging(Tiny):
    """Its logged loss is not finite in the iterations ``bad``, from 1."""

    bad = ()
    value = float('nan')
    count = 0

    def train_step(self, data, optimizer, **kwargs):
        self.count += 1
        loss = self.value if self.count in self.bad else 1.0
        return {'loss': torch.zeros(()), 'log_vars': {'loss': loss, 'grad_norm': float('inf')}, 'num_samples': 4}


def diverged(caplog, bad, value=float('nan'), loggers=1, **options):
    """What a run of 12 iterations told, with a log line for every second one."""
    model = Diverging()
    model.bad, model.value = bad, value
    runner = tiny_runner(model=model, optimizer=lambda model: None, max_iters=12)
    model.requires_grad_(False)
    for _ in range(loggers):
        runner.register_hook(Kept(interval=2, **options))
    runner.run([loader(28)], [('train', 1)])
    return [record.getMessage() for record in caplog.records if record.levelname == 'ERROR']


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
@pytest.mark.parametrize('loggers', [1, 3])
def test_a_loss_that_is_not_finite_is_told_at_its_first_line_and_at_the_end(value, loggers, caplog):
    first, last = diverged(caplog, range(5, 13), value, loggers)
    assert first == last
    assert first.startswith(f'train loss is not finite since iteration 6 ({value}). ')
    assert 'NonFiniteHook' in first
    assert 'Run completed' not in caplog.records[-1].message


def test_a_loss_that_is_finite_again_is_told_as_that(caplog):
    first, last = diverged(caplog, [5])
    assert first.startswith('train loss is not finite since iteration 6 ')
    assert last.startswith('train loss was not finite at iteration 6 ')
    caplog.clear()
    first, second, last = diverged(caplog, [5, 11])
    assert second.startswith('train loss is not finite since iteration 11 ')
    assert last == second


def test_what_a_run_had_to_say_is_not_said_by_the_next(caplog):
    model = Diverging().requires_grad_(False)
    model.bad = [2]
    runner = tiny_runner(model=model, optimizer=lambda model: None, max_epochs=1)
    runner.register_hook(Kept(interval=2))
    runner.run([loader(28)], [('train', 1)])
    assert runner.notices
    runner._max_epochs = 2
    caplog.clear()
    runner.run([loader(28)], [('train', 1)])
    assert not runner.notices
    assert 'not finite' not in caplog.text


class OfNan(Tiny):
    def train_step(self, data, optimizer, **kwargs):
        return {'loss': data['x'][0].sum(), 'log_vars': {'loss': data['x'][0].sum()}, 'num_samples': 2}


def test_bad_inputs_are_named_first_and_the_hook_is_advised_where_it_is_missing(caplog):
    batch = {'x': [torch.tensor([1.0, float('nan'), float('inf')])]}
    for hooks, is_advised in (([], True), ([NonFiniteHook(interval=99)], False)):
        caplog.clear()
        runner = tiny_runner(model=OfNan().requires_grad_(False), optimizer=lambda model: None, max_iters=2)
        for each in [*hooks, Kept(interval=1)]:
            runner.register_hook(each)
        try:
            runner.run([[batch] * 4], [('train', 1)])
        except NonFiniteError:
            assert not is_advised
        told = next(r.getMessage() for r in caplog.records if 'since iteration 1 (' in r.getMessage())
        assert "Look at the data first: the input batch['x'][0] has 2 numbers that are NaN or infinite. " in told
        assert ('NonFiniteHook' in told) == is_advised
