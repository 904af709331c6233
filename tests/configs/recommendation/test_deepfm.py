"""The config in PaddleRec's shape: one command trains and evaluates every checkpoint."""

import json

import pytest
import torch
from support import ROOT

from runnerkit.cli.train import main

FILE = ROOT / 'configs/recommendation/deepfm.yaml'


@pytest.mark.thorough  # the page about the five stages trains one
def test_three_of_its_epochs_pass_the_bar(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(FILE), '--cfg-options', 'runner.0.epochs=3']) == 0
    said = capsys.readouterr()
    assert 'WARNING' not in said.err
    assert 'initialised the weights of 2602 users and films from 90000 ratings' in said.err
    infer = tmp_path / 'work_dirs/deepfm/infer_runner'
    scores = json.loads((infer / 'scores.json').read_text())
    assert [each['epoch'] for each in scores] == [1, 2, 3]
    assert scores[-1]['auc'] > 0.774  # counting alone, in the startup, gives 0.767
    assert (infer / 'scores.png').exists()
    saved = torch.load(tmp_path / 'work_dirs/deepfm/train_runner/epoch_3.pth', weights_only=True)
    assert saved['meta']['iter'] == 3 * 352
    assert {path.name for path in (infer.parent / 'train_runner/code').rglob('*.py')} == {
        'deepfm_startup.py', 'model.py', 'reader.py', 'ratings.py'
    }  # fmt: skip
