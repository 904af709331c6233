"""Values of a wrong type."""

import subprocess
import sys
from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.config.keys import wrong_values

RIGHT = {
    'seed': 0,
    'deterministic': False,
    'log_level': 'INFO',
    'load_from': Path('x.pth'),
    'total_epochs': 3,
    'optimizer': {
        'type': 'SGD',
        'lr': 1e-3,
        'nesterov': True,
        'betas': (0.9, 0.99),
        'paramwise_cfg': {'bias_lr_mult': 2, 'custom_keys': {'a.b': {'lr_mult': 0.1}}},
    },
    'optimizer_config': {'grad_clip': {'max_norm': 35, 'norm_type': 'inf'}, 'loss_scale': 'dynamic'},
    'lr_config': {'policy': 'step', 'step': [8, 11], 'warmup': 'linear', 'warmup_iters': 5, 'max_lr': [0.1, 0.2]},
    'momentum_config': {'policy': 'cyclic'},
    'runner': {'max_epochs': 3},
    'checkpoint_config': {'interval': -1},
    'log_config': {'interval': 5, 'hooks': [{'type': 'TextLoggerHook', 'interval': 3}, 'a/b.py:My', 'TextLoggerHook']},
    'evaluation': {'interval': 1, 'save_best': 'auto', 'rule': 'less'},
    'data': {'samples_per_gpu': 2, 'train': {'type': 'D'}, 'val_dataloader': {'shuffle': False}},
    'custom_hooks': [{'type': 'EMAHook'}],
    'dist_params': {'backend': 'nccl', 'port': '29500'},
    'model': {'type': 'Net', 'depth': 50, 'style': 'pytorch', 'pretrained': '0123e4567', 'extra': None},
}

#: Where a wrong value is put, the value, and what is said; `tests/wrong_inputs.txt` has the other keys.
WRONG = [
    (('log_config', 'hooks', 0, 'by_epoch'), 'no', 'Write False'),
]

#: The same for values that may be meant: warnings.
DOUBTFUL = [
    (('model', 'dropout'), '5e-1', 'Write 0.5'),
    (('data', 'train', 'scale'), '1e3', 'Write 1000.0'),
    (('custom_hooks', 0, 'flag'), 'false', 'Write False'),
]


def with_value(path, value):
    cfg = Config(RIGHT)
    node = cfg._cfg_dict
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return cfg


def test_right_values_pass():
    assert list(wrong_values(Config(RIGHT))) == []
    assert list(wrong_values(Config(dict.fromkeys(RIGHT)))) == []  # None: not set


@pytest.mark.parametrize(
    'section, theirs, ours, texts',
    [
        (
            'optimizer_config',
            {'type': 'MyHook', 'grad_clip': 0.1},
            {'type': 'OptimizerHook'},
            {'cumulative_iters': '4'},
        ),
        ('lr_config', {'policy': 'Mine', 'step': [0.5, 0.9], 'by_epoch': 'auto'}, {'policy': 'step'}, {'gamma': '.1'}),
        ('checkpoint_config', {'type': 'MyHook', 'interval': [1, 5]}, {'type': 'CheckpointHook'}, {'interval': '1'}),
    ],
)
def test_hooks_of_the_users_own_may_read_other_values(section, theirs, ours, texts):
    assert list(wrong_values({section: theirs})) == []
    assert len(list(wrong_values({section: {**theirs, **ours}}))) == len(theirs) - 1
    ((level, key),) = [(each.level, each.key) for each in wrong_values({section: {**theirs, **texts}})]
    assert (level, key) == ('error', f'{section}.{next(iter(texts))}')


def test_values_with_more_than_one_meaning():
    adafactor = {'type': 'Adafactor', 'eps': (None, 1e-3)}
    assert list(wrong_values({'optimizer': adafactor, 'data': {'train': {'classes': ['true', 'false']}}})) == []
    assert len(list(wrong_values({'optimizer': {**adafactor, 'eps': '1e-8'}}))) == 1


@pytest.mark.parametrize(
    'level, path, value, said',
    [('error', *case) for case in WRONG] + [('warning', *case) for case in DOUBTFUL],
    ids=lambda part: '.'.join(map(str, part)) if isinstance(part, tuple) else None,
)
def test_wrong_values_are_told(level, path, value, said):
    (finding,) = wrong_values(with_value(path, value))
    assert finding.level == level
    assert finding.key.startswith(str(path[0]))
    assert said in str(finding)


def test_each_optimizer_of_several():
    cfg = Config({'optimizer': {'G': {'type': 'Adam', 'lr': '1e-3'}, 'D': {'type': 'Adam', 'lr': 1e-3}}})
    (finding,) = wrong_values(cfg)
    assert (finding.level, finding.key) == ('error', 'optimizer.G.lr')


def test_what_yaml_reads_as_a_text_is_told_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('cfg.yaml').write_text(
        'optimizer:\n  type: SGD\n  lr: 1e-3\nrunner:\n  max_iters: 2e4\nmodel:\n  width: 1e2\n'
    )
    first, second, third = wrong_values(Config.fromfile('cfg.yaml'))
    assert (first.level, first.key, first.where) == ('error', 'optimizer.lr', 'cfg.yaml:3')
    assert 'Write lr: 1.0e-3; YAML' in first.way_out
    assert (second.where, second.way_out) == ('cfg.yaml:5', "Write 20000 in place of '2e4'.")
    assert (third.level, third.where) == ('warning', 'cfg.yaml:7')
    Path('cfg.yaml').write_text('optimizer:\n  lr: 1.0e-3\n')
    assert list(wrong_values(Config.fromfile('cfg.yaml'))) == []


def test_torch_is_not_needed():
    code = 'import sys, runnerkit.config.keys; print("torch" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'False'
