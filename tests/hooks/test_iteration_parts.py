"""Which part of an iteration is which: exactly, by a clock that each part moves on by its own number of ticks."""

import traceback
from contextlib import contextmanager

import pytest
import torch
from support import Ticks, Tiny, loader, tiny_runner, weights

from runnerkit.hooks import Hook, OptimizerHook, TextLoggerHook
from runnerkit.hooks.iteration_parts import DATA, IterationParts, clock_of
from runnerkit.runner import EpochBasedRunner
from runnerkit.utils.stopwatch import WALL, Stopwatch

CLOCK = Ticks()


@pytest.fixture(autouse=True)
def zero():
    CLOCK.__init__()


class Costly(torch.autograd.Function):
    """The same number; its backward pass takes 100 ticks."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        CLOCK.time += 100
        return grad


class Model(Tiny):
    """A step takes 10 ticks, with gradients or without."""

    def train_step(self, data, optimizer, **kwargs):
        CLOCK.time += 10
        outputs = super().train_step(data, optimizer, **kwargs)
        return {**outputs, 'loss': Costly.apply(outputs['loss'])}

    def val_step(self, data, optimizer=None, **kwargs):
        return self.train_step(data, optimizer, **kwargs)


class Optimizer(torch.optim.SGD):
    """A step takes 1000 ticks."""

    def step(self, closure=None):
        CLOCK.time += 1000
        return super().step(closure)


class Batches(list):
    """A batch takes one tick."""

    def __iter__(self):
        for batch in super().__iter__():
            CLOCK.time += 1
            yield batch


class Ticking(Hook):
    def __init__(self, ticks=10_000):
        self.ticks = ticks

    def after_train_iter(self, runner):
        CLOCK.time += self.ticks


def batches(n=4):
    return Batches((torch.rand(4, 4), torch.rand(4, 1)) for _ in range(n))


def runner_of(kind, model=None, hooks=(), **limits):
    runner = tiny_runner(
        kind,
        model=Model() if model is None else model,
        optimizer=lambda model: Optimizer(model.parameters(), lr=0.1),
        **(limits or ({'max_epochs': 2} if kind == 'epoch' else {'max_iters': 8})),
    )
    for hook in hooks:
        runner.register_hook(hook)
    return runner


def measured(runner, workflow=(('train', 1),), data=None, **options):
    """What a whole run comes to: (count, ticks) by part."""
    watch = Stopwatch(CLOCK)
    with IterationParts(watch, **options).of(runner):
        watch.start(DATA)
        runner.run([batches() for _ in workflow] if data is None else data, list(workflow))
        watch.stop()
    return {part.name: (part.count, part.seconds) for part in watch.parts()}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_each_part_has_its_own_time_and_nothing_is_counted_twice(kind):
    parts = measured(runner_of(kind, hooks=[OptimizerHook(grad_clip={'max_norm': 1}), Ticking(), Ticking(7)]))
    assert parts == {
        'data': (9, 8),
        'engine': (8, 0),
        'forward': (8, 80),
        'backward': (8, 800),
        'update': (8, 8000),
        'OptimizerHook.after_train_iter': (8, 0),
        'Ticking.after_train_iter': (8, 80_000),
        'Ticking#2.after_train_iter': (8, 56),
    }
    assert sum(ticks for _, ticks in parts.values()) == CLOCK.time


def test_a_hook_inside_the_update_is_not_the_update():
    class Inside(Hook):
        def after_backward(self, runner):
            CLOCK.time += 3

    parts = measured(runner_of('epoch', hooks=[OptimizerHook(), Inside()]))
    assert (parts['Inside.after_backward'], parts['update']) == ((8, 24), (8, 8000))


def test_updates_that_a_step_makes_itself_are_not_forward():
    class Gan(Model):
        def train_step(self, data, optimizer, **kwargs):
            outputs = super().train_step(data, optimizer, **kwargs)
            optimizer.zero_grad()
            outputs['loss'].backward()
            optimizer.step()
            return outputs

        dis_step = train_step

    for mode in ('train', 'dis'):
        CLOCK.__init__()
        parts = measured(runner_of('epoch', model=Gan()), [(mode, 1)])
        assert (parts['forward'], parts['backward'], parts['update']) == ((8, 80), (8, 800), (8, 8000))


def test_an_old_batch_processor_is_the_forward_pass():
    def process(model, data, train_mode):
        CLOCK.time += 5
        return {'loss': model(data[0]).sum(), 'log_vars': {}, 'num_samples': 4}

    with pytest.warns(DeprecationWarning, match='batch_processor'):
        runner = EpochBasedRunner(torch.nn.Linear(4, 1), process, max_epochs=1)
    assert measured(runner)['forward'] == (4, 20)


@pytest.mark.parametrize('kind, count', [('epoch', 2), ('iter', 8)])
def test_validation_is_a_part_of_its_own(kind, count):
    parts = measured(runner_of(kind), [('train', 1), ('val', 1)])
    assert (parts['forward'], parts['validation'][0]) == ((8, 80), count)
    assert parts['validation'][1] + parts['data'][1] == 8 * 10 + 8 + 8


def test_entering_and_leaving_a_ring_are_its_hooks_and_what_it_is_around_is_not():
    class Ring(Hook):
        @contextmanager
        def around_iter(self, runner):
            CLOCK.time += 1
            try:
                yield
            finally:
                CLOCK.time += 2

    parts = measured(runner_of('epoch', hooks=[Ring()]))
    assert (parts['Ring.around_iter'], parts['forward']) == ((16, 24), (8, 80))


def test_the_end_of_an_iteration_is_told_after_its_last_hook():
    told = []

    class Last(Hook):
        runs_last = True

        def after_train_iter(self, runner):
            told.append('hook')

        after_train_epoch = after_train_iter

    measured(runner_of('epoch', hooks=[Last()], max_epochs=1), passed=lambda point, runner: told.append(point))
    assert told == ['hook', 'after_train_iter'] * 4 + ['hook', 'after_train_epoch']


def trained(tmp_path, measure):
    runner = tiny_runner('epoch', work_dir=tmp_path / str(measure), max_epochs=3)
    optimizer = {'grad_clip': {'max_norm': 1}, 'cumulative_iters': 2}
    runner.register_training_hooks({'policy': 'step', 'step': [1]}, optimizer, {'interval': 1}, {'interval': 2})
    runner.register_hook(TextLoggerHook(interval=2))
    if measure:
        parts = IterationParts(Stopwatch())
        with parts.of(runner):
            parts.watch.start(DATA)
            runner.run([loader()], [('train', 1)])
    else:
        runner.run([loader()], [('train', 1)])
    return weights(runner.model), runner.model.losses


def test_a_measured_training_ends_with_the_same_weights(tmp_path):
    (plain, losses), (measured, same_losses) = trained(tmp_path, False), trained(tmp_path, True)
    assert torch.equal(plain, measured)
    assert losses == same_losses


def test_afterwards_everything_is_as_before():
    runner = runner_of('epoch', hooks=[OptimizerHook(), Ticking()])
    calls = {point: runner.hooks.calls[point] for point in ('before_train_iter', 'after_train_iter')}
    before = torch.autograd.backward, dict(vars(runner.model)), set(vars(runner))
    watch = Stopwatch(CLOCK)
    with pytest.raises(ZeroDivisionError), IterationParts(watch).of(runner):
        assert torch.autograd.backward is not before[0]
        1 / 0
    assert (torch.autograd.backward, dict(vars(runner.model)), set(vars(runner))) == before
    assert {point: runner.hooks.calls[point] for point in calls} == calls
    watch.start(DATA)
    runner.run([batches()], [('train', 1)])
    assert [part.name for part in watch.parts()] == [DATA]


def test_a_hook_that_raises_shows_where():
    class Fails(Hook):
        def after_train_iter(self, runner):
            return {}['missing']

    with pytest.raises(KeyError, match='missing') as caught:
        measured(runner_of('epoch', hooks=[Fails()]))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.name, last.line) == ('after_train_iter', "return {}['missing']")


def test_an_iteration_that_fails_leaves_no_part_open():
    class Fails(Optimizer):
        def step(self, closure=None):
            raise ZeroDivisionError('a bug of the user')

    runner = tiny_runner('epoch', model=Model(), optimizer=lambda m: Fails(m.parameters(), lr=0.1), max_epochs=1)
    runner.register_hook(OptimizerHook())
    watch = Stopwatch(CLOCK)
    with IterationParts(watch).of(runner):
        watch.start(DATA)
        with pytest.raises(ZeroDivisionError):
            runner.run([batches()], [('train', 1)])
        assert watch.current == 'engine'


def test_the_clock_is_that_of_the_models_device():
    assert clock_of(torch.nn.Linear(1, 1)) is clock_of(torch.nn.ReLU()) is WALL


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_a_gpu_has_a_timeline_of_its_own():
    clock = clock_of(torch.nn.Linear(1, 1, device='cuda'))
    assert clock is not WALL
    big = torch.rand(4096, 4096, device='cuda')
    torch.cuda.synchronize()
    moments = [clock.now()]
    for _ in range(2):
        for _ in range(20):
            big @ big
        moments.append(clock.now())
    first, second = (clock.seconds(a, b) for a, b in zip(moments, moments[1:], strict=False))
    assert first > 0
    assert second > 0
