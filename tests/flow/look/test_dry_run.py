"""What a dry run shows."""

import logging
import re
from types import SimpleNamespace

import pytest
import torch
from support import ROOT, tiny_runner

from runnerkit.cli.main import main
from runnerkit.flow.look.dry_run import DryRun, describe, sketch


def test_nested_batches_are_described():
    batch = {'img': torch.zeros(2, 3), 'meta': [('a', torch.ones(1, dtype=torch.int64))], 'n': 3}
    assert describe(batch) == [
        "  batch['img']: (2, 3) float32",
        "  batch['meta'][0][0]: str",
        "  batch['meta'][0][1]: (1,) int64",
        "  batch['n']: int",
    ]


def test_a_falling_rate_is_drawn_falling():
    lines = sketch([1.0, 0.5, 0.0], height=3).splitlines()
    assert [line[12:].rstrip() for line in lines[:3]] == ['*', ' *', '  *']
    assert 'iteration 0 … 2' in lines[-1]


def test_long_and_constant_schedules():
    assert max(len(line) for line in sketch([i / 1000 for i in range(1000)]).splitlines()) <= 72
    assert sketch([0.1] * 5).count('*') == 5


def shown(capsys, loader=range(5), **configs):
    """What a dry run prints about the schedules of ``configs``."""
    runner = tiny_runner(max_epochs=2)
    runner.register_training_hooks(**{'lr_config': None, **configs})
    context = SimpleNamespace(
        runner=runner,
        optimizer=runner.optimizer,
        loaders=[loader],
        workflow=[('train', 1)],
        logger=logging.getLogger('test'),
        rank=0,
    )
    DryRun(None).show_schedules(context)
    return capsys.readouterr().out


STEP_LR = {'policy': 'StepLR', 'step_size': 1, 'gamma': 0.5}


@pytest.mark.parametrize(
    ('configs', 'heads'),
    [
        ({}, ['Learning rate: no schedule']),
        ({'lr_config': STEP_LR}, ['Learning rate: StepLR']),
        (
            {'lr_config': STEP_LR, 'momentum_config': {'policy': 'step', 'step': [1]}},
            ['Learning rate: StepLR', 'Momentum: StepMomentumUpdaterHook'],
        ),
        (
            {'lr_config': {'policy': 'ReduceLROnPlateau', 'monitor': 'val/acc'}},
            [
                'ReduceLROnPlateau depends on val/acc, which is not known yet: not drawn',
                'Learning rate: no schedule',
            ],
        ),
    ],
)
def test_each_schedule_is_shown_under_its_own_name(capsys, configs, heads):
    lines = shown(capsys, **configs).splitlines()
    assert [line for line in lines if line[0].isalpha()] == heads


def test_what_is_drawn_is_the_schedule(capsys):
    lines = shown(capsys, lr_config=STEP_LR).splitlines()
    assert lines[1].split('|') == ['       0.1 ', '*****     ']
    assert lines[8].split('|') == ['      0.05 ', '     *****']


def test_nothing_to_draw(capsys):
    assert shown(capsys, iter([])) == 'Learning rate: not drawn, because the length of the loader is not known\n'
    nothing = SimpleNamespace(runner=None, optimizer=None, logger=logging.getLogger('test'), rank=0)
    DryRun(None).show_schedules(nothing)
    assert capsys.readouterr().out == 'Learning rate: none, as there is no optimizer\n'
    nothing.rank = 1
    DryRun(None).show_schedules(nothing)
    assert capsys.readouterr().out == ''


def test_the_loss_of_each_mode_is_that_of_its_own_batch():
    runner = tiny_runner(max_epochs=1)
    runner.outputs = {'loss': torch.tensor(7.0)}  # of an iteration before
    batch = torch.ones(2, 4), torch.ones(2, 1)
    expected = runner.model.eval().val_step(batch)['loss'].item()
    assert DryRun(None).one_iteration(SimpleNamespace(runner=runner), 'val', batch) == ([], f'{expected:.4f}')


STEPS = """
import torch


class Pair(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        self.own, self.G, self.D = own, torch.nn.Linear(13, 3), torch.nn.Linear(13, 3)

    def train_step(self, data, optimizer):
        x, y = data
        losses = {name: torch.nn.functional.cross_entropy(getattr(self, name)(x), y) for name in 'GD'}
        if not self.own:
            return dict(loss=losses, log_vars={}, num_samples=len(x))
        for name, loss in losses.items():
            optimizer[name].zero_grad()
            loss.backward()
            optimizer[name].step()
        return dict(log_vars=losses, num_samples=len(x))
"""


@pytest.mark.parametrize('own', [True, False])
def test_a_step_that_updates_itself_or_returns_several_losses(own, tmp_path, monkeypatch, capsys):
    (tmp_path / 'pair.py').write_text(STEPS)
    (tmp_path / 'config.py').write_text(f"""
model = dict(type='{{{{ fileDirname }}}}/pair.py:Pair', own={own})
data = dict(batch_size=16, train=dict(type='{ROOT}/configs/tabular/table.py:wines', part='train'))
optimizer = dict(G=dict(type='SGD', lr=0.1), D=dict(type='SGD', lr=0.1))
runner = dict(type='EpochBasedRunner', max_epochs=1)
""")
    taken = []
    monkeypatch.setattr(torch.optim.SGD, 'step', lambda *args, plain=torch.optim.SGD.step: taken.append(plain(*args)))
    assert main(['train', str(tmp_path / 'config.py'), '--dry-run', '--device', 'cpu']) == 0
    assert len(taken) == 2
    loss = r'none' if own else r'G \d\.\d{4}, D \d\.\d{4}'
    assert re.search(f'\nFirst losses: train {loss}\n', capsys.readouterr().out)
