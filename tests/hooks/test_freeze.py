"""Freezing parts of a model: which, until when, what the optimizer and batch norms do meanwhile, DDP and resuming."""

import logging

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights

from runnerkit.hooks import CheckpointHook, EvalHook, FreezeHook, Hook, OptimizerHook
from runnerkit.parallel import MMDistributedDataParallel

BODY = ['body.*']

#: Small, so that the first step does not overflow.
FP16 = {'amp': 'fp16', 'loss_scale': 8.0}


class History(Hook):
    """What the body and the head are after each iteration, with the mode of the norm while it was trained."""

    def __init__(self):
        self.body, self.head, self.statistics, self.norm_trains = [], [], [], []

    def after_forward(self, runner):
        if runner.mode == 'train':
            self.norm_trains.append(inner(runner).body[1].training)

    def after_train_iter(self, runner):
        model = inner(runner)
        self.body.append(torch.cat([each.detach().flatten() for each in model.body.parameters()]).clone())
        self.head.append(model.head.weight.detach().clone())
        self.statistics.append(model.body[1].running_mean.clone())


def inner(runner):
    return getattr(runner.model, 'module', runner.model)


def moved(values):
    """In which iterations, from the second on, a value changed."""
    return [not torch.equal(one, other) for one, other in zip(values, values[1:])]


def trained(hooks, kind='epoch', tmp_path=None, resume=None, model=None, save=False, update=None, **limits):
    """Three epochs of two iterations, with weight decay and momentum."""
    runner = tiny_runner(
        kind,
        model,
        tmp_path,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
        **(limits or {f'max_{kind}s': 3 if kind == 'epoch' else 6}),
    )
    runner.register_hook(OptimizerHook(**(update or {})), 'ABOVE_NORMAL')
    for hook in hooks:
        runner.register_hook(hook)
    if save:
        runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
    runner.register_hook(EvalHook(loader(4), by_epoch=kind == 'epoch'), 'LOW')
    if resume is not None:
        runner.resume(str(resume))
    runner.run([loader(8)], [('train', 1)])
    return runner


@pytest.mark.parametrize(
    'kind, options, frozen',
    [
        ('epoch', {'until': 2}, 4),
        ('iter', {'until': 2}, 4),
        ('epoch', {'until': 3, 'by_epoch': False}, 3),
        ('iter', {'until': 3, 'by_epoch': False}, 3),
        ('epoch', {}, 6),
    ],
)
def test_until_when(kind, options, frozen):
    history = History()
    trained([FreezeHook(BODY, **options), history], kind)
    expected = [k >= frozen for k in range(1, 6)]
    assert moved(history.body) == expected
    assert moved(history.statistics) == expected
    assert history.norm_trains == [k >= frozen for k in range(6)]
    assert all(moved(history.head))


def test_the_optimizer_has_no_state_of_what_is_frozen_and_keeps_the_one_it_had():
    runner = trained([FreezeHook('body.*')])
    names = {id(parameter): name for name, parameter in runner.model.named_parameters()}
    assert {names[id(each)] for each in runner.optimizer.state} == {'head.weight', 'head.bias'}

    class Later(FreezeHook):
        """Frozen in the second epoch only."""

        def before_train_iter(self, runner):
            self.until = None if runner.epoch == 1 else 0
            super().before_train_iter(runner)

    momenta = []

    class Look(Hook):
        def after_train_iter(self, runner):
            momenta.append(runner.optimizer.state[runner.model.body[0].weight]['momentum_buffer'].clone())

    trained([Later('body.*'), Look()])
    assert moved(momenta) == [True, False, False, True, True]


def test_gradients_are_not_computed_and_all_is_as_before_after_the_run():
    model = Tiny()
    model.head.bias.requires_grad_(False)
    model.body[1].eval()
    seen = []

    class Look(Hook):
        def after_backward(self, runner):
            seen.append([name for name, each in runner.model.named_parameters() if each.grad is not None])

    trained([FreezeHook(['body.0.*', 'head.bias']), Look()], model=model)
    assert seen == [['body.1.weight', 'body.1.bias', 'head.weight']] * 6
    assert {name for name, each in model.named_parameters() if not each.requires_grad} == {'head.bias'}


def test_a_norm_is_frozen_with_both_of_its_parameters_only():
    for patterns, frozen in (
        (['body.1.*'], True),
        (['*weight', 'body.1.bias'], True),
        (['*.weight'], False),
        (['body.0.*'], False),
    ):
        history = History()
        trained([FreezeHook(patterns), history], max_epochs=1)
        assert history.norm_trains == [not frozen] * 2


