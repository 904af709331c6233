import inspect
from types import SimpleNamespace

import pytest
import torch

from runnerkit.hooks import build_momentum_hook, momentum_updater
from runnerkit.hooks.hook import HOOKS, Hook
from runnerkit.hooks.momentum_updater import MomentumUpdaterHook
from runnerkit.runner import IterBasedRunner

#: As the real mmcv 1.7.2 prints them, without annotations; ``optimizer`` is ours.
SIGNATURES = {
    'MomentumUpdaterHook': (
        '(by_epoch=True, warmup=None, warmup_iters=0, warmup_ratio=0.9, warmup_by_epoch=False, optimizer=None)'
    ),
    'StepMomentumUpdaterHook': '(step, gamma=0.5, min_momentum=None, **kwargs)',
    'CosineAnnealingMomentumUpdaterHook': '(min_momentum=None, min_momentum_ratio=None, **kwargs)',
    'LinearAnnealingMomentumUpdaterHook': '(min_momentum=None, min_momentum_ratio=None, **kwargs)',
    'CyclicMomentumUpdaterHook': (
        '(by_epoch=False, target_ratio=(0.8947368421052632, 1.0), cyclic_times=1, step_ratio_up=0.4, '
        "anneal_strategy='cos', gamma=1.0, **kwargs)"
    ),
    'OneCycleMomentumUpdaterHook': (
        "(base_momentum=0.85, max_momentum=0.95, pct_start=0.3, anneal_strategy='cos', three_phase=False, **kwargs)"
    ),
}


@pytest.mark.parametrize('name', SIGNATURES)
def test_signatures_are_those_of_mmcv(name):
    cls = getattr(momentum_updater, name)
    signature = inspect.signature(cls)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(signature.replace(parameters=parameters, return_annotation=signature.empty)) == SIGNATURES[name]
    assert issubclass(cls, MomentumUpdaterHook)
    assert (HOOKS.get(name) is cls) == (name != 'MomentumUpdaterHook')
    assert name in momentum_updater.__all__


def make_view(optimizer):
    return SimpleNamespace(
        optimizer=optimizer, epoch=0, iter=0, by_epoch=True, max_epochs=10, max_iters=50, data_loader=range(5)
    )


def parameters():
    return [torch.nn.Parameter(torch.zeros(1))]


def test_momentum_and_betas_of_several_optimizers():
    optimizers = dict(
        a=torch.optim.SGD(parameters(), lr=1.0, momentum=0.8),
        b=torch.optim.Adam(parameters(), lr=1.0, betas=(0.9, 0.99)),
        c=torch.optim.RMSprop(parameters(), lr=1.0, momentum=0.4),
    )
    hook = build_momentum_hook(dict(policy='step', step=1, gamma=0.5))
    view = make_view(optimizers)
    hook.before_run(view)
    assert hook.base_momentum == dict(a=[0.8], b=[0.9], c=[0.4])
    view.epoch = 1
    hook.before_train_epoch(view)
    assert hook.regular_momentum == dict(a=[0.4], b=[0.45], c=[0.2])
    assert optimizers['a'].param_groups[0]['momentum'] == 0.4
    assert optimizers['b'].param_groups[0]['betas'] == (0.45, 0.99)
    assert optimizers['c'].param_groups[0]['momentum'] == 0.2
    assert 'betas' not in optimizers['a'].param_groups[0]


def test_settings_have_the_names_of_mmcv():
    hook = build_momentum_hook(dict(policy='LinearAnnealing', min_momentum_ratio=0.5))
    assert (hook.min_momentum, hook.min_momentum_ratio) == (None, 0.5)
    hook.min_momentum_ratio, hook.min_momentum = None, 0.3
    hook.before_run(make_view(torch.optim.SGD(parameters(), lr=1.0, momentum=0.8)))
    view = make_view(torch.optim.SGD(parameters(), lr=1.0, momentum=0.8))
    view.epoch = 10
    assert hook.get_regular_momentum(view) == pytest.approx([0.3])


def test_an_optimizer_without_momentum():
    hook = build_momentum_hook(dict(policy='step', step=1))
    with pytest.raises(ValueError, match=r'needs an optimizer with momentum or betas, but this one has .*lr_decay'):
        hook.before_run(make_view(torch.optim.Adagrad(parameters(), lr=1.0)))


def test_momentum_follows_the_iterations_of_the_iteration_runner():
    """MMCV fills by_epoch=False into the learning rate's config there, but not into momentum's: nothing happened."""

    class Model(torch.nn.Linear):
        def train_step(self, data, optimizer):
            return dict(loss=self(data).mean(), log_vars=dict(), num_samples=1)

    class Recorder(Hook):
        seen = []

        def after_train_iter(self, runner):
            self.seen.append(runner.current_momentum()[0])

    model = Model(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.8)
    runner = IterBasedRunner(model, optimizer=optimizer, max_iters=4)
    runner.register_momentum_hook(dict(policy='step', step=2, gamma=0.5))
    runner.register_hook(Recorder())
    runner.run([torch.utils.data.DataLoader(torch.zeros(8, 1))], [('train', 1)])
    assert Recorder.seen == [0.8, 0.8, 0.4, 0.4]
