"""What a run says about itself in one line, and about each evaluation and best checkpoint."""

import re
import sys

import pytest
import torch
from plans import CONFIG
from support import Noisy, loader, tiny_runner
from torch import nn

from runnerkit.config import Config
from runnerkit.flow import Flow, Options
from runnerkit.flow.stages.training import data_of, length_in_words, model_of
from runnerkit.hooks import EvalHook, TextLoggerHook

#: Lines about evaluations and checkpoints.
TOLD = re.compile(r'(?:Epoch|Iter)(?: \[.*evaluated|\(val\)).*|(?:New best|Now best|Saving).*')


def told(text):
    """What is said about evaluations and checkpoints, in order; the values of scores are left out."""
    return [re.sub(r'-?\d+\.\d+', '…', line) for line in TOLD.findall(text)]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, 'mmcv', raising=False)  # of a test before: then the lines are MMCV's

    def run(**changes):
        kind = changes.pop('logger', 'TextLoggerHook')
        hook = {'type': kind, 'by_epoch': changes.pop('logs_by_epoch', True)}
        quiet = {
            'log_config': {'interval': 99, 'hooks': [hook]},
            'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
        }
        cfg = Config({**CONFIG, 'seed': 1, **quiet, **changes})
        Flow(cfg, Options(work_dir=str(tmp_path / 'run'), device='cpu'), stages={'terminal': None}).run()
        (log,) = (tmp_path / 'run').glob('*.log')
        return told(capsys.readouterr().err), told(log.read_text())

    return run


def test_an_evaluation_and_a_new_best_are_a_line_each(run):
    said, logged = run(evaluation={'save_best': 'error'})
    assert said == [
        'Epoch [1] evaluated on val: loss …, error …',
        'New best error … (epoch 1), saved best_error_epoch_1.pth',
    ]
    assert logged == [*said, 'Saving checkpoint at 1 epochs']


class OwnLog(TextLoggerHook):
    def log(self, runner):
        """Nothing: the lines are written elsewhere."""


def test_a_new_best_is_told_where_a_logger_writes_lines_of_its_own(run):
    said, _ = run(evaluation={'save_best': 'error'}, logger=OwnLog)
    assert said == ['New best error … (epoch 1), saved best_error_epoch_1.pth']


def test_an_evaluation_inside_an_epoch_names_the_iteration(run):
    said, _ = run(evaluation={'interval': 2, 'by_epoch': False, 'save_best': 'error'})
    length = len(loader())
    assert said[0] == f'Epoch [1][2/{length}] evaluated on val: loss …, error …'
    assert said[1] == 'New best error … (iteration 2), saved best_error_iter_2.pth'


def test_of_an_iteration_runner_the_iterations_are_named(run):
    said, _ = run(evaluation={'interval': 2}, runner={'type': 'IterBasedRunner', 'max_iters': 4}, logs_by_epoch=False)
    assert said == [f'Iter [{done}] evaluated on val: loss …, error …' for done in (2, 4)]


def test_a_validation_of_the_workflow_has_the_same_line(run):
    said, _ = run(evaluation=None, workflow=[('train', 1), ('val', 1)])
    assert said == ['Epoch [1] evaluated on val: loss …, error …']


def test_a_runner_from_python_has_the_lines_of_mmcv(tmp_path, capsys):
    runner = tiny_runner(max_epochs=1, work_dir=tmp_path)
    runner.register_training_hooks(None, {}, {'interval': 1}, {'interval': 9, 'hooks': [{'type': 'TextLoggerHook'}]})
    runner.register_hook(EvalHook(loader(length=8), save_best='loss', rule='less'), priority='LOW')
    runner.run([loader()], [('train', 1)])
    said = told(capsys.readouterr().err)
    assert [line.partition(' ')[0] for line in said] == ['Now', 'Epoch(val)', 'Saving']
    assert said[2] == 'Saving checkpoint at 1 epochs'


def test_the_model_the_data_and_the_length_in_words():
    runner = tiny_runner(max_epochs=1)

    class Plan:
        optimizer = runner.optimizer

    Plan.runner = runner
    count = sum(each.numel() for each in runner.model.parameters())
    assert model_of(Plan) == f'Tiny ({count} parameters, SGD)'
    Plan.optimizer = {'G': runner.optimizer, 'D': None}
    assert model_of(Plan) == f'Tiny ({count} parameters, SGD G)'
    Plan.optimizer, runner.model = None, nn.LazyLinear(3)
    assert model_of(Plan) == 'LazyLinear (lazy parameters, no optimizer)'
    assert length_in_words(runner, [('train', 1), ('val', 1)]) == '1 epoch'
    assert length_in_words(tiny_runner('iter', max_iters=20), [('train', 1)]) == '20 iterations'
    two_phases = [('train_phase1', 1), ('val', 5), ('train_phase2', 1)]  # `epochs: 10` of PaddleRec
    runner = tiny_runner(max_epochs=20)
    assert length_in_words(runner, two_phases) == '20 epochs (the workflow 10 times)'
    assert length_in_words(runner, [('train', 1), ('train', 2)]) == '20 epochs'  # not a whole number of times
    assert data_of(loader()) == 'Noisy (20 samples, 5 batches)'
    assert data_of(torch.utils.data.DataLoader(Noisy(20), 4), batches=False) == 'Noisy (20 samples)'
