"""Averages of the weights: right numbers, and in the right place at the right time."""

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch import nn

from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook, OptimizerHook
from runnerkit.hooks.ema import check_names


def averages_by_hand(history, start, momentum, warm_up, decay_warm_up=0):
    average = start.clone()
    for k, value in enumerate(history):
        m = momentum if warm_up == 0 else min(momentum, (1 + k) / (warm_up + k))
        if decay_warm_up:
            m = 1 - min(1 - m, (1 + k) / (decay_warm_up + k))
        average = (1 - m) * average + m * value
    return average


class History(Hook):
    def __init__(self):
        self.heads = []

    def after_train_iter(self, runner):
        self.heads.append(runner.model.head.weight.detach().clone())


def trained(tmp_path, *hooks, ema=None, priority='NORMAL', epochs=2, kind='epoch'):
    runner = tiny_runner(kind, work_dir=tmp_path, max_epochs=epochs)
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(ema or EMAHook(momentum=0.2, warm_up=1), priority)
    for hook in hooks:
        runner.register_hook(hook)
    runner.start = runner.model.head.weight.detach().clone()
    runner.run([loader(20)], [('train', 1)])
    return runner


@pytest.mark.parametrize(
    'momentum, warm_up, decay_warm_up', [(0.2, 1, 0), (0.3, 0, 0), (0.3, 4, 0), (0.3, 100, 0), (0.0002, 100, 10)]
)
def test_the_average_is_that_of_the_formula(tmp_path, momentum, warm_up, decay_warm_up):
    history = History()
    hook = EMAHook(momentum=momentum, warm_up=warm_up, decay_warm_up=decay_warm_up)
    runner = trained(tmp_path, history, ema=hook)
    expected = averages_by_hand(history.heads, runner.start, momentum, warm_up, decay_warm_up)
    assert torch.allclose(runner.model.ema_head_weight, expected, atol=1e-6)
    assert not torch.allclose(expected, runner.model.head.weight, atol=1e-4)


def test_an_interval_weighs_as_much_as_the_updates_it_leaves_out():
    assert EMAHook(momentum=0.1, interval=3).momentum == pytest.approx(1 - 0.9**3)
    assert EMAHook(momentum=0.1).momentum == 0.1


def test_at_the_defaults_only_the_decay_has_a_warm_up_that_bites():
    assert {EMAHook()._momentum_at(k) for k in range(1000)} == {0.0002}
    assert [EMAHook(decay_warm_up=10)._momentum_at(k) for k in (0, 10**6)] == [0.9, 0.0002]


@pytest.mark.parametrize('priority', ['HIGHEST', 'NORMAL', 'LOWEST'])
def test_files_and_evaluations_see_the_averages_whatever_the_priority(tmp_path, priority):
    """The seed document's own example: EMAHook among the custom hooks, at NORMAL."""
    seen = {}

    class Evaluated(Tiny):
        def val_step(self, data, optimizer=None):
            seen['val'] = self.head.weight.detach().clone()
            return super().val_step(data)

    history = History()
    runner = tiny_runner(work_dir=tmp_path, model=Evaluated(), max_epochs=1)
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_checkpoint_hook({'interval': 1})
    runner.register_hook(EvalHook(loader(4), save_best='loss'), 'LOW')
    runner.register_custom_hooks([{'type': 'EMAHook', 'momentum': 0.2, 'warm_up': 1, 'priority': priority}])
    runner.register_hook(history, 'LOWEST')
    runner.run([loader(20)], [('train', 1)])
    average, raw = runner.model.ema_head_weight, history.heads[-1]
    assert torch.equal(runner.model.head.weight, raw)
    assert torch.equal(seen['val'], average)
    for name in ('epoch_1.pth', 'best_loss_epoch_1.pth'):
        state = torch.load(tmp_path / name)['state_dict']
        assert torch.equal(state['head.weight'], average)
        assert torch.equal(state['ema_head_weight'], raw)


def test_the_weights_come_back_after_a_failed_evaluation(tmp_path):
    class Fails(Tiny):
        def val_step(self, data, optimizer=None):
            raise ValueError('boom')

    history = History()
    runner = tiny_runner(work_dir=tmp_path, model=Fails(), max_epochs=1)
    runner.register_hook(EMAHook(momentum=0.5))
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(EvalHook(loader(4)), 'LOW')
    runner.register_hook(history)
    with pytest.raises(ValueError, match='boom'):
        runner.run([loader(20)], [('train', 1)])
    assert torch.equal(runner.model.head.weight, history.heads[-1])


