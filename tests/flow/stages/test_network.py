"""The second stage: what configs say about optimizer, runner and update."""

import logging
import re

import pytest
import torch
from support import loader, tiny_runner

from runnerkit.config import Config
from runnerkit.flow import Context, Network, Options
from runnerkit.flow.stages.defaults import optimizer_config, runner_config
from runnerkit.flow.stages.network import scaled_lr
from runnerkit.flow.stages.training import Runner
from runnerkit.hooks import GradientCumulativeOptimizerHook, OptimizerHook, ProfilerHook
from runnerkit.nn import Supervised


def test_the_linear_scaling_rule():
    cfg = Config(
        {
            'data': {'samples_per_gpu': 8},
            'auto_scale_lr': {'base_batch_size': 16},
            'optimizer': {'type': 'SGD', 'lr': 0.2},
        }
    )
    context = Context(cfg, world_size=4, logger=logging.getLogger('runnerkit'))
    config = scaled_lr(cfg.optimizer, cfg, context)
    assert (config['lr'], context.lr_scaled_for) == (pytest.approx(0.4), (8, 16))
    assert cfg.optimizer.lr == 0.2
    cfg.data.train_dataloader = {'batch_size': 4}
    assert scaled_lr(cfg.optimizer, cfg, context)['lr'] == pytest.approx(0.2)
    with pytest.raises(ValueError, match='--auto-scale-lr needs'):
        scaled_lr(cfg.optimizer, Config({}), context)


@pytest.mark.parametrize('enable, flag, lr', [(False, False, 0.2), (True, False, 0.4), (False, True, 0.4)])
def test_the_flag_or_the_config_scales_the_rate(enable, flag, lr):
    cfg = {'auto_scale_lr': {'enable': enable, 'base_batch_size': 1}, 'data': {'samples_per_gpu': 2}}
    cfg['optimizer'] = {'type': 'SGD', 'lr': 0.2}
    context = Context(Config(cfg), Options(auto_scale_lr=flag), model=torch.nn.Linear(1, 1))
    Network(None).build_optimizer(context)
    assert context.optimizer.param_groups[0]['lr'] == pytest.approx(lr)


def test_runner_configs():
    assert runner_config(Config({'runner': {'type': 'IterBasedRunner', 'max_iters': 3}})).max_iters == 3
    assert runner_config(Config({'total_epochs': 3})) == {'type': 'EpochBasedRunner', 'max_epochs': 3}
    with pytest.raises(KeyError, match="the config has no 'runner'"):
        runner_config(Config({}))


@pytest.mark.parametrize(
    'cfg, expected',
    [
        ({}, {}),
        ({'optimizer_config': None}, None),
        ({'optimizer_config': None, 'amp': 'bf16'}, None),
        ({'custom_hooks': [{'type': 'GradientCumulativeOptimizerHook'}]}, None),
        ({'optimizer_config': {'grad_clip': None}}, {'grad_clip': None}),
        ({'amp': 'bf16'}, {'amp': 'bf16'}),
        ({'optimizer_config': {'cumulative_iters': 2}, 'amp': 'fp16'}, {'cumulative_iters': 2, 'amp': 'fp16'}),
        ({'fp16': {}}, {'amp': 'fp16', 'loss_scale': 512.0}),
        ({'fp16': {'loss_scale': 'dynamic'}}, {'amp': 'fp16', 'loss_scale': 'dynamic'}),
    ],
)
def test_the_updates_config(cfg, expected):
    assert optimizer_config(Config(cfg)) == expected


def registered(cfg):
    """The optimizer hooks of a run with that config."""
    cfg = cfg if isinstance(cfg, Config) else Config(cfg)
    cfg.runner = {'type': 'EpochBasedRunner', 'max_epochs': 1}
    context = Context(cfg, model=Supervised(torch.nn.Linear(1, 1), torch.nn.MSELoss()))
    stage = Runner(context)
    stage.build_runner(context)
    stage.register_hooks(context)
    return [hook for hook in context.runner.hooks if isinstance(hook, OptimizerHook)]


def test_an_optimizer_implies_the_update():
    (hook,) = registered({'amp': 'bf16'})
    assert hook.gives_way
    assert hook.amp == 'bf16'
    assert hook.priority == 40
    (hook,) = registered({'optimizer_config': {}})
    assert not hook.gives_way


def test_a_custom_optimizer_hook_stays_alone():
    (hook,) = registered({'custom_hooks': [{'type': 'GradientCumulativeOptimizerHook', 'cumulative_iters': 2}]})
    assert isinstance(hook, GradientCumulativeOptimizerHook)
    (hook,) = registered({'custom_hooks': [{'type': GradientCumulativeOptimizerHook}]})
    assert isinstance(hook, GradientCumulativeOptimizerHook)


