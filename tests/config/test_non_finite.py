"""Numbers of a config that are NaN or infinite: refused, unless the key's meaning allows them."""

import math

import pytest

from runnerkit.config import Config, PreflightError
from runnerkit.config.keys import wrong_values
from runnerkit.flow.preflight import Plan, preflight

NAN, INF = math.nan, math.inf

#: Settings, and which of their numbers are refused.
REFUSED = [
    ({'optimizer': {'type': 'SGD', 'lr': NAN}}, 'optimizer.lr'),
    ({'optimizer': {'type': 'SGD', 'lr': INF}}, 'optimizer.lr'),
    ({'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': NAN}}, 'optimizer.momentum'),
    ({'optimizer': {'type': 'SGD', 'lr': 0.1, 'weight_decay': NAN}}, 'optimizer.weight_decay'),
    ({'optimizer': {'G': {'type': 'SGD', 'lr': -INF}}}, 'optimizer.G.lr'),
    ({'optimizer': {'type': 'Adam', 'betas': (0.9, NAN)}}, 'optimizer.betas[1]'),
    ({'optimizer': {'type': 'Adam', 'betas': ('high', NAN)}}, 'optimizer.betas'),
    ({'optimizer': {'type': 'Mine', 'growth': NAN}}, 'optimizer.growth'),
    (
        {'optimizer': {'type': 'SGD', 'paramwise_cfg': {'custom_keys': {'a.b': {'lr_mult': INF}}}}},
        'optimizer.paramwise_cfg.custom_keys.a.b.lr_mult',
    ),
    ({'optimizer_config': {'grad_clip': {'max_norm': NAN}}}, 'optimizer_config.grad_clip.max_norm'),
    (
        {'optimizer_config': {'grad_clip': {'max_norm': 1.0, 'norm_type': NAN}}},
        'optimizer_config.grad_clip.norm_type',
    ),
    ({'fp16': {'loss_scale': INF}}, 'fp16.loss_scale'),
    ({'lr_config': {'policy': 'poly', 'min_lr': NAN}}, 'lr_config.min_lr'),
    ({'lr_config': {'policy': 'fixed', 'warmup': 'linear', 'warmup_ratio': NAN}}, 'lr_config.warmup_ratio'),
    ({'lr_config': {'policy': 'cyclic', 'target_ratio': [10, NAN]}}, 'lr_config.target_ratio[1]'),
    ({'momentum_config': {'policy': 'step', 'gamma': INF}}, 'momentum_config.gamma'),
    ({'custom_hooks': [{'type': 'EMAHook', 'momentum': NAN}]}, 'custom_hooks[0].momentum'),
    ({'dist_params': {'hang_after': INF}}, 'dist_params.hang_after'),
    ({'data': {'timeout': INF}}, 'data.timeout'),
    ({'checkpoint_config': {'interval': NAN}}, 'checkpoint_config.interval'),
    ({'runner': {'max_epochs': INF}}, 'runner.max_epochs'),
]


def found(config):
    cfg = Config(config)
    return list(wrong_values(cfg))


@pytest.mark.parametrize(('config', 'key'), REFUSED)
def test_refused_once(config, key):
    [finding] = found(config)
    assert (finding.level, finding.key) == ('error', key)
    assert 'nan' in finding.what or 'inf' in finding.what


@pytest.mark.parametrize(
    'config',
    [
        {'optimizer_config': {'grad_clip': {'max_norm': INF, 'norm_type': INF}}},
        {'optimizer_config': {'grad_clip': {'max_norm': 1.0, 'norm_type': 'inf'}}},
        {'model': {'type': 'Head', 'ranges': ((-1, 64), (64, INF))}},
        {'data': {'train': {'type': 'D', 'pipeline': [{'type': 'Clip', 'high': INF}]}}},
        {'mine': INF},
    ],
)
def test_what_may_be_infinite(config):
    assert found(config) == []


@pytest.mark.parametrize(
    ('config', 'key'),
    [
        ({'model': {'type': 'Head', 'ranges': ((0, NAN),)}}, 'model.ranges[0][1]'),
        ({'data': {'train': {'type': 'D', 'fill': NAN}}}, 'data.train.fill'),
        ({'mine': [NAN]}, 'mine[0]'),
        ({'optimizer': {'type': 'Prodigy', 'growth_rate': INF}}, 'optimizer.growth_rate'),
        ({'custom_hooks': [{'type': 'Mine', 'limit': INF}]}, 'custom_hooks[0].limit'),
    ],
)
def test_what_classes_of_the_user_read_is_a_warning(config, key):
    [finding] = found(config)
    assert (finding.level, finding.key) == ('warning', key)


@pytest.mark.parametrize('text', ['nan', '.nan', 'inf', '-.inf'])
def test_a_file_and_a_command_line_are_read_alike(tmp_path, text):
    path = tmp_path / 'cfg.yaml'
    path.write_text(f'optimizer:\n  type: SGD\n  lr: {text}\n')
    with pytest.raises(PreflightError, match=r'optimizer.lr \(.*cfg.yaml:3\)'):
        preflight(Plan(cfg=Config.fromfile(path)))
    cfg = Config({'optimizer': {'type': 'SGD', 'lr': 0.1}})
    cfg.merge_from_dict({'optimizer.lr': float(text.replace('.', ''))})
    with pytest.raises(PreflightError, match=r'optimizer.lr'):
        preflight(Plan(cfg=cfg))


def test_a_text_that_is_not_finite_is_not_suggested():
    [finding] = found({'optimizer': {'type': 'SGD', 'lr': 'nan'}})
    assert finding.way_out == 'Give a number, or leave lr out.'