def test_resuming_goes_on_from_the_raw_weights(tmp_path):
    runner = trained(tmp_path, CheckpointHook(interval=1), epochs=1)
    raw, average = runner.model.head.weight.detach().clone(), runner.model.ema_head_weight.clone()
    resumed = tiny_runner(max_epochs=1, seed=9)
    resumed.register_hook(EMAHook(momentum=0.2, warm_up=1))
    resumed.resume(str(tmp_path / 'epoch_1.pth'))
    assert torch.equal(resumed.model.head.weight, raw)
    assert torch.equal(resumed.model.ema_head_weight, average)
    plain = tiny_runner(max_epochs=1, seed=9)
    plain.load_checkpoint(str(tmp_path / 'epoch_1.pth'))
    assert torch.equal(plain.model.head.weight, average)


def test_mmcvs_resume_from(tmp_path):
    runner = trained(tmp_path, CheckpointHook(interval=1), epochs=1)
    resumed = tiny_runner(max_epochs=1, seed=9)
    resumed.register_hook(EMAHook(momentum=0.2, warm_up=1, resume_from=str(tmp_path / 'epoch_1.pth')))
    resumed.run([loader(20)], [('train', 1)])
    assert resumed.iter == 5
    assert torch.equal(resumed.model.ema_head_weight, runner.model.ema_head_weight)


def test_a_run_that_is_resumed_does_not_go_back_to_resume_from(tmp_path):
    trained(tmp_path, CheckpointHook(interval=1), epochs=2)
    resumed = tiny_runner(max_epochs=3)
    resumed.register_hook(EMAHook(momentum=0.2, warm_up=1, resume_from=str(tmp_path / 'epoch_1.pth')))
    resumed.register_hook(history := History())
    resumed.resume(str(tmp_path / 'epoch_2.pth'))
    resumed.run([loader(20)], [('train', 1)])
    assert len(history.heads) == 5


def test_averages_begin_at_a_checkpoint_that_has_none(tmp_path, caplog):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    path = runner.save_checkpoint(str(tmp_path))
    resumed = tiny_runner(max_epochs=1, seed=9)
    resumed.register_hook(EMAHook())
    resumed.resume(path)
    assert 'has no averages' in caplog.text
    assert torch.equal(resumed.model.ema_head_weight, runner.model.head.weight)


def test_averages_that_would_have_one_name_are_refused():
    check_names(['a.b_c', 'a.b.d'])
    with pytest.raises(ValueError, match=r'averages of a\.b_c and a_b\.c apart.*ema_a_b_c'):
        check_names(['a.b_c', 'head', 'a_b.c'])
    model = nn.ModuleDict({'a_b': nn.Linear(1, 1), 'a': nn.ModuleDict({'b': nn.Linear(1, 1)})})
    runner = tiny_runner(max_epochs=1)
    runner.model = model
    with pytest.raises(ValueError, match='rename one of these modules'):
        EMAHook().before_run(runner)


def test_a_subclass_of_mmcvs_finds_models_and_averages_by_name(tmp_path):
    class ByHand(EMAHook):
        swaps = 0

        def after_train_iter(self, runner):
            for name, parameter in self.model_parameters.items():
                average = self.model_buffers[self.param_ema_buffer[name]]
                average.mul_(1 - self.momentum).add_(parameter.data, alpha=self.momentum)

        def _swap_ema_parameters(self):
            self.swaps += 1
            super()._swap_ema_parameters()

    expected = trained(tmp_path / 'ours')
    hook = ByHand(momentum=0.2, warm_up=1)
    runner = trained(tmp_path / 'theirs', CheckpointHook(interval=1), ema=hook)
    torch.testing.assert_close(weights(runner.model), weights(expected.model))
    assert hook.swaps == 4


def test_a_span_of_averages_inside_another_one_changes_nothing():
    hook = EMAHook(momentum=0.2, warm_up=1)
    runner = trained(None, ema=hook)
    raw, average = runner.model.head.weight.clone(), runner.model.ema_head_weight.clone()
    with hook.around_val(runner):
        with hook.around_save(runner):
            assert torch.equal(runner.model.head.weight, average)
        assert torch.equal(runner.model.head.weight, average)
    assert torch.equal(runner.model.head.weight, raw)


@pytest.mark.parametrize('how', ['save_checkpoint', 'save'])
def test_a_save_between_forward_and_backward_leaves_the_step_alone(how, tmp_path):
    class Saves(Hook):
        def after_forward(self, runner):
            if runner.iter == 1:
                if how == 'save':
                    runner.save(filename_tmpl='inside.pth', alone=True)
                else:
                    runner.save_checkpoint(str(tmp_path), 'inside.pth')

    expected, runner = (trained(tmp_path, *hooks, ema=EMAHook(momentum=0.2)) for hooks in ([], [Saves()]))
    assert torch.equal(weights(runner.model), weights(expected.model))
    assert torch.equal(runner.model.ema_head_weight, expected.model.ema_head_weight)
    state = torch.load(tmp_path / 'inside.pth')['state_dict']
    assert not torch.equal(state['head.weight'], state['ema_head_weight'])
