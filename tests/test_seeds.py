"""What the seed document of the runner states as a whole, and a few details that no single module owns.

docs/dev/seeds.md says where everything else of it is tested.
"""

import copy
import json

import pytest
import torch
from support import Noisy, Tiny, loader, tiny_runner, weights

from runnerkit.data import build_dataloader
from runnerkit.hooks import HOOKS, Hook
from runnerkit.nn import MODELS
from runnerkit.optim import build_optimizer
from runnerkit.runner import EpochBasedRunner, IterBasedRunner, build_runner

#: The example of the seed document, at the size of a test.
SEED_CONFIG = {
    'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9, 'weight_decay': 0.0001},
    'data': {'samples_per_gpu': 4, 'workers_per_gpu': 0},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 4},
    'workflow': [('train', 1), ('val', 1)],
    'training_hooks': {
        'lr_config': {'policy': 'step', 'step': [1, 3]},
        'optimizer_config': {'grad_clip': {'max_norm': 35, 'norm_type': 2}},
        'checkpoint_config': {'interval': 1},
        'log_config': {'interval': 2, 'hooks': [{'type': 'TextLoggerHook'}]},
    },
    'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.01, 'priority': 'NORMAL'}],
}


def the_four_steps(work_dir, resume_from=None, load_from=None, seed=0):
    cfg = copy.deepcopy(SEED_CONFIG)
    torch.manual_seed(seed)
    model = Tiny()
    optimizer = build_optimizer(model, cfg['optimizer'])
    loaders = [build_dataloader(Noisy(n), **cfg['data'], seed=5) for n in (20, 8)]
    runner = build_runner(
        cfg['runner'],
        {
            'model': model,
            'batch_processor': None,
            'optimizer': optimizer,
            'work_dir': str(work_dir),
            'meta': {'seed': 5},
        },
    )
    runner.register_training_hooks(**cfg['training_hooks'])
    for hook in cfg['custom_hooks']:
        runner.register_hook_from_cfg(hook)
    if resume_from is not None:
        runner.resume(str(resume_from))
    elif load_from is not None:
        runner.load_checkpoint(str(load_from))
    runner.run(loaders, cfg['workflow'])
    assert cfg == SEED_CONFIG
    return runner


def test_the_four_steps_of_the_seed_document(tmp_path):
    whole = the_four_steps(tmp_path / 'whole')
    saved = sorted(path.name for path in (tmp_path / 'whole').glob('*.pth'))
    assert saved == ['epoch_1.pth', 'epoch_2.pth', 'epoch_3.pth', 'epoch_4.pth', 'latest.pth']
    assert (whole.epoch, whole.iter) == (4, 20)
    assert whole.current_lr() == [pytest.approx(0.001)]
    lines = [json.loads(line) for line in next((tmp_path / 'whole').glob('*.log.json')).read_text().splitlines()]
    assert [line['mode'] for line in lines[1:]] == ['train', 'train', 'val'] * 4
    assert all(line['grad_norm'] > 0 for line in lines[1:] if line['mode'] == 'train')
    resumed = the_four_steps(tmp_path / 'resumed', resume_from=tmp_path / 'whole' / 'epoch_2.pth', seed=9)
    assert resumed.iter == 20
    assert torch.equal(weights(resumed.model), weights(whole.model))
    loaded = the_four_steps(tmp_path / 'loaded', load_from=tmp_path / 'whole' / 'epoch_2.pth', seed=9)
    assert len(loaded.model.losses) == 20
    assert loaded.model.losses[0] != whole.model.losses[0]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_val_step_gets_the_optimizer_from_the_epoch_runner_only(kind):
    """The seed document says always; MMCV's code, which we follow, hands it on in the epoch runner alone."""
    given, kept = [], []

    class Asks(Tiny):
        def val_step(self, *args, **kwargs):
            given.append((len(args), args[1:], kwargs))
            return {**super().val_step(args[0]), 'mine': len(given)}

    class Look(Hook):
        def after_val_iter(self, runner):
            kept.append(runner.outputs['mine'])

    runner = tiny_runner(kind, model=Asks(), max_iters=2)
    runner.register_hook(Look())
    runner.run([loader(8), loader(4)], [('train', 2 if kind == 'iter' else 1), ('val', 1)])
    assert given == [(2, (runner.optimizer,), {}) if kind == 'epoch' else (1, (), {})]
    assert kept == [1]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_what_hooks_find_at_which_point(kind):
    found = {}

    class Look(Hook):
        def before_train_iter(self, runner):
            found['before'] = (runner.data_batch is not None, runner.mode)

        def after_train_iter(self, runner):
            found['after'] = (runner.data_batch is not None, 'loss' in runner.outputs)

        def after_epoch(self, runner):
            found['epoch'] = (runner.data_batch is not None, 'loss' in runner.outputs)

    runner = tiny_runner(kind, max_iters=2)
    runner.register_hook(Look())
    runner.run([loader(8)], [('train', 1)])
    # A batch is let go as soon as its iteration is over: it may be most of a GPU's memory.
    assert found == {'before': (True, 'train'), 'after': (True, True), 'epoch': (False, True)}


def test_averages_are_weighted_by_the_number_of_samples():
    logged = []

    class Sizes(Tiny):
        def train_step(self, data, optimizer):
            return {**super().train_step(data, optimizer), 'log_vars': {'size': len(data[0])}}

    class Look(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.average()
            logged.append(runner.log_buffer.output['size'])

    runner = tiny_runner(model=Sizes(), max_epochs=1)
    runner.register_hook(Look())
    runner.run([build_dataloader(Noisy(10), 8, 0, seed=1, round_up=False)], [('train', 1)])
    assert logged == [pytest.approx((8 * 8 + 2 * 2) / 10)]


@pytest.mark.parametrize('base', [EpochBasedRunner, IterBasedRunner])
def test_a_runner_subclass_may_replace_the_step_and_add_a_mode(base):
    """As downstream's runners do (mmgen's DynamicIterBasedRunner, for one)."""

    class Mine(base):
        def run_iter(self, data_batch, train_mode, **kwargs):
            self.sizes = [*getattr(self, 'sizes', []), len(data_batch[0])]
            self.outputs = {'loss': self.model(data_batch[0]).mean(), 'num_samples': len(data_batch[0])}

        def look(self, data_loader, **kwargs):
            self.looked = True

    runner = Mine(Tiny(), max_iters=2)
    runner.run([loader(8), loader(8)], [('look', 1), ('train', 2)])
    assert runner.sizes == [4, 4]
    assert runner.looked


def test_hooks_and_models_of_a_users_file_register_by_being_imported(tmp_path, monkeypatch):
    (tmp_path / 'seed_plugin.py').write_text(
        'from runnerkit.hooks import HOOKS, Hook\nfrom runnerkit.nn import MODELS\nfrom torch import nn\n\n\n'
        "@HOOKS.register_module()\nclass SeedPluginHook(Hook):\n    '''A hook.'''\n\n\n"
        "@MODELS.register_module()\nclass SeedPluginNet(nn.Module):\n    '''A model.'''\n"
    )
    (tmp_path / 'cfg.py').write_text("custom_imports = dict(imports=['seed_plugin'])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from runnerkit.config import Config

    Config.fromfile(str(tmp_path / 'cfg.py'))
    assert 'SeedPluginHook' in HOOKS
    assert 'SeedPluginNet' in MODELS