def test_none_means_no_update():
    assert registered({'optimizer_config': None, 'amp': 'bf16'}) == []
    assert len(registered({})) == 1


def test_weights_follow_from_the_seed_alone():
    cfg = Config(
        {
            'model': {
                'type': 'Supervised',
                'model': {'type': 'Linear', 'in_features': 2, 'out_features': 1},
                'loss': {'type': 'MSELoss'},
            }
        }
    )
    weights = []
    for draws in (0, 7):
        torch.rand(draws)
        context = Context(cfg, Options(), seed=3)
        Network(None).build_model(context)
        weights.append(context.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize('diff_seed', [False, True])
def test_processes_draw_apart_if_asked_to_but_begin_with_the_same_weights(diff_seed, monkeypatch):
    model = {'type': 'Linear', 'in_features': 2, 'out_features': 1}
    cfg = Config({'model': {'type': 'Supervised', 'model': model, 'loss': {'type': 'MSELoss'}}})
    weights, draws = [], []
    for rank in ('0', '1'):
        monkeypatch.setenv('RANK', rank)
        context = Context(cfg, Options(diff_seed=diff_seed), seed=3)
        Network(None).build_model(context)
        weights.append(context.model.state_dict())
        draws.append(torch.rand(1).item())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (draws[0] != draws[1]) is diff_seed


def test_the_config_of_the_profiler(tmp_path):
    linear = {'type': 'Linear', 'in_features': 2, 'out_features': 1}
    cfg = Config(
        {
            'model': {'type': 'Supervised', 'model': linear, 'loss': {'type': 'MSELoss'}},
            'optimizer': {'type': 'SGD', 'lr': 0.1},
            'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
            'profiler_config': {'profile_iters': 3, 'by_epoch': False, 'with_flops': True},
        }
    )
    context = Context(cfg, work_dir=tmp_path)
    Network(None).build_model(context)
    Network(None).build_optimizer(context)
    Runner(None).build_runner(context)
    Runner(None).register_hooks(context)
    hook = next(hook for hook in context.runner.hooks if isinstance(hook, ProfilerHook))
    assert (hook.profile_iters, hook.by_epoch, hook.with_flops) == (3, False, True)


# What a section is, the stage's method that reads it, and a word of the message.
SECTIONS = {
    'model = 3': (Network.build_model, 'model: cfg must be a dict'),
    'optimizer = 3': (Network.build_optimizer, 'the optimizer is given as a dict'),
    'runner = 3': (Runner.build_runner, 'runner must be a dict such as'),
    "runner = dict(type='EpochBasedRunner', max_epochs='x')": (Runner.build_runner, 'max_epochs must be'),
    "lr_config = dict(policy='stp')": (Runner.register_hooks, "there is no policy 'stp'"),
    "momentum_config = dict(policy='stp')": (Runner.register_hooks, "there is no policy 'stp'"),
    'optimizer_config = dict(grad_clp=3)': (Runner.register_hooks, 'grad_clp'),
    "checkpoint_config = dict(interval='x')": (Runner.register_hooks, 'interval'),
    'log_config = dict(intervall=3)': (Runner.register_hooks, 'intervall'),
    "log_config = dict(hooks=[dict(type='Nope')])": (Runner.register_hooks, 'Nope is not in the hook registry'),
    "timer_config = dict(type='Nope')": (Runner.register_hooks, 'Nope is not in the hook registry'),
    "evaluation = dict(save_best='a', rule='x')": (Runner.register_hooks, 'evaluation: rule must be greater'),
    "custom_hooks = [dict(type='EMAHook', priority='LOWW')]": (Runner.register_hooks, "no priority named 'LOWW'"),
    "profiler_config = dict(type='Nope')": (Runner.register_hooks, 'Nope is not in the hook registry'),
}


@pytest.mark.parametrize('line', SECTIONS)
def test_an_error_of_any_section_names_its_file_and_line(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text(f'x = 1\n{line}\n')
    call, text = SECTIONS[line]
    runner = tiny_runner(max_epochs=1)
    val_loader = loader(4) if 'evaluation' in line else None
    context = Context(Config.fromfile('cfg.py'), model=runner.model, runner=runner, val_loader=val_loader)
    with pytest.raises(Exception, match=re.escape(text)) as caught:
        call(Network(None) if call.__qualname__.startswith('Network') else Runner(None), context)
    assert str(caught.value).count('cfg.py:2)') == 1
