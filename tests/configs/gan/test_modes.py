"""The GAN three ways: the same losses by modes and as an experiment, and those of a plain loop by one step."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch.nn.functional import softplus

from runnerkit.config import Config
from runnerkit.data import build_dataloader, build_dataset, epoch_batches
from runnerkit.flow import Flow, Options
from runnerkit.hooks import Hook
from runnerkit.nn import build_model
from runnerkit.parallel import unwrap

FOLDER = Path(__file__).parents[3] / 'configs/gan'
BATCHES = 6  # of each network
LENGTHS = {'modes': 2 * BATCHES, 'losses': BATCHES, 'experiment': BATCHES}


class Look(Hook):
    """Keeps all losses, and ends the run by an exception if it is told to."""

    def __init__(self, dies_after=None):
        self.losses = {'dis_loss': [], 'gen_loss': []}
        self.dies_after = dies_after

    def before_train_iter(self, runner):
        if runner.completed_iters == self.dies_after:
            raise KeyboardInterrupt

    def after_train_iter(self, runner):
        for name, value in runner.outputs['log_vars'].items():
            self.losses[name].append(value.item())


def config(name):
    """The config, shorter and with narrow networks."""
    cfg = Config.fromfile(str(FOLDER / f'{name}.py'))
    if name == 'experiment':
        cfg.training.max_iteration = LENGTHS[name]
    else:
        cfg.runner.max_iters = LENGTHS[name]
        cfg.optimizer_config = {'fused': None}  # as the plain loop and the experiment have it
    cfg.model.width = 4
    cfg.checkpoint_config.interval = 1
    return cfg


def train(name, folder, dies_after=None, resume=False):
    look = Look(dies_after)
    options = Options(work_dir=str(folder), device='cpu', auto_resume=resume)
    try:
        runner = Flow(config(name), options, hooks=[(look, 'LOWEST')]).run().runner
    except KeyboardInterrupt:
        return None
    return runner, look.losses


def weights(model):
    """Parameters and buffers in one vector."""
    return torch.cat([value.double().flatten() for value in unwrap(model).state_dict().values()])


def parameters(model):
    return torch.cat([value.detach().flatten() for value in unwrap(model).parameters()])


def test_by_modes_and_as_an_experiment_the_losses_are_the_same(tmp_path):
    by_modes, losses = train('modes', tmp_path / 'modes')
    experiment, same = train('experiment', tmp_path / 'experiment')
    assert losses == same
    assert len(losses['dis_loss']) == len(losses['gen_loss']) == BATCHES
    assert torch.equal(weights(by_modes.model), weights(experiment.model))
    assert losses['dis_loss'][-1] != losses['dis_loss'][0]


def plain(cfg):
    """The loop of losses.py in plain PyTorch, but for what builds model, optimizers and data: the losses, the model."""
    torch.manual_seed(cfg.seed)
    model = build_model(cfg.model)
    parts = {'dis': model.discriminator, 'gen': model.generator}
    optimizers = {name: torch.optim.Adam(part.parameters(), 1e-3, (0.5, 0.999)) for name, part in parts.items()}
    loader = build_dataloader(build_dataset(cfg.data.train), cfg.data.batch_size, 0, seed=cfg.seed)
    losses = {'dis_loss': [], 'gen_loss': []}
    for real, noise in islice(epoch_batches(loader, 0), BATCHES):
        fake = model.generator(noise)
        dis_loss = softplus(-model.discriminator(real)).mean() + softplus(model.discriminator(fake.detach())).mean()
        gen_loss = softplus(-model.discriminator(fake)).mean()
        gradients = torch.autograd.grad(gen_loss, list(parts['gen'].parameters()), retain_graph=True)
        optimizers['dis'].zero_grad()
        dis_loss.backward()
        for parameter, gradient in zip(parts['gen'].parameters(), gradients, strict=True):
            parameter.grad = gradient
        for optimizer in optimizers.values():
            optimizer.step()
        losses['dis_loss'].append(dis_loss.item())
        losses['gen_loss'].append(gen_loss.item())
    return losses, model


def test_by_one_step_they_are_those_of_a_plain_loop(tmp_path):
    runner, losses = train('losses', tmp_path)
    expected, model = plain(config('losses'))
    assert losses == expected
    assert torch.equal(weights(runner.model), weights(model))


# One way is enough: by the test above, the others have its losses.
@pytest.mark.parametrize(
    'name', [name if name == 'modes' else pytest.param(name, marks=pytest.mark.thorough) for name in LENGTHS]
)
def test_a_run_that_was_cut_off_goes_on_exactly_and_draws_a_picture(name, tmp_path):
    whole, losses = train(name, tmp_path / 'whole')
    assert train(name, tmp_path / 'cut', dies_after=LENGTHS[name] // 2 + 1) is None
    resumed, rest = train(name, tmp_path / 'cut', resume=True)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert all(rest[key] == values[len(values) - len(rest[key]) :] for key, values in losses.items())
    pictures = [imread(tmp_path / folder / 'samples.png') for folder in ('whole', 'cut')]
    assert pictures[0].shape[:2] == (8 * 28, 8 * 28)
    assert (pictures[0] == pictures[1]).all()


# --- two ranks -------------------------------------------------------------------------------------------------------


def on_two(rank, folder):
    found = {}
    for name in LENGTHS:
        whole, losses = train(name, f'{folder}/{name}/whole')
        train(name, f'{folder}/{name}/cut', dies_after=LENGTHS[name] // 2 + 1)
        resumed, _ = train(name, f'{folder}/{name}/cut', resume=True)
        found[name] = parameters(whole.model), parameters(resumed.model), losses
    return found


@pytest.mark.thorough  # tests/runner/test_several_networks.py
def test_two_ranks_stay_together_and_resume_exactly(on_ranks, tmp_path):
    one, other = on_ranks(__file__, 'on_two', str(tmp_path))
    for name in LENGTHS:
        whole, resumed, losses = one[name]
        assert torch.equal(whole, other[name][0])
        assert torch.equal(whole, resumed)
        assert losses != other[name][2]  # each rank has images of its own
    assert torch.equal(one['modes'][0], one['experiment'][0])
