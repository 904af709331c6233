"""The checks of what few runs have: frozen parts, and the multipliers of ``paramwise_cfg``.

`test_hooks` has averages and captures.
"""

import pytest
import torch
from plans import plan, said, told
from support import tiny_runner

from runnerkit.flow.preflight import Plan
from runnerkit.flow.preflight.rare import multipliers_match

TINY = {'model': {'type': 'PlanTiny'}, 'evaluation': None}


def freezing(*patterns, **options):
    return {**TINY, 'custom_hooks': [{'type': 'FreezeHook', 'patterns': list(patterns), **options}]}


def paramwise(**options):
    return {'optimizer.weight_decay': 0.1, 'optimizer.paramwise_cfg': options}


def keys(pattern, **others):
    return paramwise(custom_keys={pattern: {'lr_mult': 0.1}, **others})


CYCLE = {'lr_config': {'policy': 'OneCycle', 'max_lr': 0.5}}
TORCH_CYCLE = {'lr_config': {'policy': 'OneCycleLR', 'max_lr': 0.5, 'total_steps': 3}}

CASES = [
    ('error', freezing('bodi.*'), 'custom_hooks[0].patterns', "'bodi.*' matches no parameter", freezing('body.*')),
    ('error', freezing('*'), 'custom_hooks[0].patterns', 'nothing would be trained',
     freezing('*', except_='head.*')),
    ('warning', freezing('body.*', until=3), 'custom_hooks[0].until', 'never reached', freezing('body.*', until=2)),
    ('warning', keys('backbone'), 'optimizer.paramwise_cfg.custom_keys.backbone', 'no parameter', keys('model.0')),
    ('warning', keys('model.0', model={'lr_mult': 1}, weight={'lr_mult': 2}, **{'model.1': {'lr_mult': 1}}),
     'optimizer.paramwise_cfg.custom_keys.weight', 'longer patterns', keys('weight')),
    ('warning', paramwise(norm_decay_mult=0), 'optimizer.paramwise_cfg.norm_decay_mult', 'no norm layer',
     {**TINY, 'optimizer.paramwise_cfg': {'norm_decay_mult': 0}}),
    ('warning', paramwise(dwconv_decay_mult=0), 'optimizer.paramwise_cfg.dwconv_decay_mult', 'depthwise',
     paramwise(dwconv_decay_mult=1)),
    ('warning', paramwise(dcn_offset_lr_mult=0), 'optimizer.paramwise_cfg.dcn_offset_lr_mult', 'deformable',
     paramwise(bias_lr_mult=2, bias_decay_mult=0)),
    ('warning', {**keys('model.0'), **CYCLE}, 'lr_config.max_lr', 'are lost', TORCH_CYCLE),
]  # fmt: skip


@pytest.mark.parametrize('level, wrong, key, words, right', CASES)
def test_wrong_and_right(level, wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), level, key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


def test_patterns_on_frozen_parameters(tmp_path):
    of = plan(tmp_path, TINY, keys('head'), keys('head'), {'model': {'type': 'PlanTiny'}})
    assert said(of) == []
    of.model.head.requires_grad_(False)
    ((where, text),) = said(of)
    assert where == ('warning', 'optimizer.paramwise_cfg.custom_keys.head')
    assert 'frozen' in text


def test_each_optimizer_of_several(tmp_path):
    wrong = {'optimizer': {'model': {'type': 'SGD', 'lr': 0.1, 'paramwise_cfg': {'custom_keys': {'0': {}, 'x': {}}}}}}
    assert [where for where, _ in said(plan(tmp_path, wrong))] == [
        ('warning', 'optimizer.model.paramwise_cfg.custom_keys.x')
    ]


def test_freezing_what_is_frozen(tmp_path):
    of = plan(tmp_path, freezing('body.*'))
    assert said(of) == []
    of.model.body.requires_grad_(False)
    assert told(of, 'warning', 'custom_hooks[0].patterns', 'do not require gradients anyway (body.0.bias')


@pytest.mark.parametrize('groups, told_at', [(1, ['optimizer.paramwise_cfg.dwconv_decay_mult']), (2, [])])
def test_depthwise_convolutions(groups, told_at):
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3, groups=groups), torch.nn.Linear(1, 1))
    model.train_step = lambda data, optimizer: {}
    runner = tiny_runner(model=model, max_epochs=1)
    cfg = {'optimizer': {'type': 'SGD', 'paramwise_cfg': {'dwconv_decay_mult': 0}}}
    assert [finding.key for finding in multipliers_match(Plan(cfg, runner))] == told_at