@pytest.mark.parametrize('options', [{'except_': ['head.*']}, {'patterns': BODY, 'except_': ['body.1.*']}])
def test_all_but_some_are_frozen(options):
    history, frozen = History(), 'patterns' not in options
    runner = trained([FreezeHook(**options), history], max_epochs=1)
    assert history.norm_trains == [not frozen] * 2
    assert all(moved(history.head))
    names = {id(parameter): name for name, parameter in runner.model.named_parameters()}
    trains = {'head.weight', 'head.bias', *(() if frozen else ('body.1.weight', 'body.1.bias'))}
    assert {names[id(each)] for each in runner.optimizer.state} == trains


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('is_first', [True, False])
def test_of_two_hooks_the_longer_one_counts(kind, is_first):
    """In whichever order they are registered, also after the run."""
    history, model = History(), Tiny()
    short = FreezeHook(BODY, until=2, by_epoch=False)
    long = FreezeHook(['body.0.*', 'body.1.*'], until=4, by_epoch=False)
    trained([*([short, long] if is_first else [long, short]), history], kind, model=model)
    assert moved(history.body) == moved(history.statistics) == [k >= 4 for k in range(1, 6)]
    assert history.norm_trains == [k >= 4 for k in range(6)]
    short, long = FreezeHook(BODY), FreezeHook('body.1.*')
    trained([*([short, long] if is_first else [long, short])], kind, model=model)
    assert all(each.requires_grad for each in model.parameters())
    assert model.body[1].training


def test_what_is_refused():
    for wrong, error, words in (
        (dict(patterns=[]), TypeError, 'patterns'),
        (dict(patterns=[1]), TypeError, 'patterns'),
        (dict(patterns=1), TypeError, 'patterns must be names or patterns .* but got 1'),
        (dict(patterns={'body.*': 3}), TypeError, 'patterns'),
        (dict(patterns='a', until=0), ValueError, 'at least 1.*None freezes to the end'),
        (dict(patterns='a', by_epoch=1), TypeError, 'by_epoch'),
    ):
        with pytest.raises(error, match=words):
            FreezeHook(**wrong)
    for patterns, words in (
        ('body', r"matches no parameter of Tiny; did you mean 'body\.\*'"),
        ('0.weight', r"did you mean '\*0.weight'"),
        (['body.*', 'neck.*'], r"'neck.\*' matches no parameter of Tiny; they are called body.0.weight"),
        ('*', r"match all parameters of Tiny: nothing would be trained; .* except_=\['head"),
    ):
        with pytest.raises(ValueError, match=words):
            trained([FreezeHook(patterns)])
    for options, error, words in (
        (dict(except_=1), TypeError, 'except_ must be names or patterns .* but got 1'),
        (dict(except_='hed.*'), ValueError, r"'hed.\*' matches no parameter of Tiny; did you mean 'head.\*'"),
        (dict(patterns='body.0.*', except_='body.*'), ValueError, r"except_ 'body.\*' leaves no parameter to freeze"),
    ):
        with pytest.raises(error, match=words):
            trained([FreezeHook(**options)])


class Drops(FreezeHook):
    """Throws gradients away, as it does inside a DistributedDataParallel."""

    @property
    def _drops_gradients(self):
        return True

    @_drops_gradients.setter
    def _drops_gradients(self, value):
        pass


@pytest.mark.parametrize('update', [{}, {'grad_clip': {'max_norm': 0.1}}, {'cumulative_iters': 2}])
def test_without_gradients_and_with_gradients_thrown_away_it_is_the_same_run(update):
    one = trained([FreezeHook(BODY, until=1)], update=update)
    other = trained([Drops(BODY, until=1)], update=update)
    assert torch.equal(weights(one.model), weights(other.model))


@pytest.mark.parametrize('update', [{}, FP16, {**FP16, 'grad_clip': {'max_norm': 1.0}}])
def test_an_optimizer_may_have_nothing_but_frozen_parameters(update):
    history, steps = History(), []
    runner = tiny_runner(
        optimizer=lambda model: {
            'body': torch.optim.SGD(model.body.parameters(), lr=0.1),
            'head': torch.optim.SGD(model.head.parameters(), lr=0.1),
        },
        max_epochs=3,
    )
    runner.optimizer['body'].register_step_post_hook(lambda *_: steps.append(runner.iter))
    for hook in (OptimizerHook(**update), FreezeHook(BODY, until=2), history):
        runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    assert moved(history.body) == [False, False, False, True, True]
    assert all(moved(history.head))
    assert steps == [0, 1, 2, 3, 4, 5]


def test_gradients_are_thrown_away_whoever_steps():
    class Steps(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            optimizer.zero_grad()
            outputs = super().train_step(data, optimizer)
            outputs['loss'].backward()
            optimizer.step()
            return outputs

    history, model = History(), Steps()
    runner = tiny_runner(model=model, max_epochs=3)
    runner.register_hook(Drops(BODY, until=2))
    runner.register_hook(history)
    runner.run([loader(8)], [('train', 1)])
    assert moved(history.body) == [False, False, False, True, True]
    assert not runner.optimizer._optimizer_step_pre_hooks


def frozen_on_rank(rank):
    logging.getLogger('runnerkit').setLevel(logging.CRITICAL)
    history = History()
    torch.manual_seed(0)
    model = MMDistributedDataParallel(Tiny())
    trained([FreezeHook(BODY, until=2), history], model=model)
    return moved(history.body), moved(history.head), history.body[-1], history.head[-1]


def test_ranks_freeze_and_thaw_together(on_ranks):
    (body, head, *ends), (other_body, _, *others) = on_ranks(__file__, 'frozen_on_rank')
    assert body == other_body == [False, True]  # one iteration an epoch
    assert head == [True, True]
    assert all(map(torch.equal, ends, others))
