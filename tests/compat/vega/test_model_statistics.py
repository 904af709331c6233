import pytest
import torch
from support import loader, tiny_runner
from torch import nn

from runnerkit.compat.vega.callbacks import ModelStatistics, VegaCallbacks, calc_model_flops_params
from runnerkit.hooks import OptimizerHook
from runnerkit.nn import Supervised


def test_what_is_counted_and_that_the_model_stays_as_it_was():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    state, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    assert calc_model_flops_params(model, torch.ones(1, 4)) == (2 * (4 * 8 + 8 * 2), 4 * 8 + 8 + 16 + 8 * 2 + 2)
    assert model.training
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(random)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, scale):
        return self.layer(x) * scale


@pytest.mark.parametrize('each_epoch', [False, True])
def test_its_scores(each_epoch):
    heard = []

    class Counting(ModelStatistics):
        def after_epoch(self, epoch, logs):
            super().after_epoch(epoch, logs)
            heard.append('summary_perfs' in logs)

    model = Supervised(TwoInputs(), nn.MSELoss(), inputs={'x': 0, 'scale': 1})
    runner = tiny_runner(model=model, max_epochs=2)
    runner.register_hook(OptimizerHook(), priority='ABOVE_NORMAL')
    runner.register_hook(VegaCallbacks(Counting(), {'calc_params_each_epoch': each_epoch}), priority='LOW')
    runner.run([loader(8, 4)], [('train', 1)])
    assert {name: score.value for name, score in runner.scores.items()} == pytest.approx(
        {'flops': 8e-9, 'params': 5e-3}
    )
    assert heard == [each_epoch] * 2


def test_a_run_without_steps_has_no_statistics():
    statistics = ModelStatistics()
    statistics.set_trainer(type('Trainer', (), {'config': type('Config', (), {'calc_params_each_epoch': False})}))
    logs = {}
    statistics.before_train({})
    statistics.after_train(logs)
    assert logs == {}
