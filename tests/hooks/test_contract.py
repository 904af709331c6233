"""What every hook keeps to. A new hook is a row of `HOOKS_OF_OURS`."""

import pytest
import torch
from support import At, Measured, loader, tiny_runner, weights

from runnerkit import hooks
from runnerkit.hooks import build_lr_hook, build_momentum_hook

#: By a name: how the hook is made.
HOOKS_OF_OURS = {
    'capture': lambda: hooks.CaptureHook(['head'], interval=2, log=['norm']),
    'early stopping': lambda: hooks.EarlyStoppingHook('loss', patience=99),
    'ema': lambda: hooks.EMAHook(0.1),
    'evaluation': lambda: hooks.EvalHook(loader(8), by_epoch=False, interval=2, save_best='loss'),
    'freeze': lambda: hooks.FreezeHook(['body.*'], until=5, by_epoch=False),
    'history': lambda: hooks.HistoryHook(),
    'lr by epoch': lambda: build_lr_hook({'policy': 'step', 'step': [1], 'warmup': 'linear', 'warmup_iters': 5}),
    'lr by iteration': lambda: build_lr_hook({'policy': 'CosineAnnealing', 'min_lr': 0, 'by_epoch': False}),
    'lr of a plateau': lambda: build_lr_hook(
        {'policy': 'ReduceLROnPlateau', 'monitor': 'train/loss', 'patience': 0, 'threshold': 0.9}
    ),
    'lr of torch': lambda: build_lr_hook({'policy': 'MultiStepLR', 'milestones': [2, 4, 4], 'by_epoch': False}),
    'momentum': lambda: build_momentum_hook({'policy': 'cyclic', 'target_ratio': (0.5, 1)}),
    'non-finite': lambda: hooks.NonFiniteHook('rollback', interval=2),
    'optimizer in cycles': lambda: hooks.GradientCumulativeOptimizerHook(cumulative_iters=2),
    'optimizer in fp16': lambda: hooks.OptimizerHook(amp='fp16', loss_scale={'growth_interval': 3}),
    'tensorboard': lambda: hooks.TensorboardLoggerHook(interval=2),
    'text': lambda: hooks.TextLoggerHook(interval=2),
}


def run(make, folder, stop=None, resume=False):
    """A run of nine iterations in three epochs, each second one evaluated, stopped after ``stop``; returns the runner
    and the hook."""
    torch.manual_seed(0)
    runner, hook = tiny_runner(model=Measured(), work_dir=folder, max_epochs=3), make()
    if not isinstance(hook, hooks.OptimizerHook):
        runner.register_hook(hooks.OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(hook)
    if not isinstance(hook, hooks.EvalHook):
        runner.register_hook(hooks.EvalHook(loader(8), by_epoch=False, interval=2), 'LOW')
    runner.register_hook(hooks.CheckpointHook())
    if stop is not None:
        runner.register_hook(At(stop - 1, lambda runner: runner.stop('asked')))
    if resume:
        runner.resume(str(folder / 'latest.pth'))
    runner.run([loader(12)], [('train', 1)])
    return runner, hook


@pytest.mark.parametrize('name', HOOKS_OF_OURS)
def test_a_resumed_run_is_an_undisturbed_one(name, tmp_path):
    """Its state is plain, makes the round trip, and the run that is resumed with it has the same bits."""
    make = HOOKS_OF_OURS[name]
    whole, hook = run(make, tmp_path / 'whole')
    torch.save(hook.state_dict(), tmp_path / 'state.pth')
    assert repr(torch.load(tmp_path / 'state.pth', weights_only=True)) == repr(hook.state_dict())
    for k in (2, 3, 7):
        run(make, tmp_path / str(k), stop=k)
        resumed, other = run(make, tmp_path / str(k), resume=True)
        assert resumed.completed_iters == whole.completed_iters == 9
        assert torch.equal(weights(resumed.model), weights(whole.model)), k
        assert resumed.current_lr() == whole.current_lr()
        if name not in ('tensorboard', 'text'):  # their lines have times
            assert repr(other.state_dict()) == repr(hook.state_dict()), k
